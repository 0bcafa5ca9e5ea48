"""The compiled loop that gives each row the start of its window."""

from __future__ import annotations

from typing import Any

import numpy as np

from seep.model.hashing import compiled, is_valid, load_signed

START = "__start"
"""The column of partial aggregates that says the start of their window (int64, µs)."""

LATE = np.int64(-(2**63))
"""In place of a row's time: its window has closed ..."""
BROKEN = np.int64(-(2**63) + 1)
"""... or it has no usable time. Rows with either have no slot (-1)."""
NEAR = 2**50
"""Numbers below this are exact as floats, and their quotients by less than one."""


@compiled
def window_starts(
    rows: int, values: int, validity: int, bit: int, size: int, offset: int, watermark: int, limit: int, result: Any
) -> Any:
    """The start of each row's window; LATE when it ends by the watermark, BROKEN when its time is null or absurd.

    Answers how many were late and broken.
    """
    late = 0
    broken = 0
    base = np.int64(0)
    based = False
    part = 1.0 / size
    for row in range(rows):
        time = load_signed(values + 8 * row)
        if not is_valid(validity, bit + row) or time <= -limit or time >= limit:
            result[row] = BROKEN
            broken += 1
            continue
        if not based:
            base = time - (time - offset) % size
            based = True
        since = time - base
        if -NEAR < since < NEAR:
            # Times jump between windows, so a remembered one would be guessed wrong at every jump, and dividing
            # integers is slow. The quotient of such floats is off by one at most.
            start = np.int64(np.floor(since * part)) * size
            start -= size if start > since else 0
            start += size if start + size <= since else 0
            start += base
        else:
            start = time - (time - offset) % size
        if start + size <= watermark:
            result[row] = LATE
            late += 1
        else:
            result[row] = start
    return late, broken


@compiled
def ended_slots(live: Any, times: Any, limit: int) -> Any:
    """The live slots whose time is at most the limit, and the least time of the others (the greatest number: none)."""
    count, earliest = 0, np.int64(2**63 - 1)
    for slot in range(live.shape[0]):
        if live[slot]:
            ended = times[slot] <= limit
            count += ended
            earliest = min(earliest, np.int64(2**63 - 1) if ended else times[slot])
    slots, at = np.empty(count, np.int64), 0
    for slot in range(live.shape[0]):
        if live[slot] and times[slot] <= limit:
            slots[at] = slot
            at += 1
    return slots, earliest
