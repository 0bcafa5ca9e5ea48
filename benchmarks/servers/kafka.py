"""A Kafka broker of its own: one process that is controller and broker, from Maven's jars, on free loopback ports.

It can be killed, paused and started again on the same data and the same port, since that is what a client must survive.
``python -m benchmarks.servers.kafka`` fetches the jars and starts nothing.
"""

from __future__ import annotations

import base64
import hashlib
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

POM = Path(__file__).with_name("kafka.xml")
PATIENCE_SECONDS = 600.0
START_SECONDS = 120.0
STOP_SECONDS = 30.0
# A small heap and the simplest compiler and collector: it shares its cores with what it is there for.
JAVA = ("java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# Rows are of long ago by their times, so nothing may be removed for its age.
PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "log.retention.ms": "-1",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "2000",  # so long a killed one, started again, is taken for its own double
    "broker.heartbeat.interval.ms": "500",
}


class ServerError(Exception):
    """It could not be fetched or started; the message says why, in one line."""


class KafkaBroker:
    """``with KafkaBroker(home) as broker: broker.address``: answers from the first line to the last."""

    def __init__(self, home: Path, properties: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.port, controller = free_ports(2)
        self.address = f"127.0.0.1:{self.port}"
        self._jars = f"{jars()}/*"
        self._process: subprocess.Popen[bytes] | None = None
        home.mkdir(parents=True)
        settings = {
            **PROPERTIES,
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(home / "logs"),
            **(properties or {}),
        }
        self._properties = home / "server.properties"
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = [*JAVA, "-cp", self._jars, "kafka.tools.StorageTool", "format", "--standalone"]
        # One in 64 begins with a dash, which a separate argument must not.
        _output([*tool, f"--cluster-id={cluster}", "-c", str(self._properties)], home)

    def __enter__(self) -> KafkaBroker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def process(self) -> int:
        assert self._process is not None, "the broker does not run"
        return self._process.pid

    def start(self) -> None:
        """Until it listens. Data, address and identity are those of the last time."""
        with (self.home / "broker.log").open("ab") as log:
            command = [*JAVA, "-cp", self._jars, "kafka.Kafka", str(self._properties)]
            self._process = subprocess.Popen(command, cwd=self.home, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise ServerError(f"the Kafka broker ended with {self._process.returncode}: see {self.home}/broker.log")
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        self.kill()
        raise ServerError(f"the Kafka broker did not start within {START_SECONDS:.0f} s")

    def kill(self) -> None:
        """As if its machine had lost power, except that the kernel still writes what it was given."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_SECONDS)
            self._process = None

    def pause(self) -> None:
        os.kill(self.process, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.process, signal.SIGCONT)

    def stop(self) -> None:
        if self._process is None:
            return
        self.go_on()
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None


def jars() -> Path:
    """Where the broker's classes are, fetched when they are first needed and kept between runs."""
    home = _cache()
    if not fetched():
        home.mkdir(parents=True, exist_ok=True)
        _output(
            ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={home / 'lib'}"]
        )
        (home / "ready").touch()
    return home / "lib"


def fetched() -> bool:
    """Are the jars here already? Tests do not fetch them: `make test` has, or they are skipped."""
    return (_cache() / "ready").exists()


def _cache() -> Path:
    return Path.home() / ".cache" / "seep" / f"kafka-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"


def free_ports(count: int) -> list[int]:
    """Different ones: all are held until the last is found."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return found


def _output(command: list[str], cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise ServerError(f"{command[0]}: {error}") from None
    if done.returncode:
        words = [line for line in (done.stdout + done.stderr).strip().splitlines() if line.strip()]
        raise ServerError(f"{command[0]} failed: {' / '.join(words[-3:])}")
    return done.stdout


if __name__ == "__main__":
    try:
        jars()
    except ServerError as error:
        raise SystemExit(f"seep: Kafka's jars could not be fetched: {error}") from None
