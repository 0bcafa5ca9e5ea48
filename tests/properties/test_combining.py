"""Folding rows before they travel must not show: same output, same counts, however the flow is cut and partitioned."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from itertools import cycle, pairwise
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import seep
import seep.testing
from operators import combine
from seep.connectors.contract import Rows
from seep.errors import Misuse
from seep.flow import compile as compiling
from seep.flow import fused
from seep.flow.combining import Sending
from seep.model.arrow import ArrowBatch
from seep.model.epoch import Moment
from seep.model.ids import BEGINNING, FOREVER, KeyRange
from seep.model.schema import TIMESTAMP

SCHEMA = pa.schema(
    {
        "key": pa.string(),
        "group": pa.int32(),
        "at": TIMESTAMP,
        "number": pa.int64(),
        "natural": pa.uint64(),
        "ratio": pa.float64(),
        "money": pa.decimal128(38, 2),
        "text": pa.string(),
        "unread": pa.string(),
    }
)
BIG = Decimal(9 * 10**35) + Decimal("0.25")

row = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["a", "b", "four", "exactly8", "longer than eight bytes", "", None]),
        "group": st.sampled_from([1, 2, None]),
        # The far one makes an array of all windows too large: its epoch is folded by hashing.
        "at": st.one_of(st.integers(-30, 60), st.integers(-30, 60), st.just(10**14)),
        "number": st.one_of(st.none(), st.sampled_from([0, 1, -5, 2**62, -(2**62), -(2**63)])),
        "natural": st.one_of(st.none(), st.sampled_from([0, 7, 2**63, 2**64 - 1])),
        "ratio": st.one_of(st.none(), st.sampled_from([0.0, -0.0, 0.1, 1e16, math.nan, math.inf, -math.inf])),
        "money": st.one_of(st.none(), st.sampled_from([Decimal(0), Decimal("1.25"), BIG, -BIG])),
        "text": st.one_of(st.none(), st.sampled_from(["", "x", "xy", "é", "zebra"])),
        "unread": st.just("never read"),
    }
)
Epoch = list[list[dict[str, Any]]]
"""The rows of an epoch, split by split."""


def plans(splits: int) -> st.SearchStrategy[list[tuple[Epoch, int]]]:
    epoch = st.tuples(st.tuples(*[st.lists(row, max_size=10)] * splits).map(list), st.integers(0, 15))
    return st.lists(epoch, min_size=1, max_size=6)


AGGREGATES = {
    "n": seep.count(),
    "numbers": seep.count("number"),
    "sum": seep.total("number", wide=True),
    "naturals": seep.total("natural", wide=True),
    "average": seep.mean("number"),
    "price": seep.mean("money"),
    "low": seep.minimum("ratio"),
    "high": seep.maximum("ratio"),
    "least": seep.minimum("natural"),
    "most": seep.maximum("natural"),
    "cheap": seep.minimum("money"),
    "dear": seep.maximum("money"),
    "first_text": seep.minimum("text"),
    "last_text": seep.maximum("text"),
    "double": seep.maximum(pl.col("number") // 2),
}

VERBS: dict[str, Callable[[Any], Any]] = {
    "aggregate": lambda s: s.aggregate(**AGGREGATES).changes(),
    "aggregate at the end": lambda s: s.aggregate("close", **AGGREGATES),
    "window": lambda s: s.window(seep.tumbling("10us", offset="3us"), **AGGREGATES),
    "window updates": lambda s: s.window(seep.tumbling("10us"), emit="update", **AGGREGATES).changes(),
    "arrival": lambda s: s.window(seep.tumbling("10ms", by="arrival"), **AGGREGATES),
}
KEYS = {"one text": ("key",), "two columns": ("key", "group"), "a number": ("group",), "none": ()}


@dataclass
class Fed:
    """A source whose position is the epoch."""

    plan: list[tuple[Epoch, int]]
    splits: int
    schema = SCHEMA

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Rows:
        at = position or 0
        return Rows(pa.RecordBatch.from_pylist(self.plan[at][0][split], schema=SCHEMA), at + 1, False)


@contextmanager
def never_folded() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "sending", lambda vertex, chains, used: Sending(vertex.make))
        yield


@cache
def graphs_of(keys: str, verb: str) -> tuple[Fed, Any, Any]:
    """A source to be filled, the plan as it is, and one without folding. Building them costs more than running."""
    source = Fed([], 2)
    flow = seep.Flow("folded")
    stream = flow.source("rows", source, time="at").filter(pl.col("key").is_null() | (pl.col("key") != "b"))
    VERBS[verb](stream.key_by(*KEYS[keys])).collect("out")
    with never_folded():
        plain = compiling.compile_flow(flow)
    return source, compiling.compile_flow(flow), plain


def outcome(graph: Any, source: Fed, ranges: list[KeyRange]) -> tuple[list[Any], dict[str, int]]:
    """The output of each epoch, as text (NaN equals NaN), and every counter at the end."""
    operator = next(node.name for node in graph.nodes.values() if node.kind == "operator")
    into, out = graph.inputs(operator)[0].name, graph.outputs(operator)[0].name
    # Each split has a sender of its own, so that rows and parts meet in one epoch.
    intakes = [graph.nodes["rows"].make() for _ in range(source.splits)]
    logics = [graph.nodes[operator].make() for _ in ranges]
    watermark, before, outputs = -20, BEGINNING, list[Any]()
    counters: dict[str, int] = {}
    for at, (_, step) in enumerate(source.plan):
        watermark += step
        announced = FOREVER if at == len(source.plan) - 1 else watermark
        moment = Moment(at + 1, at * 7, before, announced)
        before = announced
        for intake in intakes:
            intake.epoch = at + 1
        sent = [intake.read(split, at, None, 100, 0) for split, intake in enumerate(intakes)]
        for reading in sent:
            for name, number in (reading.statistics or {}).items():
                # Folded rows are others: so are their digests.
                if not name.startswith(fused.OUT_DIGEST):
                    counters[name] = counters.get(name, 0) + number
        batches = [reading.outputs[into] for reading in sent if into in reading.outputs]
        found: list[ArrowBatch] = []
        for logic, key_range in zip(logics, ranges, strict=True):
            given = [(0, batch.part(key_range)) for batch in batches]
            taken = logic.take(moment, given)
            if out in taken:
                found.append(taken[out])
        if found:
            whole = ArrowBatch.concat(found)
            assert (np.diff(whole.buckets.astype(int)) >= 0).all()
            outputs.append([at, [repr(line) for line in whole.record.to_pylist()], whole.buckets.tolist()])
    for logic in logics:
        for name, number in logic.statistics().items():
            if name != "state_bytes":
                counters[name] = counters.get(name, 0) + number
    return outputs, counters


@pytest.fixture(autouse=True)
def few_keys_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combine, "_KEYS_KEPT", 2)


@pytest.mark.parametrize("verb", VERBS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    keys=st.sampled_from(sorted(KEYS)),
    plan=plans(2),
    cuts=st.lists(st.integers(1, 4095), max_size=3, unique=True),
    folds=st.lists(st.booleans(), min_size=1, max_size=7),
)
def test_folding_does_not_show(
    verb: str, keys: str, plan: list[tuple[Epoch, int]], cuts: list[int], folds: list[bool]
) -> None:
    """However the rows of each epoch and sender travel: folded or as they are."""
    source, folded, plain = graphs_of(keys, verb)
    turns = cycle(folds)
    source.plan = plan
    ranges = [KeyRange(low, high) for low, high in pairwise([0, *sorted(cuts), 4096])]
    assert combined(folded)
    assert not combined(plain)
    want = outcome(plain, source, [KeyRange(0, 4096)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused, "worth_folding", lambda record, keys: next(turns))
        assert outcome(folded, source, ranges) == want
    assert want[1].get("in:0", 0) == want[1].get(f"out:{folded.edges[0].name}", 0)


def combined(graph: Any) -> bool:
    return any(getattr(node.make, "combine", None) is not None for node in graph.nodes.values())


@pytest.mark.parametrize("verb", ["aggregate", "window"])
def test_an_overflow_still_stops(verb: str) -> None:
    big = {**dict.fromkeys(SCHEMA.names), "key": "a", "at": 1, "number": 2**62}
    source = Fed([([[big, big], [big]], 0)], 2)
    flow = seep.Flow("overflow")
    stream = flow.source("rows", source, time="at").key_by("key")
    kept = (
        stream.aggregate(sum=seep.total("number")).changes()
        if verb == "aggregate"
        else stream.window(seep.tumbling("1s"), sum=seep.total("number"))
    )
    kept.collect("out")
    graph = compiling.compile_flow(flow)
    assert combined(graph)
    with pytest.raises(Misuse, match=r"sum = total\('number'\) does not fit int64 for key key='a'; use wide=True"):
        outcome(graph, source, [KeyRange(0, 4096)])


def test_what_is_not_folded_travels_without_unread_columns() -> None:
    flow = seep.Flow("narrow")
    stream = flow.source("rows", Fed([], 1), time="at").key_by("key")
    stream.window(seep.tumbling("1s"), sum=seep.total("ratio"), odd=seep.maximum(pl.col("number") % 2)).collect("out")
    graph = compiling.compile_flow(flow)
    assert not combined(graph)
    plan = graph.nodes["window-key"].make
    assert plan.reason == "sum = total('ratio') adds floats, whose result depends on the order"
    assert plan.head.args[1]["schema"].names == ["key", "at", "number", "ratio"]


def test_rows_whose_late_ones_are_taken_are_not_folded() -> None:
    flow = seep.Flow("late")
    windows = flow.source("rows", Fed([], 1), time="at").key_by("key").window(seep.tumbling("1s"), n=seep.count())
    windows.collect("out")
    assert combined(compiling.compile_flow(flow))
    windows.late.collect("late")
    graph = compiling.compile_flow(flow)
    assert not combined(graph)
    assert "late rows are taken" in graph.nodes["window-key"].make.reason


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_whole_run_gives_the_same(parallel: int) -> None:
    """Two sources and a union, windows of windows, through the real machine."""

    def result() -> dict[str, pa.Table]:
        flow = seep.Flow("whole")
        lines = [{"key": f"k{n * n % 7}", "at": n * 400_000, "x": n - 40} for n in range(90)]
        schema = pa.schema({"key": pa.string(), "at": TIMESTAMP, "x": pa.int64()})
        sources = [
            flow.source(
                name,
                seep.MemorySource(pa.Table.from_pylist(lines[at::2], schema), per_epoch=9),
                time="at",
                lateness="1s",
            )
            for at, name in enumerate(("even", "odd"))
        ]
        seconds = (
            sources[0]
            .union(sources[1])
            .key_by("key")
            .window(seep.tumbling("2s"), n=seep.count(), most=seep.maximum("x"), average=seep.mean("x"))
            .named("by-second")
            .scale(start=parallel)
        )
        seconds.collect("seconds")
        seconds.key_by().window(seep.tumbling("10s"), n=seep.total("n"), most=seep.maximum("most")).named(
            "tens"
        ).collect("all")
        seconds.key_by("key").aggregate(n=seep.total("n")).named("by-key").scale(start=parallel).collect("keys")
        assert len(sources) == 2
        return dict(seep.run(flow).items())

    with never_folded():
        want = result()
    found = result()
    assert found == want
    assert sum(found["keys"].column("n").to_pylist()) == 90


def test_kills_and_splits_do_not_show() -> None:
    flow = seep.Flow("counts")
    source = seep.MemorySource([{"key": "a", "x": 1}])
    flow.source("rows", source).key_by("key").aggregate(n=seep.count(), most=seep.maximum("x")).named("fold").collect(
        "out"
    )
    driver = seep.testing.Driver(flow, seed=5)
    for epoch in range(6):
        driver.feed("rows", [{"key": f"k{n % 5}", "x": n * epoch} for n in range(40)])
        if epoch == 1:
            driver.checkpoint()
        if epoch == 2:
            driver.scale("fold", 3)
        if epoch == 4:
            driver.kill("fold", 1)
    driver.close()
    assert {line["key"]: line["n"] for line in driver.output("out")} == {f"k{n}": 48 for n in range(5)}
    driver.assert_exactly_once()


@pytest.mark.parametrize("verb", VERBS)
def test_the_loops_can_be_loaded_ahead(verb: str) -> None:
    """A worker's parent does so with made-up rows: it must not stumble over them."""
    flow = seep.Flow("warm")
    stream = flow.source("rows", Fed([], 1), time="at").key_by("key")
    made = {name: spec for name, spec in AGGREGATES.items() if not isinstance(spec.column, pl.Expr)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{__name__}.AGGREGATES", made)
        VERBS[verb](stream).collect("out")
    graph = compiling.compile_flow(flow)
    assert combined(graph)
    for node in graph.nodes.values():
        if node.kind == "operator":
            node.make.warm()
