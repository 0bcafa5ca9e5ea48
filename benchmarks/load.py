"""The load of the fault benchmarks: rows whose every effect at the sink can be computed without the flow.

    rows --key--> first: n, total, newest by key --re-keyed--> second: changes, n, total, counted by other --> out

`other` is a one-to-one function of `key`, with another hash: each change of `first` goes through a real shuffle and
gives exactly one row at the sink. So of each key's rows at the sink every one is known: `changes` counts 1, 2, 3, ...
(a gap is a loss, a repetition a duplicate), `n` rows of the key have the sum `total`, `counted` adds up the n's. None
of this depends on where epochs were cut. A key belongs to one split of the source, so its order is that of its split.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

import seep
from benchmarks.outcome import Options
from seep.connectors.contract import Rows
from seep.connectors.generator import BLOCK_ROWS, SPLITS
from seep.model.duration import microseconds
from seep.model.ids import BUCKETS
from seep.model.keyspace import buckets_of

FIRST, SECOND, SOURCE, SINK = "first", "second", "rows", "out"
FACTOR, OFFSET = 7, 3
READ_ROWS = 10_000
"""Of one split for one epoch: with 8 splits and 50 ms, 1.6 million rows a second."""
BYTES_PER_KEY = 68
"""Of state in the leaner of the two operators: enough keys are brought in for each to hold what is asked for."""
EPOCH, CHECKPOINT = "50ms", "2s"
Numbers = npt.NDArray[np.int64]


class SmallReads(seep.GeneratorSource):
    """Without a rate, epochs of a million rows would come in seconds, too few of them to measure by. With one, what has
    piled up would come in one epoch."""

    read_rows = READ_ROWS
    block_rows = BLOCK_ROWS
    """At any rate: what is expected is reckoned by it."""

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Rows | None:
        return super().read(split, position, until, min(limit_rows, self.read_rows), now_ms)


@dataclass(frozen=True)
class Load:
    keys: int
    seed: int
    cold_keys: int = 0
    """Keys that come once, at the beginning: state that is only carried along."""

    def numbers(self, first: int, count: int) -> Numbers:
        return np.arange(first, first + count, dtype=np.int64)

    def key_of(self, number: Numbers) -> Numbers:
        drawn = (_mix(number, self.seed) >> np.uint64(1)).astype(np.int64)
        hot = drawn % (self.keys // SPLITS) * SPLITS + split_of(number)
        return np.where(number < self.cold_keys, self.keys + number, hot)

    def value_of(self, number: Numbers) -> Numbers:
        return (_mix(number, self.seed + 1) % np.uint64(1000)).astype(np.int64)

    def rows(self, first: int, count: int) -> pa.RecordBatch:
        """`fn_batch` of a GeneratorSource."""
        number = self.numbers(first, count)
        return pa.record_batch({"key": self.key_of(number), "value": self.value_of(number), "number": number})

    @classmethod
    def of(cls, keys: int, options: Options) -> Load:
        """With as much state to carry along as is asked for."""
        return cls(keys, options.seed, options.state_bytes // BYTES_PER_KEY)

    def flow(
        self,
        name: str,
        rate: float | None,
        sink: Any,
        checkpoint: str,
        parts: int,
        epoch: str = EPOCH,
        policy: str | None = None,
        version: int = 0,
    ) -> seep.Flow:
        """With a policy the controller watches, but may change nothing. Each version has other code of `first`, which
        does the same."""
        bounds: dict[str, Any] = {"min": parts, "max": parts, "policy": policy} if policy else {}
        flow = seep.Flow(name, epoch=epoch, checkpoint=checkpoint)
        rows = flow.source(SOURCE, SmallReads(fn_batch=self.rows, rate=rate))
        first = (
            rows.key_by("key")
            .aggregate(n=seep.count(), total=seep.total("value"), newest=seep.maximum("number"))
            .named(FIRST)
            .scale(start=parts, **bounds)
        )
        second = (
            first.changes()
            .select("n", "total", "newest", other=pl.col("key") * FACTOR + (OFFSET - version) + version)
            .key_by("other")
            .aggregate(
                changes=seep.count(),
                n=seep.maximum("n"),
                total=seep.maximum("total"),
                counted=seep.total("n"),
                newest=seep.maximum("newest"),
            )
            .named(SECOND)
            .scale(start=parts, **bounds)
        )
        second.changes().drop("change").sink(SINK, sink)
        return flow


def timing_of(options: Options) -> dict[str, Any]:
    """The settings that say how long an epoch and what is between two checkpoints last."""
    epoch, checkpoint = options.epoch or EPOCH, options.checkpoint or CHECKPOINT
    return {"epoch_ms": microseconds(epoch) / 1000, "checkpoint_ms": microseconds(checkpoint) / 1000}


def buckets_by_key(operator: str, keys: int) -> Numbers:
    """In the key space of this node, the bucket of every key: of its own column, of its split, or (a sink) of the
    operator before it."""
    key = np.arange(keys, dtype=np.int64)
    if operator == SOURCE:
        return key % SPLITS * (BUCKETS // SPLITS)
    column = key if operator == FIRST else key * FACTOR + OFFSET
    return buckets_of(pa.record_batch({"key": column}), ["key"]).astype(np.int64)


def key_of_other(other: Numbers) -> Numbers:
    return (other - OFFSET) // FACTOR


def split_of(number: Numbers) -> Numbers:
    return number // BLOCK_ROWS % SPLITS


def place_in_split(number: Numbers) -> Numbers:
    """How many rows of its split come before this one."""
    return number // (BLOCK_ROWS * SPLITS) * BLOCK_ROWS + number % BLOCK_ROWS


def numbers_of_split(split: int, count: int) -> Numbers:
    """The first `count` row numbers of a split, in order."""
    place = np.arange(count, dtype=np.int64)
    return (place // BLOCK_ROWS * SPLITS + split) * BLOCK_ROWS + place % BLOCK_ROWS


def _mix(number: Numbers, seed: int) -> npt.NDArray[np.uint64]:
    """splitmix64: a well spread 64-bit number for each row number."""
    mixed = number.astype(np.uint64) + np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
