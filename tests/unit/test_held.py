"""Slots of a scheduler that somebody else runs, with one that fails, lingers, or was left behind."""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from seep.backends import held, unborn
from seep.backends.held import HeldSlots
from seep.backends.process import kill_elsewhere
from seep.backends.slot import UNFIT
from seep.backends.spark import SparkBackend
from seep.errors import Misuse, Retry, error_of
from seep.model.settings import Settings
from seep.partition.contract import Graph
from seep.protocol import wire
from seep.protocol.messages import Leave, Message
from seep.runtime.heartbeat import beside
from seep.runtime.job import JobDirectory
from tests.scenarios.oracles import until


class Scheduler(HeldSlots):
    """Its session is a number; what becomes of a worker is given."""

    scheduler = "Toy"

    def __init__(self, job: JobDirectory, start: Callable[[], Any], hold: Callable[[str], str]) -> None:
        super().__init__(job)
        self.begin, self.hold = start, hold
        self.started = self.stopped = 0
        self.killed: list[str] = []
        self.lives = True
        self.broken_off = threading.Event()

    def _start(self) -> Any:
        self.started += 1
        return self.begin()

    def _hold(self, session: Any, worker: str) -> str:
        return self.hold(worker)

    def _kill(self, session: Any, worker: str) -> None:
        self.killed.append(worker)

    def _lives(self, session: Any) -> bool:
        return self.lives

    def _stop(self, session: Any) -> None:
        self.stopped += 1

    def _break_off(self) -> None:
        self.broken_off.set()


@pytest.fixture
def job(tmp_path: Path) -> JobDirectory:
    return JobDirectory.create(tmp_path / "job", Graph({}, ()), Settings())


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for a worker's."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def register(job: JobDirectory, worker: str, process: subprocess.Popen[bytes], metrics_port: int = 1) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.getpid", lambda: process.pid)
        job.register(worker, metrics_port)


def failing(error: Exception) -> Callable[[], Any]:
    def start() -> Any:
        raise error

    return start


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (Misuse("Toy is not installed"), Misuse, "Toy is not installed"),
        (OSError("no room\nat all"), Retry, "Toy cannot be started: OSError: no room"),
        (
            RuntimeError("An error occurred while calling x.\n: java.Wrong: no such place\n\tat y"),
            Retry,
            "Toy cannot be started: java.Wrong: no such place",
        ),
    ],
)
def test_a_scheduler_that_cannot_be_started(
    job: JobDirectory, error: Exception, kind: type[Exception], says: str
) -> None:
    slots = Scheduler(job, failing(error), lambda worker: "")
    slots.want(2)
    until(lambda: not slots.workers(), "the slots to end")
    told = error_of(slots.problem())
    assert (type(told), str(told)) == (kind, says)
    assert slots.started == 1
    slots.want(2)
    assert slots.workers() == []


def test_workers_that_cannot_start_are_a_problem_after_some(job: JobDirectory) -> None:
    slots = Scheduler(job, lambda: 1, lambda worker: "ImportError: no module named 'elsewhere'")
    for _ in range(3):
        assert slots.problem() == ""
        slots.want(1)
        until(lambda: not slots.workers(), "the slot to end")
    assert slots.problem().startswith("workers cannot be started: ImportError: no module named 'elsewhere'; see ")
    slots.close()


def test_tasks_that_fail_before_a_worker_runs_are_a_problem_after_a_while(
    job: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unborn, "PATIENCE_SECONDS", 0.2)

    def hold(worker: str) -> str:
        raise RuntimeError("the actor cannot be made\nat all")

    slots = Scheduler(job, lambda: 1, hold)
    for number in range(4):
        assert slots.problem() == ""
        slots.want(1)
        until(lambda: not slots.workers(), "the slot to end")
        time.sleep(0.3 * (number == 3))
    assert slots.problem().startswith("workers cannot be started: RuntimeError: the actor cannot be made; see ")
    slots.close()


