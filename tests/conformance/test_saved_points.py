"""Whatever keeps state goes on from a savepoint, and from its own store, as if nothing had been: each kind of operator.
The oracle is the same flow in one life. Sources are in `test_saved_sources.py`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import seep
from tests.conformance.saved import Lives

START = datetime(2024, 1, 1, tzinfo=UTC)
KEYS, COUNT, EPOCH_ROWS, HELD = 5, 96, 3, 24
SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("at", pa.timestamp("us", "UTC"))])
OUT = {"k": str, "held": str}

Build = Callable[[Any, Any, Any], Any]
"""(rows, other rows, a bounded table of cities) -> the stream or table to look at, named `op`."""


def rows(first: int = 0, late: int = 0) -> list[dict[str, Any]]:
    """In the order of time, with pauses; `late`: every so manyth comes two minutes too late."""
    found, at = [], START
    for i in range(first, first + COUNT):
        at += timedelta(seconds=1 + 14 * (i % 23 == 3))
        behind = timedelta(minutes=2) if late and i % late == late - 1 else timedelta()
        found.append({"k": f"k{(i * i + i // 3) % KEYS}", "n": (i * 37) % 101 - 30, "x": i * 0.25, "at": at - behind})
    return found


class Remembers(seep.Operator):
    value = seep.ValueState(int, default=0)
    counter = seep.CounterState()
    items = seep.ListState(int)
    entries = seep.MapState(str, float, ttl="1h")
    members = seep.SetState(int)

    def on_row(self, row: Any, ctx: Any) -> None:
        self.value.value += row.n
        self.counter.add(1)
        self.items.append(row.n)
        del self.items[:-3]
        self.entries[f"m{row.n % 4}"] = row.x
        self.members.add(row.n % 5)
        if self.counter.value % 4 == 1:
            ctx.set_timer(row.at + timedelta(seconds=40))
        held = [self.value.value, self.counter.value, list(self.items), sorted(self.entries.items())]
        ctx.emit({"k": ctx.key, "held": repr([*held, sorted(self.members)])})

    def on_timer(self, at: datetime, ctx: Any) -> None:
        self.value.value += 1
        ctx.emit({"k": ctx.key, "held": f"timer {at.isoformat()} {self.counter.value}"})


class Clocked(seep.Operator):
    """Timers by the time of epochs: when they fire says nothing, but that they do."""

    seen = seep.ValueState(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> None:
        self.seen.value += 1
        ctx.set_timer(ctx.now + timedelta(milliseconds=150), event_time=False)
        ctx.emit({"k": ctx.key, "held": str(self.seen.value)})

    def on_timer(self, at: datetime, ctx: Any) -> None:
        ctx.emit({"k": ctx.key, "held": "fired"})


class Totals(seep.BatchOperator):
    totals = seep.TableState({"total": int})

    def on_batch(self, batch: pa.RecordBatch, ctx: Any) -> None:
        sums = pa.Table.from_batches([batch]).group_by("k").aggregate([("n", "sum")]).combine_chunks().to_batches()[0]
        known = self.totals.get(sums.select(["k"]))["total"].to_pylist()
        new = [(old or 0) + more for old, more in zip(known, sums["n_sum"].to_pylist(), strict=True)]
        found = pa.record_batch({"k": sums["k"], "total": pa.array(new, pa.int64())})
        self.totals.put(found)
        ctx.emit(found)


class Both(seep.Operator):
    """Two inputs: a city for each key, sent to all."""

    city = seep.ValueState(str, default="")
    count = seep.ValueState(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> None:
        if ctx.port:
            self.city.value = row.city
        else:
            self.count.value += 1
            ctx.emit({"k": ctx.key, "held": f"{self.city.value} {self.count.value}"})


class Range(seep.Aggregate):
    """A user's own."""

    def zero(self) -> Any:
        return {"low": 1000, "high": -1000}

    def add(self, state: Any, value: Any) -> Any:
        return {"low": min(state["low"], value), "high": max(state["high"], value)}

    def merge(self, one: Any, other: Any) -> Any:
        return {"low": min(one["low"], other["low"]), "high": max(one["high"], other["high"])}

    def result(self, state: Any) -> int:
        return int(state["high"] - state["low"])


COUNTS = {"c": seep.count(), "t": seep.total("n")}
MANY = {
    "wide": seep.total("n", wide=True), "mean": seep.mean("x"), "least": seep.minimum("n"), "text": seep.maximum("k"),
    "var": seep.variance("n"), "median": seep.median("n"), "kinds": seep.distinct("n"),
    "first": seep.first("n"), "last": seep.last("n"), "best": seep.top(2, by="n"), "all": seep.rows(),
    "own": Range("n"), "about": seep.distinct("n", approx=True), "near": seep.quantile("n", 0.5, approx=True),
}  # fmt: skip


