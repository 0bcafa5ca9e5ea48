"""Bad input at the real operators: what each does with values, times, batches and sums that nobody wished for.

What a wrong app gets is in `tests/scenarios/test_bad_input.py`; here the app is right and the data are not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import seep
from seep import (
    Flow,
    MemorySource,
    Misuse,
    count,
    count_window,
    distinct,
    last,
    maximum,
    mean,
    median,
    minimum,
    session,
    sliding,
    total,
    tumbling,
    variance,
)
from seep.connectors.contract import Rows
from seep.flow.check import check
from seep.flow.stream import Stream
from seep.model.schema import TIMESTAMP
from seep.testing import Driver

START = datetime(2024, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema({"k": pa.string(), "n": pa.int64(), "f": pa.float64(), "at": TIMESTAMP})

OPERATORS: dict[str, Callable[[Stream], Any]] = {
    "tumbling": lambda s: s.key_by("k").window(tumbling("10s"), n=count(), sum=total("n"), most=maximum("f")),
    "sliding": lambda s: s.key_by("k").window(sliding("10s", every="5s"), n=count(), typical=median("f")),
    "session": lambda s: s.key_by("k").window(session("5s"), n=count(), average=mean("f")),
    "count window": lambda s: s.key_by("k").window(count_window(2), n=count(), least=minimum("f")),
    "updated window": lambda s: s.key_by("k").window(tumbling("10s"), emit="update", n=count()),
    "aggregate": lambda s: s.key_by("k").aggregate(
        n=count(), sum=total("n"), spread=variance("f"), kinds=distinct("f")
    ),
    "interval join": lambda s: s.key_by("k").join(s.key_by("k"), within="2s", how="full"),
    "window join": lambda s: s.key_by("k").join(s.key_by("k"), window=tumbling("5s"), how="left"),
    "table": lambda s: s.key_by("k").table(),
    "history": lambda s: s.key_by("k").table(history="1m"),
    "join_table": lambda s: s.key_by("k").join_table(s.key_by("k").table(), how="left"),
    "broadcast": lambda s: s.join_table(s.key_by("k").broadcast(), how="left"),
    "as of": lambda s: s.key_by("k").join_table(s.key_by("k").table(history="1m"), how="left", as_of=True),
    "table join": lambda s: s.key_by("k").table().join(s.key_by("k").table(), how="full"),
    "top": lambda s: s.key_by("k").top(2, by="f"),
    "dedupe": lambda s: s.key_by("k").dedupe(),
    "reduce": lambda s: s.key_by("k").reduce(lambda folded, row: row),
}


def at(second: int | None) -> datetime | None:
    return None if second is None else START + timedelta(seconds=second)


def table(*rows: tuple[Any, ...]) -> pa.Table:
    """Rows of (k, n, f, second)."""
    return pa.Table.from_pylist([{"k": k, "n": n, "f": f, "at": at(s)} for k, n, f, s in rows], schema=SCHEMA)


def run(rows: pa.Table, make: Callable[[Stream], Any], per_epoch: int | None = None) -> list[dict[str, Any]]:
    flow = Flow("bad")
    make(flow.source("in", MemorySource(rows, per_epoch=per_epoch), time="at")).collect("out")
    return seep.run(flow, on="inline")["out"].to_pylist()


# --- nulls ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPERATORS)
def test_nulls_in_keys_and_values_harm_nothing(name: str) -> None:
    rows = table(("a", 1, 1.0, 0), (None, 2, None, 1), ("a", None, None, 2), (None, None, 3.0, 3))
    found = run(rows, OPERATORS[name])
    assert {row["k"] for row in found} == {"a", None}, "null is a key like any other"


def test_a_null_key_matches_nothing_in_joins() -> None:
    rows = table((None, 1, 1.0, 0), ("a", 2, 1.0, 0))
    for name in ("join_table", "broadcast", "as of"):
        found = {row["k"]: row["n_right"] for row in run(rows, OPERATORS[name])}
        assert found == {None: None, "a": 2}, name
    pairs = [(row["k"], row["n"], row["n_right"]) for row in run(rows, OPERATORS["interval join"])]
    assert sorted(pairs, key=repr) == [("a", 2, 2), (None, 1, None), (None, None, 1)]


def test_aggregates_of_nulls_alone_are_null() -> None:
    made = {"sum": total("n"), "average": mean("f"), "typical": median("f"), "most": maximum("n"), "latest": last("n")}
    (row,) = run(table(("a", None, None, 0)), lambda s: s.key_by("k").aggregate(rows=count(), seen=count("n"), **made))
    assert row == {"k": "a", "rows": 1, "seen": 0, **dict.fromkeys(made)}


def test_a_dead_letter_is_json_though_its_row_has_a_nan() -> None:
    flow = Flow("letters")
    source = flow.source("in", MemorySource(table(("a", 1, math.nan, 0), ("a", 2, math.inf, 0))))
    failing = source.map(lambda row: 1 // 0, schema={"x": int})
    failing.collect("out")
    failing.errors.collect("errors")

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    rows = [json.loads(text, parse_constant=refuse) for text in seep.run(flow)["errors"].column("row").to_pylist()]
    assert [row["f"] for row in rows] == ["nan", "inf"]


# --- times ---------------------------------------------------------------------------------------------------------


YEAR_1, YEAR_9999 = (int(datetime(*at, tzinfo=UTC).timestamp()) * 1_000_000 for at in ((1, 1, 1), (9999, 12, 31)))


@pytest.mark.parametrize("time", [None, 2**62, -(2**62), YEAR_1, YEAR_9999])
def test_a_time_that_is_null_or_out_of_range_is_a_dead_letter_of_the_source(time: int | None) -> None:
    rows = pa.table(
        {"k": ["a", "a"], "n": [1, 2], "f": [0.0, 0.0], "at": pa.array([time, 0], pa.int64()).cast(TIMESTAMP)}
    )
    flow = Flow("times")
    source = flow.source("in", MemorySource(rows), time="at")
    source.key_by("k").window(tumbling("10s"), n=count()).collect("out")
    source.errors.collect("errors")
    result = seep.run(flow)
    assert result["out"].column("n").to_pylist() == [1]
    (letter,) = result["errors"].to_pylist()
    assert letter["error"] == "event time 'at' is null or out of range"
    assert (letter["operator"], letter["position"]) == ("in", "0:0")


@pytest.mark.parametrize("name", ["tumbling", "sliding", "session", "interval join", "history", "as of"])
def test_a_time_that_a_function_spoils_is_a_dead_letter_of_the_operator(name: str) -> None:
    def spoil(row: Any) -> dict[str, Any]:
        return {**row.as_dict(), "at": None if row.n == 2 else row.at}

    flow = Flow("spoilt")
    source = flow.source("in", MemorySource(table(("a", 1, 1.0, 0), ("a", 2, 1.0, 1))), time="at")
    made = OPERATORS[name](source.map(spoil, schema=SCHEMA)).named("op")
    made.collect("out")
    made.errors.collect("errors")
    result = seep.run(flow)
    # A join has the row on both sides. Of an as-of join the Table has dead letters of its own.
    assert result["errors"].num_rows == (2 if name == "interval join" else 1)
    assert all('"n": 2' in letter["row"] for letter in result["errors"].to_pylist())
    assert all(letter["operator"] == "op" for letter in result["errors"].to_pylist())
    assert result["out"].num_rows >= 1


# --- batches -------------------------------------------------------------------------------------------------------


class Changing:
    """A source whose batches do not all have the schema that it says."""

    splits = 1

    def __init__(self, *records: pa.RecordBatch) -> None:
        self.records = records
        self.schema = records[0].schema

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Rows:
        done = position or 0
        return Rows(self.records[done], done + 1, done + 1 == len(self.records))


def test_a_batch_with_other_columns_stops_and_says_which() -> None:
    first = pa.record_batch({"k": ["a"], "n": [1]})
    for other, says in (
        (pa.record_batch({"k": ["a"]}), "source 'in': a batch has no column 'n'; the source said k, n"),
        (pa.record_batch({"k": ["a"], "n": [1], "x": [1]}), "a batch has a new column 'x'"),
        (pa.record_batch({"k": ["a"], "n": ["one"]}), "in a batch 'n' is a string; the source said int64"),
        (pa.record_batch({"k": ["a"], "n": [1.5]}), "in a batch 'n' is a double; the source said int64"),
    ):
        flow = Flow("changing")
        flow.source("in", Changing(first, other)).key_by("k").aggregate(n=total("n")).collect("out")
        with pytest.raises(Misuse, match=says):
            seep.run(flow)


def test_a_batch_whose_columns_only_stand_otherwise_is_taken() -> None:
    flow = Flow("changing")
    records = (
        pa.record_batch({"k": ["a"], "n": [1]}),
        pa.record_batch({"n": pa.array([2], pa.int32()), "k": pa.array(["a"], pa.large_string())}),
        pa.record_batch({"k": pa.array([], pa.null()), "n": pa.array([], pa.int8())}),
    )
    flow.source("in", Changing(*records)).key_by("k").aggregate(n=total("n")).collect("out")
    assert seep.run(flow)["out"].to_pylist() == [{"k": "a", "n": 3}]


@pytest.mark.parametrize("name", OPERATORS)
def test_no_rows_and_one_row(name: str) -> None:
    assert run(table(), OPERATORS[name]) == []
    (row,) = run(table(("a", 1, 1.0, 0)), OPERATORS[name])[:1]
    assert row["k"] == "a"


@pytest.mark.parametrize("name", OPERATORS)
def test_empty_epochs_between_rows(name: str) -> None:
    flow = Flow("idle")
    OPERATORS[name](flow.source("in", MemorySource(table()), time="at")).collect("out")
    driver = Driver(flow)
    for epoch in range(3):
        driver.feed("in", [])
        driver.feed("in", [{"k": "a", "n": epoch, "f": 1.0, "at": at(epoch)}])
        driver.advance(epochs=2)
    driver.close()
    assert driver.output("out")
    driver.assert_exactly_once()


def test_a_million_rows_in_one_batch_and_one_by_one_give_the_same() -> None:
    letters = pa.array(["abcdefgh"[i] for i in range(8)] * 125_000)
    rows = pa.table({"k": letters, "n": pa.array(range(1_000_000))})

    def totals(given: pa.Table, per_epoch: int | None) -> dict[str, int]:
        flow = Flow("large")
        source = flow.source("in", MemorySource(given, per_epoch=per_epoch))
        source.key_by("k").aggregate(n=total("n")).collect("out")
        return {row["k"]: row["n"] for row in seep.run(flow)["out"].to_pylist()}

    assert sum(totals(rows, None).values()) == 999_999 * 500_000
    assert totals(rows.slice(0, 100), None) == totals(rows.slice(0, 100), 1)


def test_a_text_of_a_hundred_megabytes() -> None:
    long = "x" * 100_000_000
    flow = Flow("long")
    source = flow.source("in", MemorySource(pa.table({"k": [1, 2], "text": [long, "short"]})))
    latest = source.key_by("k").table().named("latest")
    source.key_by("k").join_table(latest).select("k", length=pl.col("text_right").str.len_bytes()).collect("out")
    assert sorted(seep.run(flow)["out"].column("length").to_pylist()) == [5, 100_000_000]


# --- numbers -------------------------------------------------------------------------------------------------------


def test_nan_is_greater_than_all_numbers_and_infinities_are_numbers() -> None:
    rows = table(*(("a", 0, value, 0) for value in (1.0, math.nan, math.inf, -math.inf)))
    (row,) = run(rows, lambda s: s.key_by("k").aggregate(least=minimum("f"), most=maximum("f"), kinds=distinct("f")))
    assert row["least"] == -math.inf
    assert math.isnan(row["most"])
    assert row["kinds"] == 4
    ranked = run(rows, lambda s: s.key_by("k").top(4, by="f"))
    values = [row["f"] for row in sorted(ranked, key=lambda row: row["rank"])]
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, 1.0, -math.inf]


def test_totals_and_means_of_nan_and_infinities_are_those_of_ieee() -> None:
    for values, sum_ in (((1.0, math.nan), math.nan), ((math.inf, 1.0), math.inf), ((math.inf, -math.inf), math.nan)):
        rows = table(*(("a", 0, value, 0) for value in values))
        (row,) = run(rows, lambda s: s.key_by("k").window(tumbling("1s"), sum=total("f"), average=mean("f")))
        assert repr((row["sum"], row["average"])) == repr((sum_, sum_))


def test_the_same_nan_is_no_change() -> None:
    rows = table(("a", 0, math.nan, 0), ("a", 0, math.nan, 0))
    assert len(run(rows, lambda s: s.key_by("k").table().changes(), per_epoch=1)) == 1


OVERFLOWING: dict[str, Callable[[Stream], Any]] = {
    "aggregate": lambda s: s.key_by("k").aggregate(sum=total("n")),
    "aggregate at the end": lambda s: s.key_by("k").aggregate(emit="close", sum=total("n")),
    "tumbling": lambda s: s.key_by("k").window(tumbling("1m"), sum=total("n")),
    "sliding": lambda s: s.key_by("k").window(sliding("1m", every="20s"), sum=total("n")),
    "session": lambda s: s.key_by("k").window(session("1m"), sum=total("n")),
    "count window": lambda s: s.key_by("k").window(count_window(2), sum=total("n")),
    "behind a join": lambda s: (
        s.key_by("k").join_table(s.key_by("k").table(), how="left").key_by("k").window(tumbling("1m"), sum=total("n"))
    ),
    "over a Table": lambda s: s.key_by("n").table().key_by("k").aggregate(sum=total("n")),
}


@pytest.mark.parametrize("name", OVERFLOWING)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_total_that_overflows_stops_and_names_column_and_key(name: str, sign: int) -> None:
    rows = table(("a", 1, 0.0, 0), ("b", sign * (2**63 - 1), 0.0, 0), ("b", sign * 2, 0.0, 1))
    with pytest.raises(Misuse, match=r"sum = total\('n'\) does not fit int64 for key k='b'; use wide=True"):
        run(rows, OVERFLOWING[name])


def test_a_total_that_only_passes_through_an_overflow_is_right() -> None:
    rows = table(("b", 2**63 - 1, 0.0, 0), ("b", 2, 0.0, 1), ("b", -(2**62), 0.0, 2))
    (row,) = run(rows, OVERFLOWING["tumbling"])
    assert row["sum"] == 2**63 + 1 - 2**62
    wide = run(rows, lambda s: s.key_by("k").aggregate(sum=total("n", wide=True)), per_epoch=1)
    assert int(wide[0]["sum"]) == 2**63 + 1 - 2**62


# --- state that never goes -----------------------------------------------------------------------------------------


def endless(flow: Flow, name: str, time: str | None) -> Stream:
    source = seep.GeneratorSource(lambda i: {"k": "a", "n": i, "at": START}, rate=10)
    return flow.source(name, source, time=time)


class Passing(seep.Operator):
    last = seep.ValueState(int)
    lately = seep.MapState(str, int, ttl="1h")

    def on_row(self, row: Any, ctx: Any) -> None:
        ctx.emit({"k": row.k, "m": row.n, "at": row.at})


class Remembering(Passing):
    seen = seep.SetState(str)


def warned(flow: Flow) -> Iterator[str]:
    return (finding.message for finding in check(flow) if "never drops its state" in finding.message)


def test_check_warns_of_state_that_is_never_dropped() -> None:
    flow = Flow("kept")
    silent, timed = endless(flow, "silent", None), endless(flow, "timed", "at")
    out = {"k": str, "m": int, "at": datetime}
    told = timed.key_by("k").apply(Passing(), silent.key_by("k"), out=out).named("told")
    told.select("k", "m", "at").key_by("k").join(timed.key_by("k"), within="5s").named("joined").collect("a")
    timed.key_by("k").dedupe("n").named("once").collect("b")
    timed.key_by("k").aggregate(typical=median("n")).named("medians").collect("c")
    timed.key_by("k").apply(Remembering, out=out).named("remembering").collect("d")
    found = list(warned(flow))
    assert len(found) == 4
    assert "only its own code takes anything out of 'seen'; give that a ttl=" in found[3]
    assert "'joined' never drops its state: it waits for the watermark, which source 'silent' holds back" in found[0]
    assert "'once' never drops its state: its source does not end, and every key is remembered; give a ttl=" in found[1]
    assert "'medians'" in found[2]
    assert "typical = median('n') keeps every value" in found[2]


def test_check_says_nothing_of_state_that_goes() -> None:
    flow = Flow("dropped")
    one, other = endless(flow, "one", "at"), endless(flow, "other", "at")
    one.key_by("k").join(other.key_by("k"), within="5s").named("joined").collect("a")
    one.key_by("k").dedupe("n", ttl="1h").named("once").collect("b")
    one.key_by("k").aggregate(n=count()).named("counts").collect("c")
    bounded = flow.source("in", MemorySource(table())).key_by("k").dedupe().named("all").collect("d")
    assert bounded is None
    assert list(warned(flow)) == []
