"""Windows as users name them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from seep.errors import Misuse
from seep.flow.place import at_place
from seep.model.duration import microseconds, positive_microseconds

_LONGEST_US = 2**61
"""Longer windows (73,000 years) would end outside of what a time can be."""


@dataclass(frozen=True, slots=True)
class Tumbling:
    size_us: int
    offset_us: int
    by_arrival: bool


@dataclass(frozen=True, slots=True)
class Sliding:
    size_us: int
    every_us: int
    offset_us: int
    by_arrival: bool


@dataclass(frozen=True, slots=True)
class Session:
    gap_us: int
    inclusive: bool


@dataclass(frozen=True, slots=True)
class CountWindow:
    rows: int
    every: int


@dataclass(frozen=True, slots=True)
class Every:
    period_us: int


Window = Tumbling | Sliding | Session | CountWindow


def tumbling(size: str | timedelta, offset: str | timedelta = "0s", by: str = "time") -> Tumbling:
    """Windows of one size, one after the other, aligned to the Unix epoch; ``by="arrival"`` uses the epoch's time.

    >>> tumbling("1m")
    Tumbling(size_us=60000000, offset_us=0, by_arrival=False)
    """
    with at_place("tumbling"):
        return Tumbling(_length(size), microseconds(offset), _by_arrival(by))


def sliding(size: str | timedelta, every: str | timedelta, offset: str | timedelta = "0s", by: str = "time") -> Sliding:
    """Windows of one size, a new one beginning with each step, so that a row is in several of them.

    A step longer than the size leaves gaps; rows in a gap are in no window, and are filtered out.

    >>> sliding("10s", every="1s")
    Sliding(size_us=10000000, every_us=1000000, offset_us=0, by_arrival=False)
    """
    with at_place("sliding"):
        return Sliding(_length(size), _length(every), microseconds(offset), _by_arrival(by))


def session(gap: str | timedelta, inclusive: bool = False) -> Session:
    """Windows of rows of a key that follow each other within the gap.

    Rows exactly the gap apart are two sessions; with ``inclusive=True`` they are one.

    >>> session("30s")
    Session(gap_us=30000000, inclusive=False)
    """
    with at_place("session"):
        return Session(_length(gap), bool(inclusive))


def count_window(n: int, every: int | None = None) -> CountWindow:
    """Windows of so many rows of a key, as they arrive; ``every``: after how many rows the next window begins.

    >>> count_window(100), count_window(100, every=10)
    (CountWindow(rows=100, every=100), CountWindow(rows=100, every=10))
    """
    with at_place("count_window"):
        return CountWindow(_rows(n), _rows(n if every is None else every))


def every(period: str | timedelta) -> Every:
    """For ``emit=``: a Table whose changes are sent at most once in each period of epoch time.

    >>> every("1s")
    Every(period_us=1000000)
    """
    with at_place("every"):
        return Every(_length(period))


def _length(duration: str | timedelta) -> int:
    found = positive_microseconds(duration)
    if found >= _LONGEST_US:
        raise Misuse(f"duration {duration!r}: longer than any time; give at most 70,000 years")
    return found


def _rows(number: Any) -> int:
    if type(number) is not int or not 0 < number < 2**31:
        raise Misuse(f"{number!r} rows; give a whole number above zero")
    return number


def _by_arrival(by: str) -> bool:
    if by not in ("time", "arrival"):
        raise Misuse(f"by={by!r}; choose 'time' or 'arrival'")
    return by == "arrival"
