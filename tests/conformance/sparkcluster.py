"""A real Spark cluster on this machine: a master and its workers' daemons, on free ports of the loopback interface.

They get an environment of their own, without the test's PYTHONPATH: what executors need to find, the driver must tell.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pyspark

from tests.conformance.hosts import Hosts
from tests.scenarios.oracles import until

HOME = Path(pyspark.__file__).parent
HOST = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


class SparkCluster:
    def __init__(
        self, path: Path, daemons: int, cores: int, hosts: Hosts | None = None, hidden: Iterable[Path] = ()
    ) -> None:
        """`hosts`: where the daemons are to run, the master on this side of them; else all are on this host."""
        self.path = path
        self.processes: list[subprocess.Popen[bytes]] = []
        self.host = hosts.address if hosts else HOST
        port = free_port()
        self.master = f"spark://{self.host}:{port}"
        try:
            self._start("master.Master", self.host, [], "--port", str(port))
            until(lambda: self._listens(port), "the master to listen", 60.0)
            for daemon in range(daemons):
                self.join(cores, hosts, daemon, hidden)
        except BaseException:
            self.close()
            raise

    def join(self, cores: int, hosts: Hosts | None = None, number: int = 0, hidden: Iterable[Path] = ()) -> None:
        """Another daemon: on this host, or on that one of `hosts`."""
        host = hosts.addresses[number] if hosts else HOST
        before = hosts.on(number, hidden) if hosts else []
        self._start("worker.Worker", host, before, "--cores", str(cores), "--memory", "1g", self.master)

    def _start(self, kind: str, host: str, before: list[str], *arguments: str) -> None:
        home = self.path / f"{len(self.processes)}"
        home.mkdir()
        environment = {
            **{name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "JAVA_HOME")},
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": host,
            "SPARK_LOCAL_DIRS": str(home),
            "SPARK_WORKER_DIR": str(home),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # they live for a minute
        }
        call = [*before, str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", "--host", host]
        with (home / "log").open("wb") as log:
            self.processes.append(
                subprocess.Popen(
                    [*call, "--webui-port", "0", *arguments],
                    cwd=home,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    def _listens(self, port: int) -> bool:
        assert self.processes[0].poll() is None, (self.path / "0" / "log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex((self.host, port)) == 0

    def close(self) -> None:
        for process in reversed(self.processes):
            process.kill()
            process.wait()
