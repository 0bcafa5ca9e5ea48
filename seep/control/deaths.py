"""Who dies again and again without getting any further: to restart it once more would never end.

A process that ended by itself may have run a row that kills it: after a few such deaths the row is looked for
(`seep.partition.wary`). One that was silent, or that somebody asked to be killed, says nothing about rows. A closed
connection is followed by the word of the backend that the process has ended; without that it was only a cable.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from typing import NamedTuple

from seep.model.ids import Generation, PartitionId
from seep.partition.wary import CONDEMNED_AFTER
from seep.protocol.journal import Entry
from seep.protocol.messages import Status

SUSPECT_AFTER = 3
"""Processes that ended by themselves, without progress, after which a row is suspected."""
CERTAIN_AFTER = SUSPECT_AFTER + CONDEMNED_AFTER
"""... and after which it may be condemned: those noted on it come on top."""
HOPELESS = 25
"""Deaths of one partition without progress after which the flow stops with a report."""
NEAR, LONG = 4, 10
"""So many epochs, twice as many with each death up to the tenth, are no progress of a suspect: what was heard of the
one before lags behind what it did, and a source may get closer to the row by some shorter epochs."""
UNCONFIRMED_AT_MOST = 100
SEE_LOGS = "see the workers' logs"
"""The end of a report; a host that knows where they are adds it."""


class _Known(NamedTuple):
    reached: int
    """The epoch it had got to."""
    published: int
    """... and, of a sink, up to which it had published, of a source, the last that had rows: those that nobody has seen
    may still kill it."""
    times: int
    """How often it died there."""
    crashes: int
    """How often of these its process is known to have ended by itself."""


class Deaths:
    def __init__(self) -> None:
        self._known: dict[PartitionId, _Known] = {}
        self._noted: dict[PartitionId, tuple[Generation, str]] = {}
        """The latest death of each, by who died, and what was said to it."""
        self._gone: dict[str, bool] = {}
        """Workers that are gone, nobody having asked for it; has the backend said that the process has ended?"""
        self._unconfirmed: dict[str, list[PartitionId]] = {}
        """Of those it has not said so of yet: what was restarted elsewhere meanwhile."""

    def lost(self, worker: str, ended: bool) -> None:
        """Its connection is closed; `ended`: its process has ended."""
        self._gone[worker] = ended or self._gone.get(worker, False)
        for partition in self._unconfirmed.pop(worker, ()) if ended else ():
            if partition in self._known:
                known = self._known[partition]
                self._known[partition] = known._replace(crashes=known.crashes + 1)

    def forget_all_but(self, workers: Container[str]) -> None:
        self._gone = {worker: ended for worker, ended in self._gone.items() if worker in workers}
        for worker in list(self._unconfirmed)[:-UNCONFIRMED_AT_MOST]:
            del self._unconfirmed[worker]

    def note(self, entry: Entry, shown: str, last: Status | None) -> str:
        """It has died once more, with its worker; not empty: there is no hope, and why. ``shown``: how users know
        it."""
        known = self._of(entry)
        epoch = last.epoch if last is not None else -1
        published = min(epoch, last.published) if last is not None else -1
        times = 0 if epoch > known.reached else known.times
        crashes = 0 if published > known.published + NEAR * 2 ** min(known.crashes, LONG) else known.crashes
        if entry.worker in self._gone:
            if self._gone[entry.worker]:
                crashes += 1
            else:
                self._unconfirmed.setdefault(entry.worker, []).append(entry.partition)
        reached, published = max(epoch, known.reached), max(published, known.published)
        self._known[entry.partition] = known = _Known(reached, published, times + 1, crashes)
        if known.times < HOPELESS:
            return ""
        return f"SeepError: {shown} died {HOPELESS} times at epoch {known.reached}; {SEE_LOGS}"

    def note_once(self, entry: Entry, shown: str, last: Status | None) -> str:
        """The same, once for each generation: a journal in which it is started again may never be written (the disk is
        full), and is thought of again and again until it is."""
        noted = self._noted.get(entry.partition)
        if noted is None or noted[0] != entry.generation:
            noted = self._noted[entry.partition] = entry.generation, self.note(entry, shown, last)
        return noted[1]

    def reached(self, entry: Entry) -> int:
        return self._of(entry).reached

    def certain(self, entry: Entry) -> bool:
        """Did as many processes end by themselves as it takes to condemn a row?"""
        return self._of(entry).crashes >= CERTAIN_AFTER

    def suspected(self, entry: Entry) -> Entry:
        """The entry as it is started again: with the suspicion there is."""
        known = self._of(entry)
        if known.crashes < SUSPECT_AFTER:
            return replace(entry, deaths=0, reached=-1, heir_of=None, died=False)
        died = entry.worker in self._gone
        return replace(entry, deaths=known.crashes, reached=known.reached, heir_of=entry.generation, died=died)

    def found(self, entry: Entry) -> None:
        """A row was found that it died on: it may die again on others that are near. Those that were in the same
        process, and got no further because of it, begin anew."""
        self._known = {partition: known._replace(times=0, crashes=0) for partition, known in self._known.items()}
        self._known[entry.partition] = self._of(entry)._replace(times=SUSPECT_AFTER, crashes=SUSPECT_AFTER)

    def _of(self, entry: Entry) -> _Known:
        """One that a controller before this one has suspected is not a stranger. But it has died no more often without
        progress than that makes it: its deaths of long ago are kept for the search, and it has got further since."""
        times = min(entry.deaths, SUSPECT_AFTER)
        return self._known.get(entry.partition, _Known(entry.reached, entry.reached, times, entry.deaths))
