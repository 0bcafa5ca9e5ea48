"""Apache Flink (Java, DataStream API), from Maven: a local cluster in one process, compiled once and kept."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from benchmarks.contest import Program, Task
from benchmarks.peers import Spec
from benchmarks.peers.buffers import cache, output, run
from benchmarks.peers.topics import Topics, arguments

HERE = Path(__file__).parent / "flink"
OPENED = ("java.base/java.lang", "java.base/java.util", "java.base/java.time")
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
HOW = "DataStream, one process, 2 subtasks, object reuse, state on the heap, exactly once, checkpoint every 5 s"

FROM_TOPICS = (
    "DataStream, its Kafka connector and JSON formats, one process, {parallelism} subtasks, object reuse, state on the "
    "heap, exactly once, checkpoint every {checkpoint_ms} ms"
)


def main(spec: Spec) -> dict[str, Any]:
    how = f"{HOW}; emits every update" if spec.load().keys else HOW
    return run(spec, _command("Bench"), version(), how)


def topics(task: Task) -> Topics:
    """From a topic to a topic."""
    command = [*_command("Topics"), *arguments(task)]
    return Topics(lambda: Program(command, task.home), version(), FROM_TOPICS.format(**task._asdict()))


def _command(program: str) -> list[str]:
    home = built()
    opened = [option for package in OPENED for option in ("--add-opens", f"{package}=ALL-UNNAMED")]
    return ["java", "-Xmx4g", QUIET, *opened, "-cp", f"{home / 'classes'}:{home / 'lib'}/*", program]


def version() -> str:
    found = re.search(r"<flink.version>(.+)</flink.version>", (HERE / "pom.xml").read_text())
    return found[1] if found else "unknown"


def built() -> Path:
    return compiled("flink", HERE)


def compiled(name: str, sources: Path) -> Path:
    """Libraries and classes of Java programs beside their pom.xml, made when the sources have changed."""
    pom, programs = str(sources / "pom.xml"), sorted(sources.glob("*.java"))
    known = hashlib.sha256(b"".join(path.read_bytes() for path in (sources / "pom.xml", *programs)))
    home = cache() / f"{name}-{known.hexdigest()[:12]}"
    if not (home / "ready").exists():
        home.mkdir(parents=True, exist_ok=True)
        output(["mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={home / 'lib'}"])
        output(["javac", "-nowarn", "-cp", f"{home / 'lib'}/*", "-d", str(home / "classes"), *map(str, programs)])
        (home / "ready").touch()
    return home
