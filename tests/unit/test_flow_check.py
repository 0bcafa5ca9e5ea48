"""What is refused before anything runs: one line, naming the place and what to do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import seep
import seep.testing
from operators.expressions import refuse_neighbours
from seep.flow.check import check, graph_problems
from seep.flow.compile import compile_flow
from seep.partition.contract import Edge, Graph, Node

ROWS = pa.table({"k": ["a"], "n": [1], "f": [1.5], "l": [[1]], "change": ["x"]})
TIMED = [{"at": datetime(2024, 1, 1, tzinfo=UTC)}]


def stream() -> seep.Stream:
    return seep.Flow("test").source("rows", seep.MemorySource(ROWS))


def table() -> seep.Table:
    return stream().drop("change").key_by("k").table()


def test_a_cycle_made_by_hand_is_refused_in_one_line() -> None:
    flow = seep.Flow("test")
    rows = flow.source("rows", seep.MemorySource(ROWS)).key_by("k")
    first = rows.aggregate(n=seep.count()).named("first")
    second = first.changes().key_by("k").aggregate(n=seep.count()).named("second")
    second.collect("out")
    vertices = {vertex.name: vertex for vertex in flow.vertices}
    vertices["first"].inputs = vertices["out"].inputs
    with pytest.raises(seep.Misuse, match=r"test_flow_check.py:\d+: the flow has a cycle: first -> second -> first;"):
        compile_flow(flow)


TUMBLING = seep.tumbling("1s", by="arrival")


def source(rows: Any) -> seep.Stream:
    return seep.Flow("test").source("rows", seep.MemorySource(rows))


class Nothing(seep.Operator):
    pass


class Stateful(seep.Operator):
    n = seep.CounterState()

    def on_row(self, row: Any, ctx: Any) -> None: ...


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "unknown column": (lambda: stream().select("x"), "select: unknown column 'x'; there are k, n"),
    "unknown column in filter": (lambda: stream().filter(pl.col("x") > 1), "filter: unknown column 'x'"),
    "unknown key": (lambda: stream().key_by("x"), "no column 'x' to key by"),
    "unknown drop": (lambda: stream().drop("x"), "drop: unknown column 'x'"),
    "float key": (lambda: stream().key_by("f"), "cannot key by 'f'"),
    "nested key": (lambda: stream().key_by("l"), "cannot key by 'l'"),
    "neighbours": (lambda: stream().with_columns(s=pl.col("n").cum_sum()), "neighbouring rows"),
    "neighbours in an aggregate": (
        lambda: stream().key_by("k").aggregate(x=seep.total(pl.col("n").shift())),
        "neighbouring rows",
    ),
    "neighbours in a ranking aggregate": (
        lambda: stream().key_by("k").aggregate(x=seep.top(1, by=pl.col("n").cum_sum())),
        "neighbouring rows",
    ),
    "neighbours in a ranking aggregate over a Table": (
        lambda: table().key_by("n").aggregate(x=seep.top(1, by=pl.col("n").cum_sum())),
        "neighbouring rows",
    ),
    "a key twice": (lambda: stream().key_by("k", "n", "k"), "the key column 'k' is given twice"),
    "a column twice": (lambda: stream().dedupe("k", "k"), "the key column 'k' is given twice"),
    "lateness below zero": (
        lambda: seep.Flow("x").source("s", seep.MemorySource(TIMED), time="at", lateness="-1s"),
        "source: lateness='-1s' is less than zero",
    ),
    "no idle time": (
        lambda: seep.Flow("x").source("s", seep.MemorySource(TIMED)).event_time("at", idle="0s"),
        "event_time: duration '0s': must be longer than zero",
    ),
    "unknown emit": (
        lambda: stream().key_by("k").aggregate(emit="never", n=seep.count()),
        "aggregate: emit='never'; choose 'update' or 'close'",
    ),
    "no boolean": (lambda: stream().filter(pl.col("n")), "one boolean"),
    "no key": (lambda: stream().aggregate(n=seep.count()), "aggregate: aggregate works by key; call key_by"),
    "no time": (lambda: stream().key_by("k").window(seep.tumbling("1m"), n=seep.count()), "no event time"),
    "bad duration": (lambda: seep.tumbling("1 minute"), "tumbling: duration '1 minute'"),
    "bad epoch": (lambda: seep.Flow("x", epoch="0s"), "Flow: duration '0s'"),
    "time of a wrong type": (lambda: stream().event_time("n"), "not a timestamp"),
    "clashing aggregate": (lambda: stream().key_by("k").aggregate(k=seep.count()), "'k' is taken"),
    "no function": (lambda: stream().map(5, schema=int), "map: 5 is no function; give one"),  # type: ignore[arg-type]
    "no schema": (lambda: stream().map(lambda row: row), "annotate its return type or give schema="),
    "no rows": (lambda: stream().key_by("k").apply(Nothing, out={"x": int}), "its own on_row"),
    "unkeyed state": (lambda: stream().apply(Stateful, out={"x": int}), "belong to keys"),
    "on_error": (lambda: stream().map(len, schema={"x": int}, on_error="ignore"), "on_error='ignore'"),
    "change in a table": (lambda: stream().key_by("k").table(), "rename it"),
    "different columns": (lambda: stream().union(stream()), "two flows"),
    "table verb": (
        lambda: stream().drop("change").key_by("k").table().map(len),
        r"a Table has no map; use its Stream of changes: \.changes\(\)\.map",
    ),
    "table without key": (lambda: stream().drop("change").key_by("k").table().drop("k"), "keeps its key columns"),
    "unknown column in an aggregate": (
        lambda: stream().key_by("k").aggregate(x=seep.total(pl.col("zz") + 1)),
        "aggregate: unknown column 'zz'; there are k, n",
    ),
    "unknown column to rank by": (lambda: stream().key_by("k").top(1, by=pl.col("zz") + 1), "top: unknown column 'zz'"),
    "all columns in an aggregate": (
        lambda: stream().select("k", "n", "f").key_by("k").aggregate(x=seep.total(pl.all())),
        "gives 3 columns; give one expression for each",
    ),
    "all columns in a Table's aggregate": (
        lambda: table().key_by("n").aggregate(x=seep.total(pl.all())),
        "gives 4 columns",
    ),
    "change as a key": (
        lambda: stream().key_by("change").aggregate(n=seep.count()),
        "a Table needs the column 'change'",
    ),
    "change as a window column": (
        lambda: stream().key_by("k").window(TUMBLING, emit="update", names=("change", "b"), n=seep.count()),
        "a Table needs the column 'change' itself; rename it, or give other names=",
    ),
    "our own column of a table": (lambda: source(pa.table({"__gone": [1]})), "source: column '__gone'"),
    "our own column in a schema": (lambda: stream().map(len, schema={"__at": int}), "map: column '__at'"),
    "our own column in select": (lambda: stream().select(__sign=pl.col("n")), "select: column '__sign'"),
    "our own column in rename": (lambda: stream().rename(__target="n"), "rename: column '__target'"),
    "our own column as an aggregate": (lambda: stream().key_by("k").aggregate(__by0=seep.count()), "column '__by0'"),
    "our own column as a window column": (
        lambda: stream().key_by("k").window(TUMBLING, names=("__time", "b"), n=seep.count()),
        "window: column '__time'",
    ),
    "a decimal of 76 digits": (
        lambda: source(pa.table({"d": pa.array([1], pa.decimal256(50, 0))})),
        r"source: column 'd' is a decimal256\(50, 0\); cast it to a decimal128",
    ),
    "an expression as a key": (lambda: stream().key_by(pl.col("k")), "key_by: col.* is no column name"),  # type: ignore[arg-type]
    "a function that deletes": (
        lambda: stream().drop("change").key_by("k").table(deleted=len),  # type: ignore[arg-type]
        "table: <.*len> is no Polars expression",
    ),
    "a time without its unit": (lambda: stream().event_time(("n",)), r"time=\('n',\); give a timestamp column"),  # type: ignore[arg-type]
    "a name behind key_by": (lambda: stream().key_by("k").named("x"), "named: key_by runs nowhere, so it has no name"),
    "a scale behind key_by": (lambda: stream().key_by("k").scale(start=3), "scale: key_by runs nowhere; scale what is"),
    "two names": (
        lambda: stream().key_by("k").aggregate(emit="close", n=seep.count()).named("a").named("b"),
        "named: it is named 'a' already, so it cannot be 'b'",
    ),
    "two names of a stage": (lambda: stream().drop("k").named("a").named("b"), "named 'a' already"),
    "no late": (lambda: stream().late, "has no 'late' output"),
    "same name": (lambda: stream().collect("rows"), "the name 'rows' is taken by the source of"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_line_that_names_the_place(case: str) -> None:
    build, message = REFUSED[case]
    with pytest.raises(seep.Misuse, match=message) as caught:
        build()
    assert str(caught.value).startswith("test_flow_check.py:")
    assert "\n" not in str(caught.value)


LOOKING = {
    "sum": pl.col("n").sum(),
    "shift": pl.col("n").shift(),
    "rank": pl.col("n").rank(),
    "over": pl.col("n").sum().over("k"),
    "cum_sum": pl.col("n").cum_sum(),
    "mean of text": pl.col("k").str.len_chars().mean(),
    "first": pl.col("k").first(),
    "forward_fill": pl.col("n").forward_fill(),
    "is_duplicated": pl.col("n").is_duplicated(),
    "is_first_distinct": pl.col("k").is_first_distinct(),
    "length": pl.len(),
    "unique": pl.col("n").unique(),
    "interpolate": pl.col("f").interpolate(),
    "converted": pl.col("k").cast(pl.Int64).cum_max(),
    "reverse": pl.col("n").reverse(),
    "any": (pl.col("n") > 5).any(),
    "rolling": pl.col("f").rolling_mean(2),
    "sort": pl.col("k").sort(),
    "index": pl.int_range(pl.len()),
}
LOCAL = {
    "arithmetic": pl.col("n") * 2 + pl.col("f"),
    "literal": pl.lit(3),
    "case": pl.when(pl.col("n") > 1).then(pl.col("k")).otherwise(pl.lit("x")),
    "text": pl.col("k").str.to_uppercase(),
    "strict conversion": pl.col("k").cast(pl.Int64),
    "time": pl.col("k").str.to_datetime("%Y-%m-%dT%H:%M:%S"),
    "list": pl.col("l").list.sum(),
    "null": pl.col("n").fill_null(0).is_in([1, 2]),
    "struct": pl.struct("n", "k"),
    "inside of a list": pl.col("l").list.eval(pl.element().filter(pl.element() > 1).drop_nulls()),
    "some of a list": pl.col("l").list.filter(pl.element() > 1),
    "words": pl.col("k").str.split(" ").list.first(),
    "values that are given": pl.col("n").is_in(pl.lit([1, 2]).list.explode()),
}
RESIZING = {
    "explode": pl.col("l").explode(),
    "words": pl.col("k").str.split(" ").list.explode(),
    "words with something": pl.col("k").str.split(" ").list.explode() + "!",
    "filter": pl.col("n").filter(pl.col("n") >= 0),
    "drop_nulls": pl.col("n").drop_nulls(),
    "drop_nans": pl.col("f").drop_nans(),
    "head": pl.col("n").head(100),
    "append": pl.col("n").append(pl.col("n")),
    "repeat": pl.repeat(1, 3),
    "values": pl.lit(pl.Series([1, 2])),
    "function": pl.col("n").map_batches(lambda values: values.drop_nulls(), return_dtype=pl.Int64),
}


@pytest.mark.parametrize("name", LOOKING)
def test_expressions_that_look_at_neighbours_are_found(name: str) -> None:
    with pytest.raises(seep.Misuse, match="neighbouring rows"):
        refuse_neighbours(LOOKING[name], stream().schema)


@pytest.mark.parametrize("name", LOCAL)
def test_row_by_row_expressions_pass(name: str) -> None:
    refuse_neighbours(LOCAL[name], stream().schema)


@pytest.mark.parametrize("name", RESIZING)
def test_expressions_that_give_more_or_fewer_values_than_rows_are_found(name: str) -> None:
    with pytest.raises(seep.Misuse, match="one value for each row"):
        refuse_neighbours(RESIZING[name], stream().schema)


def test_what_is_taken_out_of_lists_can_be_used_everywhere() -> None:
    """Polars names the inside of a list as a column without a name."""
    flow, some = seep.Flow("lists"), pl.col("l").list.filter(pl.element() > 1)
    rows = flow.source("rows", seep.MemorySource([{"k": 1, "l": [1, 5]}, {"k": 2, "l": [2, 3]}, {"k": 3, "l": [1]}]))
    rows.filter(some.list.len() > 0).select("k", some=some).collect("selected")
    rows.key_by("k").aggregate(n=seep.total(some.list.sum())).filter(pl.col("k") == 2).collect("of a key")
    rows.key_by("k").table().key_by().aggregate(n=seep.total(some.list.sum())).collect("of a Table")
    result = seep.run(flow)
    assert result["selected"].to_pylist() == [{"k": 1, "some": [5]}, {"k": 2, "some": [2, 3]}]
    assert result["of a key"].to_pylist() == [{"k": 2, "n": 5}]
    assert result["of a Table"].to_pylist() == [{"n": 10}]


def test_warnings_and_names() -> None:
    flow = seep.Flow("test")
    rows = flow.source("rows", seep.MemorySource(ROWS))
    first = rows.key_by("k").aggregate(n=seep.count())
    rows.key_by("k").aggregate(n=seep.count()).named("mine")
    rows.key_by("k").aggregate(m=seep.count()).collect("out")
    first.collect("first")
    assert set(compile_flow(flow).nodes) == {"rows", "aggregate-k", "mine", "aggregate-k-2", "out", "first"}
    found = [str(finding) for finding in check(flow)]
    assert len(found) == 3
    assert any("no sink is reached from the aggregate 'mine'" in line for line in found)
    assert sum("has state and no name" in line for line in found) == 2


def test_a_table_that_is_made_again_takes_its_name() -> None:
    flow = seep.Flow("test")
    rows = flow.source("rows", seep.MemorySource(ROWS)).drop("change")
    rows.key_by("k").table().named("all").filter(pl.col("n") > 0).named("some").scale(start=2).collect("out")
    graph = compile_flow(flow)
    assert list(graph.nodes) == ["rows", "all", "some", "out"]
    assert graph.nodes["some"].start == 2
    assert check(flow) == []


def test_impossible_graphs() -> None:
    def node(name: str, kind: str = "operator") -> Node:
        return Node(name, kind, None)

    circle = (Edge("s->a", "s", "a", 0), Edge("a->b", "a", "b", 0), Edge("b->a", "b", "a", 1))
    graph = Graph({"s": node("s", "source"), "a": node("a"), "b": node("b"), "end": node("end", "sink")}, circle)
    problems = list(graph_problems(graph))
    assert problems[0].startswith("nobody feeds the sink 'end'")
    assert "circle: a -> b -> a" in problems[1] or "circle: b -> a -> b" in problems[1]


def test_an_empty_flow_is_refused() -> None:
    (finding,) = check(seep.Flow("nothing"))
    assert finding.level == "error"
    assert "has no source" in finding.message


BEHIND_CONDITIONS = {
    "a sum": pl.when(pl.col("k") == "north").then(pl.col("x").sum()).otherwise(pl.col("x")),
    "a shift": pl.when(pl.col("x") > 1_000_000_007).then(pl.col("x").shift(1)).otherwise(0),
    "a length": pl.when(pl.col("k") == "north").then(pl.len()).otherwise(0),
    "a greatest": (pl.col("x") > 10**12) & (pl.col("x") == pl.col("x").max()),
}


@pytest.mark.parametrize("expression", BEHIND_CONDITIONS.values(), ids=BEHIND_CONDITIONS)
def test_neighbours_are_seen_behind_conditions_that_no_generated_row_meets(expression: pl.Expr) -> None:
    rows = seep.Flow("x").source("s", seep.MemorySource([{"k": "a", "x": 1}]))
    with pytest.raises(seep.Misuse, match="looks at neighbouring rows"):
        rows.with_columns(y=expression)
    for row_by_row in (pl.col("k").is_in(["a", "b"]), pl.col("k").replace({"a": "b", "c": "d"})):
        rows.with_columns(y=pl.when(pl.col("k") == "north").then(row_by_row.cast(pl.String)).otherwise(pl.lit("")))


@pytest.mark.parametrize("use", [seep.run, seep.start, seep.testing.Driver])
def test_what_is_no_flow_is_refused_in_one_line(use: Callable[[Any], Any]) -> None:
    with pytest.raises(seep.Misuse, match=r"Stream\(k: string.* is no Flow; give the one"):
        use(stream())


def test_a_flow_without_a_sink_is_refused_before_it_runs() -> None:
    flow = seep.Flow("unseen")
    flow.source("in", seep.MemorySource([{"k": 1}])).key_by("k").aggregate(n=seep.count())
    with pytest.raises(seep.Misuse, match=r"test_flow_check.py:\d+: the flow 'unseen' has no sink; end a stream with"):
        seep.run(flow)


def test_a_division_by_a_number_is_row_by_row() -> None:
    """Polars divides one row, and many rows, in two ways that differ in the last bit: that must not show."""
    rows = [{"k": n, "x": n} for n in range(1, 20)]
    found = []
    for per_epoch in (1, 19):
        flow = seep.Flow("shares")
        numbers = flow.source("numbers", seep.MemorySource(rows, per_epoch=per_epoch))
        numbers.with_columns(share=pl.col("x") * 8 / 10 / pl.col("k")).collect("shares")
        found.append(sorted(row["share"] for row in seep.run(flow, on="inline")["shares"].to_pylist()))
    assert found[0] == found[1]
