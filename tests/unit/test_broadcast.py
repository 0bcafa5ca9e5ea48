"""A broadcast input: every partition knows the latest row of each of its keys."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import seep
from operators.replica import Replica
from seep.errors import Misuse
from seep.flow.compile import compile_flow
from seep.flow.explain import explain, lines
from seep.model.arrow import ArrowBatch, ArrowState, compact
from seep.model.epoch import Moment
from seep.model.ids import BEGINNING, KeyRange
from seep.model.keyspace import buckets_of
from seep.testing import Driver

OUT = pa.schema({"k": pa.string(), "euros": pa.int64(), "spent": pa.int64(), "known": pa.string()})
SALES: list[dict[str, Any]] = [{"k": f"k{i % 9}", "currency": ["usd", "gbp"][i % 2], "amount": i} for i in range(40)]
RATES: list[dict[str, Any]] = [{"currency": "usd", "rate": 2}, {"currency": "gbp", "rate": 3}]


class InEuros(seep.Operator):
    spent = seep.ValueState(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> None:
        rates = ctx.broadcast()
        rate = rates[row.currency].rate if row.currency in rates else 0
        self.spent.value += rate * row.amount
        known = ",".join(rates)
        ctx.emit({"k": ctx.key, "euros": rate * row.amount, "spent": self.spent.value, "known": known})


class Stateless(seep.Operator):
    def on_row(self, row: Any, ctx: Any) -> None:
        rates = ctx.broadcast(port=1)
        ctx.emit({"k": row.k, "euros": rates[row.currency].rate * row.amount, "spent": 0, "known": ""})


def flow_of(operator: Any = InEuros, keyed: bool = True) -> seep.Flow:
    flow = seep.Flow("euros")
    sales = flow.source("sales", seep.MemorySource(SALES, per_epoch=5))
    rates = flow.source("rates", seep.MemorySource(RATES)).key_by("currency").broadcast()
    sales = sales.key_by("k") if keyed else sales.shuffle()
    sales.apply(operator, rates, out=OUT).named("convert").collect("out")
    return flow


@pytest.mark.parametrize(("operator", "keyed"), [(InEuros, True), (Stateless, False)])
def test_rows_are_read_by_their_key(operator: Any, keyed: bool) -> None:
    found = seep.run(flow_of(operator, keyed))["out"].to_pylist()
    rate = {row["currency"]: row["rate"] for row in RATES}
    assert sorted(row["euros"] for row in found) == sorted(rate[row["currency"]] * row["amount"] for row in SALES)


def test_of_an_epoch_broadcast_rows_come_first_and_the_latest_stays() -> None:
    driver = Driver(flow_of())
    driver.feed("sales", [{"k": "a", "currency": "usd", "amount": 1}])
    driver.feed("rates", [{"currency": "usd", "rate": 7}, {"currency": "usd", "rate": 5}])
    driver.feed("sales", [{"k": "a", "currency": "usd", "amount": 1}])
    driver.feed("rates", [{"currency": "usd", "rate": 6}])
    driver.feed("sales", [{"k": "a", "currency": "usd", "amount": 1}])
    assert [row["euros"] for row in driver.output("out")] == [0, 5, 6]


def test_kills_splits_and_merges_do_not_show() -> None:
    driver = Driver(flow_of(), seed=3)
    driver.feed("rates", RATES)
    driver.feed("sales", SALES[:10])
    driver.checkpoint()
    driver.scale("convert", 3)
    driver.feed("rates", [{"currency": "usd", "rate": 10}, {"currency": "chf", "rate": 1}])
    driver.feed("sales", SALES[10:20])
    driver.kill("convert", 1)
    driver.feed("sales", SALES[20:30])
    driver.checkpoint()
    driver.feed("rates", [{"currency": "gbp", "rate": 11}])
    driver.scale("convert", 2)
    driver.kill("convert", 0)
    driver.feed("sales", SALES[30:])
    driver.scale("convert", 1)
    driver.feed("sales", SALES[:3])
    driver.close()
    rates = [{"usd": 2, "gbp": 3}] * 10 + [{"usd": 10, "gbp": 3}] * 20 + [{"usd": 10, "gbp": 11}] * 13
    fed = [*SALES, *SALES[:3]]
    want = sorted(rate[row["currency"]] * row["amount"] for rate, row in zip(rates, fed, strict=True))
    assert sorted(row["euros"] for row in driver.output("out")) == want
    driver.assert_exactly_once()


def test_the_books_balance_though_every_partition_gets_every_row() -> None:
    """Nothing of a broadcast edge is counted where it is taken, so nothing is counted twice."""
    logic = compile_flow(flow_of()).nodes["convert"].make()
    record = pa.RecordBatch.from_pylist(RATES)
    logic.take(Moment(1, 0, BEGINNING, BEGINNING), [(1, ArrowBatch(record, buckets_of(record, ("currency",))))])
    assert "in:1" not in logic.statistics()


def test_the_table_is_not_cut_and_loading_it_twice_changes_nothing() -> None:
    schema = pa.schema({"a": pa.string(), "b": pa.int64(), "x": pa.int64()})

    def rows(*values: tuple[Any, ...]) -> ArrowBatch:
        made = pa.RecordBatch.from_pylist([dict(zip("abx", v, strict=True)) for v in values], schema=schema)
        return ArrowBatch(made, buckets_of(made, ("a", "b"))).by_bucket()

    one = Replica(("a", "b"), schema)
    one.take(rows(("p", 1, 10), ("q", None, 20), (None, 3, 30)))
    full = ArrowState({"*1": one.snapshot(True)})
    one.take(rows(("p", 1, 11), ("r", 1, 40), ("r", 1, 41)))
    change = ArrowState({"*1": one.snapshot(False)})
    assert change.tables["*1"].num_rows == 2
    again = Replica(("a", "b"), schema)
    for part in (KeyRange(0, 9), KeyRange(9, 4096)):
        for state in (full, change):
            again.load(state.part(part).tables["*1"])
    assert list(again.items()) == list(one.items())
    assert again["p", 1].x == 11
    assert {key: row.x for key, row in again.items()} == {("p", 1): 11, ("q", None): 20, (None, 3): 30, ("r", 1): 41}
    assert again.snapshot(False).num_rows == 0
    # A savepoint of two partitions, put together for one: each entry once.
    merged = compact([ArrowState({"*1": one.snapshot(True)}), ArrowState({"*1": one.snapshot(True)})])
    assert merged.tables["*1"].num_rows == 4


def test_it_is_an_input_and_nothing_else() -> None:
    flow = seep.Flow("wrong")
    rates = flow.source("rates", seep.MemorySource(RATES))
    with pytest.raises(Misuse, match=r"latest row of each key; call key_by"):
        rates.broadcast()
    told = rates.key_by("currency").broadcast()
    for verb in ("collect", "map", "aggregate", "sink", "union"):
        with pytest.raises(Misuse, match="only a further input of apply or join_table"):
            getattr(told, verb)
    with pytest.raises(AttributeError):
        told.nonsense  # noqa: B018
    table = rates.key_by("currency").table().broadcast()
    sales = flow.source("sales", seep.MemorySource(SALES))
    with pytest.raises(Misuse, match=r"broadcast a stream to it, such as \.changes\(\), or join_table"):
        sales.key_by("k").apply(InEuros, table, out=OUT)
    with pytest.raises(Misuse, match=r"no key, and no column 'currency' to pair with; call key_by"):
        sales.drop("currency").join_table(table)
    with pytest.raises(Misuse, match="the keys differ"):
        sales.key_by("amount").join_table(told)
    with pytest.raises(Misuse, match=r"as_of=True needs the versions of a Table"):
        sales.join_table(told, as_of=True)


def test_a_grouping_before_it_takes_nothing_from_it() -> None:
    flow = seep.Flow("shuffled")
    sales = flow.source("sales", seep.MemorySource(SALES)).key_by("k")
    rates = flow.source("rates", seep.MemorySource(RATES)).shuffle().key_by("currency").broadcast()
    sales.apply(InEuros, rates, out=OUT).named("convert").collect("out")
    graph = compile_flow(flow)
    assert [(edge.source, edge.broadcast) for edge in graph.inputs("convert")] == [("sales", False), ("rates", True)]


def test_only_a_broadcast_input_can_be_read() -> None:
    class Wrong(seep.Operator):
        def on_row(self, row: Any, ctx: Any) -> None:
            ctx.broadcast(0)

    driver = Driver(flow_of(Wrong))
    driver.feed("sales", SALES[:1])
    assert "input 0 is not broadcast; these are: 1" in driver.errors("convert")[0]["error"]


def test_the_plan_says_so() -> None:
    said = {entry["node"]: list(lines(entry)) for entry in explain(compile_flow(flow_of()))}
    assert "  rows of rates are sent to every partition" in said["convert"]


# --- join_table ----------------------------------------------------------------------------------------------------


def joining(form: str) -> seep.Flow:
    flow = seep.Flow("joined")
    sales = flow.source("sales", seep.MemorySource(SALES, per_epoch=5))
    rates = flow.source("rates", seep.MemorySource(RATES, per_epoch=1)).key_by("currency")
    told = {
        "stream": lambda: rates.broadcast(),
        "table": lambda: rates.table(deleted=pl.col("rate") == 0).named("rates-now").broadcast(),
        "keyed": lambda: rates.broadcast(),
    }[form]()
    stream = sales.rename(money="currency").key_by("money") if form == "keyed" else sales.shuffle()
    stream.join_table(told, how="left").named("priced").collect("out")
    return flow


@pytest.mark.parametrize("form", ["stream", "table", "keyed"])
def test_a_stream_is_joined_where_it_is(form: str) -> None:
    """The rates are there before the first sale, and no sale is sent by its currency."""
    flow = joining(form)
    found = seep.run(flow)["out"].to_pylist()
    rate = {row["currency"]: row["rate"] for row in RATES}
    money = "money" if form == "keyed" else "currency"
    assert all(row["rate"] == rate[row[money]] for row in found)
    assert sorted(row["amount"] for row in found) == list(range(40))
    said = {entry["node"]: list(lines(entry)) for entry in explain(compile_flow(flow))}
    sent = "by origin: a row stays in its bucket" if form == "keyed" else "evenly, by origin and position"
    teller = "rates-now" if form == "table" else "rates"
    assert f"  rows of {teller} are sent to every partition" in said["priced"]
    assert f"  rows of sales are sent {sent}" in said["priced"]


@pytest.mark.parametrize("form", ["stream", "table", "keyed"])
def test_a_joined_broadcast_under_kills_splits_and_merges(form: str) -> None:
    driver = Driver(joining(form), seed=4)
    driver.feed("rates", RATES)
    driver.feed("sales", SALES[:10])
    driver.checkpoint()
    driver.scale("priced", 3)
    driver.feed("rates", [{"currency": "usd", "rate": 9}, {"currency": "usd", "rate": 10}])
    driver.feed("sales", SALES[10:20])
    driver.kill("priced", 1)
    driver.feed("rates", [{"currency": "gbp", "rate": 0}])
    driver.feed("sales", SALES[20:30])
    driver.checkpoint()
    driver.scale("priced", 2)
    driver.kill("priced", 0)
    driver.feed("sales", SALES[30:])
    driver.scale("priced", 1)
    driver.feed("sales", SALES[:3])
    driver.close()
    gone = None if form == "table" else 0
    rates = [{"usd": 2, "gbp": 3}] * 10 + [{"usd": 10, "gbp": 3}] * 10 + [{"usd": 10, "gbp": gone}] * 23
    want = [(row["amount"], rate[row["currency"]]) for rate, row in zip(rates, [*SALES, *SALES[:3]], strict=True)]
    assert sorted((row["amount"], str(row["rate"])) for row in driver.output("out")) == sorted(
        (amount, str(rate)) for amount, rate in want
    )
    driver.assert_exactly_once()


def test_what_was_valid_then_from_a_broadcast_table() -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    flow = seep.Flow("then")
    rates = [{"currency": "usd", "rate": minute, "at": start + timedelta(minutes=minute)} for minute in (0, 2)]
    sales = [{"currency": "usd", "n": minute, "at": start + timedelta(minutes=minute)} for minute in (3, 1, 0)]
    versions = flow.source("rates", seep.MemorySource(rates), time="at").key_by("currency").table(history="5m")
    stream = flow.source("sales", seep.MemorySource(sales), time="at", lateness="5m")
    stream.join_table(versions.named("versions").broadcast(), as_of=True).named("priced").collect("out")
    driver = Driver(flow, seed=2)
    driver.feed("rates", rates)
    driver.checkpoint()
    driver.feed("sales", sales)
    driver.scale("priced", 2)
    driver.kill("priced", 0)
    driver.close()
    assert sorted((row["n"], row["rate"]) for row in driver.output("out")) == [(0, 0), (1, 0), (3, 2)]
    driver.assert_exactly_once()
