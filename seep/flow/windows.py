"""Windows as users name them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from seep.errors import Misuse
from seep.flow.place import at_place
from seep.model.duration import microseconds, positive_microseconds


@dataclass(frozen=True, slots=True)
class Tumbling:
    size_us: int
    offset_us: int
    by_arrival: bool


def tumbling(size: str | timedelta, offset: str | timedelta = "0s", by: str = "time") -> Tumbling:
    """Windows of one size, one after the other, aligned to the Unix epoch; ``by="arrival"`` uses the epoch's time.

    >>> tumbling("1m")
    Tumbling(size_us=60000000, offset_us=0, by_arrival=False)
    """
    with at_place("tumbling"):
        if by not in ("time", "arrival"):
            raise Misuse(f"by={by!r}; choose 'time' or 'arrival'")
        return Tumbling(positive_microseconds(size), microseconds(offset), by == "arrival")
