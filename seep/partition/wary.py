"""How a partition looks for a row that kills its process.

After some deaths without progress the journal says so (`Entry.deaths`). From then on, and for some epochs, user code
runs row by row, and each row is noted in the store before it is run. Who finds that the one before it died with the
note on the very row that it comes to itself, and so did another before that, does not run it: it stops there and says
so. The controller writes the row to the journal, and it is left out from then on.

A note is not a death: it counts only when the journal says that the process of that generation ended by itself.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, Protocol

from seep.errors import SeepError
from seep.model.care import CAREFREE, Care, Condemned, Spot
from seep.model.ids import Generation, PartitionId
from seep.partition.desk import Desk
from seep.protocol.journal import Entry, Poison

CONDEMNED_AFTER = 2
"""Deaths on the very same row, each noted; after those that made it suspect."""
FURTHEST = 30


class Note(NamedTuple):
    epoch: int
    spot: Spot
    times: int
    """So many processes were at this row when they were last heard of, this one included if it runs it."""
    running: bool = True
    """Else it is handed on: this process has not come to the row yet, and what it dies of is something else."""
    upgrades: int = 0
    """So many there had been of the flow: after another one, another row may be where this one was."""


class Notes(Protocol):
    """Where notes outlive the process; a host gives it."""

    def write(self, partition: PartitionId, generation: Generation, note: Note | None) -> None:
        """Once it returns, the note is found by whoever comes after this process."""

    def read(self, partition: PartitionId, generation: Generation) -> Note | None:
        """What this generation noted last; None: no row, or nothing that can be read."""

    def wait(self) -> None:
        """For much longer than a row takes."""


class Wary:
    def __init__(self, desk: Desk, entry: Entry) -> None:
        self._desk = desk
        self._entry = entry
        self._notes: Notes | None = desk.notes if entry.deaths else None
        self._before = self._inherited()
        self._at_before = False
        self._until: int | None = None
        self.accused: Poison | None = None

    def care(self, epoch: int, done: int, first: bool = True) -> Care:
        """For the rows of this epoch (a source: of the one after it); `done`: the last one that is behind us. Not the
        `first` time that these rows are run: they did no harm."""
        skips = self._desk.journal.skips(self._entry.partition.operator, epoch)
        if self._notes is None and not skips:
            return CAREFREE
        if not first or not self._looks(done):
            return Care(skips)
        return Care(skips, partial(self._note, epoch), None if self._before is None else self._before.spot)

    @property
    def _upgrades(self) -> int:
        return sum(map(len, self._desk.journal.codes.values()))

    def _looks(self, done: int) -> bool:
        """What was heard of the dead lags behind what they did, so each further death makes the search longer."""
        if self._notes is None:
            return False
        if self._until is None:
            self._until = max(self._entry.reached, done) + 2 ** min(self._entry.deaths, FURTHEST)
        return done < self._until

    def _inherited(self) -> Note | None:
        """The row that those before us have died on. Kept as our own note until we come to it ourselves: one process
        runs several partitions, and may die of another one's row."""
        entry, notes = self._entry, self._notes
        if notes is None or entry.heir_of is None:
            return None
        note = notes.read(entry.partition, entry.heir_of)
        if note is None or note.upgrades != self._upgrades:
            return None
        times = note.times - int(note.running and not entry.died)
        note = note._replace(times=times, running=False) if times else None
        try:
            notes.write(entry.partition, entry.generation, note)
        except SeepError:
            return None  # the store is away: what nobody has on record is no evidence
        return note

    def _note(self, epoch: int, spot: Spot | None) -> bool:
        assert self._notes is not None
        if self._at_before:
            self._before, self._at_before = None, False  # it has done no harm this time
        before, note = self._before, self._before
        if spot is not None:
            found = (epoch, spot, self._upgrades)
            self._at_before = before is not None and (before.epoch, before.spot, before.upgrades) == found
            times = before.times if before is not None and self._at_before else 0
            if times >= CONDEMNED_AFTER:
                return True
            if times:
                # Whoever is killed from outside, again and again, is killed now rather than in the moment of the row.
                self._notes.write(self._entry.partition, self._entry.generation, before)
                self._notes.wait()
            note = Note(epoch, spot, times + 1, upgrades=self._upgrades)
        self._notes.write(self._entry.partition, self._entry.generation, note)
        return False

    def accuse(self, epoch: int, found: Condemned, after: bool = False) -> str:
        """Say which row it was (`after`: of the epoch after this one); not empty: the flow is to stop, and why."""
        poison = Poison(self._entry.partition.operator, epoch, found.spot, found.shown, after)
        self._desk.changed = True
        if found.fails:
            how = "fix the function or use on_error='dead_letter'"
            return f"Misuse: {found.shown}: the process died again and again on {poison}; {how}"
        self.accused = poison
        return ""
