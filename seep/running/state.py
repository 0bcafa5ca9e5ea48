"""What an operator remembers, as a table its user understands.

State is saved in the form that partitions and merges well, not in one that reads well. So whoever looks gets it from
the operator itself: a fresh one is loaded with the checkpoints of all partitions (their keys are disjoint) and asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from seep.errors import Misuse
from seep.flow.fused import FusedLogic
from seep.model.arrow import ArrowState
from seep.partition.contract import Graph
from seep.runtime.job import JobDirectory
from seep.state.checkpoint import Checkpoint
from seep.state.codec import DamagedError


def check_operator(graph: Graph, operator: str) -> None:
    """Refuse what has no state to look at."""
    operators = [node.name for node in graph.nodes.values() if node.kind == "operator"]
    if operator not in operators:
        kind = graph.nodes[operator].kind if operator in graph.nodes else ""
        problem = f"{operator!r} is a {kind} and keeps no state" if kind else f"no operator {operator!r}"
        raise Misuse(f"{problem}; operators are: {', '.join(operators) or 'none'}")


def saved_graph(path: Path) -> Graph:
    """The flow of the job in this directory, by the code that it runs."""
    try:
        directory = JobDirectory(path)
        directory.import_as_started()
        return directory.graph(directory.codes())
    except FileNotFoundError:
        raise Misuse(f"there is no job in {path}; is SEEP_HOME the directory that it was started with?") from None
    except DamagedError as error:
        raise Misuse(f"the job in {path} cannot be read: {error}; is its key the one it had?") from error
    except (ImportError, AttributeError) as error:
        raise Misuse(f"the code of the job in {path} cannot be loaded: {error}; is it on PYTHONPATH?") from error


def state_table(graph: Graph, operator: str, checkpoints: Iterable[Checkpoint]) -> pa.Table:
    """Key columns by name, then values; rows by (bucket, time, key), however the operator is partitioned."""
    logic: FusedLogic = graph.nodes[operator].make()
    for checkpoint in checkpoints:
        if isinstance(checkpoint.state, ArrowState):
            logic.load(checkpoint.state)
    content = logic.content()
    # Columns that the plan added for its own use.
    hidden = [name for name in content.schema.names if name.startswith("__")]
    return pa.Table.from_batches([content]).drop_columns(hidden)
