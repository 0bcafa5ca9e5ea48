"""The next step of a Replace, as a function of the journal and of what the partitions said last.

A step is taken only on Statuses that were given under the newest journal: then everybody concerned acts on the step
before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from seep.control import planner
from seep.model.ids import FOREVER, PartitionId
from seep.partition.contract import Graph
from seep.protocol.journal import SEALED, Journal, Replace
from seep.protocol.messages import Status

LAG_EPOCHS = 3
"""Shadows this close behind are caught up: the switch will not be felt downstream."""
PATIENCE_EPOCHS = 40
"""On a machine that is too busy for old and new together shadows never come that close. After so many epochs they may
be further behind, by one for every two more that pass; one that hangs falls behind faster and is not switched to. The
switch sets the old ones' share of the machine free."""
AHEAD_EPOCHS = 2
"""The switch lies so far ahead: receivers have subscribed to the new ones by the time they need them."""


class Known(NamedTuple):
    version: int
    """Of the committed journal."""
    statuses: Mapping[PartitionId, Status]
    """The latest of each partition, of the generation that the journal names."""
    waited_epochs: float = 0.0
    """Since the Replace began: its time in epochs."""
    graph: Graph = Graph({}, ())

    def current(self, partition: PartitionId) -> Status | None:
        status = self.statuses.get(partition)
        return status if status is not None and status.journal_version == self.version else None


def next_step(journal: Journal, replace: Replace, known: Known, hopeless: str = "") -> tuple[Journal, str]:
    """The journal after the next step (the same one: nothing to do yet), and what to note of it. `hopeless`: why it is
    not gone on with."""
    if replace not in journal.replaces:
        return journal, ""
    if hopeless:
        return planner.abort(journal, replace), f"given up, {hopeless}"
    if replace.code:
        return _upgrade(journal, replace, known)
    if replace.handover:
        return _hand_over(journal, replace, known)
    if not replace.operator:
        return _fix(journal, replace, known)
    if not replace.new:
        return _start_shadows(journal, replace, known)
    return _commit(journal, replace, known)


def _commit(journal: Journal, replace: Replace, known: Known) -> tuple[Journal, str]:
    newest = max((known.statuses[p].epoch for p in replace.old if p in known.statuses), default=0)
    lag = LAG_EPOCHS + max(0.0, known.waited_epochs - PATIENCE_EPOCHS) / 2
    reached = []
    for partition in replace.new:
        status = known.current(partition)
        if status is None or not status.accepted or not status.own_checkpoints or status.epoch < newest - lag:
            return journal, ""
        reached.append(status.epoch)
    # No earlier than any old life begins, and later than every checkpoint that a new one started from.
    ahead = 1 + newest + AHEAD_EPOCHS
    first = max([1 + min(reached), ahead, *(journal.entries[p].first for p in (*replace.old, *replace.new))])
    return planner.commit(journal, replace, first), f"committed from epoch {first}"


def _start_shadows(journal: Journal, replace: Replace, known: Known) -> tuple[Journal, str]:
    fixed: dict[PartitionId, tuple[int, int]] = {}
    passed, newest = False, 0
    for partition in replace.old:
        status = known.current(partition)
        if status is None:
            return journal, ""
        newest = max(newest, status.epoch)
        if status.fixed_version and (not replace.at or status.fixed_epoch == replace.at):
            fixed[partition] = (status.fixed_version, status.fixed_epoch)
        elif replace.at and status.epoch >= replace.at and status.fixed_epoch != replace.at:
            passed = True
    if len(fixed) == len(replace.old):
        return planner.start_shadows(journal, replace, fixed), "shadows start"
    if passed:
        return planner.decide_epoch(journal, replace, newest + 2), f"checkpoint at epoch {newest + 2} instead"
    return journal, ""


def _fix(journal: Journal, replace: Replace, known: Known) -> tuple[Journal, str]:
    """Only whether the epoch was missed, by an operator that has no checkpoint of it, or by a log that begins later:
    whoever asked for it reads the Statuses and releases it."""
    statuses = [s for s in map(known.current, journal.entries) if s]
    if any(s.epoch >= replace.at and s.fixed_epoch != replace.at for s in statuses):
        return planner.decide_epoch(journal, replace, 2 + max(s.epoch for s in statuses)), "another epoch"
    return journal, ""


def _hand_over(journal: Journal, replace: Replace, known: Known) -> tuple[Journal, str]:
    begun, last = [], 1
    for partition in replace.old:
        status = known.current(partition)
        if status is None or status.begun < 0:
            return journal, ""
        begun.append(status.begun)
        # One whose input has ended begins no more; what it has said must still lie before E.
        last = max(last, status.epoch if status.begun >= FOREVER else status.begun)
    if min(begun) >= FOREVER:
        return planner.abort(journal, replace), "given up, its input has ended"
    if not replace.at:
        return planner.decide_epoch(journal, replace, last), f"hand-over after epoch {last}"
    if min(begun) >= replace.at:
        return planner.commit_handover(journal, replace), f"handed over after epoch {replace.at}"
    return journal, ""


def _upgrade(journal: Journal, replace: Replace, known: Known) -> tuple[Journal, str]:
    statuses = [known.current(partition) for partition in replace.old]
    if refused := next((s.refusal for s in statuses if s is not None and s.refusal), ""):
        return planner.abort(journal, replace), f"given up: {refused}"
    begun = [s.begun for s in statuses if s is not None]
    if len(begun) < len(replace.old) or min(begun) < 0:
        return journal, ""
    at = max(replace.at or _heard_of(journal, replace, known), *begun)
    if at >= FOREVER:
        return journal, ""
    if at > replace.at:
        return planner.decide_epoch(journal, replace, at), f"the old code ends with epoch {at}"
    if min(begun) >= at:
        return planner.commit_upgrade(journal, replace), f"upgraded from epoch {at + 1} on"
    return journal, ""


def _heard_of(journal: Journal, replace: Replace, known: Known) -> int:
    """Up to where the old code has a hand in, also where it was forgotten: by a generation that is gone, and on its way
    still to somebody behind it. Nobody hears of these any more once he acts on this journal; FOREVER: not all do."""
    behind = known.graph.behind(replace.operator)
    told = [known.current(p) for p in journal.entries if p.operator in behind]
    heard = [s.heard for s in told if s is not None and s.heard >= 0]
    if len(heard) < len(told):
        return FOREVER
    sealed = [e.last for e in journal.of(replace.operator) if e.role == SEALED]
    before = [code.first for code in journal.codes.get(replace.operator, ())]  # each has an epoch at least
    # A row that is left out was one of the old code's, or came to it.
    condemned = [p.epoch for p in journal.poisons if p.operator in behind | {replace.operator}]
    return max([1, *before, *sealed, *heard, *condemned])
