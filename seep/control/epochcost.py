"""What an epoch costs an operator by itself, told apart from what its rows cost.

Some of what is done in an epoch is there whether it has few rows or many: something is called, a reply is waited for,
a busy machine is slow to give a core. A partition of many, with a few rows in each epoch, looks slow by it: as if more
of them were needed than there are. Epochs have now more rows, now fewer; a line through (rows, seconds) of them, of all
partitions together but each around its own mean, rises by what a row costs. Only what is left when rows cost as much
as they well may, by how far the epochs lie from that line, is said to be the epochs'.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_EPOCHS = 20
"""Beyond one for each partition: fewer do not say how far they lie from the line."""
CERTAIN = 2.0
"""Standard errors: so much steeper the line may well be."""
LEAST_SPREAD = 1e-4
"""Of the squares of the rows: epochs with all the same number of rows tell nothing."""


@dataclass(frozen=True)
class Taken:
    """Epochs with rows that one partition took in a window, as sums over them."""

    epochs: float
    rows: float
    seconds: float
    rows_squared: float
    row_seconds: float
    seconds_squared: float


def epoch_seconds(pieces: Sequence[Taken]) -> float:
    """That one epoch costs by itself, at least; 0: nothing can be told.

    >>> rows = [(n, 0.005 + 0.01 * n) for n in (1, 2, 3, 4) * 10]
    >>> sums = (sum(n for n, _ in rows), sum(t for _, t in rows), sum(n * n for n, _ in rows))
    >>> taken = Taken(len(rows), *sums, sum(n * t for n, t in rows), sum(t * t for _, t in rows))
    >>> round(epoch_seconds([taken]), 6)
    0.005
    """
    pieces = [one for one in pieces if one.epochs > 0]
    epochs, rows = sum(one.epochs for one in pieces), sum(one.rows for one in pieces)
    free = epochs - len(pieces) - 1
    spread = sum(one.rows_squared - one.rows**2 / one.epochs for one in pieces)
    if free < LEAST_EPOCHS or spread <= LEAST_SPREAD * sum(one.rows_squared for one in pieces):
        return 0.0
    together = sum(one.row_seconds - one.rows * one.seconds / one.epochs for one in pieces)
    scatter = sum(one.seconds_squared - one.seconds**2 / one.epochs for one in pieces)
    slope = max(0.0, together / spread)
    off = max(0.0, scatter - slope * together) / free
    steepest = slope + CERTAIN * math.sqrt(off / spread)
    return max(0.0, (sum(one.seconds for one in pieces) - steepest * rows) / epochs)
