"""Windows of every kind against plain Python, epoch by epoch: what they emit, what is late; and that neither restarts
nor partitioning show."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.aggregates import count, maximum, mean, minimum, total
from operators.combine import Combine, Combiner
from operators.copying import CopyingWindow
from operators.count_window import RowsWindow
from operators.session import SessionWindow
from operators.sliding import SlidingWindow
from operators.window import TumblingWindow
from seep.model.arrow import ArrowBatch, ArrowState, compact
from seep.model.epoch import Moment
from seep.model.ids import BEGINNING, EVERYTHING, FOREVER, KeyRange
from seep.model.keyspace import buckets_of
from seep.model.schema import TIMESTAMP
from seep.partition.contract import Head

KEYS = ["key", "group"]
SCHEMA = pa.schema(
    {"key": pa.string(), "group": pa.int32(), "at": TIMESTAMP, "number": pa.int64(), "text": pa.string()}
)
AGGREGATES = {
    "n": count(),
    "numbers": count("number"),
    "sum": total("number", wide=True),
    "average": mean("number"),
    "low": minimum("number"),
    "high": maximum("text"),
}
UNCOUNTED = {name: spec for name, spec in AGGREGATES.items() if name != "n"}
"""Rows may come without a change that shows."""
NAMES = ("start", "end")
EXAMPLES = settings().max_examples
FEW, SOME = 1 + EXAMPLES // 8, 1 + EXAMPLES // 3
"""There are many kinds of windows: each is tried less often."""
Rows = list[dict[str, Any]]
Plan = list[tuple[Rows, int]]
Span = tuple[int, int]

rows = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["a", "b", "longer than eight bytes", "", None]),
        "group": st.sampled_from([1, None]),
        "at": st.one_of(st.none(), st.integers(-30, 60), st.integers(-30, 60), st.integers(-(2**61), 2**61)),
        "number": st.one_of(st.none(), st.sampled_from([0, 1, -5, 2**62])),
        "text": st.one_of(st.none(), st.sampled_from(["", "x", "é"])),
    }
)
plans = st.lists(st.tuples(st.lists(rows, max_size=10), st.integers(0, 15)), min_size=1, max_size=7)


def tumbling(aggregates: Any = AGGREGATES, **more: Any) -> TumblingWindow:
    return TumblingWindow(KEYS, SCHEMA, "at", 10, 3, NAMES, aggregates, **more)


def sliding(size: int, every: int, aggregates: Any = AGGREGATES, kind: Any = SlidingWindow, **more: Any) -> Head:
    made: Head = kind(KEYS, SCHEMA, "at", size, every, 2, NAMES, aggregates, **more)
    return made


def session(gap: int, inclusive: bool, aggregates: Any = AGGREGATES, **more: Any) -> SessionWindow:
    return SessionWindow(KEYS, SCHEMA, "at", gap, inclusive, NAMES, aggregates, **more)


def counted(size: int, every: int, column: str | None = "at") -> RowsWindow:
    return RowsWindow(KEYS, SCHEMA, column, size, every, NAMES, AGGREGATES)


PACED = {"emit": "update", "period_us": 15_000}
FACTORIES: dict[str, Callable[[], Head]] = {
    "tumbling, paced": lambda: tumbling(**PACED),
    "sliding": lambda: sliding(12, 4),
    "sliding, odd": lambda: sliding(10, 4),
    "sliding with gaps": lambda: sliding(4, 6),
    "sliding, updates": lambda: sliding(12, 4, emit="update"),
    "sliding, uncounted updates": lambda: sliding(10, 4, UNCOUNTED, emit="update"),
    "sliding, paced": lambda: sliding(12, 4, UNCOUNTED, **PACED),
    "sliding by arrival": lambda: sliding(21_000, 7_000, by_arrival=True),
    "copying": lambda: sliding(10, 4, kind=CopyingWindow),
    "copying, paced": lambda: sliding(10, 4, kind=CopyingWindow, **PACED),
    "session": lambda: session(5, False),
    "session, updates": lambda: session(5, True, emit="update"),
    "session, paced": lambda: session(5, False, UNCOUNTED, **PACED),
    "count": lambda: counted(3, 3),
    "count, sliding": lambda: counted(4, 2),
    "count with gaps": lambda: counted(2, 3),
    "count by arrival": lambda: counted(3, 2, None),
}


def batch_of(content: Rows) -> ArrowBatch:
    record = pa.RecordBatch.from_pylist(content, schema=SCHEMA)
    return ArrowBatch(record, buckets_of(record, KEYS))


def moments(plan: Plan) -> Iterator[tuple[Moment, ArrowBatch]]:
    """Each epoch's moment and rows; the last epoch ends the input."""
    watermark, before = -20, BEGINNING
    for epoch, (content, step) in enumerate(plan, 1):
        watermark += step
        announced = FOREVER if epoch == len(plan) else watermark
        yield Moment(epoch, epoch * 7, before, announced), batch_of(content)
        before = announced


