"""Where a row goes, and what comes of it, does not depend on how sender and receiver are partitioned."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seep
from operators.direct import TARGET, Direct
from operators.step import Site
from operators.tally import Tally
from seep.connectors.contract import Rows
from seep.flow.compile import compile_flow
from seep.flow.grouping import ByKey, Directed, Grouping, Local, Shuffle, ToOne, TwoChoices
from seep.model.arrow import ArrowBatch
from seep.model.epoch import Moment
from seep.model.ids import BEGINNING, FOREVER, KeyRange

SCHEMA = pa.schema({"k": pa.string(), "x": pa.int64()})
row = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "a", "a", "b", "long enough to be words", "", None]),
        "x": st.one_of(st.none(), st.integers(-5, 5)),
    }
)
cuts = st.lists(st.integers(1, 4095), max_size=3, unique=True).map(
    lambda at: [KeyRange(low, high) for low, high in pairwise([0, *sorted(at), 4096])]
)


def mixed(row: Any) -> Any:
    return row.k if row.x is None else row.x % 3


DIRECT = Direct("route", mixed, SCHEMA.append(pa.field(TARGET, pa.uint16())))


def targets(grouping: Grouping, batch: ArrowBatch, epoch: int) -> list[int]:
    if isinstance(grouping, Directed):
        batch = DIRECT.run(batch, Site("in", epoch, Tally())).get("out", batch)
    return grouping.targets(batch, epoch).tolist() if batch.rows else []


@pytest.mark.parametrize(
    "grouping",
    [Local(), ByKey(("k",)), ByKey(()), Shuffle(), ToOne(), Directed(), TwoChoices(("k",)), TwoChoices(("k", "x"))],
    ids=str,
)
@given(
    rows=st.lists(st.tuples(st.sampled_from([0, 7, 8, 1000, 4095]), row), max_size=40),
    ranges=cuts,
    epoch=st.integers(0, 2**40),
)
def test_a_target_depends_on_origin_position_and_epoch_alone(
    grouping: Grouping, rows: list[tuple[int, dict[str, Any]]], ranges: list[KeyRange], epoch: int
) -> None:
    rows = sorted(rows, key=lambda pair: pair[0])
    record = pa.RecordBatch.from_pylist([values for _, values in rows], schema=SCHEMA)
    whole = ArrowBatch(record, np.array([origin for origin, _ in rows], np.uint16))
    apart = [target for part in ranges for target in targets(grouping, whole.part(part), epoch)]
    assert targets(grouping, whole, epoch) == apart


@given(rows=st.lists(st.tuples(st.sampled_from([0, 8, 4095]), row), max_size=30), epoch=st.integers(0, 99))
def test_two_choices_does_as_it_says(rows: list[tuple[int, dict[str, Any]]], epoch: int) -> None:
    """Against the plain words: of two buckets the one whose surroundings have had fewer rows of this origin."""
    record = pa.RecordBatch.from_pylist([values for _, values in rows], schema=SCHEMA)
    batch = ArrowBatch(record, np.array([origin for origin, _ in rows], np.uint16))
    sent: dict[int, list[int]] = {}
    for (origin, _), digest, found in zip(
        rows, TwoChoices(("k",)).hashes(batch).tolist(), targets(TwoChoices(("k",)), batch, epoch), strict=True
    ):
        before = sent.setdefault(origin, [])
        first = digest >> 52
        second = (first + 1024 + (digest >> 41) % 2048) % 4096

        def load(bucket: int, before: list[int] = before) -> int:
            return sum(other // part == bucket // part for part in (2048, 1024, 512, 256) for other in before)

        odd = (len(before) + origin + epoch) % 2 == 1
        want = min(first, second, key=lambda b: (load(b), (b == first) == odd)) if first != second else first
        assert found == want
        before.append(found)


GROUPINGS: dict[str, Callable[[Any], Any]] = {
    "none": lambda s: s,
    "shuffle": lambda s: s.shuffle(),
    "to_one": lambda s: s.to_one(),
    "local": lambda s: s.local(),
    "route": lambda s: s.route(mixed),
    "two_choices": lambda s: s.key_by("k").two_choices(),
    "one after the other": lambda s: s.shuffle().filter(seep_any).route(mixed).filter(seep_any).to_one(),
}


def seep_any(row: Any) -> bool:
    return True


class Fed:
    """A source whose position is the epoch: the rows of an epoch, split by split."""

    splits = 2
    schema = SCHEMA

    def __init__(self) -> None:
        self.plan: list[list[list[dict[str, Any]]]] = []

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Rows:
        at = position or 0
        return Rows(pa.RecordBatch.from_pylist(self.plan[at][split], schema=SCHEMA), at + 1, False)


@cache
def graph_of(name: str) -> tuple[Fed, Any]:
    source, flow = Fed(), seep.Flow("grouped")
    sent = GROUPINGS[name](flow.source("rows", source))
    sent.filter(lambda row: row.x != 0).collect("out")
    sent.key_by("k").aggregate(n=seep.count(), sum=seep.total("x"), low=seep.minimum("x")).collect("sums")
    return source, compile_flow(flow)


def run(graph: Any, source: Fed, by_epoch: list[list[KeyRange]]) -> dict[str, list[Any]]:
    """What each sink gets, epoch by epoch; every operator is cut anew, through its state, before each epoch."""
    operators = [node.name for node in graph.nodes.values() if node.kind == "operator"]
    intakes = [graph.nodes["rows"].make() for _ in range(source.splits)]
    logics: dict[str, list[Any]] = {name: [] for name in operators}
    result: dict[str, list[Any]] = {node.name: [] for node in graph.nodes.values() if node.kind == "sink"}
    for at in range(len(source.plan)):
        ranges = by_epoch[at % len(by_epoch)]
        moment = Moment(at + 1, at, BEGINNING, FOREVER if at == len(source.plan) - 1 else BEGINNING)
        sent: dict[str, list[ArrowBatch]] = {}
        for split, intake in enumerate(intakes):
            intake.epoch = at + 1
            for edge, batch in intake.read(split, at, None, 100, 0).outputs.items():
                sent.setdefault(edge, []).append(batch)
        for name in graph.nodes:
            given = [
                (e.port, b) for e in sorted(graph.inputs(name), key=lambda e: e.port) for b in sent.get(e.name, [])
            ]
            if name in result:
                batch = ArrowBatch.concat([b for _, b in given]).by_bucket() if given else None
                rows = [] if batch is None else list(zip(batch.buckets.tolist(), batch.record.to_pylist(), strict=True))
                result[name].append(rows)
            if name not in logics:
                continue
            states = [logic.snapshot(True) for logic in logics[name]]
            logics[name] = [graph.nodes[name].make() for _ in ranges]
            for logic, part in zip(logics[name], ranges, strict=True):
                for state in states:
                    logic.load(state.part(part))
                whole = {edge.port for edge in graph.inputs(name) if edge.broadcast}
                mine = [(port, b if port in whole else b.part(part)) for port, b in given]
                for edge, batch in logic.take(moment, mine).items():
                    sent.setdefault(edge, []).append(batch)
    return result


@pytest.mark.parametrize("name", [name for name in GROUPINGS if name != "none"])
@settings(max_examples=settings().max_examples // 5)
@given(
    plan=st.lists(st.tuples(st.lists(row, max_size=8), st.lists(row, max_size=8)).map(list), min_size=1, max_size=4),
    by_epoch=st.lists(cuts, min_size=1, max_size=3),
)
def test_partitions_do_not_show(name: str, plan: list[Any], by_epoch: list[list[KeyRange]]) -> None:
    source, graph = graph_of(name)
    source.plan = plan
    want = run(graph, source, [[KeyRange(0, 4096)]])
    assert run(graph, source, by_epoch) == want
    plain, ungrouped = graph_of("none")
    plain.plan = plan
    calm = run(ungrouped, plain, [[KeyRange(0, 4096)]])
    for sink in ("out", "sums"):
        assert [sorted(map(_values, rows)) for rows in want[sink]] == [sorted(map(_values, r)) for r in calm[sink]]


class Told(seep.Operator):
    """Says all that it was told, in the order of its iteration."""

    seen = seep.ValueState(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> None:
        self.seen.value += 1
        told = [(key, latest.x) for key, latest in ctx.broadcast().items()]
        ctx.emit({"x": row.x, "seen": self.seen.value, "told": repr(told)})


@given(
    plan=st.lists(st.tuples(st.lists(row, max_size=8), st.lists(row, max_size=8)).map(list), min_size=1, max_size=5),
    by_epoch=st.lists(cuts, min_size=1, max_size=3),
)
def test_what_is_broadcast_is_known_everywhere(plan: list[Any], by_epoch: list[list[KeyRange]]) -> None:
    source, flow = Fed(), seep.Flow("told")
    source.plan = plan
    rows = flow.source("rows", source)
    out = pa.schema({"x": pa.int64(), "seen": pa.int64(), "told": pa.string()})
    rows.key_by("x").apply(Told, rows.key_by("k").broadcast(), out=out).collect("out")
    graph = compile_flow(flow)
    found = run(graph, source, by_epoch)
    assert found == run(graph, source, [[KeyRange(0, 4096)]])
    latest: dict[Any, Any] = {}
    for (first, second), rows_out in zip(plan, found["out"], strict=True):
        latest |= {one["k"]: one["x"] for one in [*first, *second]}
        assert len(rows_out) == len(first) + len(second)
        assert all(dict(ast.literal_eval(one["told"])) == latest for _, one in rows_out)


def _values(pair: tuple[int, dict[str, Any]]) -> str:
    return repr(pair[1])
