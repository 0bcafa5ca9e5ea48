"""The flow whose savepoints are kept: every kind of state that can be saved, over a small made-up input.

What is here never changes: savepoints of every released version are restored into it. A new kind of state gets an
operator of its own, which older savepoints do not have, and which begins empty when they are restored.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa

import seep

EPOCH_ROWS = 3
SAVED_EPOCHS = 20
START = datetime(2024, 1, 1, tzinfo=UTC)
WINDOW, STEP, GAP, NEAR = timedelta(seconds=60), timedelta(seconds=20), timedelta(seconds=9), timedelta(seconds=15)
CITIES = [{"key": f"k{i}", "city": f"city {i % 3}"} for i in range(5)]


class Row(NamedTuple):
    key: str
    n: int
    x: float
    at: datetime


def rows() -> list[Row]:
    """The keys k0 to k4 in an uneven order, large numbers first, pauses between some of them."""
    found, at = [], START
    for i in range(120):
        at += timedelta(seconds=1 + 11 * (i * i % 13 == 3))
        found.append(Row(f"k{(i * i + i // 3) % 5}", (240 - i) * (i % 7 - 2), i * 0.25 - 3.0, at))
    return found


def build() -> seep.Flow:
    flow = seep.Flow("golden", epoch="10ms")
    schema = pa.schema(
        [("key", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("at", pa.timestamp("us", "UTC"))]
    )
    table = pa.Table.from_pylist([row._asdict() for row in rows()], schema=schema)
    source = flow.source("rows", seep.MemorySource(table, per_epoch=EPOCH_ROWS), time="at")
    cities = flow.source("cities", seep.MemorySource(CITIES)).key_by("key").table().named("cities-by-key")
    keyed = source.key_by("key")
    keyed.aggregate(
        count=seep.count(),
        total=seep.total("n"),
        wide=seep.total("n", wide=True),
        mean=seep.mean("x"),
        least=seep.minimum("n"),
        text=seep.maximum("key"),
        variance=seep.variance("n"),
        median=seep.median("n"),
        kinds=seep.distinct("n"),
        about=seep.distinct("n", approx=True),
        near=seep.quantile("n", 0.5, approx=True),
        first=seep.first("n"),
        last=seep.last("n"),
        best=seep.top(2, by="n"),
        rows=seep.rows(),
    ).named("aggregate").collect("aggregated")
    counts = {"n": seep.count(), "sum": seep.total("n")}
    keyed.window(seep.tumbling(WINDOW), **counts).named("tumbling").collect("tumbled")
    keyed.window(seep.sliding(WINDOW, every=STEP), **counts).named("sliding").collect("slid")
    keyed.window(seep.session(GAP), **counts).named("session").collect("sessions")
    keyed.window(seep.count_window(4), **counts).named("counted").collect("fours")
    keyed.join(source.key_by("key"), within=NEAR).named("join").collect("pairs")
    keyed.join_table(cities).named("lookup").collect("located")
    keyed.table().named("latest").collect("current")
    keyed.top(2, by="n").named("top").collect("largest")
    keyed.select("key", m=source_remainder()).key_by("key").dedupe("key", "m").named("dedupe").collect("unseen")
    keyed.reduce(larger).named("reduce").collect("reduced")
    keyed.apply(Remembers, out={"key": str, "held": str}).named("operator").collect("remembered")
    keyed.apply(Totals, out={"key": str, "total": int}).named("batches").collect("totals")
    return flow


def source_remainder() -> Any:
    import polars as pl

    return pl.col("n").abs() % 11


def larger(folded: Any, row: Any) -> dict[str, Any]:
    return {"key": row.key, "n": max(folded.n, row.n), "x": folded.x + row.x, "at": row.at}


class Remembers(seep.Operator):
    """All the states there are, and a timer."""

    value = seep.ValueState(int, default=0)
    counter = seep.CounterState()
    items = seep.ListState(int)
    entries = seep.MapState(str, float)
    members = seep.SetState(int)

    def on_row(self, row: Any, ctx: Any) -> None:
        self.value.value = row.n
        self.counter.add(1)
        self.items.append(row.n)
        self.entries[f"m{row.n % 4}"] = row.x
        self.members.add(row.n % 5)
        if self.counter.value % 5 == 1:
            ctx.set_timer(row.at + timedelta(seconds=30))
        ctx.emit({"key": ctx.key, "held": self.shown()})

    def on_timer(self, at: datetime, ctx: Any) -> None:
        ctx.emit({"key": ctx.key, "held": f"timer {at.isoformat()}"})

    def shown(self) -> str:
        held = [self.value.value, self.counter.value, list(self.items)[-3:], sorted(self.entries.items())]
        return repr([*held, sorted(self.members)])


class Totals(seep.BatchOperator):
    totals = seep.TableState({"total": int})

    def on_batch(self, batch: pa.RecordBatch, ctx: Any) -> None:
        table = pa.Table.from_batches([batch]).group_by("key").aggregate([("n", "sum")]).combine_chunks()
        new = table.to_batches()[0]
        known = self.totals.get(new.select(["key"]))["total"].to_pylist()
        sums = [(old or 0) + more for old, more in zip(known, new["n_sum"].to_pylist(), strict=True)]
        found = pa.record_batch({"key": new["key"], "total": pa.array(sums, pa.int64())})
        self.totals.put(found)
        ctx.emit(found)