def lines(batch: ArrowBatch | None) -> list[str]:
    return [] if batch is None else [shown(row) for row in columns_of(batch)]


def columns_of(batch: ArrowBatch) -> Rows:
    """As plain values: times as integers, since those at the limits are no datetimes."""
    record = batch.record
    plain = [c.view(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in record.columns]
    return list(pa.RecordBatch.from_arrays(plain, record.schema.names).to_pylist())


def shown(row: dict[str, Any]) -> str:
    return repr({name: int(v) if name in ("sum",) and v is not None else v for name, v in row.items()})


def canonical(outputs: Sequence[dict[str, ArrowBatch]]) -> dict[str, tuple[list[str], list[int]]]:
    """Outputs of neighbouring partitions put together."""
    result = {}
    for role in ("out", "late", "errors"):
        parts = [o[role] for o in outputs if role in o]
        if parts:
            whole = ArrowBatch.concat(parts)
            assert (np.diff(whole.buckets.astype(int)) >= 0).all(), f"{role} is not ordered by bucket"
            result[role] = (lines(whole), whole.buckets.tolist())
    return result


def run(make: Callable[[], Head], plan: Plan) -> list[dict[str, tuple[list[str], list[int]]]]:
    head = make()
    return [canonical([head.take(moment, [(0, batch)])]) for moment, batch in moments(plan)]


@pytest.mark.parametrize("name", FACTORIES)
@settings(max_examples=FEW)
@given(plan=plans, data=st.data())
def test_restarts_do_not_show(name: str, plan: Plan, data: st.DataObject) -> None:
    make = FACTORIES[name]
    expected = run(make, plan)
    head, chain = make(), list[ArrowState]()
    for (moment, batch), want in zip(moments(plan), expected, strict=True):
        action = data.draw(st.sampled_from(["go on", "increment", "full", "restart", "restart compacted"]))
        if action in ("increment", "full"):
            full = action == "full" or not chain
            chain = [head.snapshot(True)] if full else [*chain, head.snapshot(False)]
        elif action.startswith("restart"):
            chain = [*chain, head.snapshot(not chain)]
            old, head = head, make()
            for state in [compact(chain)] if action.endswith("compacted") else chain:
                head.load(state)
            chain = []
            assert counters(head) == counters(old)
            assert head.content().equals(old.content())
        assert canonical([head.take(moment, [(0, batch)])]) == want


def counters(head: Head) -> dict[str, int]:
    return {name: value for name, value in head.statistics().items() if name != "state_bytes"}


@pytest.mark.parametrize("name", FACTORIES)
@settings(max_examples=FEW)
@given(plan=plans, cuts=st.lists(st.integers(1, 4095), min_size=1, max_size=3, unique=True), data=st.data())
def test_partitioning_does_not_show(name: str, plan: Plan, cuts: list[int], data: st.DataObject) -> None:
    make = FACTORIES[name]
    expected = run(make, plan)
    ranges: list[KeyRange] = [EVERYTHING]
    heads = [make()]
    fine = [KeyRange(a, b) for a, b in pairwise([0, *sorted(cuts), 4096])]
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
    texts = [r["text"] for r in content if r["text"] is not None]
    return {
        "n": len(content),
        "numbers": len(numbers),
        "sum": sum(numbers) if numbers else None,
        "average": sum(numbers) / len(numbers) if numbers else None,
        "low": min(numbers, default=None),
        "high": max(texts, key=str.encode, default=None),
    }


def key_of(row: dict[str, Any]) -> tuple[Any, Any]:
    return row["key"], row["group"]


def window_row(key: tuple[Any, Any], span: Span, content: Rows, names: Sequence[str]) -> str:
    values = aggregated(content)
    row = {"key": key[0], "group": key[1], "start": span[0], "end": span[1], **{name: values[name] for name in names}}
    return shown(row)


class Model(ABC):
    """Windows as lists of rows. Subclasses say which windows there are when rows have come."""

    def __init__(self) -> None:
        self.open: dict[tuple[Any, Span], Rows] = {}

    def epoch(self, moment: Moment, content: Rows) -> tuple[Rows, dict[tuple[Any, Span], Rows]]:
        """The late rows, and the windows that close."""
        late = self.assign([row for row in content if row["at"] is not None], moment.watermark_before)
        due = [w for w in self.open if moment.watermark >= FOREVER or self.ended(w[1], moment.watermark)]
        return late, {w: self.open.pop(w) for w in due}

    def ended(self, span: Span, watermark: int) -> bool:
        return span[1] <= watermark

    @abstractmethod
    def assign(self, content: Rows, watermark: int) -> Rows:
        """Put each row into its windows; the rows that are late for all of theirs."""


class SlidingModel(Model):
    def __init__(self, size: int, every: int, offset: int) -> None:
        super().__init__()
        self.size, self.every, self.offset = size, every, offset

    def assign(self, content: Rows, watermark: int) -> Rows:
        late = []
        for row in content:
            start, windows = (row["at"] - self.offset) // self.every * self.every + self.offset, list[Span]()
            while start + self.size > row["at"]:
                windows.append((start, start + self.size))
                start -= self.every
            for span in windows:
                if span[1] > watermark:
                    self.open.setdefault((key_of(row), span), []).append(row)
            if windows and all(end <= watermark for _, end in windows):
                late.append(row)
        # A row in a gap is dropped, whenever it comes.
        return late


class SessionModel(Model):
    def __init__(self, gap: int, inclusive: bool) -> None:
        super().__init__()
        self.gap, self.inclusive = gap, inclusive

    def assign(self, content: Rows, watermark: int) -> Rows:
        late = []
        pieces = [(key, span, rows_in) for (key, span), rows_in in self.open.items()]
        pieces += [(key_of(row), (row["at"], row["at"] + self.gap), [row]) for row in content]
        while (pair := self.touching(pieces)) is not None:
            (key, one, first), (_, other, second) = pieces[pair[0]], pieces[pair[1]]
            joined = (key, (min(one[0], other[0]), max(one[1], other[1])), first + second)
            pieces = [piece for at, piece in enumerate(pieces) if at not in pair] + [joined]
        self.open = {}
        for key, span, rows_in in pieces:
            if self.ended(span, watermark):
                late += rows_in
            else:
                self.open[key, span] = rows_in
        return late

    def ended(self, span: Span, watermark: int) -> bool:
        # A row at the watermark is not late; where it still joins what ends there, that is open.
        return span[1] < watermark if self.inclusive else span[1] <= watermark

    def touching(self, pieces: list[Any]) -> tuple[int, int] | None:
        for at, (key, one, _) in enumerate(pieces):
            for after in range(at + 1, len(pieces)):
                other = pieces[after][1]
                low, high = max(one[0], other[0]), min(one[1], other[1])
                if key == pieces[after][0] and (low < high or (self.inclusive and low == high)):
                    return at, after
        return None


class CountModel:
    """By number, whatever the time: no row is ever late."""

    def __init__(self, size: int, every: int) -> None:
        self.size, self.every = size, every
        self.rows: dict[Any, Rows] = {}
        self.out: set[tuple[Any, int]] = set()

    def epoch(self, moment: Moment, content: Rows) -> tuple[Rows, dict[tuple[Any, Span], Rows]]:
        closed = {}
        for row in content:
            if row["at"] is not None:
                self.rows.setdefault(key_of(row), []).append(row)
        for key, all_rows in self.rows.items():
            for start in range(0, len(all_rows), self.every):
                window = all_rows[start : start + self.size]
                if (len(window) == self.size or moment.watermark >= FOREVER) and (key, start) not in self.out:
                    self.out.add((key, start))
                    closed[key, (start, start)] = window
        return [], closed


MODELS: dict[str, tuple[Callable[[], Head], Callable[[], Model | CountModel]]] = {
    "tumbling": (tumbling, lambda: SlidingModel(10, 10, 3)),
    "sliding": (lambda: sliding(12, 4), lambda: SlidingModel(12, 4, 2)),
    "sliding, odd": (lambda: sliding(10, 4), lambda: SlidingModel(10, 4, 2)),
    "sliding with gaps": (lambda: sliding(4, 6), lambda: SlidingModel(4, 6, 2)),
    "copying": (lambda: sliding(10, 4, kind=CopyingWindow), lambda: SlidingModel(10, 4, 2)),
    "copying with gaps": (lambda: sliding(4, 6, kind=CopyingWindow), lambda: SlidingModel(4, 6, 2)),
    "session": (lambda: session(5, False), lambda: SessionModel(5, False)),
    "inclusive session": (lambda: session(5, True), lambda: SessionModel(5, True)),
    "count": (lambda: counted(3, 3), lambda: CountModel(3, 3)),
    "count, sliding": (lambda: counted(4, 2), lambda: CountModel(4, 2)),
    "count with gaps": (lambda: counted(2, 3), lambda: CountModel(2, 3)),
}


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=SOME)
@given(plan=plans)
def test_closed_windows_are_those_of_plain_python(name: str, plan: Plan) -> None:
    make, model_of = MODELS[name]
    head, model = make(), model_of()
    for moment, batch in moments(plan):
        content = columns_of(batch)
        late, closed = model.epoch(moment, content)
        outputs = head.take(moment, [(0, batch)])
        want = [
            window_row(key, span_of(model, span, given), given, list(AGGREGATES))
            for (key, span), given in closed.items()
        ]
        assert sorted(lines(outputs.get("out"))) == sorted(want)
        assert sorted(lines(outputs.get("late"))) == sorted(map(shown, late))
        broken = sum(row["at"] is None for row in content)
        assert broken == (outputs["errors"].rows if "errors" in outputs else 0)


