"""A source that is never the bottleneck: blocks of rows made once, given again and again with later times.

`GeneratorSource` makes rows by a function for each thousand numbers; here a read is a slice of columns that are
there, and one addition for the time column.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seep.connectors.contract import Rows
from seep.model.schema import TIMESTAMP

BLOCK_ROWS = 1_000_000
"""As many as an epoch holds at most, so that reading one copies nothing."""
SCHEMA = pa.schema([("store", pa.string()), ("at", TIMESTAMP), ("amount", pa.int64())])
BASE_US = 1_700_000_000_000_000


@dataclass(frozen=True)
class LoopedSales:
    """``rows`` in all, over ``span_us`` of event time, each up to ``disorder_us`` late; ``rate``: rows a second."""

    rows: int
    span_us: int
    disorder_us: int
    keys: int
    seed: int
    started: Path
    """Where the first read of each split is noted: NAME-SPLIT, with the monotonic time in it."""
    rate: float | None = None
    splits: int = 2

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    @property
    def split_rows(self) -> int:
        return self.rows // self.splits

    @cached_property
    def _blocks(self) -> list[tuple[pa.Array, npt.NDArray[np.int64], pa.Array]]:
        """By split: keys, times since the block's beginning, amounts."""
        blocks = []
        for split in range(self.splits):
            rng = np.random.default_rng([self.seed, split])
            names = pa.array([f"store-{number:04d}" for number in range(self.keys)])
            keys = names.take(pa.array(rng.integers(0, self.keys, BLOCK_ROWS)))
            even = np.arange(BLOCK_ROWS) * self._lap_us // BLOCK_ROWS
            times = even + rng.integers(0, max(self.disorder_us, 1), BLOCK_ROWS)
            blocks.append((keys, times, pa.array(rng.integers(0, 10_000, BLOCK_ROWS))))
        return blocks

    @property
    def _lap_us(self) -> int:
        return self.span_us * BLOCK_ROWS // self.split_rows

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _ = self._blocks  # made where the flow's code is loaded, before workers are forked, not in the first epoch

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_blocks"}

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Rows | None:
        if position is None and until is None:
            (self.started / str(split)).write_text(str(time.monotonic_ns()))
        start, since_ms = position if position is not None else (0, now_ms)
        if until is not None:
            end = until[0]
        else:
            end = min(start + limit_rows, self._released(now_ms - since_ms), self.split_rows)
            if end <= start < self.split_rows:
                return None
        return Rows(self.record(split, start, end), [end, since_ms], end >= self.split_rows)

    def _released(self, elapsed_ms: int) -> int:
        return 2**62 if self.rate is None else 1 + int(self.rate / self.splits * elapsed_ms / 1000)

    def record(self, split: int, start: int, end: int) -> pa.RecordBatch:
        """The rows of a split from one place to another."""
        parts = []
        while start < end:
            lap, inside = divmod(start, BLOCK_ROWS)
            count = min(BLOCK_ROWS - inside, end - start)
            parts.append(self._slice(split, lap, inside, count))
            start += count
        if not parts:
            return pa.RecordBatch.from_pylist([], schema=SCHEMA)
        return pa.concat_batches(parts) if len(parts) > 1 else parts[0]

    def _slice(self, split: int, lap: int, inside: int, count: int) -> pa.RecordBatch:
        keys, times, amounts = self._blocks[split]
        shifted = times[inside : inside + count] + (BASE_US + lap * self._lap_us)
        at = pa.Array.from_buffers(TIMESTAMP, count, [None, pa.py_buffer(shifted)])
        columns = [keys.slice(inside, count), at, amounts.slice(inside, count)]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
