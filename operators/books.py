"""What came and went in each of the last epochs, by edge: with the sums since the beginning, the audit tells not only
that rows were lost, doubled or altered on an edge, but in which epoch.

State like any other: an entry lies in a bucket of its partition, so that splits, merges and replays keep the sums over
all partitions. In which bucket means nothing.
"""

from __future__ import annotations

import pyarrow as pa

from seep.model.arrow import BUCKET, DELETED, KEY, ArrowBatch
from seep.model.batch import DIGESTS

TABLE = "books"
"""The state table."""
KEPT_EPOCHS = 200
"""With 50 ms epochs the last ten seconds."""
_COLUMNS = pa.schema(
    [
        (BUCKET, pa.uint16()),
        (KEY, pa.binary()),
        ("name", pa.string()),
        ("epoch", pa.int64()),
        ("rows", pa.int64()),
        ("digest", pa.int64()),
    ]
)
_Place = tuple[str, int, int]
"""(counter, epoch, bucket)"""


class Books:
    """Rows and digests by counter and epoch, of the last epochs."""

    def __init__(self) -> None:
        self._entries: dict[_Place, tuple[int, int]] = {}
        """In the order of their epochs."""
        self._written: set[_Place] = set()
        """Since the last snapshot."""
        self._gone: set[_Place] = set()

    def note(self, name: str, epoch: int, batch: ArrowBatch) -> None:
        """A batch with rows."""
        place = (name, epoch, int(batch.buckets[0]))
        rows, digest = self._entries.get(place, (0, 0))
        self._entries[place] = (rows + batch.rows, (digest + batch.digest()) % DIGESTS)
        self._written.add(place)

    def note_off(self, name: str, epoch: int, bucket: int, rows: int) -> None:
        """An account that does not balance: by how many rows."""
        self._entries[name, epoch, bucket] = (rows, 0)
        self._written.add((name, epoch, bucket))

    def forget(self, epoch: int) -> None:
        """This epoch is over: those long before it go."""
        while self._entries:
            oldest = next(iter(self._entries))
            if oldest[1] > epoch - KEPT_EPOCHS:
                return
            del self._entries[oldest]
            self._written.discard(oldest)
            self._gone.add(oldest)

    def snapshot(self, full: bool) -> pa.RecordBatch:
        chosen = list(self._entries) if full else sorted(self._gone) + [p for p in self._entries if p in self._written]
        table = pa.RecordBatch.from_pylist([self._row(place) for place in chosen], schema=_COLUMNS)
        if not full:
            gone = pa.array([place in self._gone for place in chosen], pa.bool_())
            table = table.append_column(DELETED, gone)
        self._written.clear()
        self._gone.clear()
        return table

    def _row(self, place: _Place) -> dict[str, object]:
        name, epoch, bucket = place
        rows, digest = self._entries.get(place, (0, 0))
        key = f"{name}:{epoch}:{bucket}".encode()
        return {BUCKET: bucket, KEY: key, "name": name, "epoch": epoch, "rows": rows, "digest": digest}

    def load(self, table: pa.RecordBatch) -> None:
        for row in table.to_pylist():
            place = (row["name"], row["epoch"], row[BUCKET])
            self._entries.pop(place, None)
            if not row.get(DELETED):
                self._entries[place] = (row["rows"], row["digest"])
        # Of several partitions, one after the other.
        self._entries = dict(sorted(self._entries.items(), key=lambda entry: entry[0][1]))
