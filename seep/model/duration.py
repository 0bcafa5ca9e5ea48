"""Durations as users write them, as microseconds: ``"50ms"``, ``"1m"``, a `timedelta`. A bare number is refused,
because nothing says whether it means seconds or milliseconds."""

from __future__ import annotations

import re
from datetime import timedelta

from seep.errors import Misuse

UNITS_US = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}

_FORM = re.compile(r"(-?)(\d+)(?:\.(\d+))?(us|ms|s|m|h|d)")


def microseconds(duration: str | timedelta) -> int:
    """The length of a duration in microseconds.

    >>> microseconds("50ms"), microseconds("1.5s"), microseconds(timedelta(minutes=1))
    (50000, 1500000, 60000000)
    """
    if isinstance(duration, timedelta):
        return duration // timedelta(microseconds=1)
    if not isinstance(duration, str):
        raise Misuse(f"duration {duration!r}: give text such as '10s' (a number has no unit) or timedelta(seconds=10)")
    found = _FORM.fullmatch(duration.strip())
    if found is None:
        raise Misuse(f"duration {duration!r}: write a number and one of us, ms, s, m, h, d, such as '10s'")
    sign, whole, fraction, unit = found.groups(default="")
    scaled: int = int(whole + fraction) * UNITS_US[unit]
    result, rest = divmod(scaled, 10 ** len(fraction))
    if rest:
        raise Misuse(f"duration {duration!r}: not a whole number of microseconds")
    return int(-result if sign else result)


def positive_microseconds(duration: str | timedelta) -> int:
    """The same, refusing zero and less.

    >>> positive_microseconds("1d")
    86400000000
    """
    result = microseconds(duration)
    if result <= 0:
        raise Misuse(f"duration {duration!r}: must be longer than zero")
    return result
