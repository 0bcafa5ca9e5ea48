"""What was decided about the sizes of operators, and kept: `seep explain` shows it.

Looks come every second and mostly say the same; changes are few, and what somebody asks for a day later. So they are
kept apart, for each operator: a look that says what the one before it said takes its place, and however many looks
there are, they push no change out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CHANGES_KEPT = 100
"""Of each operator, the latest."""
LOOKS_KEPT = 100
"""Of each operator, the latest that changed nothing and are not alike."""


@dataclass(frozen=True)
class Decision:
    at: float
    operator: str
    """Empty: nothing could be said about any."""
    before: int
    after: int
    why: str
    held: str = ""
    """Why it was not done; in one word, before the colon, for counting."""
    inputs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def changes(self) -> bool:
        return not self.held and self.after != self.before

    @property
    def direction(self) -> str:
        return "none" if not self.changes else "out" if self.after > self.before else "in"

    @property
    def result(self) -> tuple[Any, ...]:
        """Two looks with the same one are alike."""
        return self.operator, self.before, self.after, self.changes, self.held.partition(":")[0]


class Ledger:
    def __init__(self, operators: Iterable[str]) -> None:
        # All of them from the beginning: others read while something is added.
        self._changes: dict[str, deque[Decision]] = {name: deque(maxlen=CHANGES_KEPT) for name in ("", *operators)}
        self._looks: dict[str, deque[Decision]] = {name: deque(maxlen=LOOKS_KEPT) for name in self._changes}
        self._latest: dict[str, Decision] = {}

    def add(self, decision: Decision) -> None:
        name = decision.operator
        before, self._latest[name] = self._latest.get(name), decision
        if decision.changes:
            self._changes[name].append(decision)
            return
        looks = self._looks[name]
        if before is not None and before.result == decision.result:
            looks[-1] = decision  # the later one stands for both
        else:
            looks.append(decision)

    def all(self) -> list[Decision]:
        """Oldest first."""
        kept = [one for of in (self._changes, self._looks) for made in of.values() for one in list(made)]
        return sorted(kept, key=lambda one: one.at)


def shown(decisions: Sequence[Decision]) -> list[dict[str, Any]]:
    """For `seep explain` and the REST route."""
    return [
        {
            "at": round(d.at, 3),
            "operator": d.operator,
            "before": d.before,
            "after": d.after,
            "done": d.changes,
            "why": d.why,
            "held": d.held,
            "inputs": dict(d.inputs),
        }
        for d in decisions
    ]
