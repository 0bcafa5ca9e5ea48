"""Counters that are state: by name and origin bucket, so that they partition and merge exactly like the keys."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seep.model.arrow import BUCKET, DELETED, KEY, Buckets
from seep.model.ids import BUCKETS

_COLUMNS = pa.schema([(BUCKET, pa.uint16()), (KEY, pa.binary()), ("name", pa.string()), ("count", pa.int64())])


@dataclass
class Tally:
    """Counters by name and origin bucket."""

    counts: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    touched: dict[str, npt.NDArray[np.bool_]] = field(default_factory=dict)

    def add(self, name: str, buckets: Buckets, weights: npt.NDArray[np.int64] | None = None) -> None:
        """Count one (or its weight) for each of these buckets."""
        if len(buckets) == 0:
            return
        counts = self._of(name)
        if weights is not None:
            np.add.at(counts, buckets, weights)
            self.touched[name][buckets] = True
            return
        if buckets[0] == buckets[-1] and bool((buckets == buckets[0]).all()):
            counts[buckets[0]] += len(buckets)
            self.touched[name][buckets[0]] = True
            return
        number = np.bincount(buckets, minlength=BUCKETS)
        counts += number
        self.touched[name] |= number > 0

    def totals(self) -> dict[str, int]:
        return {name: int(counts.sum()) for name, counts in self.counts.items()}

    def snapshot(self, full: bool) -> pa.RecordBatch:
        """A state table: every counter above zero, or those touched since the last snapshot."""
        if full:
            cells = [(name, int(at)) for name in sorted(self.counts) for at in np.flatnonzero(self.counts[name])]
        else:
            cells = [(name, int(at)) for name in sorted(self.touched) for at in np.flatnonzero(self.touched[name])]
        for flags in self.touched.values():
            flags[:] = False
        columns = [
            pa.array([bucket for _, bucket in cells], pa.uint16()),
            pa.array([f"{name}:{bucket}".encode() for name, bucket in cells], pa.binary()),
            pa.array([name for name, _ in cells], pa.string()),
            pa.array([int(self.counts[name][bucket]) for name, bucket in cells], pa.int64()),
        ]
        table = pa.RecordBatch.from_arrays(columns, schema=_COLUMNS)
        return table if full else table.append_column(DELETED, pa.array([False] * len(cells), pa.bool_()))

    def load(self, table: pa.RecordBatch) -> None:
        columns = (table.column(name).to_pylist() for name in ("name", BUCKET, "count"))
        for name, bucket, count in zip(*columns, strict=True):
            self._of(name)[bucket] = count

    def _of(self, name: str) -> npt.NDArray[np.int64]:
        if name not in self.counts:
            self.counts[name] = np.zeros(BUCKETS, np.int64)
            self.touched[name] = np.zeros(BUCKETS, np.bool_)
        return self.counts[name]