def test_one_that_fails_while_others_run_is_none(job: JobDirectory, other: subprocess.Popen[bytes]) -> None:
    def hold(worker: str) -> str:
        if not job.registered():
            register(job, worker, other)
            other.wait()
            return ""
        return "OSError: an accident"

    slots = Scheduler(job, lambda: 1, hold)
    slots.want(1)
    until(job.registered, "the first to run")
    for _ in range(5):
        slots.want(2)
        until(lambda: len(slots.workers()) == 1, "the second to end")
    assert slots.problem() == ""
    slots.close()
    assert other.returncode == -signal.SIGTERM


def test_a_host_that_is_unfit_refuses_the_flow_while_it_starts(job: JobDirectory) -> None:
    slots = Scheduler(job, lambda: 1, lambda worker: f"{UNFIT}host h7 has no Python module 'numba'")
    slots.want(1)
    until(lambda: not slots.workers(), "the slot to end")
    told = error_of(slots.problem())
    assert (type(told), str(told)) == (Misuse, "host h7 has no Python module 'numba'")
    slots.close()


def test_a_host_that_is_unfit_later_is_left_out(
    job: JobDirectory, other: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "STARTING_SECONDS", 0.0)
    monkeypatch.setattr(held, "AGAIN_SECONDS", 0.01)

    def hold(worker: str) -> str:
        if not job.registered():
            register(job, worker, other)
            other.wait()
            return ""
        return f"{UNFIT}host h7 has no Python module 'numba'"

    slots = Scheduler(job, lambda: 1, hold)
    slots.want(1)
    until(job.registered, "the first to run")
    for _ in range(4):
        slots.want(2)
        until(lambda: len(slots.workers()) == 1, "the second to end")
    assert slots.problem() == ""
    slots.close()


