"""The sink of the throughput benchmarks: reads every value, keeps a digest, and notes when each epoch arrived.

Of a Table the last row of each key counts, so the rows of its changes are kept (compacted now and then) and digested
at the end of the input. The clock is CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from benchmarks.digest import Digest, digest
from seep.connectors.contract import Committed, Opening, Publish
from seep.model.arrow import BUCKET

LOG = "arrivals"
LINE = np.dtype(
    [
        ("at_ns", np.int64),
        ("epoch", np.int64),
        ("low", np.int64),
        ("rows", np.int64),
        ("total", np.uint64),
        ("newest_us", np.int64),
        ("ended", np.int64),
    ]
)
COMPACT_EPOCHS = 50


class Arrival(NamedTuple):
    """`low`: the lowest origin bucket (-1: no rows); `rows`, `total`: the digest; `newest_us`: the latest result."""

    at_ns: int
    epoch: int
    low: int
    rows: int
    total: int
    newest_us: int
    ended: int


@dataclass(frozen=True)
class DigestSink:
    path: Path
    columns: tuple[str, ...]
    keys: tuple[str, ...] = ()
    """Of a Table; none: every row counts."""
    time: str | None = None
    """The column that places a result in time."""

    kind = "digest"

    def open(self, opening: Opening) -> Publish:
        self.path.mkdir(parents=True, exist_ok=True)
        return _Opened(self).publish


class _Opened:
    def __init__(self, sink: DigestSink) -> None:
        self.sink = sink
        self._kept: list[pl.DataFrame] = []

    def publish(self, commits: Sequence[Committed]) -> int:
        for commit in commits:
            self._note(*commit)
        return commits[-1].epoch

    def _note(self, epoch: int, record: pa.RecordBatch | None, ended: bool) -> None:
        low, newest_us, found = -1, -1, Digest()
        if record is not None and record.num_rows:
            low = record.column(BUCKET)[0].as_py()
            if self.sink.time is not None:
                newest_us = int(record.column(self.sink.time).cast(pa.int64()).to_numpy().max())
            if self.sink.keys:
                self._keep(record)
            else:
                found = digest([record.column(name) for name in self.sink.columns])
        if ended and self._kept:
            last = self._last().select(self.sink.columns).rechunk().to_arrow().combine_chunks()
            found = digest([column.combine_chunks() for column in last.columns])
        line = (time.monotonic_ns(), epoch, low, found.rows, found.total, newest_us, int(ended))
        descriptor = os.open(self.sink.path / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, np.array([line], LINE).tobytes())
        finally:
            os.close(descriptor)

    def _keep(self, record: pa.RecordBatch) -> None:
        frame = pl.from_arrow(record.select(list(self.sink.columns)))
        assert isinstance(frame, pl.DataFrame)
        self._kept.append(frame)
        if len(self._kept) > COMPACT_EPOCHS:
            self._kept = [self._last()]

    def _last(self) -> pl.DataFrame:
        return pl.concat(self._kept).group_by(list(self.sink.keys)).last()


def read_arrivals(path: Path) -> list[Arrival]:
    """In order of epochs. What was published twice is there once."""
    try:
        lines = np.frombuffer((path / LOG).read_bytes(), LINE).tolist()
    except FileNotFoundError:
        return []
    known: dict[tuple[int, int, int], Arrival] = {}
    for line in lines:
        arrival = Arrival(*line)
        known.setdefault((arrival.epoch, arrival.low, arrival.ended), arrival)
    return [known[key] for key in sorted(known)]


def digest_of(arrivals: Iterable[Arrival]) -> Digest:
    found = Digest()
    for arrival in arrivals:
        found = found.plus(Digest(arrival.rows, arrival.total))
    return found
