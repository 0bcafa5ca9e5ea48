"""What a flow has committed, read from the logs of its sinks: `collect` and `MemorySink` give it back by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from seep.flow.outlet import result_table
from seep.model.ids import PartitionId
from seep.partition.contract import Graph
from seep.protocol.effects import ReadLog, StoreReply
from seep.protocol.journal import Journal

Perform = Callable[[Any], StoreReply | None]


class Result(Mapping[str, pa.Table]):
    """A pyarrow.Table for each collected name.

    >>> import seep
    >>> flow = seep.Flow("words")
    >>> words = flow.source("words", seep.MemorySource([{"word": "a"}, {"word": "b"}, {"word": "a"}]))
    >>> words.key_by("word").aggregate(n=seep.count()).collect("counts")
    >>> sorted(seep.run(flow)["counts"].to_pylist(), key=lambda row: row["word"])
    [{'word': 'a', 'n': 2}, {'word': 'b', 'n': 1}]
    """

    def __init__(self, tables: Mapping[str, pa.Table], dead_letters: int | None = None) -> None:
        self._tables = dict(tables)
        self.dead_letters = dead_letters
        """Of an inline run: how many dead letters no stream of the flow has taken. (A job counts them in its audit.)"""

    def __getitem__(self, name: str) -> pa.Table:
        if name not in self._tables:
            raise KeyError(f"{name!r} was not collected; collected are: {', '.join(self._tables) or 'none'}")
        return self._tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def __repr__(self) -> str:
        parts = [f"{name}: {table.num_rows} rows" for name, table in self._tables.items()]
        return f"Result({', '.join([*parts, *([f'dead letters: {self.dead_letters}'] if self.dead_letters else [])])})"


def collected(graph: Graph, journal: Journal, perform: Perform, dead_letters: int | None = None) -> Result:
    """From the committed logs of every partition a sink ever had."""
    tables: dict[str, pa.Table] = {}
    for node in graph.nodes.values():
        settings = node.settings or {}
        if settings.get("sink") == "memory":
            tables[node.name] = result_table(settings, records_of(node.name, journal, perform))
    return Result(tables, dead_letters)


def records_of(sink: str, journal: Journal, perform: Perform) -> list[tuple[int, Any]]:
    """(epoch, record) of all its partitions, in epoch order."""
    records: list[tuple[int, Any]] = []
    for number in range(journal.next_number.get(sink, 0)):
        reply = perform(ReadLog(0, PartitionId(sink, number)))
        records.extend((epoch, record) for epoch, (_, record) in (reply.value if reply and reply.value else ()))
    return sorted(records, key=lambda record: record[0])
