"""What the controller measures: its decisions, what runs, and how long changes take.

Served like the numbers of a worker (`exporter.py`), on a port that is listed among the targets. Everything is given
from the first scrape on, at zero, every known reason and direction included. The label ``flow`` comes with the
target, and ``job`` and ``instance`` are Prometheus' own.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from seep.control.governor import DIRECTIONS, HELD
from seep.model.ids import PartitionId
from seep.partition.histogram import Histogram
from seep.protocol.journal import LIVE, Journal, Replace
from seep.protocol.messages import Status
from seep.runtime.numbers import Family, Snapshot

DECISIONS = Family("seep_controller_decisions_total", ("direction",), "Decisions on an operator: out, in, none.")
HELD_BACK = Family("seep_controller_held_total", ("reason",), "Decisions that were held back, by reason.")
PARTITIONS = Family("seep_controller_partitions", ("operator",), "Live partitions.")
WORKERS = Family("seep_controller_workers", (), "Workers that are heard of.")
REPLACED = Family("seep_controller_replace_seconds", (), "From the first step of a Replace to its commit.")
RECOVERIES = Family("seep_controller_recoveries_total", (), "Partitions started again, since their worker was lost.")
RECOVERED = Family("seep_controller_recovery_seconds", (), "From a worker's loss until its partitions are further on.")
POISONS = Family("seep_controller_poison_rows_total", (), "Rows left out because the process died on them.")
FAMILIES = (DECISIONS, HELD_BACK, PARTITIONS, WORKERS, REPLACED, RECOVERIES, RECOVERED, POISONS)
HISTOGRAMS = frozenset({REPLACED.name, RECOVERED.name})


class Changes:
    """What became of partitions, read from one journal after the other."""

    def __init__(self) -> None:
        self.replaced = Histogram()
        """Committed Replaces; what was given up is left out."""
        self.recoveries = 0
        self.recovered = Histogram()
        """Until each lost partition had taken an epoch later than any it had told of."""
        self._lost: dict[PartitionId, tuple[float, int]] = {}
        """(when, its latest epoch) of those that are not back yet."""
        self._journal = Journal()
        self._began_ms: dict[int, float] = {}
        """By the number of the Replace: when it was first seen."""

    def look(
        self, journal: Journal, now_ms: float, heard: Container[str], statuses: Mapping[PartitionId, Status]
    ) -> None:
        """To be called with every turn of the loop. `heard`: the workers that are there."""
        self._look_for_lost(journal, now_ms, heard, statuses)
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
                # A zombie is replaced although its worker is heard of.
                self._lost.setdefault(partition, (now_ms, _epoch(statuses.get(partition))))

    def _look_for_lost(
        self, journal: Journal, now_ms: float, heard: Container[str], statuses: Mapping[PartitionId, Status]
    ) -> None:
        for partition, entry in journal.entries.items():
            if entry.role == LIVE and entry.worker and entry.worker not in heard:
                self._lost.setdefault(partition, (now_ms, _epoch(statuses.get(partition))))
        for partition, (since_ms, epoch) in list(self._lost.items()):
            now, status = journal.entries.get(partition), statuses.get(partition)
            if now is None or now.role != LIVE:
                del self._lost[partition]  # others have taken its place
            elif now.worker in heard and status is not None and status.generation == now.generation:
                if status.epoch > epoch or status.ended:
                    del self._lost[partition]
                    self.recovered.add(now_ms - since_ms)


def _epoch(status: Status | None) -> int:
    return status.epoch if status is not None else -1


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
        RECOVERED.name: {(): changes.recovered},
        POISONS.name: {(): len(journal.poisons)},
    }
