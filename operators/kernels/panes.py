"""Compiled loops over the panes (or sessions) of each key: a chain from the key's number through its entries, the
latest first, and the windows that are made of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seep.model.hashing import compiled


@compiled
def link(slots: Any, numbers: Any, times: Any, heads: Any, nexts: Any) -> None:
    """Put these entries into the chains of their keys. Most are later than all others, so they go to the front."""
    for position in range(slots.shape[0]):
        slot = slots[position]
        number = numbers[slot]
        before = np.int64(-1)
        after = heads[number]
        while after >= 0 and times[after] > times[slot]:
            before = after
            after = nexts[after]
        nexts[slot] = after
        if before < 0:
            heads[number] = slot
        else:
            nexts[before] = slot


@compiled
def unlink(slots: Any, numbers: Any, heads: Any, nexts: Any, emptied: Any) -> Any:
    """Take these entries out of the chains; the keys that have none any more go into ``emptied``, and how many they
    are is the answer."""
    count = 0
    for position in range(slots.shape[0]):
        slot = slots[position]
        number = numbers[slot]
        at = heads[number]
        if at == slot:
            heads[number] = nexts[slot]
            if nexts[slot] < 0:
                emptied[count] = number
                count += 1
            continue
        while nexts[at] != slot:
            at = nexts[at]
        nexts[at] = nexts[slot]
    return count


@compiled
def count_up(numbers: Any, counts: Any, result: Any) -> None:
    """How many rows of its key came before each row (-1: it has no key)."""
    for row in range(numbers.shape[0]):
        number = numbers[row]
        if number >= 0:
            result[row] = counts[number]
            counts[number] += 1


@compiled
def _first_window(time: Any, size: int, every: int, offset: int) -> Any:
    """The start of the first window that ends after this time."""
    since = time - size - offset
    return since - since % every + every + offset


@compiled
def windows_of(
    numbers: Any,
    lows: Any,
    highs: Any,
    size: int,
    every: int,
    offset: int,
    times: Any,
    heads: Any,
    nexts: Any,
    marked: Any,
    owners: Any,
    starts: Any,
    bounds: Any,
    panes: Any,
) -> Any:
    """The windows that have a pane, key by key, with their panes in order of time.

    Of each key: the windows that start at or after its ``low`` and before its ``high``. ``marked`` (by slot; empty:
    all are): only windows with such a pane. Answers how many windows and how many panes there are; with ``owners`` not
    empty, it and ``starts`` say what each window is, and its panes are at ``bounds[w]`` to ``bounds[w + 1]`` of
    ``panes``. (Called twice: to know the sizes, and to fill.)
    """
    fill = owners.shape[0] > 0
    made = 0
    used = 0
    chain = np.empty(16, np.int64)
    for position in range(numbers.shape[0]):
        number = numbers[position]
        length = 0
        slot = heads[number]
        while slot >= 0:
            if length == chain.shape[0]:
                longer = np.empty(2 * length, np.int64)
                longer[:length] = chain
                chain = longer
            chain[length] = slot
            length += 1
            slot = nexts[slot]
        at = length - 1  # the earliest pane
        start = np.int64(lows[position])
        while at >= 0:
            time = times[chain[at]]
            if time < start:
                at -= 1
                continue
            if time >= start + size:
                start = max(start + every, _first_window(time, size, every, offset))
                if time < start:
                    at -= 1
                    continue
            if start >= highs[position]:
                break
            end = start + size
            wanted = marked.shape[0] == 0
            inside = at
            while inside >= 0 and times[chain[inside]] < end:
                wanted = wanted or marked[chain[inside]]
                inside -= 1
            if wanted:
                if fill:
                    owners[made] = number
                    starts[made] = start
                    bounds[made] = used
                    for pane in range(at, inside, -1):
                        panes[used + at - pane] = chain[pane]
                made += 1
                used += at - inside
            start += every
    if fill:
        bounds[made] = used
    return made, used
