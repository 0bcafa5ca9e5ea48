"""Compiled loops over the rows of groups: each group is a doubly linked list of its rows' slots."""

from __future__ import annotations

from typing import Any

import numpy as np

from seep.model.hashing import compiled


@compiled
def link(rows: Any, groups: Any, first: Any, following: Any, previous: Any, group_of: Any) -> None:
    """Put each row in front of its group's list."""
    for position in range(rows.shape[0]):
        row, group = rows[position], groups[position]
        head = first[group]
        following[row] = head
        previous[row] = -1
        group_of[row] = group
        if head >= 0:
            previous[head] = row
        first[group] = row


@compiled
def unlink(rows: Any, first: Any, following: Any, previous: Any, group_of: Any) -> None:
    for position in range(rows.shape[0]):
        row = rows[position]
        behind, before = following[row], previous[row]
        if before >= 0:
            following[before] = behind
        else:
            first[group_of[row]] = behind
        if behind >= 0:
            previous[behind] = before


@compiled
def count_members(groups: Any, first: Any, following: Any) -> Any:
    total = 0
    for position in range(groups.shape[0]):
        row = first[groups[position]]
        while row >= 0:
            total += 1
            row = following[row]
    return total


@compiled
def members(groups: Any, first: Any, following: Any, total: int) -> Any:
    """All rows of these groups, and which of the groups (its position) each belongs to."""
    rows = np.empty(total, np.int64)
    owners = np.empty(total, np.int64)
    at = 0
    for position in range(groups.shape[0]):
        row = first[groups[position]]
        while row >= 0:
            rows[at] = row
            owners[at] = position
            at += 1
            row = following[row]
    return rows, owners
