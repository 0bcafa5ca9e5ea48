"""What the partitions of one worker share: time, the journal, and the list of effects they add to.

A store call comes with the function that continues when its answer arrives; a partition that was dropped meanwhile
is not called any more, so an answer can never wake a dead generation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from seep.errors import SeepError, report_of
from seep.model.batch import Batch
from seep.model.ids import NOWHERE, PartitionId, Place
from seep.protocol.effects import Effect, Send, StoreReply
from seep.protocol.journal import Journal
from seep.protocol.messages import Message

if TYPE_CHECKING:
    from seep.model.settings import Settings
    from seep.partition.contract import Upgrade
    from seep.partition.wary import Notes

Continuation = Callable[[StoreReply], None]
Call = Callable[[object, Callable[[int], Effect], Continuation], None]
"""`Desk.call` or `Desk.call_again`."""


def failure_of(partition: PartitionId, error: SeepError) -> str:
    """The report of code that refused to go on (``on_error="fail"``): one line that names the operator."""
    text = str(error)
    return report_of(error, text if text.startswith(partition.operator) else f"{partition.operator}: {text}")


def unpublished(partition: PartitionId, problem: OSError, what_now: str) -> str:
    """What is said of an outside that is down."""
    return f"{partition}: cannot publish, {what_now}: {' '.join(str(problem).split())}"


class Desk:
    def __init__(self, worker: str, settings: Settings) -> None:
        self.worker = worker
        self.settings = settings
        self.journal = Journal()
        self.place = NOWHERE
        """Set by a host that knows where it runs."""
        self.places: dict[str, Place] = {}
        """Where others run, as far as is known."""
        self.now_ms = 0.0
        self.wall_ms = 0
        self.effects: list[Effect] = []
        self.local: deque[Message] = deque()
        """Messages between partitions of this worker: references, no wire."""
        self.changed = False
        """Something happened that the controller waits for: report now."""
        self.perform: Callable[[list[Effect]], None] | None = None
        """Set by a host that can perform effects while the machine is still at work."""
        self.spill: Callable[[Batch], Batch] | None = None
        """Set by a host with a disk: the same batch, no longer in memory."""
        self.notes: Notes | None = None
        """Set by a host that can keep them: which row is being run, while a row is suspected of killing the process."""
        self.clock: Callable[[], float] = lambda: 0.0
        """Set by a host that measures: ms that pass while the machine is at work."""
        self.more = False
        """A partition has stopped in the middle of its work: it goes on with the next tick, which should come soon."""
        self.upgrade: Callable[[str], Upgrade] | None = None
        """Set by a host that can find the code that a journal names."""
        self.lost = False
        """The store no longer has what was written to it: the flow must stop."""
        self.counts: dict[str, int] = {}
        self._token = 0
        self._waiting: dict[int, tuple[object, Continuation]] = {}
        self._later: list[tuple[float, object, Callable[[int], Effect], Continuation]] = []
        """Calls to make again, each not before its time (ms)."""

    def send(self, to: str, message: Message) -> None:
        if to == self.worker:
            self.local.append(message)
        elif to:
            self.effects.append(Send(to, message))

    def hand_over(self) -> None:
        """Long work comes: others need not wait for what is decided already."""
        if self.perform is not None and self.effects:
            effects, self.effects = self.effects, []
            self.perform(effects)

    def call(self, owner: object, make: Callable[[int], Effect], then: Continuation) -> None:
        self._token += 1
        self._waiting[self._token] = (owner, then)
        self.effects.append(make(self._token))

    def call_again(self, owner: object, make: Callable[[int], Effect], then: Continuation) -> None:
        """After a call that failed: the same once more, a moment later. A store that is down is not besieged."""
        self._later.append((self.now_ms + self.settings.retry_ms, owner, make, then))

    def tick(self) -> None:
        due = [again for again in self._later if again[0] <= self.now_ms] if self._later else ()
        for again in due:
            self._later.remove(again)
            self.call(*again[1:])

    def asked_by(self, reply: StoreReply) -> object | None:
        waiting = self._waiting.get(reply.token)
        return waiting[0] if waiting is not None else None

    def answer(self, reply: StoreReply) -> None:
        waiting = self._waiting.pop(reply.token, None)
        if reply.error == "lost":
            self.lost = self.changed = True
        elif waiting is not None:
            waiting[1](reply)

    def forget(self, owner: object) -> None:
        for token in [t for t, (who, _) in self._waiting.items() if who is owner]:
            del self._waiting[token]
        self._later = [again for again in self._later if again[1] is not owner]

    def count(self, what: str, by: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + by
