"""Who dies again and again without getting any further: to restart it once more would never end.

A process that ended by itself may have run a row that kills it: after a few such deaths the row is looked for
(`seep.partition.wary`). One that was silent, or that somebody asked to be killed, says nothing about rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from seep.model.ids import PartitionId
from seep.protocol.journal import Entry
from seep.protocol.messages import Status

SUSPECT_AFTER = 3
"""Processes that ended by themselves, without progress, after which a row is suspected."""
HOPELESS = 25
"""Deaths of one partition without progress after which the flow stops with a report."""


class _Known(NamedTuple):
    reached: int
    """The epoch it had got to."""
    times: int
    """How often it died there."""
    crashes: int
    """How often of these by itself."""


class Deaths:
    def __init__(self) -> None:
        self._known: dict[PartitionId, _Known] = {}

    def note(self, entry: Entry, shown: str, last: Status | None, died: bool) -> str:
        """It has died once more (`died`: by itself); not empty: there is no hope, and why. ``shown``: how users know
        it."""
        known = self._of(entry)
        epoch = last.epoch if last is not None else -1
        times, crashes = known.times, known.crashes
        if epoch > known.reached:
            # A source that gets closer to the row by some shorter epochs is as suspect as before.
            near = crashes >= SUSPECT_AFTER and epoch <= known.reached + 2**crashes
            times, crashes = 0, SUSPECT_AFTER if near else 0
        self._known[entry.partition] = known = _Known(max(epoch, known.reached), times + 1, crashes + int(died))
        if known.times < HOPELESS:
            return ""
        return f"SeepError: {shown} died {HOPELESS} times at epoch {known.reached}; see the workers' logs"

    def reached(self, entry: Entry) -> int:
        return self._of(entry).reached

    def suspected(self, entry: Entry, died: bool) -> Entry:
        """The entry as it is started again: with the suspicion there is."""
        known = self._of(entry)
        if known.crashes < SUSPECT_AFTER:
            return replace(entry, deaths=0, reached=-1, died=None)
        return replace(entry, deaths=known.crashes, reached=known.reached, died=entry.generation if died else None)

    def found(self, entry: Entry) -> None:
        """A row was found that it died on: it may die again on others that are near. Those that were in the same
        process, and got no further because of it, begin anew."""
        self._known = {entry.partition: _Known(self._of(entry).reached, SUSPECT_AFTER, SUSPECT_AFTER)}

    def _of(self, entry: Entry) -> _Known:
        """One that a controller before this one has suspected is not a stranger."""
        return self._known.get(entry.partition, _Known(entry.reached, entry.deaths, entry.deaths))
