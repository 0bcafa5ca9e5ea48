"""A Kafka broker for peers that read from nothing else: from Maven, alone, on loopback ports that are free."""

from __future__ import annotations

import base64
import hashlib
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers import Unable
from benchmarks.peers.buffers import cache, output

HERE = Path(__file__).parent / "kafka"
START_SECONDS = 120.0
STOP_SECONDS = 30.0
# Rows are of long ago by their times, so nothing may be removed for its age. The first members of a group wait for
# each other, so that partitions do not move at once.
PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={logs}
log.retention.ms=-1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=5000
"""


class Broker(NamedTuple):
    address: str
    process: int


@contextmanager
def broker(home: Path) -> Iterator[Broker]:
    """One that answers, until the block is left."""
    jars = f"{_jars()}/*"
    port, controller = _free_ports(2)
    home.mkdir(parents=True)
    properties = home / "server.properties"
    properties.write_text(PROPERTIES.format(port=port, controller=controller, logs=home / "logs"))
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    tool = ["java", "-cp", jars, "kafka.tools.StorageTool", "format", "--standalone"]
    output([*tool, "-t", cluster, "-c", str(properties)], home)
    with (home / "broker.log").open("wb") as log:
        command = ["java", "-Xmx1g", "-cp", jars, "kafka.Kafka", str(properties)]
        process = subprocess.Popen(command, cwd=home, stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait(port, process)
        yield Broker(f"127.0.0.1:{port}", process.pid)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)


def _jars() -> Path:
    pom = HERE / "pom.xml"
    home = cache() / f"kafka-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if not (home / "ready").exists():
        home.mkdir(parents=True, exist_ok=True)
        output(["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={home / 'lib'}"])
        (home / "ready").touch()
    return home / "lib"


def _free_ports(count: int) -> list[int]:
    """Different ones: all are held until the last is found."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return found


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise Unable(f"the Kafka broker ended with {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise Unable(f"the Kafka broker did not start within {START_SECONDS:.0f} s")
