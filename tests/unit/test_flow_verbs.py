"""Every verb, from the flow a user writes to the rows that come out, in one partition and in several."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import cloudpickle
import polars as pl
import polars.selectors as cs
import pyarrow as pa
import pytest

import seep
from seep.flow.compile import compile_flow

START = datetime(2024, 1, 1, tzinfo=UTC)
SALES: list[dict[str, Any]] = [
    {"store": "abcde"[i % 5], "item": i % 3, "amount": i - 2, "at": START + timedelta(seconds=10 * i)}
    for i in range(30)
]
Run = Callable[..., dict[str, pa.Table]]


def sales(per_epoch: int | None = 4, **settings: Any) -> tuple[seep.Flow, seep.Stream]:
    flow = seep.Flow("test")
    return flow, flow.source("sales", seep.MemorySource(SALES, per_epoch=per_epoch), **settings)


def everywhere(run: Run, flow: seep.Flow, name: str = "out") -> list[dict[str, Any]]:
    """The rows, the same for every partitioning and over every save and load."""
    wanted: list[dict[str, Any]] = run(flow)[name].to_pylist()
    assert run(flow, partitions=3)[name].to_pylist() == wanted
    assert run(flow, partitions=2, reload=True)[name].to_pylist() == wanted
    return wanted


def test_columns(run: Run) -> None:
    flow, stream = sales()
    stream.with_columns(double=pl.col("amount") * 2, one=1).select("store", "double", "one", t=pl.col("at")).drop(
        "t"
    ).rename(twice="double").filter(pl.col("twice") > 10).collect("out")
    wanted = [{"store": row["store"], "twice": row["amount"] * 2, "one": 1} for row in SALES if row["amount"] * 2 > 10]
    assert everywhere(run, flow) == wanted


@dataclass
class Line:
    store: str
    amount: int


def to_line(row: Any) -> Line | None:
    return Line(row["store"], row.amount) if row.amount >= 0 else None


def letters(row: Any) -> Iterator[str]:
    yield from row.store * 2


def test_functions_on_rows(run: Run) -> None:
    flow, stream = sales()
    stream.map(to_line).filter(lambda row: row.amount % 2 == 0).collect("lines")
    stream.flat_map(letters).collect("letters")
    stream.map(lambda row: row.as_dict(), schema=stream.schema).collect("same")
    found = run(flow)
    even = [r for r in SALES if r["amount"] >= 0 and r["amount"] % 2 == 0]
    assert found["lines"].to_pylist() == [{"store": r["store"], "amount": r["amount"]} for r in even]
    assert found["letters"].column("value").to_pylist() == [r["store"] for r in SALES for _ in range(2)]
    assert found["same"].to_pylist() == SALES


def test_functions_on_batches(run: Run) -> None:
    def positive(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.filter(pa.compute.greater(batch.column("amount"), 0))

    flow, stream = sales()
    stream.map_batch(positive).collect("out")
    counted = stream.key_by("store").aggregate(n=seep.count()).changes()
    counted.map_batch(lambda batch: batch.select(["store"]), schema={"store": str}).collect("behind")
    assert everywhere(run, flow) == [row for row in SALES if row["amount"] > 0]
    everywhere(run, flow, "behind")


def test_numbers_of_a_batch_are_no_times(run: Run) -> None:
    flow, stream = sales()
    counted = stream.map_batch(lambda batch: batch.select(["amount"]), schema={"amount": datetime})
    counted.collect("out")
    counted.errors.collect("bad")
    found = run(flow)
    assert found["out"].num_rows == 0
    assert {row["error"] for row in found["bad"].to_pylist()} == {
        "Misuse: column 'amount' is a int64, not a timestamp[us, tz=UTC]; declare it as it is, or convert it"
    }
    driver = seep.testing.Driver(sales()[0])
    times = pa.array([START] * 2)
    with pytest.raises(seep.Misuse, match=r"does not fit: column 'item' is a timestamp\[us, tz=UTC\], not a int64"):
        driver.feed("sales", pa.table({"store": ["a", "b"], "item": times, "amount": [1, 2], "at": times}))


def test_a_function_that_raises_harms_only_its_row(run: Run) -> None:
    flow, stream = sales()
    divided = stream.map(lambda row: {"x": 10 // row.amount}, schema={"x": int}).named("divide")
    divided.collect("out")
    divided.errors.collect("bad")
    cast = stream.select(n=pl.col("store").replace("e", "9").cast(pl.Int64))
    cast.collect("cast")
    found = run(flow)
    assert found["out"].column("x").to_pylist() == [10 // r["amount"] for r in SALES if r["amount"]]
    (letter,) = found["bad"].to_pylist()
    assert letter["error"].startswith("ZeroDivisionError")
    assert letter["operator"] == "divide"
    assert '"store": "c"' in letter["row"]
    assert found["cast"].column("n").to_pylist() == [9] * 6


def test_a_fraction_is_no_int(run: Run) -> None:
    flow, stream = sales()
    halves = stream.map(lambda row: {"x": row.amount / 2}, schema={"x": int})
    halves.collect("out")
    halves.errors.collect("bad")
    found = run(flow)
    assert found["out"].column("x").to_pylist() == [r["amount"] // 2 for r in SALES if r["amount"] % 2 == 0]
    assert found["bad"].num_rows == 15
    assert "0.5, which is not a int64; round it" in found["bad"].column("error").to_pylist()[1]


def test_on_error_skip_and_fail(run: Run) -> None:
    flow, stream = sales()
    stream.map(lambda row: 1 // row.amount, schema={"x": int}, on_error="skip").collect("out")
    assert run(flow)["out"].num_rows == 29
    flow, stream = sales()
    stream.map(lambda row: 1 // row.amount, schema={"x": int}, on_error="fail").collect("out")
    with pytest.raises(seep.Misuse, match="ZeroDivisionError"):
        run(flow)


def test_union_and_split(run: Run) -> None:
    flow, stream = sales()
    parts = stream.split(small=pl.col("amount") < 5, even=pl.col("amount") % 2 == 0)
    parts.small.union(parts.even.select("item", "store", "amount", "at"), parts.rest).filter(
        pl.col("amount") != 7
    ).collect("out")
    parts.even.collect("even")
    rows = everywhere(run, flow)
    assert sorted(row["amount"] for row in rows) == [r["amount"] for r in SALES if r["amount"] != 7]
    even = [r["amount"] for r in SALES if r["amount"] >= 5 and r["amount"] % 2 == 0]
    assert [row["amount"] for row in everywhere(run, flow, "even")] == even
    assert [e.port for e in compile_flow(flow).inputs("out")] == [0, 1, 2]


def test_split_by_functions_asks_about_what_is_left(run: Run) -> None:
    flow, stream = sales()
    parts = stream.split(small=pl.col("amount") < 5, exact=lambda row: 60 % (row.amount - 4) == 0 and row.store != "e")
    parts.exact.select("amount").collect("out")
    parts.rest.select("amount").collect("rest")
    left = [r for r in SALES if r["amount"] >= 5]
    exact = [r["amount"] for r in left if 60 % (r["amount"] - 4) == 0 and r["store"] != "e"]
    # Asked about the row with amount 4 the function would fail.
    assert [row["amount"] for row in everywhere(run, flow)] == exact
    assert [row["amount"] for row in everywhere(run, flow, "rest")] == [
        r["amount"] for r in left if r["amount"] not in exact
    ]
    with pytest.raises(seep.Misuse, match="neither a Polars expression nor a function"):
        stream.split(a=True)  # type: ignore[arg-type]


def test_aggregate_gives_a_table(run: Run) -> None:
    flow, stream = sales()
    table = stream.key_by("store").aggregate(n=seep.count(), sum=seep.total("amount"))
    table.collect("out")
    table.changes().collect("changes")
    stream.key_by().aggregate(emit="close", n=seep.count()).collect("all")
    rows = {row["store"]: (row["n"], row["sum"]) for row in everywhere(run, flow)}
    assert rows == {s: (6, sum(r["amount"] for r in SALES if r["store"] == s)) for s in "abcde"}
    changes = everywhere(run, flow, "changes")
    assert [c["change"] for c in changes if c["store"] == "a"] == ["insert"] + ["update"] * 5
    assert everywhere(run, flow, "all") == [{"n": 30}]


def test_windows_close_by_event_time_and_late_rows_come_out(run: Run) -> None:
    rows = [*SALES, {"store": "a", "item": 0, "amount": 1, "at": START}]
    flow = seep.Flow("test")
    stream = flow.source("sales", seep.MemorySource(rows, per_epoch=2), time="at", lateness="10s")
    minute = stream.key_by("store").window(seep.tumbling("1m"), n=seep.count())
    minute.collect("out")
    minute.late.collect("late")
    # The windows of windows use the time of a window's row, just before its end.
    minute.key_by("store").window(seep.tumbling("2m"), names=("from", "to"), n=seep.total("n")).collect("two")
    found = everywhere(run, flow)
    assert sum(row["n"] for row in found) == 30
    assert len(found) == len({(row["store"], row["window_start"]) for row in found})
    assert [row["at"] for row in everywhere(run, flow, "late")] == [START]
    two = everywhere(run, flow, "two")
    assert sum(row["n"] for row in two) == 30
    assert {row["from"] for row in two} == {START + timedelta(minutes=2 * i) for i in range(3)}


def test_event_time_of_integers_follows_a_rename_and_refuses_nulls(run: Run) -> None:
    rows = [{"k": "a", "ts": 1000 * i if i != 3 else None} for i in range(6)]
    flow = seep.Flow("test")
    stream = flow.source("rows", seep.MemorySource(rows)).event_time(("ts", "ms"))
    stream.errors.collect("bad")
    window = stream.rename(when="ts").key_by("k").window(seep.tumbling("2s"), n=seep.count())
    window.collect("out")
    window.late.collect("late")
    assert [row["n"] for row in everywhere(run, flow)] == [2, 1, 2]
    assert run(flow)["bad"].num_rows == 1
    assert compile_flow(flow).nodes["late"].settings["schema"].names == ["k", "when"]  # type: ignore[index]


def test_tables(run: Run) -> None:
    flow, stream = sales()
    table = stream.key_by("store").table(deleted=pl.col("amount") == 27)
    table.collect("out")
    table.filter(pl.col("amount") < 25).select("store", "item").collect("some")
    table.with_columns(more=pl.col("amount") + 1).rename(shop="store").drop("at").collect("wide")
    assert {row["store"]: row["amount"] for row in everywhere(run, flow)} == {"a": 23, "b": 24, "c": 25, "d": 26}
    assert sorted(row["store"] for row in everywhere(run, flow, "some")) == ["a", "b"]
    wide = everywhere(run, flow, "wide")
    assert sorted(row["more"] for row in wide) == [24, 25, 26, 27]
    assert set(wide[0]) == {"shop", "item", "amount", "more"}


def test_a_narrower_table_sends_no_unchanged_rows(run: Run) -> None:
    flow, stream = sales(per_epoch=1)
    stream.key_by("store").table().select("store").changes().collect("out")
    assert [row["change"] for row in everywhere(run, flow)] == ["insert"] * 5


class Visits(seep.Operator):
    total = seep.ValueState(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> None:
        self.total.value += row.amount
        ctx.emit((ctx.key, self.total.value, ctx.port))
        if row.amount == 5:
            ctx.emit((ctx.key,), to="fives")


def test_apply(run: Run) -> None:
    flow, stream = sales()
    applied = stream.key_by("store").apply(
        Visits,
        stream.filter(pl.col("item") == 1).union(stream.filter(pl.col("item") == 2)).key_by("store"),
        out={"store": str, "total": int, "port": int},
        outs={"fives": {"store": str}},
    )
    applied.named("visits").collect("out")
    applied.out("fives").collect("fives")
    rows = everywhere(run, flow)
    assert {row["port"] for row in rows} == {0, 1}
    assert len(rows) == 50
    assert everywhere(run, flow, "fives") == [{"store": "c"}] * 2  # its row comes in by both ports


class Doubled(seep.Operator):
    def on_row(self, row: Any, ctx: Any) -> None:
        ctx.emit({"x": row.amount * 2})


def test_unkeyed_apply_is_stateless(run: Run) -> None:
    flow, stream = sales()
    stream.apply(Doubled(), out={"x": int}).collect("out")
    assert [row["x"] for row in everywhere(run, flow)] == [row["amount"] * 2 for row in SALES]


def test_a_graph_can_be_sent(run: Run) -> None:
    flow, stream = sales(time="at")
    stream.map(lambda row: {"s": row.store}, schema={"s": str}).key_by("s").aggregate(n=seep.count()).collect("out")
    graph = cloudpickle.loads(cloudpickle.dumps(compile_flow(flow)))
    assert [edge.name for edge in graph.edges] == ["sales->aggregate-s:0", "aggregate-s->out:0"]
    assert all(callable(node.make) for node in graph.nodes.values())


def test_several_columns_at_once_by_new_names(run: Run) -> None:
    flow, stream = sales()
    several = pl.col("item", "amount")
    stream.select(
        several.name.suffix("_1"),
        cs.string().name.prefix("the_"),
        several.name.map(str.upper),
        (several * 2).name.map(lambda name: f"{name}_2"),
    ).collect("out")
    kept = stream.key_by("store").with_columns(pl.all().name.prefix("p_"))
    assert (kept.keys, kept.schema.names) == (("store",), [f"{p}{n}" for p in ("", "p_") for n in SALES[0]])
    wanted = {"item_1": 1, "amount_1": -1, "the_store": "b", "ITEM": 1, "AMOUNT": -1, "item_2": 2, "amount_2": -2}
    assert everywhere(run, flow)[1] == wanted
    with pytest.raises(seep.Misuse, match="neighbouring rows"):
        stream.select(several.cum_sum().name.suffix("_sum"))


def test_the_dead_letters_of_a_split_are_one_line_each(run: Run) -> None:
    flow, stream = sales()
    parts = stream.split(bad=pl.col("store").cast(pl.Int64) > 1)
    parts.rest.collect("out")
    parts.errors.collect("errors")
    letters = run(flow)["errors"].to_pylist()
    assert len(letters) == len(SALES)
    assert "\n" not in letters[0]["error"]
    with pytest.raises(AttributeError, match=r"no part 'other'; there are bad, rest, and errors"):
        _ = parts.other


def test_what_a_verb_does_not_have_is_refused_in_one_line() -> None:
    _, stream = sales(time="at")
    keyed = stream.key_by("store")
    with pytest.raises(seep.Misuse, match=r"no 'late' output; it has .late_left, .late_right"):
        _ = keyed.join(keyed, within="1s").late
    grouped = keyed.table().key_by("item")
    assert isinstance(grouped.aggregate(emit="update", n=seep.count()), seep.Table)
    for emit in ("close", "often", seep.every("1s")):
        with pytest.raises(seep.Misuse, match=r"emit=.*there is only 'update'"):
            grouped.aggregate(emit=emit, n=seep.count())  # type: ignore[arg-type]
    for wrong in (lambda: seep.distinct("a", "b"), lambda: seep.total("a", "b"), lambda: seep.quantile("a", 0.5, "b")):  # type: ignore[misc]
        with pytest.raises(TypeError, match="positional argument"):
            wrong()

    class Wants(seep.Operator):
        def __init__(self, limit: int) -> None:
            self.limit = limit

        def on_row(self, row: Any, ctx: Any) -> None: ...

    with pytest.raises(
        seep.Misuse, match=r"apply: Wants\(\) cannot be made: .*'limit'; give an object, apply\(Wants\("
    ):
        keyed.apply(Wants, out={"n": int})


@pytest.mark.parametrize(
    "values",
    [
        pa.array([[("a", 1), ("b", None)], None, []], pa.map_(pa.string(), pa.int64())),
        pa.array([b"0123456789abcdef", None, b"0123456789abcdef"], pa.uuid()),
    ],
    ids=lambda values: str(values.type),
)
def test_maps_and_extension_types_pass_through(values: pa.Array) -> None:
    flow = seep.Flow("types")
    rows = flow.source("rows", seep.MemorySource(pa.table({"value": values, "n": [1, 2, 3]})))
    same = rows.with_columns(m=pl.col("n") + 1).filter(pl.col("m") > 1).drop("m")
    same.map(lambda row: row, schema=same.schema).key_by("n").reduce(lambda old, new: new).collect("out")
    found = seep.run(flow)["out"].sort_by("n").column("value").to_pylist()
    storage = values.storage if isinstance(values, pa.ExtensionArray) else values
    assert found == storage.to_pylist()


def _wrong_calls() -> dict[str, tuple[Callable[[seep.Stream], Any], str]]:
    class Same(seep.Operator):
        def on_row(self, row: Any, ctx: Any) -> None: ...

    return {
        "two conditions": (
            lambda s: s.filter(pl.col("item") > 1, pl.col("amount") > 1),
            "filter: .*put several together",
        ),
        "of a Table": (
            lambda s: s.key_by("item").table().filter(pl.col("item") > 1, pl.col("item") > 2),
            "put several",
        ),
        "no literal": (lambda s: s.with_columns(x=object()), "with_columns: x=<object .* no plain value"),
        "an object": (lambda s: s.select(x={"a": int}), "select: 'x' would be a column of"),
        "128 bits": (lambda s: s.with_columns(x=pl.col("item").cast(pl.Int128)), "'x' would be a column of Int128"),
        "inside": (lambda s: s.select(x=pl.struct(pl.lit(10**30).alias("y"))), "'x' would be a column of Struct"),
        "a list": (lambda s: s.map(lambda row: row, schema=[("x", int)]), "map: .*no column type for"),
        "outs": (lambda s: s.apply(Same, out={"x": int}, outs=["alerts"]), "apply: outs=.*by name"),  # type: ignore[arg-type]
        "suffix": (lambda s: s.key_by("item").join(s.key_by("item"), "1s", suffix=None), "join: suffix=None"),  # type: ignore[arg-type]
        "names": (
            lambda s: s.key_by("item").window(seep.tumbling("1s"), names=None, n=seep.count()),
            "window: names=None",
        ),  # type: ignore[call-overload]
        "how": (lambda s: s.key_by("item").join(s.key_by("item"), "1s", how=["left"]), "join: how="),  # type: ignore[arg-type]
        "state": (lambda s: seep.ValueState([int]), "ValueState: a state cannot keep"),  # type: ignore[arg-type]
        "from": (lambda s: seep.FileSource(None), "FileSource: None is no path"),  # type: ignore[arg-type]
        "to": (lambda s: seep.FileSink(None), "FileSink: None is no path"),  # type: ignore[arg-type]
    }


@pytest.mark.parametrize("wrong", _wrong_calls())
def test_wrong_values_are_one_line(wrong: str) -> None:
    call, message = _wrong_calls()[wrong]
    with pytest.raises(seep.Misuse, match=message) as caught:
        call(sales(time="at")[1])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("verb", ["map", "flat_map", "filter", "reduce", "route", "apply"])
@pytest.mark.parametrize("per_epoch", [1, 3, None])
def test_a_function_that_raises_stop_iteration_fails_on_its_row_alone(verb: str, per_epoch: int | None) -> None:
    class Same(seep.Operator):
        def on_row(self, row: Any, ctx: Any) -> None:
            ctx.emit(chosen(row))

    def chosen(row: Any) -> Any:
        return next(iter([row] if row.n % 3 else []))

    flow = seep.Flow("rows")
    rows = flow.source("rows", seep.MemorySource([{"n": n} for n in range(7)], per_epoch=per_epoch))
    made: Any = {
        "map": lambda: rows.map(chosen, schema=rows.schema),
        "flat_map": lambda: rows.flat_map(lambda row: [chosen(row)], schema=rows.schema),
        "filter": lambda: rows.filter(lambda row: bool(chosen(row))),
        "reduce": lambda: rows.key_by().reduce(lambda old, row: chosen(row)),
        "route": lambda: rows.route(lambda row: chosen(row).n),
        "apply": lambda: rows.apply(Same, out=rows.schema),
    }[verb]()
    made.collect("out")
    made.errors.collect("errors")
    result = seep.run(flow)
    # The first row of a key is what `reduce` begins with.
    wrong = [3, 6] if verb == "reduce" else [0, 3, 6]
    assert [row["row"] for row in result["errors"].to_pylist()] == [f'{{"n": {n}}}' for n in wrong]
    assert sorted(result["out"].column("n").to_pylist()) == ([5] if verb == "reduce" else [1, 2, 4, 5])
