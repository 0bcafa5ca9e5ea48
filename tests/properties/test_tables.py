"""Operators on Tables against plain dicts: their content after every epoch, each change that says so, and that neither
restarts nor partitioning show."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from operators.aggregates import count, maximum, mean, minimum, total
from operators.changes import change_schema
from operators.foreign_join import ForeignJoin
from operators.retract import Retract
from operators.table import GONE, LatestTable
from operators.table_aggregate import TableAggregate
from operators.table_join import TableJoin
from operators.table_lookup import TableLookup
from operators.table_top import TableTop
from seep.model.arrow import ArrowBatch
from seep.model.epoch import Moment
from seep.model.keyspace import buckets_of
from tests.properties.pieces import Pieces, text

import polars as pl  # isort: skip

Row = dict[str, Any]
Content = dict[Any, Row]

ITEMS = pa.schema({"id": pa.int64(), "shop": pa.string(), "n": pa.int64(), "x": pa.float64()})
SHOPS = pa.schema({"name": pa.string(), "n": pa.int64(), "region": pa.string()})
SALES = pa.schema({"shop": pa.string(), "sold": pa.int32()})

names = st.sampled_from(["a", "b", "a longer name", None])
item = st.fixed_dictionaries(
    {"shop": names, "n": st.sampled_from([1, 2, -7, None]), "x": st.sampled_from([0.25, -1.5, 1e3, math.nan, None])}
)
shop = st.fixed_dictionaries({"n": st.sampled_from([1, 2, None]), "region": st.sampled_from(["north", "south", None])})
items = st.dictionaries(st.sampled_from([1, 2, 3, 4, None]), st.none() | item, max_size=4)
"""The new row of each key that changes in an epoch; None deletes it."""
shops = st.dictionaries(names, st.none() | shop, max_size=3)
sales = st.lists(st.fixed_dictionaries({"shop": names, "sold": st.integers(0, 3)}), max_size=5)
epochs = st.lists(st.tuples(items, shops, sales), min_size=1, max_size=6)
few = settings(max_examples=25, phases=[Phase.explicit, Phase.generate, Phase.shrink])
"""Each example is a run of a pipeline, twice."""
Plan = list[tuple[Content, Content, list[Row]]]


def batch_of(rows: Iterable[Row], schema: pa.Schema, keys: Sequence[str]) -> ArrowBatch:
    record = pa.RecordBatch.from_pylist(list(rows), schema=schema)
    return ArrowBatch(record, buckets_of(record, keys))


def same(left: Any, right: Any) -> bool:
    return repr(left) == repr(right)


class Told:
    """A Table as its readers know it: made of the changes, which must be worth telling."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = keys
        self.content: Content = {}

    def hear(self, batch: ArrowBatch | None) -> None:
        rows = [] if batch is None else batch.record.to_pylist()
        keys = [tuple(row[key] for key in self.keys) for row in rows]
        assert len(set(keys)) == len(keys), "more than one change of a key"
        for key, row in zip(keys, rows, strict=True):
            change = row.pop("change")
            if change == "delete":
                assert same(self.content.pop(key), row), "a delete carries the old values"
            else:
                assert (change == "insert") == (key not in self.content)
                assert not same(self.content.get(key), row), "nothing changed"
                self.content[key] = row

    def assert_is(self, wanted: Iterable[Row]) -> None:
        by_key = {tuple(row[key] for key in self.keys): repr(row) for row in wanted}
        assert {key: repr(row) for key, row in self.content.items()} == by_key


def turned(content: Content, changed: Content, key: str, schema: pa.Schema) -> list[Row]:
    """Apply an epoch to a Table's content; the changes that go over the wire."""
    rows = []
    for name, value in changed.items():
        given = {key: name, **(value or {})}
        old, new = content.get(name), None if value is None else {field: given[field] for field in schema.names}
        if new is None:
            if old is not None:
                rows.append({**content.pop(name), "change": "delete"})
        elif not same(old, new):
            rows.append({**new, "change": "insert" if old is None else "update"})
            content[name] = new
    return rows


class Run:
    """One pipeline through a plan: in pieces that are shaken, or calm."""

    def __init__(self, data: st.DataObject | None = None) -> None:
        self.data = data
        self.log: list[Any] = []
        self._pieces: dict[str, Pieces] = {}

    def take(self, name: str, make: Callable[[], Any], moment: Moment, *inputs: ArrowBatch) -> dict[str, ArrowBatch]:
        """Send these batches, one a port, through the operator of that name."""
        if name not in self._pieces:
            self._pieces[name] = Pieces(make)
        pieces = self._pieces[name]
        if self.data is not None:
            pieces.shake(self.data)
        outputs = pieces.take(moment, list(enumerate(inputs)))
        self.log.append((name, text(outputs)))
        return outputs


def routed(batch: ArrowBatch | None, schema: pa.Schema, keys: Sequence[str]) -> ArrowBatch:
    record = pa.RecordBatch.from_pylist([], schema=schema) if batch is None else batch.record
    return ArrowBatch(record, buckets_of(record, keys))


