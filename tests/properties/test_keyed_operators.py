"""Keyed operators against plain Python: their results, and that neither restarts nor partitioning show."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.aggregate import Aggregate
from operators.aggregates import count, maximum, mean, minimum, total
from operators.table import LatestTable
from operators.window import TumblingWindow
from seep.errors import Misuse
from seep.model.arrow import ArrowBatch, ArrowState, compact
from seep.model.epoch import Moment
from seep.model.ids import BEGINNING, EVERYTHING, FOREVER, KeyRange
from seep.model.keyspace import bucket_of_values, buckets_of
from seep.model.schema import TIMESTAMP
from seep.partition.contract import Head

SCHEMA = pa.schema(
    {
        "key": pa.string(),
        "group": pa.int32(),
        "at": TIMESTAMP,
        "number": pa.int64(),
        "ratio": pa.float64(),
        "text": pa.string(),
    }
)
KEYS = ["key", "group"]
SIZE_US = 10
Rows = list[dict[str, Any]]

rows = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["a", "b", "longer than eight bytes", "longer than eight bytes too", "", None]),
        "group": st.sampled_from([1, 2, None]),
        "at": st.one_of(st.none(), st.integers(-30, 60)),
        "number": st.one_of(st.none(), st.sampled_from([0, 1, -5, 2**62, -(2**62)])),
        "ratio": st.one_of(st.none(), st.sampled_from([0.1, 0.2, -0.0, 1e16, math.nan, math.inf])),
        "text": st.one_of(st.none(), st.sampled_from(["", "x", "xy", "é", "zebra"])),
    }
)
epochs = st.lists(st.tuples(st.lists(rows, max_size=12), st.integers(0, 15)), min_size=1, max_size=7)
AGGREGATES = {
    "n": count(),
    "numbers": count("number"),
    "sum": total("number", wide=True),
    "ratios": total("ratio"),
    "average": mean("number"),
    "low": minimum("ratio"),
    "high": maximum("ratio"),
    "first_text": minimum("text"),
    "last_text": maximum("text"),
    "double": maximum(pl.col("number") // 2),
}

FACTORIES: dict[str, Callable[[], Head]] = {
    "aggregate": lambda: Aggregate(KEYS, SCHEMA, AGGREGATES),
    "aggregate at the end": lambda: Aggregate(KEYS, SCHEMA, AGGREGATES, "close"),
    "window": lambda: TumblingWindow(KEYS, SCHEMA, "at", SIZE_US, 3, ("start", "end"), AGGREGATES),
    "window updates": lambda: TumblingWindow(KEYS, SCHEMA, "at", SIZE_US, 3, ("start", "end"), AGGREGATES, "update"),
    "arrival": lambda: TumblingWindow(KEYS, SCHEMA, None, SIZE_US, 0, ("start", "end"), AGGREGATES, by_arrival=True),
    "table": lambda: LatestTable(KEYS, SCHEMA, pl.col("text") == "zebra"),
}


def batch_of(content: Rows) -> ArrowBatch:
    record = pa.RecordBatch.from_pylist(content, schema=SCHEMA)
    return ArrowBatch(record, buckets_of(record, KEYS))


def moments(plan: Sequence[tuple[Rows, int]]) -> Iterator[tuple[Moment, ArrowBatch]]:
    """Each epoch's moment and rows; the last epoch ends the input."""
    watermark, before = -20, BEGINNING
    for epoch, (content, step) in enumerate(plan, 1):
        watermark += step
        announced = FOREVER if epoch == len(plan) else watermark
        yield Moment(epoch, epoch * 7, before, announced), batch_of(content)
        before = announced


def canonical(outputs: Sequence[dict[str, ArrowBatch]]) -> dict[str, tuple[list[str], list[int]]]:
    """Outputs of neighbouring partitions put together; rows as text, so that NaN equals NaN."""
    result = {}
    for role in ("out", "late", "errors"):
        parts = [o[role] for o in outputs if role in o]
        if parts:
            whole = ArrowBatch.concat(parts)
            assert (np.diff(whole.buckets.astype(int)) >= 0).all(), f"{role} is not ordered by bucket"
            result[role] = ([repr(row) for row in whole.record.to_pylist()], whole.buckets.tolist())
    return result


