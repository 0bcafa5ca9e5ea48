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
from demo.screen import Screen, Step
from demo.watch import Watch
from demo.words import COUNT, OUT, READ
from seep.flow.build import Flow
from seep.running.job import Job, start

WORKERS = 3
CALM_SECONDS = 3.0
"""Between two steps, so that one sees the rate come back (or never leave)."""
LOOK_SECONDS = 0.05
REPORT_EPOCHS = 3
"""What is known of the source's epoch may be this old."""
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
            self._survive(job, screen, self._kill, lambda: kill_counting(job))
            self._calm(job, screen)
            self._survive(job, screen, self._kill_more, lambda: kill_more(job, self._on))
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

    def _survive(self, job: Job, screen: Screen, step: Step, strike: Callable[[], str]) -> None:
        """Kill, and wait until lines that were read after the kill are in the output."""
        screen.begin(step)
        goal = self._watch.look(job).read_epoch + REPORT_EPOCHS
        began = time.monotonic()
        killed = strike()
        self._until(job, screen, lambda: self._watch.picture.epoch > goal)
        screen.done(step, time.monotonic() - began, f"from the kill to new words out; {killed}")

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


def kill_counting(job: Job) -> str:
    return f"worker {job.kill(COUNT, 0)['worker']}"


def kill_more(job: Job, on: str) -> str:
    """On Spark an executor, with every worker on it; else the worker that reads the lines."""
    if on != "spark":
        return f"worker {job.kill(READ, 0)['worker']}"
    worker = job.status()["operators"][COUNT][-1]["worker"]
    executor = executor_of(job.directory.registered()[worker]["process"])
    os.kill(executor, signal.SIGKILL)
    return f"process {executor}"
