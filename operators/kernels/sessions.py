"""The compiled loop that joins rows and sessions which are near enough to each other.

Whatever the order of the rows, the sessions come out the same: they are the connected pieces of time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from operators.kernels.windows import BROKEN
from seep.model.hashing import compiled


@compiled
def _root(node: Any, parents: Any) -> Any:
    while parents[node] != node:
        parents[node] = parents[parents[node]]
        node = parents[node]
    return node


@compiled
def join_rows(
    numbers: Any,
    times: Any,
    reach: int,
    heads: Any,
    nexts: Any,
    entry_starts: Any,
    entry_lasts: Any,
    firsts: Any,
    owners: Any,
    slots: Any,
    starts: Any,
    lasts: Any,
    parents: Any,
    links: Any,
    made: Any,
    row_nodes: Any,
    begin: Any,
) -> Any:
    """Put rows (the number of their key, their time; BROKEN or less: none) into sessions.

    ``heads`` and ``nexts`` chain the open sessions of each key, the latest first. Sessions become *nodes*: ``owners``,
    ``slots`` (-1: a new one), ``starts``, ``lasts``, ``parents`` (the node that it was joined to, or itself), and
    ``links`` (the next earlier node of the key); ``firsts`` (-2: the key was not met yet) is the latest node of each
    key. ``row_nodes`` says the node of each row. A session joins what is at most ``reach`` away.

    Answers the row at which there was no room for more nodes (or the end), and how many nodes there are.
    """
    rows = numbers.shape[0]
    room = starts.shape[0]
    for row in range(begin, rows):
        time = times[row]
        if time <= BROKEN:
            row_nodes[row] = -1
            continue
        number = numbers[row]
        if firsts[number] == -2:
            length = 0
            slot = heads[number]
            while slot >= 0:
                length += 1
                slot = nexts[slot]
            if made + length > room:
                return row, made
            firsts[number] = made if length > 0 else -1
            slot = heads[number]
            while slot >= 0:
                owners[made] = number
                slots[made] = slot
                starts[made] = entry_starts[slot]
                lasts[made] = entry_lasts[slot]
                parents[made] = made
                slot = nexts[slot]
                links[made] = made + 1 if slot >= 0 else -1
                made += 1
        before = np.int64(-1)
        node = firsts[number]
        while node >= 0 and starts[node] - time > reach:
            before = node
            node = links[node]
        if node >= 0 and time - lasts[node] <= reach:
            lasts[node] = max(lasts[node], time)
            if time < starts[node]:
                starts[node] = time
                earlier = links[node]
                while earlier >= 0 and time - lasts[earlier] <= reach:
                    parents[earlier] = node
                    starts[node] = min(starts[node], starts[earlier])
                    lasts[node] = max(lasts[node], lasts[earlier])
                    earlier = links[earlier]
                links[node] = earlier
            row_nodes[row] = node
            continue
        if made == room:
            return row, made
        owners[made] = number
        slots[made] = -1
        starts[made] = time
        lasts[made] = time
        parents[made] = made
        links[made] = node
        if before < 0:
            firsts[number] = made
        else:
            links[before] = made
        row_nodes[row] = made
        made += 1
    return rows, made


@compiled
def settle(nodes: Any, parents: Any) -> None:
    """The root of each of these nodes (-1 stays) in its place."""
    for position in range(nodes.shape[0]):
        if nodes[position] >= 0:
            nodes[position] = _root(nodes[position], parents)
