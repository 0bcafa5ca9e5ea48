"""The public face: every name is loaded when it is first used.

``import seep`` stays light (no Arrow, Polars, Spark or Ray), so that the command line and worker start-up pay only for
what they touch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "seep.flow.build": ("Flow",),
    "seep.flow.stream": ("Stream",),
    "seep.flow.table": ("Table",),
    "seep.flow.windows": ("tumbling",),
    "seep.connectors.memory": ("MemorySink", "MemorySource"),
    "seep.connectors.generator": ("GeneratorSource",),
    "seep.connectors.files": ("FileSource",),
    "seep.connectors.filesink": ("FileSink",),
    "seep.connectors.console": ("ConsoleSink",),
    "seep.running": ("run", "start"),
    "seep.errors": ("Bug", "DataLoss", "Fenced", "Misuse", "Rebuild", "Retry", "SeepError"),
    "operators.aggregates": ("count", "maximum", "mean", "minimum", "total"),
    "operators.apply": ("Operator",),
    "operators.states": ("CounterState", "ListState", "MapState", "SetState", "ValueState"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'seep' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