def larger(folded: Any, row: Any) -> dict[str, Any]:
    return {"k": row.k, "n": max(folded.n, row.n), "x": folded.x + row.x, "at": row.at}


def by(stream: Any) -> Any:
    return stream.key_by("k")


def windowed(window: Any, **more: Any) -> Build:
    return lambda a, b, t: by(a).window(window, **COUNTS, **more).named("op")


OPERATORS: dict[str, Build] = {
    "aggregate": lambda a, b, t: by(a).aggregate(**COUNTS, **MANY).named("op"),
    "aggregate-close": lambda a, b, t: by(a).aggregate(emit="close", **COUNTS).named("op"),
    "aggregate-all": lambda a, b, t: a.key_by().aggregate(**COUNTS).named("op"),
    "aggregate-halved": lambda a, b, t: by(a).two_choices().aggregate(**COUNTS).named("op"),
    "aggregate-of-table": lambda a, b, t: by(a).table().named("last").key_by("n").aggregate(c=seep.count()).named("op"),
    "tumbling": windowed(seep.tumbling("1m")),
    "tumbling-many": lambda a, b, t: by(a).window(seep.tumbling("1m"), **MANY).named("op"),
    "tumbling-update": windowed(seep.tumbling("1m"), emit="update"),
    "tumbling-every": windowed(seep.tumbling("1m"), emit=seep.every("1s")),
    "sliding": windowed(seep.sliding("1m", every="20s")),
    "sliding-update": windowed(seep.sliding("1m", every="20s"), emit="update"),
    "sliding-every": windowed(seep.sliding("1m", every="20s"), emit=seep.every("1s")),
    "session": windowed(seep.session("9s")),
    "session-inclusive": windowed(seep.session("9s", inclusive=True)),
    "session-update": windowed(seep.session("9s"), emit="update"),
    "count-window": windowed(seep.count_window(4)),
    "count-window-every": windowed(seep.count_window(6, every=2)),
    "arrival": lambda a, b, t: by(a).window(seep.tumbling("40ms", by="arrival"), **COUNTS).named("op"),
    "join-inner": lambda a, b, t: by(a).join(by(b), within="15s").named("op"),
    "join-left": lambda a, b, t: by(a).join(by(b), within="2s", how="left").named("op"),
    "join-right": lambda a, b, t: by(a).join(by(b), within=("-3s", "1s"), how="right").named("op"),
    "join-full": lambda a, b, t: by(a).join(by(b), within="2s", how="full").named("op"),
    "join-window": lambda a, b, t: by(a).join(by(b), window=seep.tumbling("10s"), how="full").named("op"),
    "join-chained": lambda a, b, t: by(by(a).join(by(b), within="5s").named("first")).window(
        seep.tumbling("30s"), c=seep.count()).named("op"),
    "table": lambda a, b, t: by(a).table().named("op"),
    "table-deleted": lambda a, b, t: by(a).table(deleted=pl.col("n") % 5 == 0).named("op"),
    "table-window": lambda a, b, t: by(by(a).window(seep.tumbling("1m"), **COUNTS).named("win")).table().named("op"),
    "join-table": lambda a, b, t: by(a).join_table(t).named("op"),
    "join-table-broadcast": lambda a, b, t: a.join_table(t.broadcast(), how="left").named("op"),
    "join-table-as-of": lambda a, b, t: by(a).join_table(
        by(b).table(history="5m").named("past"), as_of=True, how="left").named("op"),
    "table-join": lambda a, b, t: by(a).table().named("last").join(t, how="left").named("op"),
    "table-join-full": lambda a, b, t: by(a).table().named("last").join(
        by(b).table().named("other"), how="full").named("op"),
    "table-join-foreign": lambda a, b, t: a.key_by("n").table().named("last").join(t, on="k", how="left").named("op"),
    "top": lambda a, b, t: by(a).top(3, by="n").named("op"),
    "top-ties": lambda a, b, t: a.key_by().top(7, by="k", ties="rank").named("op"),
    "top-of-windows": lambda a, b, t: by(a).window(seep.tumbling("1m"), **COUNTS).named("win")
        .key_by().top(2, by="t").named("op"),
    "top-of-table": lambda a, b, t: by(a).aggregate(**COUNTS).named("agg").key_by().top(2, by="t").named("op"),
    "dedupe": lambda a, b, t: by(a).dedupe("k", "n").named("op"),
    "dedupe-ttl": lambda a, b, t: by(a).dedupe("k", "n", ttl="1h").named("op"),
    "reduce": lambda a, b, t: by(a).reduce(larger).named("op"),
    "apply": lambda a, b, t: by(a).apply(Remembers(), out=OUT).named("op"),
    "apply-clocked": lambda a, b, t: by(a).apply(Clocked(), out=OUT).named("op"),
    "apply-batch": lambda a, b, t: by(a).apply(Totals(), out={"k": str, "total": int}).named("op"),
    "apply-two": lambda a, b, t: by(a).apply(Both(), t.changes().key_by("k"), out=OUT).named("op"),
}  # fmt: skip