def moment_of(epoch: int) -> Moment:
    return Moment(epoch, epoch, 0, 0)


def twice(pipeline: Callable[[Run, Plan], None], plan: Plan, data: st.DataObject) -> None:
    calm, shaken = Run(), Run(data)
    pipeline(calm, plan)
    pipeline(shaken, plan)
    assert shaken.log == calm.log


# --- a Stream with a Table ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["inner", "left"])
@few
@given(plan=epochs, data=st.data())
def test_rows_meet_the_table_as_it_is_at_the_end_of_their_epoch(how: str, plan: Plan, data: st.DataObject) -> None:
    wire = change_schema(SHOPS)

    def pipeline(run: Run, plan: Plan) -> None:
        content: Content = {}
        for epoch, (_, changed, rows) in enumerate(plan, 1):
            changes = batch_of(turned(content, changed, "name", SHOPS), wire, ["name"])
            stream = batch_of(rows, SALES, ["shop"])
            outputs = run.take(
                "join", lambda: TableLookup((["name"], ["shop"]), (wire, SALES), how), moment_of(epoch), changes, stream
            )
            wanted = []
            for row in stream.by_bucket().record.to_pylist():
                found = None if row["shop"] is None else content.get(row["shop"])
                if found or how == "left":
                    wanted.append({**row, "n": found and found["n"], "region": found and found["region"]})
            assert (outputs["out"].record.to_pylist() if "out" in outputs else []) == wanted

    twice(pipeline, plan, data)


# --- a Table with a Table ----------------------------------------------------------------------------------------

LEFT = pa.schema({"name": pa.string(), "region": pa.string()})


def joined(left: Content, right: Content, how: str) -> list[Row]:
    rows = []
    for key in {**left, **right}:
        one, other = left.get(key), right.get(key)
        if key is None and one and other:  # a null matches nothing, and a key has one row
            one, other = (None, other) if how == "right" else (one, None)
        shown = {"inner": one and other, "left": one, "right": other, "full": one or other}[how]
        if shown:
            if how == "right" and key is None:
                one = None
            if how == "left" and key is None:
                other = None
            rows.append(
                {
                    "name": key,
                    "region": one and one["region"],
                    "n": other and other["n"],
                    "region_right": other and other["region"],
                }
            )
    return rows


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
@few
@given(
    plan=st.lists(
        st.tuples(st.dictionaries(names, st.none() | shop, max_size=3), shops, st.just([])), min_size=1, max_size=6
    ),
    data=st.data(),
)
def test_tables_join_on_equal_keys(how: str, plan: Plan, data: st.DataObject) -> None:
    wires = change_schema(LEFT), change_schema(SHOPS)

    def pipeline(run: Run, plan: Plan) -> None:
        left: Content = {}
        right: Content = {}
        told = Told(["name"])
        for epoch, (one, other, _) in enumerate(plan, 1):
            narrow = {key: row and {"region": row["region"]} for key, row in one.items()}
            ports = [
                batch_of(turned(left, narrow, "name", LEFT), wires[0], ["name"]),
                batch_of(turned(right, other, "name", SHOPS), wires[1], ["name"]),
            ]
            outputs = run.take("join", lambda: TableJoin((["name"], ["name"]), wires, how), moment_of(epoch), *ports)
            told.hear(outputs.get("out"))
            told.assert_is(joined(left, right, how))

    twice(pipeline, plan, data)


@pytest.mark.parametrize("how", ["inner", "left"])
@few
@given(plan=epochs, data=st.data())
def test_tables_join_by_a_foreign_key(how: str, plan: Plan, data: st.DataObject) -> None:
    item_wire, shop_wire = change_schema(ITEMS), change_schema(SHOPS)
    signed = Retract(["id"], ITEMS).schema

    def make() -> ForeignJoin:
        return ForeignJoin((["name"], "shop"), (shop_wire, signed), ["id"], how)

    answer = make().schema

    def pipeline(run: Run, plan: Plan) -> None:
        left: Content = {}
        right: Content = {}
        told = Told(["id"])
        for epoch, (one, other, _) in enumerate(plan, 1):
            moment = moment_of(epoch)
            changes = batch_of(turned(left, one, "id", ITEMS), item_wire, ["id"])
            rows = run.take("rows", lambda: Retract(["id"], ITEMS), moment, changes)
            foreign = run.take(
                "by shop",
                make,
                moment,
                batch_of(turned(right, other, "name", SHOPS), shop_wire, ["name"]),
                routed(rows.get("out"), signed, ["shop"]),
            )
            answers = [routed(foreign.get(role), answer, ["id"]) for role in ("gone", "out")]
            outputs = run.take("latest", lambda: LatestTable(["id"], answer, pl.col(GONE)), moment, *answers)
            if "out" in outputs:
                out = outputs["out"]
                told.hear(ArrowBatch(out.record.drop_columns([GONE]), out.buckets))
            wanted = []
            for row in left.values():
                found = None if row["shop"] is None else right.get(row["shop"])
                if found or how == "left":
                    wanted.append({**row, "n_right": found and found["n"], "region": found and found["region"]})
            told.assert_is(wanted)

    twice(pipeline, plan, data)


