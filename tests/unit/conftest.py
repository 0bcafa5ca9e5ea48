"""A flow run epoch by epoch without any machinery: sources read, operators take, sinks encode.

Every operator may have several partitions, so that a test can ask whether the partitioning shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from seep.flow.build import Flow
from seep.flow.compile import compile_flow
from seep.flow.outlet import result_table
from seep.model.epoch import Moment
from seep.model.ids import BEGINNING, EVERYTHING, FOREVER
from seep.partition.contract import Graph, Intake

Run = Callable[..., dict[str, pa.Table]]


def _read(
    intake: Intake, positions: list[Any], times: list[int], ended: list[bool], epoch: int
) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for split in range(intake.splits):
        reading = None if ended[split] else intake.read(split, positions[split], None, 10_000, epoch * 50)
        if reading is not None:
            positions[split], ended[split] = reading.position, reading.ended
            times[split] = max(times[split], reading.event_time)
            for edge, batch in reading.outputs.items():
                found.setdefault(edge, []).append(batch)
    return found


def _behind(watermark: int, holds_us: int) -> int:
    return watermark if watermark >= FOREVER else max(BEGINNING, watermark - holds_us)


def run_graph(graph: Graph, partitions: int = 1, reload: bool = False) -> dict[str, Any]:
    """Committed records by sink name; `reload`: every operator is saved and loaded into a fresh one each epoch."""
    ranges = EVERYTHING.split(partitions)
    made = {
        name: [node.make() for _ in (ranges if node.kind != "source" else [0])] for name, node in graph.nodes.items()
    }
    splits = {name: made[name][0].splits for name, node in graph.nodes.items() if node.kind == "source"}
    positions: dict[str, list[Any]] = {name: [None] * count for name, count in splits.items()}
    times = {name: [BEGINNING] * count for name, count in splits.items()}
    ended = {name: [False] * count for name, count in splits.items()}
    records: dict[str, list[tuple[int, bytes]]] = {n: [] for n, node in graph.nodes.items() if node.kind == "sink"}
    before = BEGINNING
    holds: dict[str, int] = {}
    for name in graph.nodes:
        holds[name] = max((holds[edge.source] + edge.holds_us for edge in graph.inputs(name)), default=0)
    for epoch in range(1, 1000):
        sent: dict[str, list[Any]] = {}
        for name in splits:
            sent |= _read(made[name][0], positions[name], times[name], ended[name], epoch)
        marks = [
            time - made[name][0].lateness_us if time > BEGINNING else BEGINNING
            for name in splits
            for time, end in zip(times[name], ended[name], strict=True)
            if not end
        ]
        watermark = max(before, min(marks)) if marks else FOREVER
        for name, node in graph.nodes.items():
            if node.kind == "source":
                continue
            moment = Moment(epoch, epoch * 50, *(_behind(mark, holds[name]) for mark in (before, watermark)))
            for at, key_range in enumerate(ranges):
                inputs = [(e.port, b.part(key_range)) for e in graph.inputs(name) for b in sent.get(e.name, [])]
                if node.kind == "sink":
                    record = made[name][at].encode(moment, inputs)
                    if record is not None:
                        records[name].append((epoch, record))
                    continue
                for edge, batch in made[name][at].take(moment, inputs).items():
                    sent.setdefault(edge, []).append(batch)
                if reload:
                    fresh = node.make()
                    fresh.load(made[name][at].snapshot(True))
                    made[name][at] = fresh
        before = watermark
        if not marks:
            break
    return {"records": records, "made": made}


@pytest.fixture
def run() -> Run:
    def run(flow: Flow, **how: Any) -> dict[str, pa.Table]:
        graph = compile_flow(flow)
        found = run_graph(graph, **how)["records"]
        return {name: result_table(graph.nodes[name].settings or {}, records) for name, records in found.items()}

    return run
