"""The sink of the benchmarks: each committed epoch becomes a file, and the moment it was seen a line in a log.

A sink may publish an epoch twice (again after a restart): a file that is there is left alone, the log gets a second
line. The clock is CLOCK_MONOTONIC, which all processes of a machine share, so the driver can subtract.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from seep.connectors.contract import Committed, Opening, Publish
from seep.model.arrow import BUCKET

LOG = "arrivals"
LINE = np.dtype(
    [("at_ns", np.int64), ("epoch", np.int64), ("low", np.int64), ("newest", np.int64), ("ended", np.int64)]
)
"""low: the lowest origin bucket of the record (-1: no rows); newest: the greatest number in the column `newest`."""


class Arrival(NamedTuple):
    at_ns: int
    epoch: int
    low: int
    newest: int
    ended: int


@dataclass(frozen=True)
class ArrivalSink:
    """`keep`: write the rows to files; else only what is needed to count them."""

    path: Path
    keep: bool = True

    kind = "arrivals"

    def open(self, opening: Opening) -> Publish:
        self.path.mkdir(parents=True, exist_ok=True)
        return self.publish

    def publish(self, commits: Sequence[Committed]) -> int:
        for commit in commits:
            self._note(*commit)
        return commits[-1].epoch

    def _note(self, epoch: int, record: pa.RecordBatch | None, ended: bool) -> None:
        low = newest = -1
        if record is not None and record.num_rows:
            low = record.column(BUCKET)[0].as_py()
            if "newest" in record.schema.names:
                newest = int(record.column("newest").to_numpy().max())
            target = file_of(self.path, epoch, low)
            if self.keep and not target.exists():
                self._write(target, record)
        line = np.array([(time.monotonic_ns(), epoch, low, newest, int(ended))], LINE).tobytes()
        descriptor = os.open(self.path / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def _write(self, target: Path, record: pa.RecordBatch) -> None:
        neighbour = target.with_suffix(f".{os.getpid()}")
        with pa.OSFile(str(neighbour), "wb") as file, pa.ipc.new_stream(file, record.schema) as writer:
            writer.write_batch(record)
        neighbour.rename(target)


def file_of(path: Path, epoch: int, low: int) -> Path:
    return path / f"{epoch:09d}-{low:04d}.arrow"


class Tail:
    """The log of arrivals, read as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path / LOG
        self._end = 0

    def news(self) -> list[Arrival]:
        """What was added since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._end)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = len(data) // LINE.itemsize * LINE.itemsize
        self._end += whole
        return [Arrival(*line) for line in np.frombuffer(data[:whole], LINE).tolist()]


def read_file(path: Path) -> pa.RecordBatch:
    with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as reader:
        return reader.read_next_batch()


def epochs_of(path: Path) -> Iterator[tuple[int, int, Path]]:
    """(epoch, lowest bucket, file), in order."""
    for file in sorted(path.glob("*.arrow")):
        epoch, low = file.stem.split("-")
        yield int(epoch), int(low), file
