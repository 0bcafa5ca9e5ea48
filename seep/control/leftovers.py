"""What the store may forget when the journal has changed."""

from __future__ import annotations

from collections.abc import Iterator

from seep.model.ids import FOREVER, Generation, PartitionId
from seep.partition.contract import Graph
from seep.protocol.effects import DropCheckpoints, Truncate
from seep.protocol.journal import Journal


def leftovers(graph: Graph, before: Journal, after: Journal) -> Iterator[DropCheckpoints | Truncate]:
    """Of partitions that are gone and that none starts from: checkpoints, epoch logs. Committed logs stay."""
    last = Generation(after.term, FOREVER)
    for partition in sorted(_used(before) - _used(after)):
        kind = graph.nodes[partition.operator].kind
        if kind == "operator":
            yield DropCheckpoints(partition, last, FOREVER)
        elif kind == "source":
            yield Truncate(partition, last, FOREVER)


def _used(journal: Journal) -> set[PartitionId]:
    return set(journal.entries) | {p for e in journal.entries.values() for p, _ in e.base}
