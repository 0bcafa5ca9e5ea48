"""Compiled loops over the versions of keys: each key has a list of its versions' slots, the newest first."""

from __future__ import annotations

from typing import Any

import numpy as np

from seep.model.hashing import compiled


@compiled
def enter(versions: Any, keys: Any, times: Any, newest: Any, older: Any) -> None:
    """Put each version at its place in its key's list. Fast when they come in the order of time."""
    for position in range(versions.shape[0]):
        version, key = versions[position], keys[position]
        newer, at = np.int64(-1), newest[key]
        while at >= 0 and times[at] > times[version]:
            newer, at = at, older[at]
        older[version] = at
        if newer >= 0:
            older[newer] = version
        else:
            newest[key] = version


@compiled
def take_out(versions: Any, keys: Any, newest: Any, older: Any) -> None:
    for position in range(versions.shape[0]):
        version, key = versions[position], keys[position]
        newer, at = np.int64(-1), newest[key]
        while at != version:
            newer, at = at, older[at]
        if newer >= 0:
            older[newer] = older[version]
        else:
            newest[key] = older[version]


@compiled
def valid_at(keys: Any, moments: Any, times: Any, newest: Any, older: Any) -> Any:
    """The latest version of each key (-1: there is no such key) that is not after its moment, or -1."""
    result = np.full(keys.shape[0], -1, np.int64)
    for row in range(keys.shape[0]):
        if keys[row] >= 0:
            at = newest[keys[row]]
            while at >= 0 and times[at] > moments[row]:
                at = older[at]
            result[row] = at
    return result


@compiled
def outdated(keys: Any, limit: Any, times: Any, gone: Any, newest: Any, older: Any, found: Any) -> Any:
    """Versions that nobody at or after ``limit`` can see; a deletion that is the last one seen is as good as nothing.

    They are cut from their lists and listed in ``found``; answers how many they are, and the first limit at which
    there will be more.
    """
    number = 0
    due = np.int64(2**62)
    for position in range(keys.shape[0]):
        key = keys[position]
        newer, at = np.int64(-1), newest[key]
        while at >= 0 and times[at] > limit:
            if older[at] >= 0 or gone[at]:
                due = min(due, times[at])
            newer, at = at, older[at]
        if at >= 0 and not gone[at]:
            newer, at = at, older[at]
        if newer >= 0:
            older[newer] = -1
        else:
            newest[key] = -1
        while at >= 0:
            found[number] = at
            number += 1
            at = older[at]
    return number, due
