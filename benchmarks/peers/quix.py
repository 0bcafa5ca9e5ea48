"""Quix Streams (Python), in an environment of its own, with a Kafka broker beside it: it reads from nothing else.

Rows are written to the topic before the clock runs (`conversion_seconds`), so a run is not endless but of a
number of rows that takes the engine about the time asked for.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.contest import Program, Task
from benchmarks.peers import Spec, Unable
from benchmarks.peers.buffers import environment, run
from benchmarks.peers.topics import Topics, arguments
from benchmarks.servers.kafka import KafkaBroker, ServerError

PACKAGES = ("quixstreams==3.28.1", "pyarrow", "numpy")
ROWS_PER_SECOND = {"keyed-count": 30_000, "keyed-window": 25_000, "word-count": 2_500}
"""By workload, somewhat more than two processes and their broker take on two cores, so that the clock runs no less
than asked for."""
BROKER = {"group.initial.rebalance.delay.ms": "5000"}
"""The first members of a group wait for each other, so that partitions do not move at once."""
HOW = (
    "two processes and a Kafka broker, at least once, commit every 5 s, state in RocksDB with changelog topics, rows "
    "as JSON in a topic of two partitions"
)
KEYED = ", by key: the shuffle is done before the clock runs"
SHUFFLED = "; words are shuffled by another topic"
UPDATES = "; emits every update"
FROM_TOPICS = (
    "{parallelism} processes, exactly once, commit every {checkpoint_ms} ms, state in RocksDB with changelog topics, "
    "no repartitioning: the topic is by key"
)


def main(spec: Spec) -> dict[str, Any]:
    if spec.workload not in ROWS_PER_SECOND:
        raise Unable(f"no program for {spec.workload}")
    python = environment("quix", PACKAGES)
    program = Path(__file__).parent / "quix" / "flow.py"
    how = HOW + (SHUFFLED if spec.workload == "word-count" else KEYED) + (UPDATES if spec.load().keys else "")
    try:
        served = KafkaBroker(Path(spec.home) / "kafka", BROKER)
        with served:
            command = [python, str(program), f"broker={served.address}", f"broker_process={served.process}"]
            return run(_ending(spec), command, PACKAGES[0].partition("==")[2], how)
    except ServerError as error:
        raise Unable(str(error)) from None


def topics(task: Task) -> Topics:
    """From a topic to a topic."""
    program = Path(__file__).parent / "quix" / "topics.py"
    command = [environment("quix", PACKAGES), str(program), *arguments(task)]
    version = PACKAGES[0].partition("==")[2]
    return Topics(lambda: Program(command, task.home), version, FROM_TOPICS.format(**task._asdict()))


def _ending(spec: Spec) -> Spec:
    if spec.bounded:
        return replace(spec, warm_seconds=0.0)
    rows = int(ROWS_PER_SECOND[spec.workload] * (spec.warm_seconds + spec.seconds))
    return replace(spec, rows=rows, bounded=True)
