"""A stream joined with a broadcast Table, against plain Python; neither restarts nor partitioning show, nor where the
stream's rows are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.as_of import AsOfLookup
from operators.changes import change_schema
from operators.history import version_schema
from operators.table_lookup import TableLookup
from seep.model.arrow import ArrowBatch
from seep.model.epoch import Moment
from seep.model.ids import BEGINNING, FOREVER
from seep.model.keyspace import buckets_of
from seep.model.schema import TIMESTAMP
from tests.properties.pieces import Pieces, text

RATES = pa.schema({"name": pa.string(), "rate": pa.int64()})
ORDERS = pa.schema({"n": pa.int64(), "currency": pa.string(), "at": TIMESTAMP})
HISTORY_US = 6
TOLD = frozenset([0])
Row = dict[str, Any]

names = st.sampled_from(["a", "b", "a longer name", "c", None])
rates = st.lists(
    st.fixed_dictionaries({"name": names, "rate": st.sampled_from([1, 2, None]), "goes": st.booleans()}), max_size=4
)
places = st.integers(0, 4095)
orders = st.lists(st.tuples(places, names, st.integers(0, 25)), max_size=6)
epochs = st.lists(st.tuples(rates, orders, st.integers(0, 6)), min_size=1, max_size=6)
Plan = list[tuple[list[Row], list[tuple[int, Any, int]], int]]


def fed(plan: Plan) -> list[ArrowBatch]:
    """The stream: rows numbered through, wherever they are."""
    found, number = [], 0
    for _, given_rows, _ in plan:
        rows = [{"n": number + i, "currency": name, "at": at} for i, (_, name, at) in enumerate(given_rows)]
        number += len(rows)
        record = pa.RecordBatch.from_pylist(rows, schema=ORDERS)
        found.append(ArrowBatch(record, np.array([bucket for bucket, _, _ in given_rows], np.uint16)))
    return found


def told(rows: list[Row], schema: pa.Schema) -> ArrowBatch:
    record = pa.RecordBatch.from_pylist(rows, schema=schema)
    return ArrowBatch(record, buckets_of(record, ["name"])).by_bucket()


def changes_of(rows: list[Row], table: dict[Any, Row]) -> list[Row]:
    """At most one change for each key."""
    found = {}
    for row in rows:
        change = "delete" if row["goes"] else "update" if row["name"] in table else "insert"
        if change != "delete" or row["name"] in table:
            found[row["name"]] = {**row, "change": change}
    return list(found.values())


@pytest.mark.parametrize("changes", [True, False])
@pytest.mark.parametrize("how", ["inner", "left"])
@given(plan=epochs, data=st.data())
def test_each_row_meets_the_table_of_its_epoch(how: str, changes: bool, plan: Plan, data: st.DataObject) -> None:
    wire = change_schema(RATES) if changes else RATES

    def make() -> TableLookup:
        return TableLookup((["name"], ["currency"]), (wire, ORDERS), how, replicated=True, changes=changes)

    one, pieces, table = make(), Pieces(make, TOLD), dict[Any, Row]()
    for epoch, ((rows, _, _), stream) in enumerate(zip(plan, fed(plan), strict=True), 1):
        sent = changes_of(rows, table) if changes else rows
        for row in sent:
            table[row["name"]] = row
        table = {name: row for name, row in table.items() if row.get("change") != "delete"}
        moment = Moment(epoch, epoch, BEGINNING, BEGINNING)
        inputs = [(0, told(sent, wire)), (1, stream)]
        outputs = one.take(moment, inputs)
        assert text(pieces.take(moment, inputs)) == text(outputs)
        want = []
        for row, bucket in zip(stream.record.to_pylist(), stream.buckets.tolist(), strict=True):
            met = table.get(row["currency"]) if row["currency"] is not None else None
            if met is not None or how == "left":
                want.append((bucket, {**row, "rate": met and met["rate"]}))
        want.sort(key=lambda pair: pair[0])
        out = outputs.get("out")
        assert (out.record.to_pylist() if out else []) == [row for _, row in want]
        assert (out.buckets.tolist() if out else []) == [bucket for bucket, _ in want]
        pieces.shake(data)


@pytest.mark.parametrize("how", ["inner", "left"])
@given(plan=epochs, data=st.data())
def test_as_of_a_rows_time(how: str, plan: Plan, data: st.DataObject) -> None:
    wire = version_schema(RATES)

    def make() -> AsOfLookup:
        keys = (["name"], ["currency"])
        return AsOfLookup(keys, (wire, ORDERS), ORDERS, "at", HISTORY_US, how, replicated=True)

    one, pieces, watermark = make(), Pieces(make, TOLD), 0
    for epoch, ((rows, _, step), stream) in enumerate(zip(plan, fed(plan), strict=True), 1):
        versions = [{**row, "__at": watermark + i, "__gone": row["goes"]} for i, row in enumerate(rows)]
        inputs = [(0, told(versions, wire)), (1, stream)]
        announced = FOREVER if epoch == len(plan) else watermark + step
        moment = Moment(epoch, epoch, watermark, announced)
        assert text(pieces.take(moment, inputs)) == text(one.take(moment, inputs))
        watermark += step
        pieces.shake(data)
