"""What a source that keeps what it was sent must be told: what nobody will ask for again, and that no more is taken.

Sources that others keep for them (a topic, a file) need none of it, and have no such methods.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from seep.partition.contract import Intake


class Told:
    def __init__(self, intake: Intake) -> None:
        self._forget = getattr(intake, "forget", None)
        self._drained = getattr(intake, "drained", None)
        self._close = getattr(intake, "close", None)
        self._ends: deque[tuple[int, dict[int, Any]]] = deque()
        """Of each epoch that somebody may ask for, where it ends in each split."""

    def announced(self, epoch: int, splits: Mapping[int, Sequence[Any]]) -> None:
        if self._forget is not None:
            self._ends.append((epoch, {split: known[1] for split, known in splits.items()}))

    def trimmed(self, upto: int) -> None:
        """No row of an epoch up to this one is asked for again."""
        ends: dict[int, Any] = {}
        while self._ends and self._ends[0][0] <= upto:
            ends = self._ends.popleft()[1]
        for split, end in ends.items():
            if self._forget is not None and end is not None:
                self._forget(split, end)

    def drained(self, splits: Mapping[int, Sequence[Any]]) -> bool:
        """Is all read that it has taken? From the first call on it takes no more."""
        if self._drained is None:
            return True
        answers = [self._drained(split, known[1]) for split, known in splits.items()]
        return all(answers)

    def close(self) -> None:
        """Somebody else reads it now, or nobody."""
        if self._close is not None:
            self._close()
