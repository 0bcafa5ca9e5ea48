"""`top`, `dedupe`, `reduce` and columnar operators against plain Python, and that neither restarts nor partitioning
show."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import cmp_to_key
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.batch_operator import BatchApply, BatchContext, BatchOperator
from operators.dedupe import Dedupe
from operators.reduce import Reduce
from operators.table_state import TableState
from operators.top import Top
from operators.window_top import WindowTop
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
        "start": TIMESTAMP,
        "end": TIMESTAMP,
        "number": pa.int64(),
        "ratio": pa.float64(),
        "text": pa.string(),
        "tags": pa.list_(pa.int64()),
    }
)
KEYS = ["key", "group"]
TTL_MS = 15
Rows = list[dict[str, Any]]
Plan = list[tuple[Rows, int]]
FEWER = settings(max_examples=settings().max_examples // 3)
"""There are many operators here, and each example runs several times."""

rows = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["a", "b", "longer than eight bytes", "longer than eight bytes too", "", None]),
        "group": st.sampled_from([1, None]),
        "start": st.sampled_from([0, 10]),
        "end": st.sampled_from([20, 30]),
        "number": st.one_of(st.none(), st.sampled_from([0, 1, -5, 2**63 - 1, -(2**63)])),
        "ratio": st.one_of(st.none(), st.sampled_from([0.5, 0.0, -0.0, -1e16, math.nan, math.inf, -math.inf])),
        "text": st.one_of(st.none(), st.sampled_from(["", "x", "xy", "é", "zebra"])),
        "tags": st.sampled_from([None, [], [1], [1, None]]),
    }
)
epochs = st.lists(st.tuples(st.lists(rows, max_size=12), st.integers(0, 12)), min_size=1, max_size=6)


def longest(folded: Any, row: Any) -> Any:
    """Refuses zebras; the row with the longer text, and how many there were."""
    if row.text == "zebra":
        raise ValueError("a zebra")
    better = row if len(row.text or "") > len(folded.text or "") else folded
    return {**better.as_dict(), "number": (folded.number or 0) + 1}


STATISTICS = pa.schema({"key": pa.string(), "group": pa.int32(), "rows": pa.int64(), "text": pa.string()})


class Statistics(BatchOperator):
    """Rows and last text of each key; a text "x" forgets it, a zebra fails the key."""

    known = TableState({"rows": int, "text": str | None})

    def on_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> None:
        ctx.emit(batch.select(["number"]), to="numbers")
        last: dict[Any, dict[str, Any]] = {}
        for row in reversed(batch.to_pylist()):
            found = last.setdefault(group_of(row, KEYS), {**{k: row[k] for k in KEYS}, "rows": 0, "text": row["text"]})
            found["rows"] += 1
        new = pa.RecordBatch.from_pylist(list(last.values()), schema=STATISTICS)
        before = self.known.get(new)
        rows = [
            {**now, "rows": now["rows"] + (old["rows"] or 0)}
            for now, old in zip(new.to_pylist(), before.to_pylist(), strict=True)
        ]
        result = pa.RecordBatch.from_pylist(rows, schema=STATISTICS)
        self.known.put(result)
        self.known.delete(pa.RecordBatch.from_pylist([r for r in rows if r["text"] == "x"], schema=STATISTICS))
        if "zebra" in batch.column("text").to_pylist():
            raise ValueError("a zebra")
        ctx.emit(result)


class Recent(Statistics):
    """The same, of late."""

    known = TableState({"rows": int, "text": str | None}, ttl=timedelta(milliseconds=TTL_MS))


OUTPUTS = {"out": STATISTICS, "numbers": pa.schema({"number": pa.int64()})}

FACTORIES: dict[str, Callable[[], Head]] = {
    "top": lambda: Top(KEYS, SCHEMA, 2, ["number"]),
    "top ascending": lambda: Top(KEYS, SCHEMA, 3, ["ratio", "text"], descending=False),
    "top shared": lambda: Top(KEYS, SCHEMA, 2, ["ratio"], ties="rank"),
    "top of all": lambda: Top([], SCHEMA, 3, [pl.col("number") // 2, "text"]),
    "window top": lambda: WindowTop(KEYS, SCHEMA, ["end", "start"], 2, ["text"]),
    "window top shared": lambda: WindowTop(["key"], SCHEMA, ["end"], 1, ["number"], descending=False, ties="rank"),
    "dedupe": lambda: Dedupe(KEYS, SCHEMA),
    "dedupe for a time": lambda: Dedupe(KEYS, SCHEMA, TTL_MS),
    "reduce": lambda: Reduce(KEYS, SCHEMA, longest),
    "batches": lambda: BatchApply(Statistics(), "op", tuple(KEYS), (SCHEMA,), OUTPUTS),
    "batches for a time": lambda: BatchApply(Recent(), "op", tuple(KEYS), (SCHEMA,), OUTPUTS),
}
ROUTED = {"top of all": [], "window top shared": ["key"]}


def batch_of(content: Rows, keys: list[str]) -> ArrowBatch:
    record = pa.RecordBatch.from_pylist(content, schema=SCHEMA)
    return ArrowBatch(record, buckets_of(record, keys))


def moments(plan: Plan, keys: list[str]) -> Iterator[tuple[Moment, ArrowBatch]]:
    now_ms = 0
    for epoch, (content, step) in enumerate(plan, 1):
        now_ms += step
        yield Moment(epoch, now_ms, BEGINNING, FOREVER if epoch == len(plan) else BEGINNING), batch_of(content, keys)


def canonical(outputs: Sequence[dict[str, ArrowBatch]]) -> dict[str, tuple[list[str], list[int]]]:
    """Outputs of neighbouring partitions put together; rows as text, so that NaN equals NaN."""
    result = {}
    for role in ("out", "numbers", "errors"):
        parts = [o[role] for o in outputs if role in o]
        if parts:
            whole = ArrowBatch.concat(parts)
            assert (np.diff(whole.buckets.astype(int)) >= 0).all(), f"{role} is not ordered by bucket"
            result[role] = ([repr(row) for row in whole.record.to_pylist()], whole.buckets.tolist())
    return result


def run(name: str, plan: Plan) -> list[dict[str, tuple[list[str], list[int]]]]:
    head = FACTORIES[name]()
    return [canonical([head.take(moment, [(0, batch)])]) for moment, batch in moments(plan, ROUTED.get(name, KEYS))]


def counters(head: Head) -> dict[str, int]:
    return {name: value for name, value in head.statistics().items() if name != "state_bytes"}


@pytest.mark.parametrize("name", FACTORIES)
@FEWER
@given(plan=epochs, data=st.data())
def test_restarts_do_not_show(name: str, plan: Plan, data: st.DataObject) -> None:
    expected = run(name, plan)
    head, chain = FACTORIES[name](), list[ArrowState]()
    for (moment, batch), want in zip(moments(plan, ROUTED.get(name, KEYS)), expected, strict=True):
        action = data.draw(st.sampled_from(["go on", "increment", "full", "restart", "restart compacted"]))
        if action in ("increment", "full"):
            full = action == "full" or not chain
            chain = [head.snapshot(True)] if full else [*chain, head.snapshot(False)]
        elif action.startswith("restart"):
            chain = [*chain, head.snapshot(not chain)]
            before, content = counters(head), head.content()
            head = FACTORIES[name]()
            for state in [compact(chain)] if action.endswith("compacted") else chain:
                head.load(state)
            chain = []
            assert counters(head) == before
            assert repr(head.content().to_pylist()) == repr(content.to_pylist())
        assert canonical([head.take(moment, [(0, batch)])]) == want


@pytest.mark.parametrize("name", FACTORIES)
@FEWER
@given(plan=epochs, cuts=st.lists(st.integers(1, 4095), min_size=1, max_size=3, unique=True), data=st.data())
def test_partitioning_does_not_show(name: str, plan: Plan, cuts: list[int], data: st.DataObject) -> None:
    expected = run(name, plan)
    ranges: list[KeyRange] = [EVERYTHING]
    heads = [FACTORIES[name]()]
    fine = [KeyRange(a, b) for a, b in pairwise([0, *sorted(cuts), 4096])]
    for (moment, batch), want in zip(moments(plan, ROUTED.get(name, KEYS)), expected, strict=True):
        if data.draw(st.booleans()):
            states = [head.snapshot(True) for head in heads]
            ranges = fine if ranges == [EVERYTHING] else [EVERYTHING]
            heads = [FACTORIES[name]() for _ in ranges]
            for head, key_range in zip(heads, ranges, strict=True):
                for state in states:
                    head.load(state.part(key_range))
        outputs = []
        for head, key_range in zip(heads, ranges, strict=True):
            part = batch.part(key_range)
            middle = part.rows // 2
            pieces = [
                ArrowBatch(part.record.slice(a, b - a), part.buckets[a:b])
                for a, b in ((0, middle), (middle, part.rows))
            ]
            outputs.append(head.take(moment, [(0, piece) for piece in pieces]))
        assert canonical(outputs) == want


# --- against plain Python ----------------------------------------------------------------------------------------


def compare(left: Any, right: Any, descending: bool) -> int:
    """Nulls last, whichever way; NaN above all numbers."""
    if left is None or right is None:
        return (left is None) - (right is None)
    if isinstance(left, str):
        left, right = left.encode(), right.encode()
    elif isinstance(left, float):
        left, right = ((math.isnan(one), 0.0 if math.isnan(one) else one) for one in (left, right))
    elif isinstance(left, list):
        left, right = repr(left), repr(right)
    return int(left > right or -(left < right)) * (-1 if descending else 1)


def best(
    content: Rows, n: int, by: Callable[[dict[str, Any]], list[Any]], rest: list[str], down: bool, shared: bool
) -> Rows:
    def by_order(left: dict[str, Any], right: dict[str, Any]) -> int:
        return next((c for c in (compare(a, b, down) for a, b in zip(by(left), by(right), strict=True)) if c), 0)

    def order(left: dict[str, Any], right: dict[str, Any]) -> int:
        return by_order(left, right) or next((c for c in (compare(left[x], right[x], False) for x in rest) if c), 0)

    found: Rows = []
    for at, row in enumerate(sorted(content, key=cmp_to_key(order)), 1):
        tied = shared and found and by_order(found[-1], row) == 0
        found.append({**row, "rank": found[-1]["rank"] if tied else at})
    return [row for row in found if row["rank"] <= n]


RUNNING: dict[str, tuple[list[str], int, Callable[[dict[str, Any]], list[Any]], list[str], bool, bool]] = {
    "top": (KEYS, 2, lambda r: [r["number"]], ["start", "end", "ratio", "text", "tags"], True, False),
    "top ascending": (KEYS, 3, lambda r: [r["ratio"], r["text"]], ["start", "end", "number", "tags"], False, False),
    "top shared": (KEYS, 2, lambda r: [r["ratio"]], ["start", "end", "number", "text", "tags"], True, True),
    "top of all": (
        [],
        3,
        lambda r: [None if r["number"] is None else r["number"] // 2, r["text"]],
        ["key", "group", "start", "end", "number", "ratio", "tags"],
        True,
        False,
    ),
}


def group_of(row: dict[str, Any], names: list[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


@pytest.mark.parametrize("name", RUNNING)
@FEWER
@given(plan=epochs)
def test_a_running_top_is_the_best_of_all_rows_so_far(name: str, plan: Plan) -> None:
    keys, n, by, rest, down, shared = RUNNING[name]
    head, seen, table = FACTORIES[name](), dict[Any, Rows](), dict[Any, str]()
    for moment, batch in moments(plan, keys):
        for row in batch.record.to_pylist():
            seen.setdefault(group_of(row, keys), []).append(row)
        changed = set()
        outputs = head.take(moment, [(0, batch)])
        for row in outputs["out"].record.to_pylist() if "out" in outputs else []:
            change, place = row.pop("change"), (*group_of(row, keys), row.pop("place", row["rank"]))
            assert place not in changed, "more than one change of a place"
            changed.add(place)
            if change == "delete":
                assert table.pop(place) == repr(row), "a delete carries the old values"
            else:
                assert (change == "insert") == (place not in table)
                assert table.get(place) != repr(row), "nothing changed"
                table[place] = repr(row)
        assert table == {
            (*key, place): repr(row)
            for key, content in seen.items()
            for place, row in enumerate(best(content, n, by, rest, down, shared), 1)
        }


WINDOWED: dict[str, tuple[list[str], list[str], int, str, list[str], bool, bool]] = {
    "window top": (KEYS, ["end", "start"], 2, "text", ["number", "ratio", "tags"], True, False),
    "window top shared": (["key"], ["end"], 1, "number", ["group", "start", "ratio", "text", "tags"], False, True),
}


@pytest.mark.parametrize("name", WINDOWED)
@FEWER
@given(plan=epochs)
def test_a_window_top_ranks_the_rows_of_a_key_and_window(name: str, plan: Plan) -> None:
    keys, windows, n, by, rest, down, shared = WINDOWED[name]
    head = FACTORIES[name]()
    kinds = [SCHEMA.field(key).type for key in keys]
    for moment, batch in moments(plan, keys):
        groups = dict[Any, Rows]()
        for row in batch.record.to_pylist():
            groups.setdefault((group_of(row, keys), group_of(row, windows)), []).append(row)
        outputs = head.take(moment, [(0, batch)])
        out = outputs["out"].record.to_pylist() if "out" in outputs else []
        found = dict[Any, Rows]()
        for row in out:
            found.setdefault((group_of(row, keys), group_of(row, windows)), []).append(row)
        assert {group: repr(content) for group, content in found.items()} == {
            group: repr(best(content, n, lambda r: [r[by]], rest, down, shared)) for group, content in groups.items()
        }
        order = [(bucket_of_values(group_of(row, keys), kinds), row["end"]) for row in out]
        assert order == sorted(order)


@pytest.mark.parametrize("name", ["dedupe", "dedupe for a time"])
@FEWER
@given(plan=epochs)
def test_dedupe_gives_first_rows(name: str, plan: Plan) -> None:
    head, until = FACTORIES[name](), dict[Any, int]()
    dropped = 0
    for moment, batch in moments(plan, KEYS):
        until = {key: at for key, at in until.items() if at > moment.now_ms}
        want = []
        for bucket, row in sorted(
            zip(batch.buckets.tolist(), batch.record.to_pylist(), strict=True), key=lambda p: p[0]
        ):
            if group_of(row, KEYS) not in until:
                until[group_of(row, KEYS)] = moment.now_ms + TTL_MS if "time" in name else FOREVER
                want.append((bucket, repr(row)))
        dropped += batch.rows - len(want)
        outputs = head.take(moment, [(0, batch)])
        out = outputs["out"] if "out" in outputs else batch.chosen(np.empty(0, np.int64))
        assert list(zip(out.buckets.tolist(), map(repr, out.record.to_pylist()), strict=True)) == want
        assert head.statistics().get("filtered", 0) == dropped
        assert head.statistics()["keys"] == len(until)


@FEWER
@given(plan=epochs)
def test_reduce_is_a_fold(plan: Plan) -> None:
    head, folded, table = FACTORIES["reduce"](), dict[Any, dict[str, Any]](), dict[Any, str]()
    for moment, batch in moments(plan, KEYS):
        refused = []
        for row in batch.record.to_pylist():
            key, so_far = group_of(row, KEYS), folded.get(group_of(row, KEYS))
            if so_far is None:
                folded[key] = row
            elif row["text"] == "zebra" or (so_far["number"] or 0) == 2**63 - 1:
                refused.append(key)
            else:
                longer = len(row["text"] or "") > len(so_far["text"] or "")
                folded[key] = {**(row if longer else so_far), "number": (so_far["number"] or 0) + 1}
        outputs = head.take(moment, [(0, batch)])
        for row in outputs["out"].record.to_pylist() if "out" in outputs else []:
            change, key = row.pop("change"), group_of(row, KEYS)
            assert (change == "insert") == (key not in table)
            assert table.get(key) != repr(row), "nothing changed"
            table[key] = repr(row)
        assert table == {key: repr(row) for key, row in folded.items()}
        assert len(refused) == (outputs["errors"].rows if "errors" in outputs else 0)


@pytest.mark.parametrize("name", ["batches", "batches for a time"])
@FEWER
@given(plan=epochs)
def test_a_columnar_operator_keeps_rows_by_key(name: str, plan: Plan) -> None:
    head, known, until = FACTORIES[name](), dict[Any, tuple[int, str | None]](), dict[Any, int]()
    for moment, batch in moments(plan, KEYS):
        known = {key: row for key, row in known.items() if until[key] > moment.now_ms}
        by_key = dict[Any, Rows]()
        for row in batch.record.to_pylist():
            by_key.setdefault(group_of(row, KEYS), []).append(row)
        want, refused = {}, 0
        for key, content in by_key.items():
            if any(row["text"] == "zebra" for row in content):
                refused += len(content)
                continue
            want[key] = known[key] = (known.get(key, (0, None))[0] + len(content), content[-1]["text"])
            until[key] = moment.now_ms + TTL_MS if "time" in name else FOREVER
            if known[key][1] == "x":
                del known[key]
        outputs = head.take(moment, [(0, batch)])
        out = outputs["out"].record.to_pylist() if "out" in outputs else []
        assert {group_of(row, KEYS): (row["rows"], row["text"]) for row in out} == want
        assert len(out) == len(want)
        assert (outputs["numbers"].rows if "numbers" in outputs else 0) == batch.rows - refused
        assert (outputs["errors"].rows if "errors" in outputs else 0) == refused
        held = {group_of(row, KEYS): (row["rows"], row["text"]) for row in head.content().to_pylist()}
        assert held == known
        assert head.statistics()["keys"] == len(known)
