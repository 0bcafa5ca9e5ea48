"""The public face: every name is loaded when it is first used.

``import seep`` stays light (no Arrow, Polars, Spark or Ray), so that the command line and worker start-up pay only for
what they touch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # What type checkers and editors see; a test holds it equal to the table below.
    from operators.aggregates import count as count
    from operators.aggregates import distinct as distinct
    from operators.aggregates import first as first
    from operators.aggregates import last as last
    from operators.aggregates import maximum as maximum
    from operators.aggregates import mean as mean
    from operators.aggregates import median as median
    from operators.aggregates import minimum as minimum
    from operators.aggregates import quantile as quantile
    from operators.aggregates import rows as rows
    from operators.aggregates import top as top
    from operators.aggregates import total as total
    from operators.aggregates import variance as variance
    from operators.apply import Operator as Operator
    from operators.batch_operator import BatchOperator as BatchOperator
    from operators.custom import Aggregate as Aggregate
    from operators.custom import BatchAggregate as BatchAggregate
    from operators.states import CounterState as CounterState
    from operators.states import ListState as ListState
    from operators.states import MapState as MapState
    from operators.states import SetState as SetState
    from operators.states import ValueState as ValueState
    from operators.table_state import TableState as TableState
    from seep import testing as testing
    from seep.connectors.console import ConsoleSink as ConsoleSink
    from seep.connectors.files import FileSource as FileSource
    from seep.connectors.filesink import FileSink as FileSink
    from seep.connectors.generator import GeneratorSource as GeneratorSource
    from seep.connectors.httpsink import HttpSink as HttpSink
    from seep.connectors.kafka.sink import KafkaSink as KafkaSink
    from seep.connectors.kafka.source import KafkaSource as KafkaSource
    from seep.connectors.memory import MemorySink as MemorySink
    from seep.connectors.memory import MemorySource as MemorySource
    from seep.connectors.own import Sink as Sink
    from seep.connectors.own import Source as Source
    from seep.connectors.received.http import HttpSource as HttpSource
    from seep.connectors.received.lines import SocketSource as SocketSource
    from seep.connectors.redis.sink import RedisSink as RedisSink
    from seep.connectors.redis.source import RedisStreamSource as RedisStreamSource
    from seep.errors import Bug as Bug
    from seep.errors import DataLoss as DataLoss
    from seep.errors import Fenced as Fenced
    from seep.errors import Misuse as Misuse
    from seep.errors import Rebuild as Rebuild
    from seep.errors import Retry as Retry
    from seep.errors import SeepError as SeepError
    from seep.flow.build import Flow as Flow
    from seep.flow.stream import Stream as Stream
    from seep.flow.table import Table as Table
    from seep.flow.windows import count_window as count_window
    from seep.flow.windows import every as every
    from seep.flow.windows import session as session
    from seep.flow.windows import sliding as sliding
    from seep.flow.windows import tumbling as tumbling
    from seep.running import run as run
    from seep.running import start as start

_HOMES = {
    "seep.flow.build": ("Flow",),
    "seep.flow.stream": ("Stream",),
    "seep.flow.table": ("Table",),
    "seep.flow.windows": ("count_window", "every", "session", "sliding", "tumbling"),
    "seep.connectors.memory": ("MemorySink", "MemorySource"),
    "seep.connectors.generator": ("GeneratorSource",),
    "seep.connectors.files": ("FileSource",),
    "seep.connectors.filesink": ("FileSink",),
    "seep.connectors.console": ("ConsoleSink",),
    "seep.connectors.kafka.sink": ("KafkaSink",),
    "seep.connectors.kafka.source": ("KafkaSource",),
    "seep.connectors.own": ("Sink", "Source"),
    "seep.connectors.received.http": ("HttpSource",),
    "seep.connectors.received.lines": ("SocketSource",),
    "seep.connectors.httpsink": ("HttpSink",),
    "seep.connectors.redis.sink": ("RedisSink",),
    "seep.connectors.redis.source": ("RedisStreamSource",),
    "seep.running": ("run", "start"),
    "seep.errors": ("Bug", "DataLoss", "Fenced", "Misuse", "Rebuild", "Retry", "SeepError"),
    "operators.aggregates": (
        "count",
        "distinct",
        "first",
        "last",
        "maximum",
        "mean",
        "median",
        "minimum",
        "quantile",
        "rows",
        "top",
        "total",
        "variance",
    ),
    "operators.apply": ("Operator",),
    "operators.custom": ("Aggregate", "BatchAggregate"),
    "operators.batch_operator": ("BatchOperator",),
    "operators.states": ("CounterState", "ListState", "MapState", "SetState", "ValueState"),
    "operators.table_state": ("TableState",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name == "testing":
        return import_module("seep.testing")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'seep' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