def span_of(model: Model | CountModel, span: Span, content: Rows) -> Span:
    return (content[0]["at"], content[-1]["at"]) if isinstance(model, CountModel) else span


TABLES: dict[str, tuple[Callable[..., Head], Callable[[], Model]]] = {
    "tumbling": (tumbling, lambda: SlidingModel(10, 10, 3)),
    "sliding": (lambda *a, **k: sliding(12, 4, *a, **k), lambda: SlidingModel(12, 4, 2)),
    "sliding with gaps": (lambda *a, **k: sliding(4, 6, *a, **k), lambda: SlidingModel(4, 6, 2)),
    "copying": (lambda a, **k: sliding(10, 4, a, CopyingWindow, **k), lambda: SlidingModel(10, 4, 2)),
    "session": (lambda *a, **k: session(5, False, *a, **k), lambda: SessionModel(5, False)),
}


@pytest.mark.parametrize("period", [None, 15_000])
@pytest.mark.parametrize("counts", [True, False], ids=["counting", "not counting"])
@pytest.mark.parametrize("name", TABLES)
@settings(max_examples=FEW)
@given(plan=plans)
def test_tables_follow_the_windows_of_plain_python(name: str, counts: bool, period: int | None, plan: Plan) -> None:
    """A reader that applies the changes has, with every epoch (or every period), the windows as they are; and gets no
    change that changes nothing."""
    make, model_of = TABLES[name]
    aggregates = AGGREGATES if counts else UNCOUNTED
    head, model = make(aggregates, emit="update", period_us=period), model_of()
    truth, reader, told = dict[Any, str](), dict[Any, str](), dict[Any, int]()
    for moment, batch in moments(plan):
        open_before = set(model.open)
        _, closed = model.epoch(moment, columns_of(batch))
        for gone in open_before - set(model.open) - set(closed):
            truth.pop(gone)  # a session that has become part of another
        now = {**model.open, **closed}
        truth |= {(k, span): window_row(k, span, given, list(aggregates)) for (k, span), given in now.items()}
        outputs = head.take(moment, [(0, batch)])
        out = columns_of(outputs["out"]) if "out" in outputs else []
        seen = set()
        for row in out:
            change, window = row.pop("change"), (key_of(row), (row["start"], row["end"]))
            assert window not in seen, "two changes of one window in an epoch"
            seen.add(window)
            if change == "delete":
                assert reader.pop(window) == shown(row)
            else:
                assert (change == "insert") == (window not in reader)
                assert reader.get(window) != shown(row)
                reader[window] = shown(row)
            tick = moment.now_ms * 1000 // (period or 1)
            assert told.get(window, -1) < tick or any(window[0] == key for key, _ in closed)
            told[window] = tick
        if period is None or moment.watermark >= FOREVER:
            assert reader == truth
        assert all(reader.get(window) == truth[window] for window in closed), "the last value comes with the end"


@settings(max_examples=SOME)
@given(plan=plans, size=st.sampled_from([(12, 4), (10, 4), (4, 6)]), emit=st.sampled_from(["close", "update"]))
def test_rows_folded_by_pane_before_they_travel_do_not_show(plan: Plan, size: tuple[int, int], emit: str) -> None:
    combine = Combine(tuple(KEYS), SCHEMA, AGGREGATES, "at", math.gcd(*size), 2)
    plain, folded = sliding(*size, emit=emit), sliding(*size, emit=emit, combined=combine)
    for moment, batch in moments([([r for r in rows if r["at"] is not None], step) for rows, step in plan]):
        parts = [(0, Combiner(combine).fold(batch.record))] if batch.rows else []
        want = plain.take(moment, [(0, batch)])
        assert lines(folded.take(moment, parts).get("out")) == lines(want.get("out"))
    assert counters(plain) == counters(folded)
