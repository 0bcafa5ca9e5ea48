"""What a throughput benchmark is made of: rows, a flow over them, and the same question put to Polars and DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl
import pyarrow as pa

import seep
from benchmarks.looped import SPLITS, Block, Looped

LAP_US = 20_000_000
"""A multiple of every window, slide and gap used here: then all laps but the first and last give the same results,
only later."""
WORKERS = 2
Frames = Mapping[str, pl.LazyFrame]


@dataclass(frozen=True)
class Workload:
    name: str
    about: str
    rows: int
    """Of one source, as an engine gets them that takes the whole data at once."""
    lap_rows: int
    """Of one split of one source."""
    blocks: Mapping[str, Block]
    """By source."""
    build: Callable[[Mapping[str, seep.Stream]], Any]
    """From the sources' streams to the results."""
    answer: Callable[[Frames], pl.LazyFrame]
    sql: str
    """The answer in DuckDB; a table for each source."""
    columns: tuple[str, ...]
    """Of a result, in the order in which they are digested: strings, then numbers and times."""
    time: str | None = None
    """The column that places a result in time; None: results are a Table, known at the end."""
    reach_us: int = 0
    """So far before or after its own time a row may matter to a result."""
    keys: tuple[str, ...] = ()
    """Of the Table."""
    repeated: Callable[[pl.LazyFrame], pl.LazyFrame] | None = None
    """The Table's answer, from rows that came `times` times each."""
    lateness: str = "2s"
    settings: Mapping[str, Any] = field(default_factory=dict)
    keyed: Callable[[int], Workload] | None = None
    """The same over so many keys."""

    def with_lap(self, lap_rows: int) -> Workload:
        """The same over smaller blocks."""
        return replace(self, lap_rows=lap_rows)

    def looped(self, source: str, seed: int, split_rows: int | None = None, rate: float | None = None) -> Looped:
        return Looped(self.blocks[source], self.lap_rows, LAP_US, seed, split_rows, rate)

    def flow(
        self,
        sources: Mapping[str, Looped],
        sink: Any,
        epoch: str = "50ms",
        checkpoint: str = "5s",
        workers: int = WORKERS,
    ) -> seep.Flow:
        """Sources and operators, each in as many partitions as there are workers (no more than the source's splits),
        with a shuffle between them."""
        flow = seep.Flow(self.name, epoch=epoch, checkpoint=checkpoint)
        streams = {}
        for name, source in sources.items():
            timed: dict[str, Any] = {"time": "at", "lateness": self.lateness} if self.time is not None else {}
            streams[name] = flow.source(name, source, **timed).scale(start=min(workers, source.splits))
        results = self.build(streams).named("results").scale(start=workers)
        (results.changes() if self.keys else results).sink("out", sink)
        return flow

    def frames(self, rows: int, seed: int) -> dict[str, pa.Table]:
        """The first rows of each source, as many of each split."""
        found = {}
        for name in self.blocks:
            source = self.looped(name, seed)
            found[name] = pa.Table.from_batches([source.record(split, 0, rows // SPLITS) for split in range(SPLITS)])
        return found
