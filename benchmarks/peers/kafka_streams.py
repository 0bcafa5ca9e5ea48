"""Kafka Streams (Java), from Maven: it reads topics and writes topics, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from benchmarks.contest import Program, Task
from benchmarks.peers import Spec, Unable
from benchmarks.peers.flink import QUIET, compiled
from benchmarks.peers.topics import Topics, arguments

HERE = Path(__file__).parent / "streams"
HOW = (
    "one process, {parallelism} stream threads, exactly once (v2), commit every {checkpoint_ms} ms, state in memory "
    "with a cache and a changelog topic, rows by Jackson, no repartitioning: the topic is by key"
)


def main(spec: Spec) -> dict[str, Any]:
    raise Unable(f"no program for {spec.workload}: it reads from topics only; see the benchmark kafka")


def topics(task: Task) -> Topics:
    home = compiled("streams", HERE)
    command = ["java", "-Xmx4g", QUIET, "-cp", f"{home / 'classes'}:{home / 'lib'}/*", "Topics", *arguments(task)]
    found = re.search(r"<kafka.version>(.+)</kafka.version>", (HERE / "pom.xml").read_text())
    version = found[1] if found else "unknown"
    return Topics(lambda: Program(command, task.home), version, HOW.format(**task._asdict()))