class Held(seep.MemorySource):
    """The last rows come when the gate is open (something is in it)."""

    def __init__(self, given: list[dict[str, Any]], gate: list[str]) -> None:
        super().__init__(pa.Table.from_pylist(given, SCHEMA), per_epoch=EPOCH_ROWS)
        self.gate, self.end = gate, len(given) - HELD

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Any:
        if until is None and (position or 0) >= self.end and not self.gate:
            return None
        return super().read(split, position, until, limit_rows, now_ms)


def flow_of(build: Build, parts: int, gate: list[str], late: int = 0, short: bool = False) -> seep.Flow:
    """`short`: the other source has ended before anything happens."""
    flow = seep.Flow("lives", epoch="20ms")
    first = flow.source("rows", Held(rows(late=late), gate), time="at", lateness="5s")
    others = rows(3)[: HELD if short else COUNT]
    other = flow.source("others", Held(others, ["open"] if short else gate), time="at")
    cities = flow.source(
        "cities", seep.MemorySource([{"k": f"k{i}", "city": f"city {i % 3}"} for i in range(KEYS - 1)])
    )
    table = cities.key_by("k").table().named("cities-by-key")
    made = build(first, other, table)
    made.scale(start=parts)
    (made.changes() if isinstance(made, seep.Table) else made).collect("out")
    for side in ("late", "late_left", "late_right"):
        with suppress(seep.Misuse, AttributeError):
            getattr(made, side).collect(side)
    other.filter(pl.col("n") < 0).collect("others-out")
    table.changes().collect("table")
    return flow


def made(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))


def final(rows: list[dict[str, Any]], keys: tuple[str, ...]) -> dict[Any, Any]:
    """What a Table holds after these changes; each of them has to follow from those before it."""
    held: dict[Any, Any] = {}
    for row in rows:
        key = tuple(row[name] for name in keys)
        assert (row["change"] == "insert") == (key not in held), row
        held[key] = {name: value for name, value in row.items() if name != "change"}
        if row["change"] == "delete":
            del held[key]
    return held


BY_THE_CLOCK = ("tumbling-every", "sliding-every", "arrival", "apply-clocked")


def check(name: str, calm: dict[str, list[dict[str, Any]]], found: dict[str, list[dict[str, Any]]]) -> None:
    assert found.keys() == calm.keys()
    for sink in calm.keys() - ({"out"} if name in BY_THE_CLOCK else set()):
        assert found[sink] == calm[sink], sink
    if name.endswith("-every") and name in BY_THE_CLOCK:
        keys = ("k", "window_start")
        assert final(found["out"], keys) == final(calm["out"], keys)
    elif name == "arrival":
        assert sum(row["c"] for row in found["out"]) == COUNT == sum(row["c"] for row in calm["out"])
    else:
        assert made(found["out"]) == made(calm["out"])


BOUND_TO_AN_END = ("aggregate-close", "arrival", "apply-clocked")
"""An end that comes again is told again; what waits for a time of the clock has it come."""


VARIANTS = {
    *("aggregate-all", "tumbling-many", "sliding-update", "sliding-every", "session-inclusive", "count-window-every"),
    *("join-left", "join-right", "table-window", "table-join-full", "top-ties", "dedupe-ttl"),
}
"""Of what others stand for, too."""
SLOW = pytest.mark.slow


@pytest.mark.parametrize("name", [pytest.param(one, marks=SLOW if one in VARIANTS else ()) for one in OPERATORS])
def test_an_operator_in_many_lives(name: str, tmp_path: Path) -> None:
    """Split, saved, restored with another parallelism, killed as a whole twice, upgraded, saved again and restored,
    ended, killed, saved and restored once more."""
    gate: list[str] = []
    settings = {"late": 7 * (len(name) % 2), "short": len(name) % 3 == 0}

    def flow(parts: int) -> seep.Flow:
        return flow_of(OPERATORS[name], parts, gate, **settings)

    lives = Lives(tmp_path / "lives")
    lives.begin(flow(1))
    lives.advance(6)
    lives.scale("op", 3)
    saved = lives.save()
    lives.begin(flow(2), saved)
    for _ in range(2):
        lives.advance(3)
        lives.resume()
    lives.upgrade(flow(2), "op")
    lives.advance(1)
    lives.resume()
    saved = lives.save()
    lives.begin(flow(3), saved)
    lives.advance(1)
    gate.append("open")
    lives.kill("op")
    if name not in BOUND_TO_AN_END:
        lives.until(lambda: lives.world.controller.finished, "the end")
        lives.resume()
        lives.until(lambda: lives.world.controller.finished, "the end again")
        saved = lives.save()
        lives.begin(flow(1), saved)
    calm = Lives(tmp_path / "calm")
    calm.begin(flow(1))
    check(name, calm.end(), lives.end())
