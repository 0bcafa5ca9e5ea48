"""What a source partition knows of the splits it owns: where each stands, and what follows from all of them together.

A split belongs to whoever owns its origin bucket, born or not. So nobody has to agree on the epoch in which a new one
is born: its owner takes it up when it hears of it, and from then on it is in the owner's log, with the position where
it begins. Whoever owns the bucket next finds it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from seep.model.ids import BEGINNING, FOREVER, KeyRange
from seep.partition.contract import Intake, split_bucket

Known = list[Any]
"""[start, end, greatest time, ended, last heard of (ms), counters since the beginning], as the log has it."""


class Splits:
    def __init__(self, intake: Intake, key_range: KeyRange) -> None:
        self.intake = intake
        self.key_range = key_range
        self._appeared = getattr(intake, "appeared", None)
        self._caught_up = getattr(intake, "caught_up", None)
        self.known: dict[int, Known] = {}
        """In canonical order: by origin bucket, then by number."""
        begins = getattr(intake, "begins", None)
        first = filter(self._owns, range(intake.splits))
        self.learn({split: _fresh(begins(split) if begins else None, 0) for split in first})

    def learn(self, more: Mapping[int, Known]) -> None:
        """These, in place of what was known of them."""
        known = {**self.known, **more}
        if len(known) > len(self.known):
            known = {split: known[split] for split in sorted(known, key=self._order)}
        self.known = known

    def inherit(self, of_predecessor: Iterable[tuple[int, Known]]) -> None:
        """What its log says of those that are owned here now."""
        self.learn({split: [end, end, *rest] for split, (_, end, *rest) in of_predecessor if self._owns(split)})

    def grow(self, wall_ms: int) -> None:
        """Take up those that have appeared. They are not idle yet, like any that has not been read."""
        if self._appeared is not None:
            found = self._appeared(wall_ms).items()
            born = {split: _fresh(at, wall_ms) for split, at in found if split not in self.known and self._owns(split)}
            if born:
                self.learn(born)

    def nothing_came(self, split: int, known: Known, wall_ms: int) -> None:
        """That is silence, unless the split may hold rows that have not got here: of a broker that is away, or has not
        answered yet. What is decided here is in the log, so it is decided once."""
        if self._caught_up is not None and not self._caught_up(split, known[1]):
            known[4] = wall_ms

    def in_order(self, record: Mapping[str, Known]) -> list[tuple[int, Known]]:
        """Those of a log record, in canonical order."""
        return sorted(splits_of(record), key=lambda one: self._order(one[0]))

    def _order(self, split: int) -> tuple[int, int]:
        return split_bucket(split, self.intake.splits), split

    def _owns(self, split: int) -> bool:
        return split_bucket(split, self.intake.splits) in self.key_range

    # --- all together --------------------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Nothing follows. One that owns no split has not ended as long as it may get one."""
        return not getattr(self.intake, "grows", False) and all(known[3] for known in self.known.values())

    def active(self, wall_ms: int) -> list[Known]:
        """The splits that are neither ended nor idle."""
        idle_ms = self.intake.idle_ms
        open_ones = [known for known in self.known.values() if not known[3]]
        return [known for known in open_ones if idle_ms is None or wall_ms - known[4] < idle_ms]

    def watermark(self, wall_ms: int, before: int) -> int:
        """By split, so that it does not depend on how splits are spread; ended and idle ones hold nobody back. It may
        step back when an idle split wakes up or a new one is taken up: receivers see to it that theirs does not."""
        times = [known[2] for known in self.active(wall_ms)]
        if times:
            return min(time - self.intake.lateness_us if time > BEGINNING else BEGINNING for time in times)
        return FOREVER if self.ended else before

    def reached(self) -> int:
        """Where the latest row would have left the watermark, whichever split it came by."""
        latest: int = max((known[2] for known in self.known.values()), default=BEGINNING)
        return latest - self.intake.lateness_us if latest > BEGINNING else BEGINNING

    def refused(self) -> dict[str, int]:
        counters = [known[5] for known in self.known.values()]
        return {name: sum(c.get(name, 0) for c in counters) for name in ("errors", "skipped")}


def splits_of(record: Mapping[str, Known]) -> list[tuple[int, Known]]:
    return [(int(split), known) for split, known in record.items()]


def _fresh(begins: Any, heard_ms: int) -> Known:
    return [begins, begins, BEGINNING, False, heard_ms, {}]
