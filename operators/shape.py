"""Where aligned windows lie in time."""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

from seep.model.ids import FOREVER

AFTER_ALL = 2**63 - 1
"""Later than the end of any window ..."""
BEFORE_ALL = -(2**63)
"""... and not later than any time."""


class Shape(NamedTuple):
    """Windows of one size, one beginning with every step, aligned to an offset (all in µs)."""

    size: int
    every: int
    offset: int

    @property
    def pane(self) -> int:
        """Every window is a whole number of pieces of this length.

        >>> Shape(10, 4, 0).pane
        2
        """
        return gcd(self.size, self.every)

    def first_open(self, closed: int) -> int:
        """The start of the first window that ends after this time.

        >>> Shape(10, 5, 0).first_open(25)
        20
        """
        if closed >= FOREVER:
            return AFTER_ALL
        return (closed - self.size - self.offset) // self.every * self.every + self.every + self.offset
