"""The interval join: rows of equal keys, the right one's time in a range around the left one's."""

from __future__ import annotations

from operators.joining import LEFT, Join, JoinInput, Times
from seep.errors import Misuse

LONGEST_US = 2**60
"""Rows that wait longer than some ten thousand years wait for ever."""


class IntervalJoin(Join):
    """``lower_us <= right time - left time <= upper_us``."""

    def __init__(
        self,
        left: JoinInput,
        right: JoinInput,
        how: str,
        lower_us: int,
        upper_us: int,
        name: str = "join",
        ports: tuple[int, ...] = (0, 1),
    ) -> None:
        if lower_us > upper_us:
            raise Misuse("within: its first bound is later than its second; give (from, to)")
        if max(abs(lower_us), abs(upper_us)) > LONGEST_US:
            raise Misuse("within: so long a range would keep every row for ever; give a shorter one")
        self._lower = lower_us
        self._upper = upper_us
        super().__init__(left, right, how, name, ports)

    def reach(self, side: int, times: Times) -> tuple[Times, Times]:
        if side == LEFT:
            return times + self._lower, times + self._upper
        return times - self._upper, times - self._lower

    def horizon(self, side: int, watermark: int) -> int:
        return watermark - self._upper if side == LEFT else watermark + self._lower

    @property
    def holds_us(self) -> int:
        left, right = self._keeps
        return max(0, self._upper if left else 0, -self._lower if right else 0)