def test_a_process_of_another_host_is_never_signalled(
    job: JobDirectory, other: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seep.backends.process.ENDING_SECONDS", 0.05)
    over = threading.Event()

    def hold(worker: str) -> str:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("seep.runtime.job.this_host", lambda: "another")
            register(job, worker, other)
        over.wait(10)
        return ""

    slots = Scheduler(job, lambda: 1, hold)
    slots.want(1)
    until(job.registered, "it to run")
    (worker,) = slots.workers()
    slots.release(worker)
    slots.kill(worker)
    assert slots.killed == [worker]
    assert other.poll() is None
    over.set()
    slots.close()
    assert other.poll() is None


def test_no_new_session_after_the_end(job: JobDirectory) -> None:
    going = threading.Event()

    def start() -> int:
        going.wait(10)
        return 1

    slots = Scheduler(job, start, lambda worker: "")
    slots.want(4)
    until(lambda: slots.started, "the start")
    closing = threading.Thread(target=slots.close)
    closing.start()
    going.set()
    closing.join(30)
    until(lambda: not slots.workers(), "the slots to end")
    slots.want(4)
    assert (slots.started, slots.stopped, slots.workers()) == (1, 1, [])


@pytest.mark.parametrize("hears", [True, False])
def test_a_start_that_takes_long_is_broken_off(job: JobDirectory, monkeypatch: pytest.MonkeyPatch, hears: bool) -> None:
    """A cluster that does not answer: Ctrl-C waited for it, and did nothing."""
    monkeypatch.setattr(held, "GOODBYE_SECONDS", 0.05)
    answers = threading.Event()

    def start() -> int:
        if hears:
            assert slots.broken_off.wait(10)
            raise ConnectionError("its process has ended")
        answers.wait(10)
        return 1

    slots = Scheduler(job, start, lambda worker: "")
    slots.want(2)
    until(lambda: slots.started, "the start")
    slots.close()
    assert slots.broken_off.is_set()
    assert bool(slots.workers()) is not hears
    answers.set()
    until(lambda: not slots.workers(), "the slots to end")
    assert (slots.started, slots.stopped) == (1, 0 if hears else 1)


def test_a_scheduler_that_ends_is_told(job: JobDirectory) -> None:
    def hold(worker: str) -> str:
        slots.lives = False
        raise ConnectionError("gone")

    slots = Scheduler(job, lambda: 1, hold)
    slots.want(1)
    until(slots.problem, "the problem")
    assert isinstance(error_of(slots.problem()), Retry)
    assert "Toy has ended under the flow; go on with --resume" in slots.problem()
    slots.close()
    assert slots.stopped == 1


def test_workers_of_an_earlier_driver_are_ended(job: JobDirectory, other: subprocess.Popen[bytes]) -> None:
    register(job, "t1", other)
    Scheduler(job, lambda: 1, lambda worker: "")
    assert other.wait(5) == -signal.SIGKILL
    assert job.registered() == {}


@pytest.fixture
def elsewhere(job: JobDirectory, other: subprocess.Popen[bytes]) -> Iterator[socket.socket]:
    """A worker of another host, that lives as long as it listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.MonkeyPatch.context() as patch:
        patch.setattr("seep.runtime.job.this_host", lambda: "another")
        register(job, "t1", other, listener.getsockname()[1])
        yield listener


def test_an_earlier_worker_elsewhere_is_asked_to_leave(job: JobDirectory, elsewhere: socket.socket) -> None:
    heard: list[Message] = []

    def live() -> None:
        voice = job.transport("t1")
        while not heard:
            heard.extend(wire.decode(parts) for _, parts in voice.poll(100))
        voice.close()
        elsewhere.close()

    thread = threading.Thread(target=live)
    thread.start()
    Scheduler(job, lambda: 1, lambda worker: "")
    thread.join(10)
    assert heard == [Leave("t1")]
    assert job.registered() == {}


def test_one_that_does_not_leave_is_named(
    job: JobDirectory, elsewhere: socket.socket, other: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seep.backends.process.LEAVING_SECONDS", 0.3)
    with pytest.raises(Retry, match=f"worker t1 of an earlier run does not end: process {other.pid} of host"):
        Scheduler(job, lambda: 1, lambda worker: "")
    assert other.poll() is None


def test_one_elsewhere_is_killed_by_its_own_hand(job: JobDirectory) -> None:
    heard: list[Message] = []

    def live() -> None:
        voice = job.transport(beside("t1"))
        while not heard:
            heard.extend(wire.decode(parts) for _, parts in voice.poll(100))
        voice.close()  # as the kernel does it

    thread = threading.Thread(target=live)
    thread.start()
    assert kill_elsewhere(job, "t1")
    thread.join(10)
    assert heard == [Leave("t1", at_once=True)]


class Full:
    """A Spark application that was given, and has no room: a job waits until its group is cancelled."""

    master = "local[2]"

    def __init__(self) -> None:
        self.group = threading.local()
        self.cancelled: dict[str, threading.Event] = {}
        self.stopped = False
        self._jsc = self

    def sc(self) -> Full:
        return self

    def isStopped(self) -> bool:
        return self.stopped

    def setJobGroup(self, group: str, *_: str, **how: bool) -> None:
        self.group.name = group
        self.cancelled[group] = threading.Event()

    def parallelize(self, rows: list[str], slices: int) -> Full:
        return self

    def mapPartitions(self, task: Any) -> Full:
        return self

    def collect(self) -> list[str]:
        assert self.cancelled[self.group.name].wait(30)
        raise RuntimeError("cancelled")

    def cancelJobGroup(self, group: str) -> None:
        self.cancelled[group].set()

    def stop(self) -> None:
        self.stopped = True


def test_tasks_that_wait_for_an_executor_do_not_outlive_the_flow(job: JobDirectory) -> None:
    """In an application that was given. They began when there was room, days later, and kept it."""
    given = Full()
    slots = SparkBackend(job, context=given)
    slots.want(3)
    until(lambda: len(given.cancelled) == 3, "three tasks that wait")
    slots.close()
    assert slots.workers() == []
    assert all(event.is_set() for event in given.cancelled.values())
    assert not given.stopped
