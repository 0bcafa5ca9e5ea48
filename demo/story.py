"""The story of the demo: start, split, two kills, merge, end of input; each step timed, the job watched throughout."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from demo.executors import executor_of
from demo.recovery import Recovery
from demo.screen import Screen, Step
from demo.watch import Watch
from demo.words import COUNT, OUT, READ
from seep.flow.build import Flow
from seep.running.job import Job, start

WORKERS = 3
CALM_SECONDS = 3.0
"""Between two steps, so that one sees the rate come back (or never leave)."""
LOOK_SECONDS = 0.05
PATIENCE_SECONDS = 60.0
START_SECONDS = 180.0


class Story:
    def __init__(self, flow: Flow, on: str) -> None:
        self._flow = flow
        self._on = on
        self._watch = Watch()
        spark = on == "spark"
        self._start = Step("start Spark and its executors" if spark else "start the workers")
        self._start.remark = self._hint = "takes 20 to 40 s" if spark else "takes a few seconds"
        self._split = Step("split the count in two, live")
        self._kill = Step("kill -9 a worker that counts")
        self._kill_more = Step("kill -9 a whole executor" if spark else "kill -9 the worker that reads")
        self._merge = Step("merge the count again, live")
        self._end = Step("end of input")
        self.steps = [self._start, self._split, self._kill, self._kill_more, self._merge, self._end]

    def tell(self, screen: Screen) -> list[dict[str, Any]]:
        """Run it to the end; the rows that were collected."""
        with ThreadPoolExecutor(1) as aside, self._job(screen) as job:
            self._calm(job, screen)
            self._scale(job, screen, self._split, 2, aside)
            self._calm(job, screen)
            self._survive(job, screen, self._kill, *worker_of(job, COUNT, 0))
            self._calm(job, screen)
            more = executor_with(job, COUNT, -1) if self._on == "spark" else worker_of(job, READ, 0)
            self._survive(job, screen, self._kill_more, *more)
            self._calm(job, screen)
            self._scale(job, screen, self._merge, 1, aside)
            self._calm(job, screen)
            return self._to_the_end(job, screen, aside)

    @contextmanager
    def _job(self, screen: Screen) -> Iterator[Job]:
        screen.begin(self._start)
        began = time.monotonic()
        job = start(self._flow, on=self._on, workers=WORKERS)
        try:
            self._until(job, screen, self._started, seconds=START_SECONDS)
            screen.done(self._start, time.monotonic() - began, f"{self._watch.picture.workers} workers")
            yield job
        finally:
            job.close()

    def _started(self) -> bool:
        picture = self._watch.picture
        self._start.remark = f"{self._hint}; {picture.workers} workers are up"
        return picture.words > 0

    # --- steps ---------------------------------------------------------------------------------------------------

    def _scale(self, job: Job, screen: Screen, step: Step, count: int, aside: ThreadPoolExecutor) -> None:
        screen.begin(step)
        began = time.monotonic()
        done: Future[Any] = aside.submit(job.scale, COUNT, count)
        self._until(job, screen, done.done)
        done.result()
        screen.done(step, time.monotonic() - began, "the old work on until the new take over")

    def _survive(self, job: Job, screen: Screen, step: Step, doomed: set[str], victim: int) -> None:
        """Kill a process, these workers with it, and wait until the output has what was read after that."""
        screen.begin(step)
        recovery = Recovery(job, doomed)
        began = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        self._until(job, screen, lambda: recovery.over() or bool(job.host.outcome))
        if job.host.outcome:
            raise RuntimeError("the input ended before the story; this machine is too busy for it")
        screen.done(step, time.monotonic() - began, f"from the kill of process {victim} to new words out")

    def _to_the_end(self, job: Job, screen: Screen, aside: ThreadPoolExecutor) -> list[dict[str, Any]]:
        screen.begin(self._end)
        began = time.monotonic()
        waiting = aside.submit(job.wait, None)
        self._until(job, screen, waiting.done)
        rows: list[dict[str, Any]] = waiting.result()[OUT].to_pylist()
        screen.done(self._end, time.monotonic() - began, "everything read is counted and out")
        return rows

    # --- waiting -------------------------------------------------------------------------------------------------

    def _calm(self, job: Job, screen: Screen) -> None:
        until = time.monotonic() + CALM_SECONDS
        self._until(job, screen, lambda: time.monotonic() > until)

    def _until(self, job: Job, screen: Screen, done: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            if job.host.report:
                raise RuntimeError(f"the flow has failed: {job.host.report}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"nothing happened for {seconds:.0f} s")
            screen.show(self._watch.look(job))
            time.sleep(LOOK_SECONDS)


def worker_of(job: Job, operator: str, index: int) -> tuple[set[str], int]:
    """The worker that runs a partition, and its process."""
    worker = job.status()["operators"][operator][index]["worker"]
    return {worker}, job.directory.registered()[worker]["process"]


def executor_with(job: Job, operator: str, index: int) -> tuple[set[str], int]:
    """Every worker of the Spark executor that runs a partition, and the executor's process."""
    executor = executor_of(worker_of(job, operator, index)[1])
    cards = job.directory.registered()
    return {worker for worker, card in cards.items() if executor_of(card["process"]) == executor}, executor
