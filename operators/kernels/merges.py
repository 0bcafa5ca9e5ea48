"""Compiled loops that merge partial aggregates, folded elsewhere, into per-key state, in input order.

Each takes the slot of each partial (-1: no entry), the addresses of the partial's columns (``counts``: how many values
it saw) and the state arrays by slot. The order matters only between equal extremes (0.0 and -0.0): the first stays, as
it would row by row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from operators.kernels.folds import is_better_float
from seep.model.hashing import compiled, load_float, load_signed, load_word


@compiled
def merge_counts(slots: Any, counts: int, seen: Any) -> None:
    for row in range(slots.shape[0]):
        slot = slots[row]
        if slot >= 0:
            seen[slot] += load_signed(counts + 8 * row)


@compiled
def merge_totals(slots: Any, counts: int, lows: int, highs: int, low: Any, high: Any, seen: Any) -> None:
    for row in range(slots.shape[0]):
        slot = slots[row]
        if slot >= 0:
            word = load_word(lows + 8 * row)
            total = low[slot] + word
            high[slot] += load_signed(highs + 8 * row) + np.int64(1 if total < word else 0)
            low[slot] = total
            seen[slot] += load_signed(counts + 8 * row)


@compiled
def merge_float_totals(slots: Any, counts: int, totals: int, total: Any, seen: Any) -> None:
    for row in range(slots.shape[0]):
        slot = slots[row]
        if slot >= 0:
            total[slot] += load_float(totals + 8 * row)
            seen[slot] += load_signed(counts + 8 * row)


@compiled
def merge_decimal_totals(
    slots: Any, counts: int, lows: int, highs: int, tops: int, low: Any, high: Any, top: Any, seen: Any
) -> None:
    """Totals in 192 bits."""
    for row in range(slots.shape[0]):
        slot = slots[row]
        if slot >= 0:
            word = load_word(lows + 8 * row)
            upper = load_word(highs + 8 * row)
            total = low[slot] + word
            carry = np.uint64(1 if total < word else 0)
            middle = np.uint64(high[slot]) + upper
            over = np.int64(1 if middle < upper else 0)
            middle += carry
            over += np.int64(1 if middle < carry else 0)
            low[slot] = total
            high[slot] = np.int64(middle)
            top[slot] += load_signed(tops + 8 * row) + over
            seen[slot] += load_signed(counts + 8 * row)


@compiled
def merge_integer_extremes(
    slots: Any, counts: int, bests: int, unsigned: bool, greatest: bool, best: Any, seen: Any
) -> None:
    flip = np.int64(-(2**63)) if unsigned else np.int64(0)
    for row in range(slots.shape[0]):
        slot, count = slots[row], load_signed(counts + 8 * row)
        if slot >= 0 and count > 0:
            value = load_signed(bests + 8 * row)
            ordered, current = value ^ flip, best[slot] ^ flip
            if seen[slot] == 0 or (ordered > current if greatest else ordered < current):
                best[slot] = value
            seen[slot] += count


@compiled
def merge_float_extremes(slots: Any, counts: int, bests: int, greatest: bool, best: Any, seen: Any) -> None:
    for row in range(slots.shape[0]):
        slot, count = slots[row], load_signed(counts + 8 * row)
        if slot >= 0 and count > 0:
            value, current = load_float(bests + 8 * row), best[slot]
            if seen[slot] == 0 or is_better_float(value, current, greatest):
                best[slot] = value
            seen[slot] += count


@compiled
def merge_decimal_extremes(
    slots: Any, counts: int, lows: int, highs: int, greatest: bool, low: Any, high: Any, seen: Any
) -> None:
    for row in range(slots.shape[0]):
        slot, count = slots[row], load_signed(counts + 8 * row)
        if slot >= 0 and count > 0:
            word = load_word(lows + 8 * row)
            upper = load_signed(highs + 8 * row)
            less = upper < high[slot] or (upper == high[slot] and word < low[slot])
            equal = upper == high[slot] and word == low[slot]
            if seen[slot] == 0 or (not less and not equal if greatest else less):
                low[slot] = word
                high[slot] = upper
            seen[slot] += count
