"""When is an operator as somebody wanted it, while others, or a policy, want it otherwise?"""

from __future__ import annotations

from collections.abc import Callable

from seep.model.ids import PartitionId
from seep.runtime.controller import ControllerHost


def scaled(host: ControllerHost, operator: str, count: int) -> Callable[[], bool]:
    """To be made before it is asked for: says whether the operator has got so many partitions since."""

    def live() -> list[PartitionId]:
        return [entry.partition for entry in host.view.journal.live(operator)]

    before = live()

    def done() -> bool:
        now, replaces = live(), host.view.journal.replaces
        # What was asked for next begins with the commit of this: then it is not at rest, and not as it was either.
        return len(now) == count and (now != before or all(replace.operator != operator for replace in replaces))

    return done
