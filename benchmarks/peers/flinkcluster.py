"""A standalone Flink cluster on loopback: a job manager and task managers, each a process that can be killed.

From the same libraries as the throughput peer, without Flink's shell scripts: these would only reckon the sizes of
memory that are written down here.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers import Unable
from benchmarks.peers.buffers import output
from benchmarks.peers.flink import QUIET, built

MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
TASKS = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
OPENED = (
    "lang",
    "net",
    "io",
    "nio",
    "lang.reflect",
    "text",
    "time",
    "util",
    "util.concurrent",
    "util.concurrent.locks",
)
SLOTS = 2
STARTING_SECONDS = 90.0
ASKED_SECONDS = 10.0
LOOK_SECONDS = 0.05
SETTINGS = {
    "jobmanager.rpc.address": "127.0.0.1",
    "jobmanager.bind-host": "127.0.0.1",
    "rest.address": "127.0.0.1",
    "rest.bind-address": "127.0.0.1",
    "taskmanager.host": "127.0.0.1",
    "taskmanager.bind-host": "127.0.0.1",
    "taskmanager.numberOfTaskSlots": str(SLOTS),
    "taskmanager.cpu.cores": str(SLOTS),
    "taskmanager.memory.framework.heap.size": "128m",
    "taskmanager.memory.framework.off-heap.size": "128m",
    "taskmanager.memory.jvm-metaspace.size": "256m",
    "taskmanager.memory.jvm-overhead.min": "192m",
    "taskmanager.memory.jvm-overhead.max": "192m",
    "taskmanager.memory.task.heap.size": "512m",
    "taskmanager.memory.task.off-heap.size": "0m",
    "taskmanager.memory.managed.size": "32m",
    "taskmanager.memory.network.min": "64m",
    "taskmanager.memory.network.max": "64m",
    "state.backend.type": "hashmap",
}


class Refused(Unable):
    """Flink did not answer, or not with what was asked for."""


class Cluster:
    """``settings`` are Flink's own, beside those that make it run here."""

    def __init__(self, home: Path, settings: Mapping[str, str], task_managers: int) -> None:
        self.home = home
        self.classes = built()
        self.rest_port, rpc_port = _free_port(), _free_port()
        (home / "conf").mkdir(parents=True)
        mine = {
            "jobmanager.rpc.port": str(rpc_port),
            "rest.port": str(self.rest_port),
            "execution.checkpointing.dir": (home / "checkpoints").as_uri(),
            "io.tmp.dirs": str(home / "temporary"),
        }
        lines = [f"{name}: {value}\n" for name, value in {**SETTINGS, **mine, **settings}.items()]
        (home / "conf" / "config.yaml").write_text("".join(lines))
        self._processes = {"manager": self._start("manager", MANAGER, "-Xmx600m")}
        self._killed: set[str] = set()
        for name in (f"tasks-{number}" for number in range(task_managers)):
            self._processes[name] = self._start(name, TASKS, "-Xmx768m", "-D", f"taskmanager.resource-id={name}")

    def _start(self, name: str, entry: str, memory: str, *more: str) -> subprocess.Popen[bytes]:
        command = [*self._java(memory), entry, "--configDir", str(self.home / "conf"), *more]
        with (self.home / f"{name}.log").open("wb") as log:
            try:
                return subprocess.Popen(command, stdout=log, stderr=log)
            except FileNotFoundError as error:
                raise Unable(f"java: {error}") from None

    def _java(self, memory: str) -> list[str]:
        opened = [option for one in OPENED for option in ("--add-opens", f"java.base/java.{one}=ALL-UNNAMED")]
        return ["java", memory, QUIET, *opened, "-cp", f"{self.classes / 'classes'}:{self.classes / 'lib'}/*"]

    def until_ready(self) -> None:
        wanted = SLOTS * (len(self._processes) - 1)
        self.until(lambda: int(self.ask("overview")["slots-available"]) >= wanted, "its slots", STARTING_SECONDS)

    def until(self, done: Callable[[], bool], what: str, seconds: float) -> None:
        """A refusal means not yet: it comes while Flink starts, and while a job is between two attempts."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                if done():
                    return
                said = "no error"
            except Refused as refused:
                said = str(refused)
            for name, process in self._processes.items():
                if process.poll() is not None and name not in self._killed:
                    words = (self.home / f"{name}.log").read_text(errors="replace").strip().splitlines()
                    raise Unable(f"Flink's {name} has ended: {' / '.join(words[:3])}")
            if time.monotonic() > deadline:
                raise Unable(f"Flink: {what}: not within {seconds:.0f} s ({said})")
            time.sleep(LOOK_SECONDS)

    def ask(self, route: str, method: str = "GET", body: Any = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.rest_port}/{route}", data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=ASKED_SECONDS) as answer:
                return json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            raise Refused(f"{method} {route}: {error.read(500).decode(errors='replace')}") from None
        except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
            raise Refused(f"{method} {route}: {error}") from None

    def submit(self, program: str, settings: Mapping[str, Any]) -> str:
        """Run the main function of a program, which gives a job to this cluster; the job's id."""
        given = [f"{name}={value}" for name, value in {**settings, "port": self.rest_port}.items()]
        return output([*self._java("-Xmx256m"), program, *given]).strip().splitlines()[-1]

    # --- the job -------------------------------------------------------------------------------------------------

    def state(self, job: str) -> str:
        return str(self.ask(f"jobs/{job}")["state"])

    def vertices(self, job: str) -> dict[str, dict[str, Any]]:
        """By name: id, parallelism, and of its subtasks status and task manager."""
        found = {}
        for vertex in self.ask(f"jobs/{job}")["vertices"]:
            subtasks = self.ask(f"jobs/{job}/vertices/{vertex['id']}")["subtasks"]
            found[vertex["name"]] = {**vertex, "subtasks": subtasks}
        return found

    def runs(self, job: str) -> bool:
        """All of it, on task managers that live."""
        subtasks = [one for vertex in self.vertices(job).values() for one in vertex["subtasks"]]
        return all(one["status"] == "RUNNING" and self._lives(one["taskmanager-id"]) for one in subtasks)

    def completed_checkpoints(self, job: str) -> int:
        return int(self.ask(f"jobs/{job}/checkpoints")["counts"]["completed"])

    def rescale(self, job: str, named: str, parallelism: int) -> int:
        """Ask for another parallelism of the vertex with this name; when that was, on the monotonic clock."""
        wanted = {}
        for name, vertex in self.vertices(job).items():
            most = parallelism if name.startswith(named) else vertex["parallelism"]
            wanted[vertex["id"]] = {"parallelism": {"lowerBound": 1, "upperBound": most}}
        at_ns = time.monotonic_ns()
        self.ask(f"jobs/{job}/resource-requirements", "PUT", wanted)
        return at_ns

    def kill(self, job: str) -> int:
        """SIGKILL of a task manager that runs something of it; when that was."""
        used = {one["taskmanager-id"] for vertex in self.vertices(job).values() for one in vertex["subtasks"]}
        name = min(used)
        self._killed.add(name)
        at_ns = time.monotonic_ns()
        self._processes[name].kill()
        self._processes[name].wait()
        return at_ns

    def _lives(self, task_manager: str) -> bool:
        return task_manager in self._processes and task_manager not in self._killed

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
