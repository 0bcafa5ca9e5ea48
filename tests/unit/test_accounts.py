"""Inside every kind of node each row is accounted for; one that is lost or doubled there is named with its epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import operators.aggregate
import operators.apply
import operators.as_of
import operators.batch_operator
import operators.copying
import operators.count_window
import operators.dedupe
import operators.foreign_join
import operators.forward
import operators.history
import operators.joining
import operators.reduce
import operators.rowwise
import operators.session
import operators.sliding
import operators.stateless
import operators.table
import operators.table_aggregate
import operators.table_join
import operators.table_lookup
import operators.top
import operators.window
import operators.window_top
import seep
from operators.groups import Groups
from operators.memory import Memory
from operators.retract import Retract
from seep.control.requests import ScaleTo
from seep.flow.fused import Route
from seep.flow.outlet import SinkOutlet
from seep.model.arrow import ArrowBatch
from seep.sim.world import World
from tests.saving import LIMIT_MS, Fixed, fix

START = datetime(2024, 1, 1, tzinfo=UTC)
EPOCHS, AFTER = 16, 8
CUT = 6
"""Rows of an epoch."""
SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("at", pa.timestamp("us", "UTC"))])


@cache
def rows() -> list[dict[str, Any]]:
    """Some far behind in time, some without one, some that functions refuse."""
    found = []
    for i in range(3_000):
        late = timedelta(minutes=5) if i % 17 == 16 else timedelta(0)
        at = None if i % 29 == 28 else START + timedelta(seconds=2 * i) - late
        found.append({"k": f"k{(i * i + i // 3) % 5}", "n": i % 41, "x": i * 0.25, "at": at})
    return found


SHOPS = [{"k": f"k{i}", "town": f"town {i % 2}"} for i in range(5)]
Build = Callable[[seep.Stream], Any]


def flow_of(build: Build, checkpoint: str = "2s") -> seep.Flow:
    """With checkpoints a source's log is truncated."""
    flow = seep.Flow("accounted", epoch="10ms", checkpoint=checkpoint)
    table = pa.Table.from_pylist(rows(), schema=SCHEMA)
    build(flow.source("rows", seep.MemorySource(table, per_epoch=CUT), time="at", lateness="10s"))
    return flow


def shops(stream: seep.Stream) -> seep.Stream:
    return stream.flow.source("shops", seep.MemorySource(SHOPS)).key_by("k")


# --- one flow for each kind of node ------------------------------------------------------------------------------


def refusing(row: Any) -> Any:
    if row.n % 13 == 12:
        raise ValueError("no")
    return None if row.n % 7 == 6 else {"k": row.k, "n": row.n}


