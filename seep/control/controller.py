"""The controller: looks at the journal and at the latest Status of each partition, and takes the next step.

Level-triggered: nothing it decides rests on having seen a particular message, so a lost report costs a moment, and a
controller that is started again (with a higher term) goes on from the journal alone. It changes the journal only by
compare-and-set; one that finds a higher term there steps down.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace as with_fields

from seep.control import planner
from seep.control.asked import Asked, Before
from seep.control.attendance import Attendance
from seep.control.deaths import Deaths
from seep.control.leftovers import leftovers
from seep.control.parts import recovers_in_parts
from seep.control.placement import idle, place, spread
from seep.control.pool import Pool
from seep.control.pressure import Pressure
from seep.control.requests import Request, StopFlow, WorkerLost
from seep.control.scaling import begin_request
from seep.control.silent import Silent
from seep.control.steps import Known, next_step
from seep.control.verdict import verdict
from seep.model.ids import FOREVER, Generation, PartitionId
from seep.model.settings import Settings
from seep.partition.contract import Graph
from seep.partition.worker import LOST
from seep.protocol.effects import (
    Effect,
    KillWorker,
    ReadJournal,
    ReleaseWorker,
    Send,
    StoreReply,
    SwapJournal,
)
from seep.protocol.journal import LIVE, SHADOW, Entry, Journal
from seep.protocol.messages import Busy, Hello, Plan, Report, Status

SLOT_WAIT = 2.0
"""Times as long as it takes until a silent worker counts as dead: so long a new one may take to come."""
DRAIN = "drain"
"""The flow is being stopped by ending its input: until it has ended it is still recovered and changed."""


class Controller:
    def __init__(
        self,
        graph: Graph,
        settings: Settings,
        workers: int = 2,
        parts: int = 1,
        first: Journal | None = None,
        resumes: bool = False,
    ):
        self.graph = graph
        self.settings = settings
        self.workers = workers
        self.parts = parts
        """Into how many a dead partition comes back."""
        self.first = first
        self.journal = Journal()
        self.wanted: Journal | None = None
        """The change that is being written."""
        self.unsure_ms: float | None = None
        """Its write failed: when to ask whether it happened."""
        self.attendance = Attendance(settings, lambda partition: self.journal.shown(partition))
        self.statuses: dict[PartitionId, Status] = {}
        self.asked = Asked()
        self.since: dict[int, float] = {}
        self.given_up: dict[int, str] = {}
        """Upgrades that came to nothing, and why."""
        self.silent = Silent()
        self.slot_since: dict[PartitionId, float] = {}
        self.deaths = Deaths()
        self.accused_ms: dict[PartitionId, float] = {}
        """Since when each waits for a verdict."""
        self.lost_parts: dict[PartitionId, Generation] = {}
        self.resumes = resumes
        """This flow has run before: a store without its journal has lost it."""
        self.pressure = Pressure()
        self.lost = False
        self.deposed = False
        self.finished = False
        self.decisions: deque[tuple[float, str]] = deque(maxlen=1000)
        self.now_ms = 0.0
        self.ticked_ms: float | None = None
        self.pool = Pool(workers, settings)
        self.effects: list[Effect] = []
        self._token = 0
        self._waiting: dict[int, Callable[[StoreReply], None]] = {}

    @property
    def heard(self) -> dict[str, float]:
        """The workers that count."""
        return self.attendance.heard

    # --- events --------------------------------------------------------------------------------------------------

    def handle(self, event: Hello | Report | Busy | StoreReply | WorkerLost | Request, now_ms: float) -> list[Effect]:
        self.now_ms = now_ms
        match event:
            case Hello() | Report() | Busy() if event.worker in self.pool.released:
                return self._finish()
            case Hello():
                self.attendance.hear(event.worker, now_ms, event.place)
                self._push(event.worker)
            case Report():
                self._on_report(event)
                if not self._in_motion():
                    return self._finish()  # a heartbeat; the next tick looks at the rest
            case Busy():
                self.note(self.attendance.hear_busy(event, now_ms))
                return self._finish()
            case WorkerLost():
                self.pool.released.discard(event.worker)
                if self.attendance.lose(event.worker):
                    self.note(f"worker {event.worker} lost{', as asked' if event.asked else ''}")
                if not event.asked:
                    self.deaths.lost(event.worker, event.ended)
            case StoreReply():
                waiting = self._waiting.pop(event.token, None)
                if event.error == "lost" and not self.lost:
                    self._lose()
                elif waiting is not None:
                    waiting(event)
            case _:
                self.asked.waiting.append(event)
        self._reconcile()
        return self._finish()

    def tick(self, now_ms: float) -> list[Effect]:
        slept = self.ticked_ms is not None and now_ms - self.ticked_ms > self.settings.suspect_ms / 2
        self.now_ms, self.ticked_ms = now_ms, now_ms
        if slept:
            self.attendance.excuse(now_ms)
        if not self.journal.version and not self._waiting and self.wanted is None and not self.deposed:
            self.call(ReadJournal, self._read)
        if self.unsure_ms is not None and now_ms >= self.unsure_ms:
            self.unsure_ms = None
            self.call(ReadJournal, self._swapped_or_not)
        counted = set(self.heard)
        for silent in self.attendance.lose_silent(now_ms):
            self.note(silent)
        self.silent.note(counted - self.heard.keys(), self.journal, now_ms)
        self._reconcile()
        if self.silent and self.wanted is None and not self.deposed:
            known, patient_ms = self._statuses(self.journal), SLOT_WAIT * self.settings.suspect_ms
            self.effects += map(
                KillWorker, self.silent.in_the_way(self.journal, known, self.heard, now_ms - patient_ms)
            )
        return self._finish()

    def _finish(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects

    def note(self, what: str) -> None:
        if what:
            self.decisions.append((self.now_ms, what))

    def call(self, make: Callable[[int], Effect], then: Callable[[StoreReply], None]) -> None:
        self._token += 1
        self._waiting[self._token] = then
        self.effects.append(make(self._token))

    def _in_motion(self) -> bool:
        """Is there a step that waits for what a partition says?"""
        return bool(self.journal.replaces or self.asked.waiting) or any(
            e.role != LIVE or e.base for e in self.journal.entries.values()
        )

    def _on_report(self, report: Report) -> None:
        self.attendance.hear(report.worker, self.now_ms, report.place)
        for status in report.statuses:
            entry = self.journal.entries.get(status.partition)
            if entry is not None and entry.generation == status.generation:
                self.statuses[status.partition] = status
        if report.journal_version < self.journal.version:
            self._push(report.worker)

    # --- the journal ---------------------------------------------------------------------------------------------

    def _read(self, reply: StoreReply) -> None:
        if reply.error:
            return
        found: Journal | None = reply.value
        if found is None and self.resumes:
            self._lose()
        elif found is None:
            self._swap(0, self.first or planner.first_journal(self.graph))
        else:
            for entry in found.entries.values():
                if entry.worker:
                    self.heard.setdefault(entry.worker, self.now_ms)
            # Who starts a controller on a stopped flow resumes it.
            stopping = DRAIN if found.stopping == DRAIN else ""
            changed = with_fields(found, version=found.version + 1, term=found.term + 1, stopping=stopping)
            self._swap(found.version, changed)

    def change(self, journal: Journal, before: Before | None = None) -> None:
        self._swap(self.journal.version, with_fields(journal, version=self.journal.version + 1), before)

    def _swap(self, expected: int, journal: Journal, before: Before | None = None) -> None:
        self.wanted = journal
        self.asked.lend(before)
        self.call(lambda token: SwapJournal(token, expected, journal), self._swapped)

    def _swapped(self, reply: StoreReply) -> None:
        wanted, self.wanted = self.wanted, None
        assert wanted is not None
        if reply.error:
            # It may have worked or not: ask, at the next tick.
            self.wanted, self.unsure_ms = wanted, self.now_ms
        else:
            self._settle(wanted, reply.value)

    def _swapped_or_not(self, reply: StoreReply) -> None:
        wanted, self.wanted = self.wanted, None
        assert wanted is not None
        if reply.error:
            self.wanted, self.unsure_ms = wanted, self.now_ms + self.settings.retry_ms
        elif reply.value is not None or self.journal.version:
            self._settle(wanted, reply.value)

    def _lose(self) -> None:
        """There was a journal. What is not in the store cannot be gone on from: say so to all, and write no more."""
        self.lost = True
        self.note(LOST)
        # Later than whatever the workers know: a controller that was started again cannot say what that is.
        self.journal = with_fields(self.journal, term=FOREVER, version=FOREVER, stopping=LOST)
        self._push_all()

    def _settle(self, wanted: Journal, stored: Journal | None) -> None:
        if stored is None:
            self._lose()
        elif (stored.version, stored.term) == (wanted.version, wanted.term):
            self.effects.extend(leftovers(self.graph, self.journal, stored))
            self.journal = stored
            self.statuses = {p: s for p, s in self.statuses.items() if p in stored.entries}
            self.slot_since = {p: ms for p, ms in self.slot_since.items() if p in stored.entries}
            self.since = {r.number: self.since[r.number] for r in stored.replaces if r.number in self.since}
            self.deaths.forget_all_but({entry.worker for entry in stored.entries.values()})
            self._push_all()
        elif stored.term > wanted.term or (stored.term == wanted.term and not self.journal.version):
            self.deposed = True
            self.note(f"a controller of term {stored.term} has taken over")
        else:
            self.asked.take_back()  # our write did not happen; the next reconciliation decides again

    def _push(self, worker: str) -> None:
        if self.journal.version and not self.deposed:
            self.effects.append(Send(worker, Plan(self.journal, dict(self.attendance.places))))

    def _push_all(self) -> None:
        for worker in sorted(self.heard):
            self._push(worker)

    # --- deciding ------------------------------------------------------------------------------------------------

    def _reconcile(self) -> None:
        """Take the next steps there are; one compare-and-set at a time."""
        if self.deposed or self.lost or self.wanted is not None or not self.journal.version:
            return
        before = self.asked.now()
        journal = self._judge(self._stop_on_failure(self.journal))
        if journal.stopping in ("", DRAIN):
            journal = self._place(journal)
            journal = self._step(journal)
            journal = planner.open_waiting(self.graph, journal, self._statuses(journal))
            journal = planner.let_go(journal, self._statuses(journal))
            journal = self._requests(journal)
        self.finished = planner.has_ended(self.graph, self.journal, self._statuses(self.journal))
        if journal is not self.journal:
            self.change(journal, before)
            return
        for effect in self.pool.look(self.journal, self.heard, self.now_ms):
            self.effects.append(effect)
            if isinstance(effect, ReleaseWorker):
                self.attendance.lose(effect.worker)
                self.note(f"worker {effect.worker} released")

    def _status(self, partition: PartitionId) -> Status | None:
        """Its latest Status, if it is of the generation that the journal names."""
        status = self.statuses.get(partition)
        entry = self.journal.entries.get(partition)
        return status if status and entry and status.generation == entry.generation else None

    def _statuses(self, journal: Journal) -> dict[PartitionId, Status]:
        return {p: s for p in journal.entries if (s := self._status(p))}

    def _stop_on_failure(self, journal: Journal) -> Journal:
        for partition, status in self.statuses.items():
            entry = journal.entries.get(partition)
            live = journal.stopping in ("", DRAIN)  # else it was said already; saying it again would never end
            if live and status.failure and entry and entry.generation == status.generation:
                if entry.role == SHADOW:
                    replace = next(r for r in journal.replaces if partition in r.new)
                    self.note(f"Replace {replace.number} of {replace.operator} given up: {status.failure}")
                    journal = planner.abort(journal, replace)
                    self.asked.again(journal, replace)
                else:
                    journal = with_fields(journal, stopping=status.failure)
        return journal

    def _judge(self, journal: Journal) -> Journal:
        """Of rows that are accused: it may take a moment until those that died are known to have."""
        accused = {p: s for p, s in self._statuses(journal).items() if s.accused is not None}
        self.accused_ms = {p: self.accused_ms.get(p, self.now_ms) for p in accused}
        for partition, status in accused.items():
            if journal.stopping in ("", DRAIN) and partition in journal.entries:
                late = self.now_ms - self.accused_ms[partition] > self.settings.suspect_ms
                known = self.statuses
                journal, what = verdict(self.graph, journal, status, known, self.deaths, late)
                self.note(what)
        return journal

    def _place(self, journal: Journal) -> Journal:
        """Give every partition without a live worker a new one: that is recovery."""
        waiting = [p for p, e in journal.entries.items() if e.worker not in self.heard or self._is_fenced(p)]
        if not waiting:
            return journal
        starting = all(not e.worker for e in journal.entries.values())
        if starting and self.pool.starts_later(len(self.heard), self.now_ms):
            return journal
        places = self.attendance.places
        candidates = spread(self.heard, self.workers, places) if starting else self.attendance.at_hand()
        for partition in sorted(waiting):
            entry = journal.entries.get(partition)
            if entry is None or not candidates or recovers_in_parts(self, entry):
                continue
            free = idle(journal, candidates) if entry.role == SHADOW else candidates
            if not free and self._may_wait(partition):
                continue
            worker = place(journal, partition, free or candidates, places)
            shared = "" if worker in idle(journal, candidates) else ", beside others: no slot is free"
            journal = self.restarted(journal, entry, worker)
            if journal.stopping not in ("", DRAIN):
                return journal
            if entry.worker or (shared and entry.role == SHADOW):
                self.note(f"{journal.shown(partition)} {'re' if entry.worker else ''}starts on {worker}{shared}")
        return journal

    def restarted(self, journal: Journal, entry: Entry, worker: str) -> Journal:
        """The same partition somewhere else, if there is hope."""
        if entry.worker:
            shown = journal.shown(entry.partition)
            hopeless = self.deaths.note_once(entry, shown, self.statuses.get(entry.partition))
            if hopeless:
                return with_fields(journal, stopping=hopeless)
            journal = planner.suspect(journal, self.deaths.suspected(entry))
        return planner.restart(journal, entry.partition, worker)

    def _may_wait(self, partition: PartitionId) -> bool:
        """A shadow that loads its state beside a live partition would hold it up: its own slot is worth a wait."""
        return self.now_ms - self.slot_since.setdefault(partition, self.now_ms) < SLOT_WAIT * self.settings.suspect_ms

    def _is_fenced(self, partition: PartitionId) -> bool:
        status = self._status(partition)
        return status is not None and status.fenced

    def _step(self, journal: Journal) -> Journal:
        """The next step of every Replace there is."""
        statuses = self._statuses(journal)
        told = Known(self.journal.version, statuses, graph=self.graph)
        pressing = self.pressure.look(journal, told, self.settings, self.now_ms)
        for replace in journal.replaces:
            waited_ms = self.now_ms - self.since.setdefault(replace.number, self.now_ms)
            late = "it took too long" if waited_ms > self.settings.at_most_ms else ""
            late = late or ("too much is kept for it" if replace.number == pressing else "")
            known = told._replace(waited_epochs=waited_ms / self.settings.epoch_ms)
            journal, why = next_step(journal, replace, known, late)
            if replace.code and why.startswith("given up"):
                self.given_up[replace.number] = why  # whoever asked for it is told, and may ask again
            elif late and replace.operator:
                self.asked.again(journal, replace)
            elif all(r.number != replace.number for r in journal.replaces):
                self.asked.tries.pop(replace.operator, None)
            if why:
                self.note(f"Replace {replace.number} of {replace.operator or 'nothing'}: {why}")
        return journal

    def _requests(self, journal: Journal) -> Journal:
        """Begin what was asked for; what cannot begin yet is asked again at the next look."""
        for _ in range(len(self.asked.waiting)):
            request = self.asked.waiting.popleft()
            if isinstance(request, StopFlow):
                return with_fields(journal, stopping=request.reason)
            begun, why = begin_request(self.graph, journal, self._statuses(journal), request)
            if begun is None:
                self.asked.waiting.append(request)
            else:
                journal = begun
            if why:
                self.note(why)
        return journal
