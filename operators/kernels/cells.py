"""The compiled loop of a sender's fold: from (number of the key, window) to a slot, by a dense array of cells."""

from __future__ import annotations

from typing import Any

import numpy as np

from seep.model.hashing import compiled, load_signed


@compiled
def cell_slots(
    slots: Any, times: int, size: int, base: int, windows: int, cells: Any, key_of: Any, window_of: Any
) -> Any:
    """Each row's slot, given in ``slots`` the number of its key; new ones are numbered in order of first appearance.

    ``cells`` (all -1) has ``windows`` places for each key; ``base`` is the start of the first window. Answers how many
    slots there are; ``key_of`` and ``window_of`` say what each one is. ``times`` 0: there is one window.
    """
    made = np.int32(0)
    part = 1.0 / size
    for row in range(np.uint64(slots.shape[0])):
        window = np.int64(0)
        if times != 0:
            # As in `operators.kernels.windows`: the quotient is off by one at most.
            since = load_signed(times + 8 * np.int64(row)) - base
            window = np.int64(since * part)
            rest = since - window * size
            window += np.int64(rest >= size) - np.int64(rest < 0)
        key = slots[row]
        cell = np.uint64(key * windows + window)
        slot = cells[cell]
        if slot < 0:
            slot = made
            made += np.int32(1)
            cells[cell] = slot
            key_of[slot] = key
            window_of[slot] = window
        slots[row] = slot
    return made
