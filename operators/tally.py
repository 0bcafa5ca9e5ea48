"""Counters that are state: by name and origin bucket, so that they partition and merge exactly like the keys."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seep.model.arrow import BUCKET, DELETED, KEY, Buckets
from seep.model.batch import DIGESTS
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

    def add_digest(self, name: str, bucket: int, digest: int) -> None:
        """Not a number of rows but a sum of their digests: in which bucket means nothing, only all together do."""
        counts = self._of(name)
        counts[bucket] = (int(counts[bucket]) + digest) % DIGESTS
        self.touched[name][bucket] = True

    def totals(self) -> dict[str, int]:
        return {name: int(counts.sum()) % DIGESTS for name, counts in self.counts.items()}

    def snapshot(self, full: bool) -> pa.RecordBatch:
        """A state table: every counter above zero, or those touched since the last snapshot."""
        cells = {
            name: np.flatnonzero(self.counts[name] if full else self.touched[name]) for name in sorted(self.counts)
        }
        for flags in self.touched.values():
            flags[:] = False
        parts = [self._cells(name, buckets) for name, buckets in cells.items() if len(buckets)]
        table = pa.concat_batches([pa.RecordBatch.from_pylist([], schema=_COLUMNS), *parts])
        return table if full else table.append_column(DELETED, pa.array(np.zeros(table.num_rows, np.bool_)))

    def _cells(self, name: str, buckets: npt.NDArray[np.int64]) -> pa.RecordBatch:
        numbers = pa.array(buckets.astype(np.uint16))
        names = pa.repeat(name, len(buckets))
        keys = pc.binary_join_element_wise(names, numbers.cast(pa.string()), ":").cast(pa.binary())
        return pa.RecordBatch.from_arrays([numbers, keys, names, pa.array(self.counts[name][buckets])], schema=_COLUMNS)

    def load(self, table: pa.RecordBatch) -> None:
        names = table.column("name")
        for name in names.unique().to_pylist():
            chosen = table.filter(pc.equal(names, name))
            self._of(name)[chosen.column(BUCKET).to_numpy()] = chosen.column("count").to_numpy()

    def _of(self, name: str) -> npt.NDArray[np.int64]:
        if name not in self.counts:
            self.counts[name] = np.zeros(BUCKETS, np.int64)
            self.touched[name] = np.zeros(BUCKETS, np.bool_)
        return self.counts[name]
