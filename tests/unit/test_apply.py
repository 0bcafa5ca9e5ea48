"""Users' operators: state per key, rollback, TTL, timers, ticks, and equality over snapshots and splits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from operators.apply import Apply, Operator
from operators.context import Context
from operators.states import CounterState, ListState, MapState, SetState, ValueState
from seep.errors import Misuse
from seep.model.arrow import ArrowBatch
from seep.model.epoch import Moment
from seep.model.ids import BEGINNING, FOREVER, KeyRange
from seep.model.keyspace import buckets_of
from seep.model.schema import record_of, schema_of

IN = schema_of({"key": str, "value": int})
OUT = schema_of({"key": str, "value": int})
START = datetime(2024, 1, 1, tzinfo=UTC)


def us(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def batch(*rows: tuple[str, int]) -> ArrowBatch:
    record = record_of(list(rows), IN)
    return ArrowBatch(record, buckets_of(record, ["key"]))


def moment(epoch: int, now_ms: int = 0, watermark: int = BEGINNING) -> Moment:
    return Moment(epoch, now_ms, watermark, watermark)


def head(operator: Operator, **settings: Any) -> Apply:
    return Apply(operator, "op", (("key",),), (IN,), {"out": OUT}, **settings)


def rows(outputs: dict[str, ArrowBatch], name: str = "out") -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in outputs[name].record.to_pylist()] if name in outputs else []


class Everything(Operator):
    total = ValueState(int, default=0)
    hits = CounterState()
    history = ListState(int)
    seen = MapState(str, int)
    members = SetState(int)

    def on_row(self, row: Any, ctx: Context) -> None:
        self.total.value += row.value
        self.hits.add(1)
        self.history.append(row.value)
        self.seen[str(row.value)] = self.seen.get(str(row.value), 0) + 1
        self.members.add(row.value)
        if row.value == 2 and "1" in self.seen:
            del self.seen["1"]
            self.members.discard(1)
            self.history[0] = 100
        if row.value < 0:
            raise ValueError("negative")
        state = [self.total.value, self.hits.value, sum(self.history), list(self.seen), sorted(self.members)]
        ctx.emit({"key": ctx.key, "value": sum(map(len, map(str, state))) + self.total.value})


def test_states_belong_to_their_key() -> None:
    out = rows(head(Everything()).take(moment(1), [(0, batch(("a", 1), ("b", 5), ("a", 3)))]))
    assert sorted(key for key, _ in out) == ["a", "a", "b"]


def test_a_row_that_raises_leaves_its_key_as_it_was() -> None:
    clean, dirty = head(Everything()), head(Everything())
    first = clean.take(moment(1), [(0, batch(("a", 1), ("a", 2), ("a", 3)))])
    second = dirty.take(moment(1), [(0, batch(("a", 1), ("a", -1), ("a", 2), ("a", -2), ("a", 3)))])
    assert rows(first) == rows(second)
    assert [row[1] for row in rows(second, "errors")] == ["ValueError: negative"] * 2
    assert clean.snapshot(True).tables["keys"].equals(dirty.snapshot(True).tables["keys"])
    assert dirty.statistics()["errors"] == 2


def test_fail_stops_and_skip_counts() -> None:
    with pytest.raises(Misuse, match="op: ValueError: negative"):
        head(Everything(), on_error="fail").take(moment(1), [(0, batch(("a", -1)))])
    skipping = head(Everything(), on_error="skip")
    assert skipping.take(moment(1), [(0, batch(("a", -1)))]) == {}
    assert skipping.statistics()["skipped"] == 1


@pytest.mark.parametrize("full", [True, False])
def test_going_on_from_a_snapshot_equals_going_on(full: bool) -> None:
    feeds = [batch(*((key, n + e) for key in "abcdef" for n in range(3))) for e in range(4)]
    whole, first = head(Everything()), head(Everything())
    wanted = [rows(whole.take(moment(e), [(0, feed)])) for e, feed in enumerate(feeds)]
    chain = []
    for e in range(2):
        first.take(moment(e), [(0, feeds[e])])
        chain.append(first.snapshot(full or e == 0))
    parts = [head(Everything()), head(Everything())]
    ranges = KeyRange(0, 4096).split(2)
    for part, key_range in zip(parts, ranges, strict=True):
        for state in chain:
            part.load(state.part(key_range))
    for e in (2, 3):
        got: list[Any] = []
        for part, key_range in zip(parts, ranges, strict=True):
            got += rows(part.take(moment(e), [(0, feeds[e].part(key_range))]))
        assert got == wanted[e]


class Forgetful(Operator):
    seen = MapState(str, int, ttl="1s")
    last = ValueState(int, ttl="1s")

    def on_row(self, row: Any, ctx: Context) -> None:
        self.seen[str(row.value)] = 1
        self.last.value = row.value
        ctx.emit((ctx.key, len(self.seen)))


def test_ttl_counts_from_the_last_write_and_empties_state() -> None:
    operator = head(Forgetful())
    assert rows(operator.take(moment(1, 0), [(0, batch(("a", 1)))])) == [("a", 1)]
    operator.snapshot(True)
    assert rows(operator.take(moment(2, 999), [(0, batch(("a", 2)))])) == [("a", 2)]
    assert rows(operator.take(moment(3, 1000), [(0, batch(("a", 3)))])) == [("a", 2)]
    operator.take(moment(4, 5000), [])
    assert operator.statistics()["keys"] == 0
    increment = operator.snapshot(False).tables["keys"]
    assert increment.column("__deleted").to_pylist() == [True]


class Timed(Operator):
    count = CounterState()

    def on_row(self, row: Any, ctx: Context) -> None:
        if row.value == 0:
            ctx.cancel_timer(START)
        else:
            ctx.set_timer(START + timedelta(seconds=row.value))
            ctx.set_timer(START + timedelta(seconds=row.value))
        self.count.add()

    def on_timer(self, at: datetime, ctx: Context) -> None:
        ctx.emit((ctx.key, (at - START) // timedelta(seconds=1)))
        if at == START + timedelta(seconds=1):
            ctx.set_timer(START)  # earlier than now: fires at the end of this epoch


def test_timers_fire_once_by_the_watermark_and_survive_a_snapshot() -> None:
    first = head(Timed())
    assert first.take(moment(1), [(0, batch(("a", 1), ("b", 5), ("a", 7)))]) == {}
    second = head(Timed())
    second.load(first.snapshot(True))
    for operator in (first, second):
        fired = operator.take(moment(2, 0, us(START + timedelta(seconds=5))), [])
        assert sorted(rows(fired)) == [("a", 0), ("a", 1), ("b", 5)]
        assert list(fired["out"].buckets) == sorted(fired["out"].buckets)
        assert rows(operator.take(moment(3, 0, us(START + timedelta(seconds=6))), [])) == []
        assert rows(operator.take(moment(4, 0, FOREVER), [])) == [("a", 7)]


class Endless(Operator):
    def on_row(self, row: Any, ctx: Context) -> None:
        ctx.set_timer(START)

    def on_timer(self, at: datetime, ctx: Context) -> None:
        ctx.emit((ctx.key, 1))
        ctx.set_timer(at + timedelta(minutes=1))


def test_the_end_of_input_does_not_fire_for_ever() -> None:
    assert rows(head(Endless()).take(moment(1, 0, FOREVER), [(0, batch(("a", 1)))])) == [("a", 1)]


class Closing(Operator):
    total = CounterState()

    def on_row(self, row: Any, ctx: Context) -> None:
        self.total.add(row.value)

    def on_epoch(self, epoch: int, ctx: Context) -> None:
        ctx.set_timer(START + timedelta(days=365))

    def on_timer(self, at: datetime, ctx: Context) -> None:
        ctx.emit((ctx.key, self.total.value))


def test_a_timer_set_by_on_epoch_in_the_last_epoch_still_fires() -> None:
    operator = head(Closing())
    assert operator.take(moment(1), [(0, batch(("a", 1)))]) == {}
    assert rows(operator.take(moment(2, 0, FOREVER), [(0, batch(("a", 2)))])) == [("a", 3), ("a", 3)]


class Ticking(Operator):
    count = CounterState()

    def on_row(self, row: Any, ctx: Context) -> None:
        self.count.add(row.value)

    def on_tick(self, ctx: Context) -> None:
        ctx.emit((ctx.key, self.count.value))

    def on_epoch(self, epoch: int, ctx: Context) -> None:
        ctx.emit((ctx.key, -epoch))


def test_ticks_come_once_and_epochs_to_touched_keys() -> None:
    operator = head(Ticking(), every_ms=1000)
    assert rows(operator.take(moment(1, 100), [(0, batch(("a", 1)))])) == [("a", -1)]
    assert rows(operator.take(moment(2, 900), [])) == []
    assert rows(operator.take(moment(3, 1001), [])) == [("a", 1)]
    assert rows(operator.take(moment(4, 1900), [])) == []
    assert rows(operator.take(moment(5, 5000), [])) == [("a", 1)]


class Dice(Operator):
    def on_row(self, row: Any, ctx: Context) -> None:
        ctx.emit((ctx.key, ctx.random.randrange(10**9)))


def test_random_is_a_function_of_operator_key_and_epoch() -> None:
    def roll(epoch: int, *keys: str) -> list[tuple[Any, ...]]:
        return rows(head(Dice()).take(moment(epoch), [(0, batch(*((key, 0) for key in keys)))]))

    assert roll(1, "a") == roll(1, "a")
    assert roll(1, "a")[0] in roll(1, "b", "a")
    assert roll(1, "a") != roll(2, "a")
    assert len(set(roll(1, "a", "a"))) == 2


class Ported(Operator):
    def on_row(self, row: Any, ctx: Context) -> None:
        ctx.emit((ctx.key, ctx.port), to="side" if ctx.port else "out")


def test_ports_and_side_outputs() -> None:
    inputs: Sequence[tuple[int, ArrowBatch]] = [(0, batch(("a", 1))), (1, batch(("b", 1))), (2, batch(("c", 1)))]
    operator = Apply(Ported(), "op", (("key",), ("key",)), (IN, IN), {"out": OUT, "side": OUT}, ports=(0, 0, 1))
    outputs = operator.take(moment(1), inputs)
    assert sorted(rows(outputs)) == [("a", 0), ("b", 0)]
    assert rows(outputs, "side") == [("c", 1)]


class Wrong(Operator):
    kept = ValueState(object)

    def on_row(self, row: Any, ctx: Context) -> None:
        if row.value == 1:
            self.kept.value = object()
        ctx.emit({"key": ctx.key, "value": "text" if row.value == 2 else 0})


def test_what_cannot_be_saved_or_sent_is_a_dead_letter() -> None:
    outputs = head(Wrong()).take(moment(7), [(0, batch(("a", 1), ("a", 2), ("a", 3)))])
    assert rows(outputs) == [("a", 0)]
    errors = outputs["errors"].record.to_pylist()
    assert "cannot keep a object" in errors[0]["error"]
    assert "'value'" in errors[1]["error"]
    assert {error["epoch"] for error in errors} == {7}


def test_state_outside_a_key_is_refused() -> None:
    with pytest.raises(AttributeError, match="belongs to a key"):
        _ = Everything().total.value
    with pytest.raises(Misuse, match="would be shared"):
        ValueState(list, default=[])
