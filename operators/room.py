"""Arrays that grow."""

from __future__ import annotations

from typing import Any

import numpy as np

_MUCH = 1 << 20
_ROOM = 64
"""Arrays of this length and more get so much more room than was asked for. It costs nothing before it is used."""


def grown(array: Any, capacity: int) -> Any:
    """The array with room for ``capacity`` entries, zero beyond the old ones.

    A large one is copied seldom: it is the front of a much larger one, whose memory the system gives when it is first
    written to. The array given must not be written to any more.
    """
    room = array.base
    if room is not None and room.dtype == array.dtype and len(room) >= max(capacity, _MUCH * _ROOM):
        return room[:capacity]
    result = np.zeros(capacity * _ROOM if capacity >= _MUCH else capacity, array.dtype)[:capacity]
    result[: len(array)] = array
    return result
