"""The story: start, load, three times the load, an executor killed, the load gone again; then the verdict.

Nobody here scales anything: the load is set, and the controller does the rest. Each step is timed, and the job watched
throughout.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from demo.edges import Edges, InMemory
from demo.executors import executor_of
from demo.judge import Verdict, judge
from demo.load import Dial
from demo.picture import Event
from demo.recovery import Recovery
from demo.sales import Tape, record
from demo.screen import Screen, Step
from demo.shop import LOOKUP, SALES, SIZE, SO_FAR, Size, build
from demo.watch import Watch
from seep.running.job import Job, start

LOOK_SECONDS = 0.05
PATIENCE_SECONDS = 60.0
START_SECONDS = CLOSE_SECONDS = 180.0
CAUGHT_UP_SECONDS = 1.0
"""Behind the tills: closer than that is up to date."""


@dataclass(frozen=True)
class Script:
    """How much and how long."""

    lines_per_second: int = 5_000
    times: int = 3
    size: Size = SIZE
    workers: int = 14
    """One for each partition there is at the start."""
    base_seconds: float = 15.0
    calm_seconds: float = 5.0
    """Between two steps, so that one sees the rate come back (or never leave)."""
    enough_seconds: float = 12.0
    """On a machine that is too busy to catch up the story goes on after this, ..."""
    shrink_seconds: float = 32.0
    """... and after this if it has not scaled in as far as it might; after twice this if not at all."""
    hold_seconds: float = 8.0
    """What the controller has had too much of for so long it gives back, if it has not grown for as long. Unless set
    these are 60 and 120 s, which is long for a demo."""
    least: int = 2
    """Partitions of the lookup: the story goes on when it has shrunk to so many."""
    master: str = "local-cluster[3,10,900]"
    """Three executors, with room for ten workers each."""


class Story:
    def __init__(self, directory: Path, on: str, script: Script | None = None, edges: Edges | None = None) -> None:
        self._directory = directory.absolute()  # workers may run elsewhere
        self._on = on
        self._edges: Edges = edges or InMemory()
        self._script = script or Script()
        self.events: list[Event] = []
        spark = on == "spark"
        base, most = self._script.lines_per_second, self._script.lines_per_second * self._script.times
        self._record = Step("lay out a year of sales")
        started = "Spark and its executors" if spark else "the workers"
        self._start = Step(f"start Kafka, {started}" if self._edges.what else f"start {started}")
        self._start.remark = self._hint = "takes 20 to 40 s" if spark else "takes a few seconds"
        self._base = Step(f"{base:,} lines a second")
        self._out = Step(f"load triples to {most:,}: scale out")
        self._kill = Step("kill -9 a whole executor" if spark else "kill -9 a worker of the lookup")
        self._in = Step(f"load falls to {base:,}: scale in")
        self._end = Step("close the shops and their windows")
        self._judge = Step("ask DuckDB the same questions")
        self.steps = [
            *(self._record, self._start, self._base, self._out),
            *(self._kill, self._in, self._end, self._judge),
        ]
        self._current = self._record
        self._decided = 0

    def tell(self, screen: Screen) -> Verdict:
        """Run it to the end; the verdict about what was collected."""
        script = self._script
        with self._step(screen, self._record):
            tape = record(self._directory)
            self._record.remark = f"{len(tape.times):,} lines of {len(tape.stores)} stores"
        self.dial = Dial(tape, self._directory / "plan.json")
        self.watch = Watch(self.dial, self._edges)
        with ExitStack() as stack:
            stack.enter_context(closing(self._edges))
            with self._step(screen, self._start):
                self._edges.open(tape, self.dial.path)
                job = stack.enter_context(closing(self._begin(tape)))
                self._until(job, screen, self._started, START_SECONDS)
                self._start.remark = f"{self.watch.picture.workers} workers"
            with self._step(screen, self._base):
                self.dial.begin(script.lines_per_second)
                self._for(job, screen, script.base_seconds)
            with self._step(screen, self._out):
                self._scale_out(job, screen)
            self._for(job, screen, script.calm_seconds)
            with self._step(screen, self._kill):
                self._survive(job, screen)
            self._catch_up(job, screen)
            self._for(job, screen, script.calm_seconds)
            with self._step(screen, self._in):
                self._scale_in(job, screen)
            self._for(job, screen, script.calm_seconds)
            with self._step(screen, self._end):
                found = self._close(job, screen)
                repeated = self._edges.repeated()
        with self._step(screen, self._judge):
            assert self.dial.plan is not None
            verdict = judge(tape, self.dial.plan, found)
            return verdict._replace(duplicated=verdict.duplicated + repeated)

    def _begin(self, tape: Tape) -> Job:
        flow = build(tape, self.dial.path, self._script.size, self._edges)
        master = self._script.master if self._on == "spark" else None
        job = start(flow, on=self._on, workers=self._script.workers, master=master)
        guards, hold = job.watch.governor.guards, self._script.hold_seconds
        job.watch.governor.guards = replace(guards, shrink_seconds=hold, turn_seconds=hold)
        return job

    def _started(self) -> bool:
        picture = self.watch.picture
        self._start.remark = f"{self._hint}; {picture.workers} workers are up"
        return picture.epoch > 0

    @contextmanager
    def _step(self, screen: Screen, step: Step) -> Iterator[None]:
        self._current = step
        screen.begin(step)
        yield
        screen.done(step, time.monotonic() - step.began, step.remark)

    # --- steps ---------------------------------------------------------------------------------------------------

    def _scale_out(self, job: Job, screen: Screen) -> None:
        script, before = self._script, self.watch.picture.partitions
        self.dial.change(script.lines_per_second * script.times)
        self._note("load", "load triples", self.dial.rates[-1][0])
        self._until(job, screen, lambda: self.watch.picture.partitions > before)
        self._catch_up(job, screen)

    def _catch_up(self, job: Job, screen: Screen) -> None:
        """Until nothing is changed any more and results are up to date; or long enough."""
        enough, calm = time.monotonic() + self._script.enough_seconds, 0.0

        def done() -> bool:
            nonlocal calm
            picture = self.watch.picture
            if picture.moving or picture.behind_seconds > CAUGHT_UP_SECONDS:
                calm = time.monotonic()
            return time.monotonic() > min(enough, calm + 2 * LOOK_SECONDS + 1.0)

        calm = time.monotonic()
        self._until(job, screen, done)

    def _survive(self, job: Job, screen: Screen) -> None:
        """Kill a process, and all workers in it; wait until the output has what was read after that."""
        doomed, victim = executor_with(job) if self._on == "spark" else worker_of(job)
        recovery = Recovery(job, doomed, SALES, SO_FAR)
        began = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        what = "executor" if self._on == "spark" else "worker"
        self._note("kill", f"{what} killed")
        self._until(job, screen, recovery.over)
        took = time.monotonic() - began
        self._note("back", f"recovered after {took:.1f} s")
        died = f"{_number(len(doomed), 'worker')} with {_number(recovery.partitions, 'partition')}"
        self._kill.remark = f"{what} killed, {died}: until new sales were in the output"

    def _scale_in(self, job: Job, screen: Screen) -> None:
        script, before = self._script, self.watch.picture.partitions
        self.dial.change(script.lines_per_second)
        self._note("load", "load falls", self.dial.rates[-1][0])
        self._in.remark = f"what is too much for {script.hold_seconds:.0f} s is given back (60 s unless set)"
        enough = time.monotonic() + script.shrink_seconds

        def done() -> bool:
            picture, now = self.watch.picture, time.monotonic()
            least = script.least if now < enough else before - 1
            return now > enough + script.shrink_seconds or (picture.partitions <= least and not picture.moving)

        self._until(job, screen, done, 2 * script.shrink_seconds + PATIENCE_SECONDS)
        if self.watch.picture.partitions >= before:
            behind = self.watch.picture.behind_seconds
            self._in.remark = f"not yet: results are {behind:.0f} s behind, and nothing shrinks while rows wait"

    def _close(self, job: Job, screen: Screen) -> Mapping[str, pa.Table]:
        self.dial.end()
        assert self.dial.plan is not None
        lines, enough = self.dial.plan.lines(self.dial.tape), time.monotonic() + CLOSE_SECONDS / 2
        # What is missing by then is for the verdict to say.
        self._until(job, screen, lambda: self._edges.all_in(lines) or time.monotonic() > enough, CLOSE_SECONDS)
        self._edges.finish(job)
        with ThreadPoolExecutor(1) as aside:
            waiting = aside.submit(job.wait, None)
            self._until(job, screen, waiting.done, CLOSE_SECONDS)
            waiting.result()
        return self._edges.found(job)

    # --- waiting -------------------------------------------------------------------------------------------------

    def _for(self, job: Job, screen: Screen, seconds: float) -> None:
        until = time.monotonic() + seconds
        self._until(job, screen, lambda: time.monotonic() > until)

    def _until(self, job: Job, screen: Screen, done: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            if job.host.report:
                raise RuntimeError(f"the flow has failed: {job.host.report}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self._current.title}: nothing happened for {seconds:.0f} s")
            screen.show(self.watch.look(job), [sample.lines_per_second for sample in self.watch.samples])
            if self.dial.open:
                self._tell_decisions(job, screen)
            time.sleep(LOOK_SECONDS)

    def _tell_decisions(self, job: Job, screen: Screen) -> None:
        """What the controller has decided since the last look, in its own words."""
        made = [decision for decision in job.watch.decisions() if decision.changes]
        for decision in made[self._decided :]:
            change = f"{decision.before} -> {decision.after} partitions"
            screen.happened(self._current, f"{decision.operator}: {change}: {decision.why}")
            assert self.dial.plan is not None
            self._note("scale", change, decision.at - self.dial.plan.start_us / 1e6)
        self._decided = len(made)

    def _note(self, kind: str, what: str, seconds: float | None = None) -> None:
        self.events.append(Event(self.dial.elapsed if seconds is None else seconds, kind, what))


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def worker_of(job: Job) -> tuple[set[str], int]:
    """The worker that runs the last partition of the lookup, and its process."""
    worker = job.status()["operators"][LOOKUP][-1]["worker"]
    return {worker}, job.directory.registered()[worker]["process"]


def executor_with(job: Job) -> tuple[set[str], int]:
    """Every worker of the Spark executor that runs the last partition of the lookup, and the executor's process."""
    executor = executor_of(worker_of(job)[1])
    cards = job.directory.registered()
    return {worker for worker, card in cards.items() if executor_of(card["process"]) == executor}, executor