def several(row: Any) -> list[dict[str, Any]]:
    return [{"k": row.k, "n": row.n + more} for more in range(60 // (row.n - 3) % 4)]


def doubled_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.concat_batches([batch, batch]) if batch.num_rows % 2 else batch.slice(1)


class Emits(seep.Operator):
    held = seep.ValueState(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> None:
        if row.n % 13 == 12:
            raise ValueError("no")
        self.held.value += row.n
        ctx.set_timer(row.at + timedelta(seconds=7))
        ctx.emit({"k": ctx.key, "n": self.held.value})
        if row.n % 11 == 10:
            ctx.emit({"k": ctx.key, "n": "much"}, to="side")

    def on_timer(self, at: datetime, ctx: Any) -> None:
        if at.second % 5 == 4:
            raise ValueError("not now")


class Sums(seep.BatchOperator):
    sums = seep.TableState({"n": int})

    def on_batch(self, batch: pa.RecordBatch, ctx: Any) -> None:
        if 12 in batch["n"].to_pylist():
            raise ValueError("no")
        new = batch.select(["k", "n"])
        self.sums.put(new)
        ctx.emit(new)


def split(stream: seep.Stream) -> None:
    parts = stream.split(small=pl.col("n") < 5, odd=lambda row: 60 // (row.n - 7) and row.n % 2)
    parts.small.shuffle().named("spread").collect("small")
    parts.odd.map(refusing, schema={"k": str, "n": int}).named("refused").collect("odd")


def tables(stream: seep.Stream) -> None:
    latest = stream.key_by("k").table().named("latest")
    known = shops(stream).table().named("known")
    latest.join(known, how="full").named("both").collect("joined")
    latest.key_by("n").aggregate(rows=seep.count(), most=seep.maximum("x")).named("groups").collect("grouped")
    latest.key_by("n").aggregate(rows=seep.count()).named("exact").collect("counted")
    stream.key_by("n").table().named("by-n").join(known, on="k").named("foreign").collect("located")


def best(stream: seep.Stream) -> None:
    minutes = stream.key_by("k", "n").window(seep.tumbling("20s"), items=seep.count()).named("items")
    minutes.key_by("k").top(1, by="items").named("ranked").collect("out")


def as_of(stream: seep.Stream) -> None:
    towns = pa.Table.from_pylist([{**shop, "since": START} for shop in SHOPS[:3]])
    known = stream.flow.source("shops", seep.MemorySource(towns), time="since").key_by("k").table(history="1h")
    stream.key_by("k").join_table(known.named("versions"), as_of=True).named("asof").collect("out")


COUNTED = {"items": seep.count(), "sum": seep.total("n")}
KINDS: dict[str, Build] = {
    "steps": lambda s: (
        s.filter(pl.col("n") > 3)
        .named("large")
        .with_columns(m=pl.col("n") * 2)
        .named("twice")
        .map(refusing, schema={"k": str, "n": int})
        .named("mapped")
        .shuffle()
        .named("spread")
        .collect("out")
    ),
    "flat map": lambda s: (
        s.flat_map(several, schema={"k": str, "n": int}).named("several").shuffle().named("spread").collect("out")
    ),
    "map batch": lambda s: s.map_batch(doubled_batch).named("halves").shuffle().named("spread").collect("out"),
    "split": split,
    "skipped": lambda s: (
        s.map(refusing, schema={"k": str, "n": int}, on_error="skip")
        .named("mapped")
        .shuffle()
        .named("spread")
        .collect("out")
    ),
    "union": lambda s: s.filter(pl.col("n") > 3).union(s).shuffle().named("both").collect("out"),
    "aggregate": lambda s: s.key_by("k").aggregate(**COUNTED).named("sums").collect("out"),
    "folded": lambda s: s.key_by("k").window(seep.tumbling("20s"), **COUNTED).named("window").collect("out"),
    "floats": lambda s: (
        s.key_by("k").window(seep.tumbling("20s"), x=seep.total("x"), items=seep.count()).named("window").collect("out")
    ),
    "updates": lambda s: (
        s.key_by("k").window(seep.tumbling("20s"), emit="update", **COUNTED).named("window").collect("out")
    ),
    "sliding": lambda s: (
        s.key_by("k").window(seep.sliding("20s", every="5s"), **COUNTED).named("window").collect("out")
    ),
    "apart": lambda s: s.key_by("k").window(seep.sliding("5s", every="20s"), **COUNTED).named("window").collect("out"),
    "session": lambda s: s.key_by("k").window(seep.session("9s"), **COUNTED).named("window").collect("out"),
    "counted": lambda s: s.key_by("k").window(seep.count_window(4), **COUNTED).named("window").collect("out"),
    "join": lambda s: s.key_by("k").join(s.key_by("k"), within="6s", how="full").named("join").collect("out"),
    "lookup": lambda s: s.key_by("k").join_table(shops(s).table()).named("lookup").collect("out"),
    "broadcast": lambda s: s.join_table(shops(s).table().broadcast()).named("lookup").collect("out"),
    "as of": as_of,
    "tables": tables,
    "top": lambda s: s.key_by("k").top(2, by="x").named("top").collect("out"),
    "best of windows": best,
    "dedupe": lambda s: s.key_by("k").dedupe("k", "n", ttl="90ms").named("first").collect("out"),
    "reduce": lambda s: s.key_by("k").reduce(larger).named("larger").collect("out"),
    "operator": lambda s: (
        s.key_by("k")
        .apply(Emits, out={"k": str, "n": int}, outs={"side": {"k": str, "n": int}})
        .named("emits")
        .collect("out")
    ),
    "batches": lambda s: s.key_by("k").apply(Sums, out={"k": str, "n": int}).named("sums").collect("out"),
}


def larger(folded: Any, row: Any) -> dict[str, Any]:
    if row.n % 13 == 12:
        raise ValueError("no")
    return {"k": row.k, "n": max(folded.n, row.n), "x": folded.x, "at": row.at}


# --- books that balance --------------------------------------------------------------------------------------------


def trouble(world: World) -> None:
    """Every operator in two pieces, then some of them in one again; two workers die on the way."""
    names: list[str] = [node.name for node in world.graph.nodes.values() if node.kind == "operator"]

    def scale(chosen: list[str], count: int) -> None:
        for name in chosen:
            world.request(ScaleTo(name, count))
        crashed = world.controller.journal.live(chosen[0])[0].worker
        world.run_for(30.0)
        world.crash(crashed)

        def done() -> bool:
            now = world.controller.journal
            return not now.replaces and all(len(now.live(name)) == count for name in chosen)

        assert world.run_until(done, LIMIT_MS)

    if names:
        scale(names, 2)
        scale(names[::2], 1)


def settled(found: Fixed) -> dict[str, Any]:
    answer = found.audit()
    assert (answer["problems"], answer["balanced"]) == ([], True)
    for name, node in answer["nodes"].items():
        assert node["balanced"], name
        assert sum(node["in"].values()) == sum(node["out"].values()), name
    return answer


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_is_accounted_for(kind: str) -> None:
    answer = settled(fix(flow_of(KINDS[kind], "100ms"), EPOCHS, 2, midway=trouble))
    terms = {term for node in answer["nodes"].values() for term in node["out"]}
    assert answer["nodes"]["rows"]["in"]["read"] >= EPOCHS * CUT // 2
    expected = {"steps": "filtered", "flat map": "dropped", "folded": "late", "join": "expired", "as of": "pending"}
    assert expected.get(kind, "errors") in terms


def test_a_window_says_where_its_rows_are() -> None:
    window = settled(fix(flow_of(KINDS["folded"]), EPOCHS, 2))["nodes"]["window"]
    assert {*window["out"]} == {"closed", "pending", "late", "out"}
    assert window["in"]["in"] == sum(window["out"][term] for term in ("closed", "pending", "late"))


# --- and such that do not ------------------------------------------------------------------------------------------


@dataclass
class Once:
    """Loses or doubles the first row of the first batch after some epoch."""

    doubles: bool
    epoch: int = 0
    rows: int = 0
    """Of how many rows it is made."""

    def change(self, epoch: int, batch: ArrowBatch) -> ArrowBatch:
        if self.epoch or epoch <= AFTER or not batch.rows:
            return batch
        first = ArrowBatch(batch.record.slice(0, 1), batch.buckets[:1])
        self.epoch, self.rows = epoch, first.weight
        if self.doubles:
            return ArrowBatch.concat([first, batch])
        return ArrowBatch(batch.record.slice(1), batch.buckets[1:])

    @property
    def said(self) -> str:
        return f"first in epoch {self.epoch}: {self.rows} {'too many' if self.doubles else 'missing'}"


def broken_input(kind: type, once: Once) -> Callable[..., Any]:
    take = kind.take  # type: ignore[attr-defined]

    def broken(self: Any, moment: Any, inputs: Any) -> Any:
        return take(self, moment, [(port, once.change(moment.epoch, batch)) for port, batch in inputs])

    return broken


def broken_output(kind: type, once: Once) -> Callable[..., Any]:
    take = kind.take  # type: ignore[attr-defined]

    def broken(self: Any, moment: Any, inputs: Any) -> Any:
        found = dict(take(self, moment, inputs))
        for role, batch in found.items():
            found[role] = once.change(moment.epoch, batch)
        return found

    return broken


HEADS: list[tuple[str, type, str]] = [
    ("union", operators.forward.Forward, "both"),
    ("aggregate", operators.aggregate.Aggregate, "sums"),
    ("floats", operators.window.TumblingWindow, "window"),
    ("sliding", operators.sliding.SlidingWindow, "window"),
    ("session", operators.session.SessionWindow, "window"),
    ("counted", operators.count_window.RowsWindow, "window"),
    ("join", operators.joining.Join, "join"),
    ("lookup", operators.table_lookup.TableLookup, "lookup"),
    ("as of", operators.as_of.AsOfLookup, "asof"),
    ("top", operators.top.Top, "top"),
    ("best of windows", operators.window_top.WindowTop, "ranked"),
    ("dedupe", operators.dedupe.Dedupe, "first"),
    ("reduce", operators.reduce.Reduce, "larger"),
    ("operator", operators.apply.Apply, "emits"),
    ("batches", operators.batch_operator.BatchApply, "sums"),
]
"""Kind of flow, class, node."""
OF_TABLES: list[tuple[str, type, str]] = [
    ("tables", operators.table.LatestTable, ""),
    ("tables", operators.table_join.TableJoin, "both"),
    ("tables", operators.table_aggregate.TableAggregate, ""),
    ("tables", Retract, ""),
    ("tables", operators.foreign_join.ForeignJoin, ""),
]
"""A Table has one change for each key and epoch: to double one would break more than the books."""
BROKEN = [(*one, False) for one in (*HEADS, *OF_TABLES)] + [(*one, True) for one in HEADS]


def named_in(once: Once, kind: str) -> list[str]:
    """The problems inside nodes. (Rows that are wrong may leave a state behind them that does not add up, too.)"""
    found = fix(flow_of(KINDS[kind]), EPOCHS).audit()
    assert once.epoch, "nothing was broken"
    assert not found["balanced"]
    return [problem for problem in found["problems"] if problem.startswith("node ") and " in state: " not in problem]


def shown(one: Any) -> str | None:
    return one.__name__ if isinstance(one, type) else None


@pytest.mark.parametrize(("kind", "head", "node", "doubles"), BROKEN, ids=shown)
def test_a_row_lost_or_doubled_on_its_way_in(
    monkeypatch: pytest.MonkeyPatch, kind: str, head: type, node: str, doubles: bool
) -> None:
    once = Once(doubles)
    monkeypatch.setattr(head, "take", broken_input(head, once))
    (problem,) = named_in(once, kind)
    assert problem.startswith(f"node {node}")
    assert ", input: " in problem
    assert problem.endswith(once.said)


@pytest.mark.parametrize(("kind", "head", "node", "doubles"), BROKEN, ids=shown)
def test_a_row_lost_or_doubled_on_its_way_out(
    monkeypatch: pytest.MonkeyPatch, kind: str, head: type, node: str, doubles: bool
) -> None:
    once = Once(doubles)
    monkeypatch.setattr(head, "take", broken_output(head, once))
    (problem,) = named_in(once, kind)
    assert problem.startswith(f"node {node}")
    assert problem.endswith(once.said)


STEPS = [
    ("steps", operators.stateless.Keep, "large"),
    ("steps", operators.stateless.Project, "twice"),
    ("steps", operators.rowwise.MapRows, "mapped"),
    ("flat map", operators.rowwise.FlatMapRows, "several"),
    ("map batch", operators.stateless.MapBatch, "halves"),
    ("split", operators.stateless.Split, "rows.split"),
]


@pytest.mark.parametrize(("kind", "step", "name"), STEPS, ids=shown)
def test_a_row_lost_in_a_step(monkeypatch: pytest.MonkeyPatch, kind: str, step: type, name: str) -> None:
    once, run = Once(doubles=False), step.run  # type: ignore[attr-defined]

    def broken(self: Any, batch: ArrowBatch, site: Any) -> Any:
        found = run(self, batch, site)
        return {role: once.change(site.epoch, output) for role, output in found.items()}

    monkeypatch.setattr(step, "run", broken)
    (problem,) = named_in(once, kind)
    assert problem.startswith(f"node rows, step {name}: ")
    assert problem.endswith(once.said)


def test_a_row_lost_where_rows_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    once, turn = Once(doubles=False), Route.turn

    def broken(self: Route, batch: ArrowBatch, epoch: int | None) -> ArrowBatch:
        return once.change(epoch or 0, turn(self, batch, epoch))

    monkeypatch.setattr(Route, "turn", broken)
    problems = named_in(once, "dedupe")
    assert any(", sending: " in problem and problem.endswith(once.said) for problem in problems)


def test_a_row_lost_in_what_a_sink_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    once, encode = Once(doubles=False), SinkOutlet.encode

    def broken(self: SinkOutlet, moment: Any, inputs: Any) -> bytes | None:
        return encode(self, moment, [(port, once.change(moment.epoch, batch)) for port, batch in inputs])

    monkeypatch.setattr(SinkOutlet, "encode", broken)
    (problem,) = named_in(once, "dedupe")
    assert problem.startswith(f"node out, its committed log: epoch {once.epoch}: ")


@pytest.mark.parametrize("kind", ["aggregate", "floats", "session"])
def test_state_that_is_not_saved(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    snapshot = Groups.snapshot
    monkeypatch.setattr(Groups, "snapshot", lambda self, full: snapshot(self, full).slice(1))
    found = fix(flow_of(KINDS[kind]), EPOCHS, 1).audit()
    assert not found["balanced"]
    assert any(", keys in state: " in problem and "; by epoch " in problem for problem in found["problems"])
    assert any(", rows in state: " in problem for problem in found["problems"])


@pytest.mark.parametrize("kind", ["floats", "session", "counted"])
def test_rows_that_are_folded_twice(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    fold = Memory.fold

    def broken(self: Memory, slots: Any, record: pa.RecordBatch) -> None:
        fold(self, slots, record)
        fold(self, slots[:1], record.slice(0, 1))

    monkeypatch.setattr(Memory, "fold", broken)
    found = fix(flow_of(KINDS[kind]), EPOCHS, 1).audit()
    (problem,) = found["problems"]
    assert problem.startswith("node window, rows in state: ")
    assert "too many" in problem