# --- aggregates --------------------------------------------------------------------------------------------------

EXACT = {"rows": count(), "known": count("n"), "sum": total("n"), "average": mean("n")}
ANEW = {**EXACT, "most": maximum("n"), "least": minimum("x"), "weight": total("x"), "double": maximum(pl.col("n") * 2)}


def aggregated(key: Any, rows: list[Row], names: Iterable[str]) -> Row:
    numbers = [row["n"] for row in rows if row["n"] is not None]
    floats = [row["x"] for row in rows if row["x"] is not None]
    real = [x for x in floats if not math.isnan(x)]
    found = {
        "rows": len(rows),
        "known": len(numbers),
        "sum": sum(numbers) if numbers else None,
        "average": sum(numbers) / len(numbers) if numbers else None,
        "most": max(numbers, default=None),
        "least": min(real) if real else (math.nan if floats else None),
        "weight": sum(floats, 0.0) if floats else None,
        "double": 2 * max(numbers) if numbers else None,
    }
    return {"shop": key, **{name: found[name] for name in names}}


@pytest.mark.parametrize("aggregates", [EXACT, ANEW], ids=["exact", "anew"])
@few
@given(plan=epochs, data=st.data())
def test_aggregates_are_those_of_the_rows_that_are_there(
    aggregates: dict[str, Any], plan: Plan, data: st.DataObject
) -> None:
    wire = change_schema(ITEMS)
    signed = Retract(["id"], ITEMS).schema

    def pipeline(run: Run, plan: Plan) -> None:
        content: Content = {}
        told = Told(["shop"])
        for epoch, (changed, _, _) in enumerate(plan, 1):
            moment = moment_of(epoch)
            changes = batch_of(turned(content, changed, "id", ITEMS), wire, ["id"])
            rows = run.take("rows", lambda: Retract(["id"], ITEMS), moment, changes)
            outputs = run.take(
                "aggregate",
                lambda: TableAggregate(["shop"], ["id"], ITEMS, aggregates),
                moment,
                routed(rows.get("out"), signed, ["shop"]),
            )
            told.hear(outputs.get("out"))
            groups: dict[Any, list[Row]] = {}
            for row in content.values():
                groups.setdefault(row["shop"], []).append(row)
            told.assert_is(aggregated(key, rows, aggregates) for key, rows in groups.items())

    twice(pipeline, plan, data)


def ranked(rows: list[Row], n: int, ties: str) -> list[Row]:
    """The best by ``n``, then ``x``: nulls last, NaN the greatest, ties by the remaining columns ascending."""

    def descending(value: Any) -> tuple[int, float]:
        return (1, 0) if value is None else (0, -math.inf if isinstance(value, float) and math.isnan(value) else -value)

    def ascending(value: Any) -> tuple[int, Any]:
        return (value is None, 0 if value is None else value)

    def best(row: Row) -> tuple[Any, ...]:
        return (descending(row["n"]), descending(row["x"]))

    ordered = sorted(rows, key=lambda row: (*best(row), ascending(row["id"])))
    found = []
    for place, row in enumerate(ordered, 1):
        rank = place if ties == "number" else next(at for at, one in enumerate(ordered, 1) if best(one) == best(row))
        if rank <= n:
            found.append({**row, "rank": rank, **({"place": place} if ties == "rank" else {})})
    return found


@pytest.mark.parametrize("ties", ["number", "rank"])
@few
@given(plan=epochs, n=st.sampled_from([1, 2, 3]), data=st.data())
def test_the_best_are_those_of_the_rows_that_are_there(ties: str, plan: Plan, n: int, data: st.DataObject) -> None:
    wire = change_schema(ITEMS)
    signed = Retract(["id"], ITEMS).schema

    def pipeline(run: Run, plan: Plan) -> None:
        content: Content = {}
        told = Told(["shop", "rank" if ties == "number" else "place"])
        for epoch, (changed, _, _) in enumerate(plan, 1):
            moment = moment_of(epoch)
            changes = batch_of(turned(content, changed, "id", ITEMS), wire, ["id"])
            rows = run.take("rows", lambda: Retract(["id"], ITEMS), moment, changes)
            outputs = run.take(
                "top",
                lambda: TableTop(["shop"], ["id"], ITEMS, n, ["n", "x"], ties=ties),
                moment,
                routed(rows.get("out"), signed, ["shop"]),
            )
            told.hear(outputs.get("out"))
            groups: dict[Any, list[Row]] = {}
            for row in content.values():
                groups.setdefault(row["shop"], []).append(row)
            told.assert_is(row for rows in groups.values() for row in ranked(rows, n, ties))

    twice(pipeline, plan, data)