def run(make: Callable[[], Head], plan: Sequence[tuple[Rows, int]]) -> list[dict[str, tuple[list[str], list[int]]]]:
    head = make()
    return [canonical([head.take(moment, [(0, batch)])]) for moment, batch in moments(plan)]


@pytest.mark.parametrize("name", FACTORIES)
@given(plan=epochs, data=st.data())
def test_restarts_do_not_show(name: str, plan: list[tuple[Rows, int]], data: st.DataObject) -> None:
    make = FACTORIES[name]
    expected = run(make, plan)
    head, chain, counters = make(), list[ArrowState](), None
    for (moment, batch), want in zip(moments(plan), expected, strict=True):
        action = data.draw(st.sampled_from(["go on", "increment", "full", "restart", "restart compacted"]))
        if action in ("increment", "full"):
            full = action == "full" or not chain
            chain = [head.snapshot(True)] if full else [*chain, head.snapshot(False)]
        elif action.startswith("restart"):
            chain = [*chain, head.snapshot(not chain)]
            counters = head.statistics()
            head = make()
            for state in [compact(chain)] if action.endswith("compacted") else chain:
                head.load(state)
            chain = []
            restored = head.statistics()
            assert {k: v for k, v in restored.items() if k != "state_bytes"} == {
                k: v for k, v in counters.items() if k != "state_bytes"
            }
        assert canonical([head.take(moment, [(0, batch)])]) == want


@pytest.mark.parametrize("name", FACTORIES)
@given(plan=epochs, cuts=st.lists(st.integers(1, 4095), min_size=1, max_size=3, unique=True), data=st.data())
def test_partitioning_does_not_show(
    name: str, plan: list[tuple[Rows, int]], cuts: list[int], data: st.DataObject
) -> None:
    make = FACTORIES[name]
    expected = run(make, plan)
    ranges: list[KeyRange] = [EVERYTHING]
    heads = [make()]
    edges = [0, *sorted(cuts), 4096]
    fine = [KeyRange(a, b) for a, b in pairwise(edges)]
    for (moment, batch), want in zip(moments(plan), expected, strict=True):
        if data.draw(st.booleans()):
            states = [head.snapshot(True) for head in heads]
            ranges = fine if ranges == [EVERYTHING] else [EVERYTHING]
            heads = [make() for _ in ranges]
            for head, key_range in zip(heads, ranges, strict=True):
                for state in states:
                    head.load(state.part(key_range))
        outputs = [h.take(moment, [(0, batch.part(r))]) for h, r in zip(heads, ranges, strict=True)]
        assert canonical(outputs) == want


# --- against plain Python ----------------------------------------------------------------------------------------


