"""Which code a partition of an operator runs: by the journal a function of the epoch, the same for all of them.

    running -> stopped (an upgrade is asked for) -> at its epoch: the new code is tried on all that is remembered
       ^                                               |
       +------ committed: with it; aborted: without ---+

What is saved at an epoch was made by the code of that epoch. So whoever starts from it, also in a recovery long after,
takes it with that code, and hands on what it remembers at the epoch where the next code begins.
"""

from __future__ import annotations

from typing import NamedTuple

from seep.errors import Misuse
from seep.model.ids import FOREVER, PartitionId
from seep.partition.contract import Logic, Node, Upgrade
from seep.partition.desk import Desk
from seep.protocol.journal import Code, Replace


class Trial(NamedTuple):
    code: str
    epoch: int
    logic: Logic | None
    """With all that the partition remembers at that epoch."""
    refusal: str = ""
    """Why there is none."""


class Coded:
    def __init__(self, desk: Desk, partition: PartitionId, node: Node) -> None:
        self.desk = desk
        self.partition = partition
        self.node = node
        self.logic: Logic = node.make()
        self.passed = 0
        """So many upgrades of the operator are behind it."""
        self.trial: Trial | None = None
        self.before: Logic | None = None
        """What ran until the last upgrade, for a host that has yet to take its dead letters."""

    @property
    def pending(self) -> Replace | None:
        """The upgrade that is asked for."""
        replace = self.desk.journal.replacing(self.partition)
        return replace if replace is not None and replace.code else None

    def last_epoch(self, epoch: int) -> int:
        """Of the code that runs, as far as is known: nothing is begun while that is being agreed on."""
        replace = self.pending
        return FOREVER if replace is None else replace.at or epoch

    def begun(self, epoch: int, is_saved: bool) -> int:
        """For the controller: the last epoch begun; of the last one of the old code only once it is saved, and nothing
        is left to do but to go on."""
        replace = self.pending
        if replace is None:
            return -1
        is_ready = is_saved and self._has_tried(replace)
        return epoch if replace.at != epoch or is_ready else -1

    def begin(self, epoch: int) -> None:
        """Take what was saved at this epoch."""
        self.passed = sum(code.first <= epoch for code in self._codes())
        if self.passed:
            self.logic = self._found(self._codes()[self.passed - 1].name).node.make()

    def reach(self, epoch: int, now_ms: int) -> bool:
        """Before this epoch is taken: hand on what is remembered to the code of it. Answers whether that is another."""
        due = [code for code in self._codes()[self.passed :] if code.first <= epoch]
        for first, name in due:
            trial, self.trial = self.trial, None
            tried = trial.logic if trial is not None and trial[:2] == (name, first - 1) else None
            upcoming = self._handed_on(name, now_ms) if tried is None else tried
            self.before, self.logic = self.logic, upcoming
            self.passed += 1
        return bool(due)

    def tries(self, replace: Replace, now_ms: int) -> bool:
        """Try the new code of an upgrade at its last epoch; once. Answers whether it was tried now."""
        if self.trial is not None and self.trial[:2] == (replace.code, replace.at):
            return False
        try:
            self.trial = Trial(replace.code, replace.at, self._handed_on(replace.code, now_ms))
        except Exception as error:  # whatever new code raises: the old one goes on
            text = str(error) if isinstance(error, Misuse) else f"{type(error).__name__}: {error}"
            self.trial = Trial(replace.code, replace.at, None, text)
        return True

    def forget(self) -> None:
        """No upgrade is asked for any more."""
        self.trial = None

    def _has_tried(self, replace: Replace) -> bool:
        return self.trial is not None and self.trial[:2] == (replace.code, replace.at) and self.trial.logic is not None

    @property
    def refusal(self) -> str:
        return "" if self.trial is None else self.trial.refusal

    def _handed_on(self, name: str, now_ms: int) -> Logic:
        upgrade = self._found(name)
        logic: Logic = upgrade.node.make()
        logic.load(upgrade.fit(self.logic.snapshot(True), now_ms))
        return logic

    def _found(self, name: str) -> Upgrade:
        if self.desk.upgrade is None:
            raise Misuse(f"{self.node.name} has been upgraded to {name}, which nobody can find here")
        return self.desk.upgrade(name)

    def _codes(self) -> tuple[Code, ...]:
        return self.desk.journal.codes.get(self.node.name, ())
