"""Numbers as users give them: of things, whole and within bounds; of seconds. Others would go wrong much later."""

from __future__ import annotations

import operator
from typing import Any

from seep.errors import Misuse


def whole(name: str, value: Any, least: int = 0, most: int | None = None) -> int:
    """The number; refuses what is none, and what is less than the least or more than the most.

    >>> whole("count", 3)
    3
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < least or (most is not None and number > most):
        bounds = f"{least} up" if most is None else f"{least} to {most}"
        raise Misuse(f"{name}={value!r}; give a whole number from {bounds}")
    return number


def seconds(name: str, value: Any) -> float:
    """A number of seconds; refuses texts, and what is less than none.

    >>> seconds("timeout_seconds", 1.5)
    1.5
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise Misuse(f"{name}={value!r}; give a number of seconds, such as 30")
    return value
