"""What the controller measures: its decisions, what runs, and how long changes take.

Served like the numbers of a worker (`exporter.py`), on a port that is listed among the targets. Everything is given
from the first scrape on, at zero, every known reason and direction included. The label ``flow`` comes with the
target, and ``job`` and ``instance`` are Prometheus' own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from seep.control.governor import DIRECTIONS, HELD
from seep.partition.histogram import Histogram
from seep.protocol.journal import LIVE, Journal, Replace
from seep.runtime.numbers import Family, Snapshot

DECISIONS = Family("seep_controller_decisions_total", ("direction",), "Decisions on an operator: out, in, none.")
HELD_BACK = Family("seep_controller_held_total", ("reason",), "Decisions that were held back, by reason.")
PARTITIONS = Family("seep_controller_partitions", ("operator",), "Live partitions.")
WORKERS = Family("seep_controller_workers", (), "Workers that are heard of.")
REPLACED = Family("seep_controller_replace_seconds", (), "From the first step of a Replace to its commit.")
RECOVERIES = Family("seep_controller_recoveries_total", (), "Partitions started again, since their worker was lost.")
FAMILIES = (DECISIONS, HELD_BACK, PARTITIONS, WORKERS, REPLACED, RECOVERIES)
HISTOGRAMS = frozenset({REPLACED.name})


class Changes:
    """What became of partitions, read from one journal after the other."""

    def __init__(self) -> None:
        self.replaced = Histogram()
        """Committed Replaces; what was given up is left out."""
        self.recoveries = 0
        self._journal = Journal()
        self._began_ms: dict[int, float] = {}
        """By the number of the Replace: when it was first seen."""

    def look(self, journal: Journal, now_ms: float) -> None:
        """To be called with every new journal; the same one again is nothing new."""
        before, self._journal = self._journal, journal
        if journal is before:
            return
        pending = {replace.number for replace in journal.replaces}
        for replace in before.replaces:
            if replace.number not in pending and _committed(replace, journal):
                self.replaced.add(now_ms - self._began_ms[replace.number])
        self._began_ms = {number: self._began_ms.get(number, now_ms) for number in pending}
        for partition, entry in before.entries.items():
            now = journal.entries.get(partition)
            if now is not None and entry.worker and now.generation != entry.generation:
                self.recoveries += 1


def _committed(replace: Replace, journal: Journal) -> bool:
    """It is over: does nobody of the old ones live any more? A savepoint has no operator and replaces nothing."""
    entries = [journal.entries[partition] for partition in replace.old if partition in journal.entries]
    return bool(replace.operator) and all(entry.role != LIVE for entry in entries)


def snapshot(
    operators: Iterable[str], journal: Journal, workers: int, changes: Changes, counts: Mapping[str, int]
) -> Snapshot:
    """`counts`: those of the governor, by direction and by reason."""
    counts = dict(counts)  # the governor goes on meanwhile
    reasons = [*HELD, *(word for word in counts if word not in (*HELD, *DIRECTIONS))]
    return {
        DECISIONS.name: {(direction,): counts.get(direction, 0) for direction in DIRECTIONS},
        HELD_BACK.name: {(reason,): counts.get(reason, 0) for reason in reasons},
        PARTITIONS.name: {(operator,): len(journal.live(operator)) for operator in operators},
        WORKERS.name: {(): workers},
        REPLACED.name: {(): changes.replaced},
        RECOVERIES.name: {(): changes.recoveries},
    }
