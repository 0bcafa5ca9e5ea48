"""Compiled loops that choose a row's target bucket by its origin, its position there, its key and its epoch alone: how
many partitions there are, and what any of them has seen, must not show.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seep.model.hashing import Words, compiled
from seep.model.ids import BUCKETS

_BITS = 12
_MASK = BUCKETS - 1
_STRIDE = 2531
"""The key space divided by the golden ratio, made odd: starts of neighbouring origins and epochs lie far apart."""
_REVERSED = np.array([int(f"{number:012b}"[::-1], 2) for number in range(BUCKETS)])
_LEVELS = 4
"""Load is counted by halves, quarters, eighths and sixteenths of the key space."""
_QUARTER = BUCKETS // 4


@compiled
def spread(origins: Any, epoch: int) -> Any:
    """Evenly, for any way to cut the key space into ranges: the rows of an origin go by the bits of their position
    in reverse (van der Corput), so that each next one falls into the widest gap left by those before it."""
    counts = np.zeros(BUCKETS, np.int64)
    targets = np.empty(origins.shape[0], np.uint16)
    for row in range(origins.shape[0]):
        origin = origins[row]
        position = counts[origin]
        counts[origin] = position + 1
        targets[row] = ((origin + epoch) * _STRIDE + _REVERSED[position & _MASK]) & _MASK
    return targets


@compiled
def second_choice(digest: np.uint64) -> Any:
    """A key's other bucket: at least a quarter of the key space from its first, so that four partitions or fewer never
    have both."""
    apart = _QUARTER + (np.int64(digest >> np.uint64(41)) & (2 * _QUARTER - 1))
    return (np.int64(digest >> np.uint64(52)) + apart) & _MASK


@compiled
def two_choices(origins: Any, hashes: Words, epoch: int) -> Any:
    """Of a key's two buckets the one in the less loaded surroundings. ``origins`` ascend; counts begin anew with each.

    A bucket's load is the sum over the halves, quarters, ... it lies in: a count by bucket would hardly ever see two
    keys meet, a count by partition would show how many there are.
    """
    loads = np.zeros(2 << _LEVELS, np.int64)
    targets = np.empty(origins.shape[0], np.uint16)
    position = 0
    for row in range(origins.shape[0]):
        if row > 0 and origins[row] != origins[row - 1]:
            loads[:] = 0
            position = 0
        first = np.int64(hashes[row] >> np.uint64(52))
        second = second_choice(hashes[row])
        balance = np.int64(0)
        for level in range(1, _LEVELS + 1):
            shift = _BITS - level
            balance += loads[(1 << level) + (first >> shift)] - loads[(1 << level) + (second >> shift)]
        # Where nothing is counted yet, rows alternate, over origins and epochs too.
        takes_second = balance > 0 or (balance == 0 and (position + origins[row] + epoch) & 1)
        target = second if takes_second else first
        for level in range(1, _LEVELS + 1):
            loads[(1 << level) + (target >> (_BITS - level))] += 1
        targets[row] = target
        position += 1
    return targets
