"""A source that is never the bottleneck: blocks of rows made once, given again and again with later times.

`GeneratorSource` makes rows by a function for each thousand numbers; here a read is a slice of columns that are
there, and one addition for the time column.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from seep.connectors.contract import Rows
from seep.model.schema import TIMESTAMP

BASE_US = 1_700_000_000_000_000
"""A multiple of every window used here, so that windows of all laps lie alike."""
SPLITS = 2
TIME = "at"
Block = Callable[[int, int, int], pa.RecordBatch]
"""(split, rows, seed) -> one lap of a split; its column `at`, if any, counts microseconds from the lap's beginning."""


@dataclass(frozen=True)
class Looped:
    block: Block
    lap_rows: int
    """Of one split. No more than an epoch holds, so that a read seldom has to copy."""
    lap_us: int
    seed: int
    split_rows: int | None = None
    """After so many a split ends; None: never."""
    rate: float | None = None
    """Rows a second of all splits, released whatever the flow does; None: as many as it takes."""
    read_rows: int = 1_000_000
    """At most, for one epoch of one split."""
    splits: int = SPLITS

    @property
    def endless(self) -> bool:
        return self.split_rows is None

    @property
    def schema(self) -> pa.Schema:
        return self.record(0, 0, 0).schema

    @cached_property
    def blocks(self) -> list[pa.RecordBatch]:
        return [self.block(split, self.lap_rows, self.seed) for split in range(self.splits)]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _ = self.blocks  # made where the flow's code is loaded, before workers are forked, not in the first epoch

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "blocks"}

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Rows | None:
        start, since_ms = position if position is not None else (0, now_ms)
        if until is not None:
            end = until[0]
        else:
            end = min(start + min(limit_rows, self.read_rows), self._released(now_ms - since_ms))
            if self.split_rows is not None:
                end = min(end, self.split_rows)
            if end <= start and start != self.split_rows:
                return None
        return Rows(self.record(split, start, end), [end, since_ms], end == self.split_rows)

    def _released(self, elapsed_ms: int) -> int:
        return 2**62 if self.rate is None else 1 + int(self.rate / self.splits * elapsed_ms / 1000)

    def record(self, split: int, start: int, end: int) -> pa.RecordBatch:
        """The rows of a split from one place to another."""
        parts = []
        while start < end:
            lap, inside = divmod(start, self.lap_rows)
            count = min(self.lap_rows - inside, end - start)
            parts.append(self._slice(split, lap, inside, count))
            start += count
        if not parts:
            return self._slice(split, 0, 0, 0)
        return pa.concat_batches(parts) if len(parts) > 1 else parts[0]

    def _slice(self, split: int, lap: int, inside: int, count: int) -> pa.RecordBatch:
        part = self.blocks[split].slice(inside, count)
        place = part.schema.get_field_index(TIME)
        if place < 0:
            return part
        shifted = part.column(place).to_numpy() + np.int64(BASE_US + lap * self.lap_us)
        at = pa.Array.from_buffers(TIMESTAMP, count, [None, pa.py_buffer(shifted)])
        return part.set_column(place, TIME, at)
