"""Tables by event time, and what was valid when, against plain Python; neither restarts nor partitioning show."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from operators.as_of import AsOfLookup
from operators.history import HistoryTable, version_schema
from seep.model.arrow import ArrowBatch
from seep.model.epoch import Moment
from seep.model.ids import BEGINNING, FOREVER
from seep.model.schema import TIMESTAMP
from tests.properties.test_tables import Row, Run, Told, batch_of, routed

RATES = pa.schema({"name": pa.string(), "rate": pa.int64(), "at": TIMESTAMP})
ORDERS = pa.schema({"currency": pa.string(), "at": TIMESTAMP, "n": pa.int64()})
HISTORY_US = 6

names = st.sampled_from(["a", "b", "a longer name", None])
rates = st.lists(
    st.fixed_dictionaries(
        {"name": names, "rate": st.sampled_from([0, 1, 2, 3, None]), "at": st.none() | st.integers(-5, 30)}
    ),
    max_size=5,
)
"""A rate of zero deletes."""
orders = st.lists(
    st.fixed_dictionaries({"currency": names, "at": st.none() | st.integers(-5, 30), "n": st.integers(0, 9)}),
    max_size=5,
)
epochs = st.lists(st.tuples(rates, orders, st.integers(0, 8)), min_size=1, max_size=7)
Plan = list[tuple[list[Row], list[Row], int]]


class Known:
    """Versions as a reader of the contract would keep them."""

    def __init__(self) -> None:
        self.versions: dict[Any, dict[int, Row]] = {}

    def add(self, row: Row) -> None:
        self.versions.setdefault(row["name"], {})[row["at"]] = row

    def at(self, key: Any, time: int) -> Row | None:
        found = [row for at, row in sorted(self.versions.get(key, {}).items()) if at <= time]
        return found[-1] if found and found[-1]["rate"] != 0 else None

    def forget(self, limit: int) -> None:
        for key, versions in self.versions.items():
            old = sorted(at for at in versions if at <= limit)
            if old and versions[old[-1]]["rate"] != 0:
                old.pop()
            self.versions[key] = {at: row for at, row in versions.items() if at not in old}


def rows_of(batch: ArrowBatch | None) -> list[Row]:
    if batch is None:
        return []
    record = batch.record
    columns = {
        name: (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        for name, column in zip(record.schema.names, record.columns, strict=True)
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def pipeline(run: Run, plan: Plan, how: str) -> None:
    wire = version_schema(RATES)
    known, newest, told, waiting = Known(), dict[Any, Row](), Told(["name"]), list[Row]()
    watermark, before = -3, BEGINNING
    for epoch, (changed, fed, step) in enumerate(plan, 1):
        watermark += step
        announced = FOREVER if epoch == len(plan) else watermark
        moment = Moment(epoch, epoch, before, announced)
        versions = batch_of(changed, RATES, ["name"])
        table = run.take(
            "table",
            lambda: HistoryTable(["name"], RATES, RATES, "at", HISTORY_US, pl.col("rate") == 0),
            moment,
            versions,
        )
        stream = batch_of(fed, ORDERS, ["currency"])
        outputs = run.take(
            "join",
            lambda: AsOfLookup((["name"], ["currency"]), (wire, ORDERS), ORDERS, "at", HISTORY_US, how),
            moment,
            routed(table.get("versions"), wire, ["name"]),
            stream,
        )
        # The Table: the latest by event time.
        for row in rows_of(versions):
            if row["at"] is not None:
                known.add(row)
                if row["name"] not in newest or newest[row["name"]]["at"] <= row["at"]:
                    newest[row["name"]] = row
        if "out" in table:
            record = table["out"].record
            plain = record.set_column(2, "at", record.column("at").cast(pa.int64()))
            told.hear(ArrowBatch(plain, table["out"].buckets))
        told.assert_is(row for row in newest.values() if row["rate"] != 0)
        newest = {k: row for k, row in newest.items() if row["rate"] != 0 or row["at"] > announced - HISTORY_US}
        # The join.
        late = [r for r in rows_of(stream) if r["at"] is not None and r["at"] < before - HISTORY_US]
        broken = [row for row in rows_of(stream) if row["at"] is None]
        assert sorted(map(repr, rows_of(outputs.get("late")))) == sorted(map(repr, late))
        assert len(rows_of(outputs.get("errors"))) == len(broken)
        waiting += [row for row in rows_of(stream) if row not in late and row not in broken]
        wanted = []
        for row in [row for row in waiting if row["at"] < announced]:
            found = None if row["currency"] is None else known.at(row["currency"], row["at"])
            if found or how == "left":
                wanted.append({**row, "rate": found and found["rate"], "at_right": found and found["at"]})
        waiting = [row for row in waiting if row["at"] >= announced]
        ours = rows_of(outputs.get("out"))
        order = ("currency", "at", "n", "rate", "at_right")
        assert sorted(repr([r[c] for c in order]) for r in ours) == sorted(repr([r[c] for c in order]) for r in wanted)
        for name in {row["currency"] for row in ours}:
            mine = [row["n"] for row in ours if row["currency"] == name]
            theirs = sorted((row for row in wanted if row["currency"] == name), key=lambda row: row["at"])
            assert mine == [row["n"] for row in theirs], "a key's rows by time, then arrival"
        known.forget(announced - HISTORY_US)
        before = announced


@pytest.mark.parametrize("how", ["inner", "left"])
@settings(max_examples=25, phases=[Phase.explicit, Phase.generate, Phase.shrink])
@given(plan=epochs, data=st.data())
def test_rows_meet_the_version_of_their_time(how: str, plan: Plan, data: st.DataObject) -> None:
    calm, shaken = Run(), Run(data)
    pipeline(calm, plan, how)
    pipeline(shaken, plan, how)
    assert shaken.log == calm.log
