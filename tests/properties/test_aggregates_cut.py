"""Every aggregate that keeps values, against plain Python, and that neither restarts, partitioning nor merging show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.aggregate import Aggregate
from operators.aggregates import (
    Spec,
    count,
    distinct,
    first,
    last,
    mean,
    median,
    quantile,
    rows,
    top,
    total,
    variance,
)
from operators.combine import Combine, Combiner, why_not
from operators.custom import Aggregate as Own
from operators.custom import BatchAggregate
from operators.memory import Memory
from operators.window import TumblingWindow
from seep.model.arrow import ArrowBatch, ArrowState, compact
from seep.model.epoch import Moment
from seep.model.ids import BEGINNING, EVERYTHING, FOREVER, KeyRange
from seep.model.keyspace import buckets_of
from seep.model.schema import TIMESTAMP

SCHEMA = pa.schema(
    {
        "key": pa.string(),
        "at": TIMESTAMP,
        "number": pa.int64(),
        "ratio": pa.float64(),
        "money": pa.decimal128(12, 2),
        "text": pa.string(),
        "flag": pa.bool_(),
        "tags": pa.list_(pa.int64()),
    }
)
Row = dict[str, Any]


class Joined(Own):
    """Order matters, and the state is no number."""

    def zero(self) -> Any:
        return []

    def add(self, state: Any, value: str) -> Any:
        return [*state, value]

    def merge(self, state: Any, other: Any) -> Any:
        return state + other

    def result(self, state: Any) -> str:
        return "|".join(state)


class Weighted(BatchAggregate):
    zero = {"sum": 0, "most": -1.0, "any": False}  # noqa: RUF012

    def add(self, state: Any, groups: Any, values: Any) -> None:
        numbers = values.to_numpy() % 1000
        np.add.at(state["sum"], groups, numbers)
        np.maximum.at(state["most"], groups, numbers)
        np.logical_or.at(state["any"], groups, numbers == 7)

    def merge(self, state: Any, groups: Any, other: Any) -> None:
        np.add.at(state["sum"], groups, other["sum"])
        np.maximum.at(state["most"], groups, other["most"])
        np.logical_or.at(state["any"], groups, other["any"])

    def result(self, state: Any) -> float:
        answer: float = state["sum"] * 2 + state["most"] + state["any"]
        return answer


AGGREGATES: dict[str, Spec] = {
    "middle": median("number"),
    "ninth": quantile("ratio", 0.9),
    "coins": median("money"),
    "spread": variance("number"),
    "texts": distinct("text"),
    "ratios": distinct("ratio"),
    "flags": distinct("flag"),
    "doubled": distinct(pl.col("number") // 2),
    "first_text": first("text"),
    "last_text": last("text"),
    "first_tags": first("tags"),
    "best": top(2, by="ratio"),
    "least": top(3, by=["flag", pl.col("number") * -1], descending=False),
    "all": rows(),
    "about": distinct("number", approx=True),
    "roughly": quantile("ratio", 0.3, approx=True),
    "joined": Joined("text"),
    "weighted": Weighted("number"),
}
ROUNDED = {"wobble": variance("ratio"), "pennies": variance("money"), "sum": total("ratio"), "average": mean("ratio")}

one_row = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["a", "b", "longer than eight bytes", None]),
        "at": st.integers(0, 12),
        "number": st.one_of(st.none(), st.sampled_from([0, 7, -5, 2**62, -(2**63)]), st.integers(-9, 9)),
        "ratio": st.one_of(st.none(), st.sampled_from([0.1, 0.0, -0.0, -2.5, 1e16, math.nan, math.inf, -math.inf])),
        "money": st.one_of(st.none(), st.sampled_from([Decimal("0.10"), Decimal("-7.25"), Decimal("99999.99")])),
        "text": st.one_of(st.none(), st.sampled_from(["", "x", "xy", "é", "a text beyond eight bytes"])),
        "flag": st.sampled_from([True, False, None]),
        "tags": st.one_of(st.none(), st.lists(st.integers(0, 3), max_size=2)),
    }
)
epochs = st.lists(st.lists(one_row, max_size=9), min_size=1, max_size=5)
few = settings(max_examples=15)


def batch_of(content: Sequence[Row]) -> ArrowBatch:
    record = pa.RecordBatch.from_pylist(list(content), schema=SCHEMA)
    return ArrowBatch(record, buckets_of(record, ["key"]))


def shown(value: Any) -> str:
    return repr(value)


# --- plain Python ------------------------------------------------------------------------------------------------


def greatness(value: Any) -> tuple[bool, bool, Any]:
    """Null above NaN above every number."""
    nan = isinstance(value, float) and math.isnan(value)
    return value is None, nan, 0 if value is None or nan else value.encode() if isinstance(value, str) else value


def at_share(values: Sequence[Any], share: float) -> float | None:
    if not values:
        return None
    ordered = sorted((float(value) + 0.0 for value in values), key=greatness)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    return low if place == below or low == high else low + (high - low) * (place - below)


def sample_variance(values: Sequence[int]) -> float | None:
    if len(values) < 2:
        return None
    average = Fraction(sum(values), len(values))
    return float(sum((value - average) ** 2 for value in values) / (len(values) - 1))


def different(values: Sequence[Any]) -> int:
    return len({"nan" if isinstance(v, float) and math.isnan(v) else v for v in values})


def by_time(content: Sequence[Row], column: str) -> list[Any]:
    return [row[column] for row in sorted(content, key=lambda row: row["at"]) if row[column] is not None]


def best_rows(content: Sequence[Row], limit: int, by: Sequence[Any], descending: bool, rest: Sequence[str]) -> Any:
    usable = [row for row in content if all(read(row) is not None for read in by)]
    usable.sort(key=lambda row: [greatness(row[name]) for name in rest])
    usable.sort(key=lambda row: [greatness(read(row)) for read in by], reverse=descending)
    return usable[:limit] or None


def expected(content: Sequence[Row]) -> dict[str, Any]:
    def values(name: str) -> list[Any]:
        return [row[name] for row in content if row[name] is not None]

    remaining = [name for name in SCHEMA.names if name != "tags"]
    numbers, texts = values("number"), values("text")
    small = [number % 1000 for number in numbers]
    ordered = by_time(content, "text")
    return {
        "middle": at_share(numbers, 0.5),
        "ninth": at_share(values("ratio"), 0.9),
        "coins": at_share(values("money"), 0.5),
        "spread": sample_variance(numbers),
        "texts": different(texts),
        "ratios": different(values("ratio")),
        "flags": different(values("flag")),
        "doubled": different([number // 2 for number in numbers]),
        "first_text": ordered[0] if ordered else None,
        "last_text": ordered[-1] if ordered else None,
        "first_tags": next(iter(by_time(content, "tags")), None),
        "best": best_rows(content, 2, [lambda row: row["ratio"]], True, [n for n in remaining if n != "ratio"]),
        "least": best_rows(
            content,
            3,
            [lambda row: row["flag"], lambda row: wrapped(row["number"])],
            False,
            [n for n in remaining if n != "flag"],
        ),
        "all": sorted(content, key=lambda row: row["at"]),
        "joined": "|".join(texts) if texts else None,
        "weighted": float(2 * sum(small) + max(small) + (7 in small)) if small else None,
    }


def wrapped(number: int | None) -> int | None:
    """Times -1 in 64 bits, as Polars has it."""
    return None if number is None else (-number + 2**63) % 2**64 - 2**63


def checked(row: Row, content: Sequence[Row]) -> None:
    for name, value in expected(content).items():
        assert shown(row[name]) == shown(value), name
    numbers = {r["number"] for r in content if r["number"] is not None}
    assert row["about"] == len(numbers), "so few are counted exactly"
    exact = at_share([r["ratio"] for r in content if r["ratio"] is not None], 0.3)
    if exact is None or not math.isfinite(exact):
        assert row["roughly"] is None if exact is None else not math.isfinite(row["roughly"])


def timed(row: Row) -> Row:
    plain = {**row, "at": pa.scalar(row["at"], TIMESTAMP).as_py()}
    return {name: plain[name] for name in SCHEMA.names}


@few
@given(plan=epochs, data=st.data())
def test_results_are_those_of_plain_python_however_the_flow_is_cut(plan: list[list[Row]], data: st.DataObject) -> None:
    def make() -> Aggregate:
        return Aggregate(["key"], SCHEMA, AGGREGATES, "update", time_column="at")

    whole, heads, ranges = make(), [make()], [EVERYTHING]
    seen: dict[Any, list[Row]] = {}
    chain: list[ArrowState] = []
    for epoch, content in enumerate(plan, 1):
        moment, batch = Moment(epoch, epoch, BEGINNING, BEGINNING), batch_of(content)
        action = data.draw(st.sampled_from(["go on", "snapshot", "restart", "compacted", "split"]))
        if action == "split":
            states, chain = [head.snapshot(True) for head in heads], []
            ranges = [EVERYTHING] if len(ranges) > 1 else [KeyRange(0, 1500), KeyRange(1500, 4096)]
            heads = [make() for _ in ranges]
            for head, part in zip(heads, ranges, strict=True):
                for state in states:
                    head.load(state.part(part))
        elif action != "go on" and len(heads) == 1:
            chain.append(heads[0].snapshot(not chain))
            if action in ("restart", "compacted"):
                heads = [make()]
                for state in [compact(chain)] if action == "compacted" else chain:
                    heads[0].load(state)
                chain = []
        want = whole.take(moment, [(0, batch)])
        found = [head.take(moment, [(0, batch.part(part))]) for head, part in zip(heads, ranges, strict=True)]
        parts = [output["out"].record for output in found if "out" in output]
        assert bool(parts) == ("out" in want)
        if parts:
            got = pa.concat_batches(parts)
            assert [shown(row) for row in got.to_pylist()] == [shown(row) for row in want["out"].record.to_pylist()]
        for row in content:
            seen.setdefault(row["key"], []).append(timed(row))
    results = {row["key"]: row for row in whole.content().to_pylist()}
    assert results.keys() == seen.keys()
    for key, content in seen.items():
        checked(results[key], content)


@few
@given(plan=epochs)
def test_windows_give_the_same(plan: list[list[Row]]) -> None:
    head = TumblingWindow(["key"], SCHEMA, "at", 5, 0, ("start", "end"), AGGREGATES)
    out: list[Row] = []
    for epoch, content in enumerate(plan, 1):
        moment = Moment(epoch, epoch, BEGINNING, FOREVER if epoch == len(plan) else BEGINNING)
        output = head.take(moment, [(0, batch_of(content))])
        out += output["out"].record.to_pylist() if "out" in output else []
        state = head.snapshot(True)
        head = TumblingWindow(["key"], SCHEMA, "at", 5, 0, ("start", "end"), AGGREGATES)
        head.load(state)
    windows: dict[Any, list[Row]] = {}
    for row in (row for content in plan for row in content):
        start = pa.scalar(row["at"] // 5 * 5, TIMESTAMP).as_py()
        windows.setdefault((row["key"], start), []).append(timed(row))
    assert len(out) == len(windows)
    for row in out:
        checked(row, windows[row["key"], row["start"]])


# --- merging, taking back ----------------------------------------------------------------------------------------


def folded(specs: dict[str, Spec], slots: Sequence[int], content: Sequence[Row]) -> Memory:
    memory = Memory(SCHEMA, specs, "at")
    memory.grow(16)
    memory.clear(np.arange(16))
    memory.fold(np.array(slots, np.int64), batch_of(content).record)
    return memory


def results(memory: Memory, slots: Any) -> dict[str, list[Any]]:
    return {name: accumulator.result(slots).to_pylist() for name, accumulator in memory.accumulators.items()}


@few
@given(content=st.lists(one_row, max_size=20), data=st.data())
def test_panes_merge_to_what_one_fold_gives(content: list[Row], data: st.DataObject) -> None:
    """Panes 0..3 of earlier and later rows go into slots 4 and 5; one belongs nowhere."""
    specs = {**AGGREGATES, **ROUNDED}
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), min_size=3, max_size=3)))
    pane_of = [sum(at >= cut for cut in cuts) for at in range(len(content))]
    target = np.array(data.draw(st.permutations([4, 4, 5, -1])), np.int64)
    panes = folded(specs, pane_of, content)
    merged = folded(specs, [], [])
    for name, accumulator in merged.accumulators.items():
        accumulator.merge(target, panes.accumulators[name].save(np.arange(4)))
    direct = results(folded(specs, [int(target[pane]) for pane in pane_of], content), np.array([4, 5]))
    found = results(merged, np.array([4, 5]))
    for name in AGGREGATES:
        assert shown(found[name]) == shown(direct[name]), name
    for name in ROUNDED:
        for value, want in zip(found[name], direct[name], strict=True):
            if value is None or want is None or not math.isfinite(want):
                assert (value is None) == (want is None)
            else:
                assert value == pytest.approx(want, rel=1e-9, abs=1e-9)


def unordered(memory: Memory) -> Any:
    """Of equal rows the earliest is taken back, whichever was meant."""
    found = results(memory, np.arange(3))
    lists = [sorted(map(shown, entries or [])) for entries in found.pop("all")]
    return shown(found), lists


BACK = {
    "n": count(),
    "values": count("money"),
    "sum": total("number", wide=True),
    "money": total("money"),
    "average": mean("number"),
    "coins": mean("money"),
    "spread": variance("number"),
    "middle": median("ratio"),
    "roughly": quantile("ratio", 0.5, approx=True),
    "texts": distinct("text"),
    "ratios": distinct("ratio"),
    "all": rows(),
}


@few
@given(content=st.lists(st.tuples(one_row, st.integers(0, 2), st.booleans()), max_size=25), asked=st.booleans())
def test_rows_taken_back_leave_no_trace(content: list[tuple[Row, int, bool]], asked: bool) -> None:
    memory = folded(BACK, [slot for _, slot, _ in content], [row for row, _, _ in content])
    assert all(accumulator.subtractable for accumulator in memory.accumulators.values())
    if asked:
        results(memory, np.arange(3))  # sorts the values
    gone = [(row, slot) for row, slot, stays in content if not stays]
    memory.subtract(np.array([slot for _, slot in gone], np.int64), batch_of([row for row, _ in gone]).record)
    left = [(row, slot) for row, slot, stays in content if stays]
    want = folded(BACK, [slot for _, slot in left], [row for row, _ in left])
    assert unordered(memory) == unordered(want)
    again = folded(BACK, [], [])
    for name, accumulator in memory.accumulators.items():
        again.accumulators[name].restore(np.arange(3), accumulator.save(np.arange(3)))
    assert unordered(again) == unordered(want)


# --- folded by the senders ---------------------------------------------------------------------------------------

APART = {
    "n": count(),
    "spread": variance("number"),
    "about": distinct("text", approx=True),
    "roughly": quantile("ratio", 0.5, approx=True),
    "first_text": first("text"),
    "last_tags": last("tags"),
}


@few
@given(plan=epochs, cuts=st.lists(st.integers(0, 9), min_size=2, max_size=2))
def test_folding_at_senders_does_not_show(plan: list[list[Row]], cuts: list[int]) -> None:
    assert why_not(SCHEMA, APART) == ""
    combine = Combine(("key",), SCHEMA, APART, order_column="at")
    plain = Aggregate(["key"], SCHEMA, APART, time_column="at")
    combined = Aggregate(["key"], SCHEMA, APART, combined=combine, time_column="at")
    senders = [Combiner(combine) for _ in range(3)]
    low, high = sorted(cuts)
    for epoch, content in enumerate(plan, 1):
        moment = Moment(epoch, epoch, BEGINNING, BEGINNING)
        pieces = [content[:low], content[low:high], content[high:]]
        parts = [s.fold(batch_of(piece).record) for s, piece in zip(senders, pieces, strict=True) if piece]
        want = plain.take(moment, [(0, batch_of(content))])
        found = combined.take(moment, [(0, part) for part in parts])
        assert [shown(o["out"].record.to_pylist()) for o in (want, found) if "out" in o] in (
            [],
            2 * [shown(want["out"].record.to_pylist())] if "out" in want else [],
        )
