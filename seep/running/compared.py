"""What a sink has committed beside what it should have: lost, duplicated, wrong and reordered, counted by row.

Rows of one origin bucket have an order, whichever partition of the sink committed them; that of others is free. An
epoch that is the same as a whole is done with; only what differs is looked at row by row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa

from seep.flow.outlet import decode
from seep.model.arrow import BUCKET

EXAMPLES = 3
Row = tuple[int, str]
"""Its epoch and its values: what comes in another epoch is another row."""


@dataclass
class Difference:
    """Between two outputs; empty when they are the same."""

    rows: int = 0
    """Expected."""
    lost: int = 0
    duplicated: int = 0
    """Came more often than expected."""
    wrong: int = 0
    """Nobody expected them."""
    reordered: int = 0
    """Of those that both have, how many stand elsewhere among the rows of their bucket."""
    examples: list[str] = field(default_factory=list)

    def add(self, other: Difference) -> None:
        for name in ("rows", "lost", "duplicated", "wrong", "reordered"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.examples = (self.examples + other.examples)[:EXAMPLES]


def compare(sink: str, wanted: Mapping[int, bytes], found: Iterable[tuple[int, bytes]]) -> Difference:
    """`wanted`: the record of each epoch; `found`: (epoch, record) of all partitions of the sink."""
    given: dict[int, list[bytes]] = {}
    for epoch, record in found:
        given.setdefault(epoch, []).append(record)
    difference = Difference()
    ours: dict[int, list[Row]] = {}
    theirs: dict[int, list[Row]] = {}
    for epoch in sorted({*wanted, *given}):
        want = _ordered([wanted[epoch]] if epoch in wanted else [])
        have = _ordered(given.get(epoch, []))
        difference.rows += 0 if want is None else want.height
        if want is None or have is None or not want.equals(have):
            _spread(want, epoch, theirs)
            _spread(have, epoch, ours)
    for bucket in sorted({*ours, *theirs}):
        difference.add(_bucket(f"{sink}, bucket {bucket}", theirs.get(bucket, []), ours.get(bucket, [])))
    return difference


def _ordered(records: Iterable[bytes]) -> pl.DataFrame | None:
    """The rows of one epoch, by bucket."""
    batches = [decode(record) for record in records]
    if not batches:
        return None
    frame = pl.from_arrow(pa.Table.from_batches(batches))
    assert isinstance(frame, pl.DataFrame)
    return frame.sort(BUCKET, maintain_order=True)


def _spread(frame: pl.DataFrame | None, epoch: int, into: dict[int, list[Row]]) -> None:
    if frame is not None:
        buckets, rows = frame.get_column(BUCKET), frame.drop(BUCKET)
        for bucket, row in zip(buckets, rows.iter_rows(named=True), strict=True):
            into.setdefault(bucket, []).append((epoch, repr(row)))


def _bucket(where: str, wanted: list[Row], found: list[Row]) -> Difference:
    """
    >>> _bucket("out", [(1, "a"), (1, "b"), (2, "c")], [(1, "b"), (1, "a"), (1, "a"), (2, "x")])
    Difference(rows=0, lost=1, duplicated=1, wrong=1, reordered=2, examples=["out: lost (2, 'c')"])
    """
    lost, extra = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    wrong = sum(count for row, count in extra.items() if row not in set(wanted))
    both = Counter(wanted) & Counter(found)
    moved = [pair for pair in zip(_kept(wanted, both), _kept(found, both), strict=True) if pair[0] != pair[1]]
    difference = Difference(0, lost.total(), extra.total() - wrong, wrong, len(moved))
    for what, rows in (("lost", lost), ("too much", extra), ("out of order", [one for one, _ in moved])):
        if rows and not difference.examples:
            difference.examples.append(f"{where}: {what} {next(iter(rows))}")
    return difference


def _kept(rows: list[Row], both: Counter[Row]) -> list[Row]:
    left = both.copy()
    kept: list[Any] = []
    for row in rows:
        if left[row] > 0:
            left[row] -= 1
            kept.append(row)
    return kept