def aggregated(content: Rows) -> dict[str, Any]:
    numbers = [r["number"] for r in content if r["number"] is not None]
    ratios = [r["ratio"] for r in content if r["ratio"] is not None]
    texts = [r["text"] for r in content if r["text"] is not None]
    running = 0.0
    for ratio in ratios:
        running += ratio
    real = [ratio for ratio in ratios if not math.isnan(ratio)]
    nans = len(real) < len(ratios)
    return {
        "n": len(content),
        "numbers": len(numbers),
        "sum": sum(numbers) if numbers else None,
        "ratios": running if ratios else None,
        "average": sum(numbers) / len(numbers) if numbers else None,
        "low": min(real) + 0.0 if real else (math.nan if nans else None),
        "high": math.nan if nans else (max(real) + 0.0 if real else None),  # of two zeros it is the one without a sign
        "first_text": min(texts, key=str.encode) if texts else None,
        "last_text": max(texts, key=str.encode) if texts else None,
        "double": max(n // 2 for n in numbers) if numbers else None,
    }


def key_of(row: dict[str, Any]) -> tuple[Any, Any]:
    return row["key"], row["group"]


def shown(value: Any) -> str:
    """NaN as itself, decimals as integers: comparable across Python and Arrow."""
    if isinstance(value, float):
        return repr(value)
    return repr(None if value is None else int(value)) if not isinstance(value, str) else repr(value)


def line(row: dict[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(shown(row[name]) for name in names)


@given(plan=epochs)
def test_aggregate_is_a_fold(plan: list[tuple[Rows, int]]) -> None:
    head, seen, table = FACTORIES["aggregate"](), {}, {}
    for moment, batch in moments(plan):
        content = batch.record.to_pylist()
        outputs = head.take(moment, [(0, batch)])
        changed = outputs["out"].record.to_pylist() if "out" in outputs else []
        assert len({key_of(r) for r in changed}) == len(changed), "more than one change of a key"
        for row in content:
            seen.setdefault(key_of(row), []).append(row)
        for row in changed:
            change, was = row.pop("change"), table.get(key_of(row))
            assert (change == "insert") == (was is None)
            assert was is None or line(was, list(AGGREGATES)) != line(row, list(AGGREGATES)), "nothing changed"
            table[key_of(row)] = row
        assert {k: line(r, list(AGGREGATES)) for k, r in table.items()} == {
            k: line(aggregated(rs), list(AGGREGATES)) for k, rs in seen.items()
        }


@given(plan=epochs)
def test_windows_close_once_with_every_row_in_time(plan: list[tuple[Rows, int]]) -> None:
    head, open_windows = FACTORIES["window"](), dict[Any, Rows]()
    for moment, batch in moments(plan):
        late, broken = [], 0
        for row in batch.record.to_pylist():
            if row["at"] is None:
                broken += 1
                continue
            time = micros(row["at"])
            start = (time - 3) // SIZE_US * SIZE_US + 3
            if start + SIZE_US <= moment.watermark_before:
                late.append(row)
            else:
                open_windows.setdefault((key_of(row), start), []).append(row)
        due = [w for w in open_windows if w[1] + SIZE_US <= moment.watermark]
        want = {w: line(aggregated(open_windows.pop(w)), list(AGGREGATES)) for w in due}
        outputs = head.take(moment, [(0, batch)])
        out = outputs["out"].record.to_pylist() if "out" in outputs else []
        assert {(key_of(r), micros(r["start"])): line(r, list(AGGREGATES)) for r in out} == want
        assert len(out) == len(want)
        assert sorted(map(repr, late)) == sorted(
            map(repr, outputs["late"].record.to_pylist() if "late" in outputs else [])
        )
        assert broken == (outputs["errors"].rows if "errors" in outputs else 0)
        ends = [(bucket_of_values(key_of(r), [pa.string(), pa.int32()]), r["end"]) for r in out]
        assert ends == sorted(ends)


def micros(at: Any) -> int:
    return int(pa.scalar(at, TIMESTAMP).value)


@given(plan=epochs)
def test_table_keeps_the_latest_row(plan: list[tuple[Rows, int]]) -> None:
    head, latest, table = FACTORIES["table"](), dict[Any, str](), dict[Any, str]()
    for moment, batch in moments(plan):
        for row in batch.record.to_pylist():
            if row["text"] == "zebra":
                latest.pop(key_of(row), None)
            else:
                latest[key_of(row)] = repr(row)
        outputs = head.take(moment, [(0, batch)])
        changed = outputs["out"].record.to_pylist() if "out" in outputs else []
        assert len({key_of(r) for r in changed}) == len(changed)
        for row in changed:
            change, key = row.pop("change"), key_of(row)
            if change == "delete":
                assert table.pop(key) == repr(row), "a delete carries the old values"
            else:
                assert (change == "insert") == (key not in table)
                assert table.get(key) != repr(row)
                table[key] = repr(row)
        assert table == latest


def test_an_overflow_names_column_and_key() -> None:
    head = Aggregate(["key"], SCHEMA, {"sum": total("number")})
    big = {"key": "a", "group": 1, "at": None, "number": 2**62, "ratio": None, "text": None}
    with pytest.raises(Misuse, match=r"sum = total\('number'\) does not fit int64 for key key='a'; use wide=True"):
        head.take(Moment(1, 0, 0, 0), [(0, batch_of([big, big]))])


def test_an_increment_holds_only_what_changed() -> None:
    head = FACTORIES["aggregate"]()
    many = [{"key": str(i), "group": 1, "at": None, "number": i, "ratio": None, "text": None} for i in range(1000)]
    head.take(Moment(1, 0, 0, 0), [(0, batch_of(many))])
    assert head.snapshot(True).tables["groups"].num_rows == 1000
    head.take(Moment(2, 0, 0, 0), [(0, batch_of(many[:3]))])
    assert head.snapshot(False).tables["groups"].num_rows == 3
    assert head.snapshot(False).tables["groups"].num_rows == 0
