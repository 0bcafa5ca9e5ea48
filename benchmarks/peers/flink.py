"""Apache Flink (Java, DataStream API), from Maven: a local cluster in one process, compiled once and kept."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from benchmarks.peers import Spec
from benchmarks.peers.buffers import cache, output, run

HERE = Path(__file__).parent / "flink"
OPENED = ("java.base/java.lang", "java.base/java.util", "java.base/java.time")
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
HOW = "DataStream, one process, 2 subtasks, object reuse, state on the heap, exactly once, checkpoint every 5 s"


def main(spec: Spec) -> dict[str, Any]:
    home = built()
    opened = [option for package in OPENED for option in ("--add-opens", f"{package}=ALL-UNNAMED")]
    command = ["java", "-Xmx4g", QUIET, *opened, "-cp", f"{home / 'classes'}:{home / 'lib'}/*", "Bench"]
    how = f"{HOW}; emits every update" if spec.load().keys else HOW
    return run(spec, command, version(), how)


def version() -> str:
    found = re.search(r"<flink.version>(.+)</flink.version>", (HERE / "pom.xml").read_text())
    return found[1] if found else "unknown"


def built() -> Path:
    """Libraries and classes, made when the sources have changed."""
    programs = sorted(HERE.glob("*.java"))
    sources = [HERE / "pom.xml", *programs]
    home = cache() / f"flink-{hashlib.sha256(b''.join(map(Path.read_bytes, sources))).hexdigest()[:12]}"
    if not (home / "ready").exists():
        home.mkdir(parents=True, exist_ok=True)
        pom = str(HERE / "pom.xml")
        output(["mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={home / 'lib'}"])
        output(["javac", "-nowarn", "-cp", f"{home / 'lib'}/*", "-d", str(home / "classes"), *map(str, programs)])
        (home / "ready").touch()
    return home
