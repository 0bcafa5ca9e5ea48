"""Joins against plain nested loops: pairs, unmatched rows, late rows, order; and that neither restarts nor partitioning
show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from operators.join import IntervalJoin
from operators.joining import HOW, Join, JoinInput
from operators.kernels import joins as kernel
from operators.window_join import WindowJoin
from seep.model.arrow import ArrowBatch, ArrowState, compact
from seep.model.epoch import Moment
from seep.model.ids import BEGINNING, EVERYTHING, FOREVER, KeyRange
from seep.model.keyspace import bucket_of_values, buckets_of
from seep.model.schema import TIMESTAMP

LEFT_SCHEMA = pa.schema(
    {"at": TIMESTAMP, "key": pa.string(), "group": pa.int32(), "text": pa.string(), "id": pa.int64()}
)
RIGHT_SCHEMA = pa.schema(
    {"of": pa.string(), "group": pa.int32(), "id": pa.int64(), "when": TIMESTAMP, "ok": pa.bool_()}
)
LEFT = JoinInput(
    LEFT_SCHEMA,
    ("key", "group"),
    "at",
    (("key", "key"), ("group", "group"), ("at", "at"), ("text", "text"), ("id", "id")),
)
RIGHT = JoinInput(RIGHT_SCHEMA, ("of", "group"), "when", (("id", "id_right"), ("when", "when"), ("ok", "ok")))
LOOPS: list[Any] = [loop for name, loop in vars(kernel).items() if hasattr(loop, "signatures") and name[0] != "_"]
NAMES = ["key", "group", "at", "text", "id", "id_right", "when", "ok"]
KINDS = [pa.string(), pa.int32()]
LOWER, UPPER, SIZE, OFFSET = -3, 6, 10, 3

Row = dict[str, Any]
Plan = list[tuple[list[Row], list[Row], int]]

KEY = st.sampled_from(["a", "b", "longer than eight bytes", "longer than eight bytes too", "", None])
GROUP = st.sampled_from([1, 1, 2, None])
TIME = st.one_of(st.integers(-25, 40), st.integers(-25, 40), st.integers(-25, 40), st.none(), st.just(2**61))
LEFTS = st.fixed_dictionaries({"at": TIME, "key": KEY, "group": GROUP, "text": st.sampled_from(["", "x", None])})
RIGHTS = st.fixed_dictionaries({"of": KEY, "group": GROUP, "when": TIME, "ok": st.sampled_from([True, None])})
PLANS = st.lists(
    st.tuples(st.lists(LEFTS, max_size=8), st.lists(RIGHTS, max_size=8), st.integers(0, 12)), min_size=1, max_size=6
)


def interval(how: str, lower: int = LOWER, upper: int = UPPER) -> Callable[[], Join]:
    return lambda: IntervalJoin(LEFT, RIGHT, how, lower, upper)


def window(how: str) -> Callable[[], Join]:
    return lambda: WindowJoin(LEFT, RIGHT, how, SIZE, OFFSET)


FACTORIES = {f"{kind.__name__} {how}": kind(how) for kind in (interval, window) for how in HOW}


KIND = st.sampled_from(list(FACTORIES))


def numbered(plan: Plan) -> Plan:
    """Every row gets an id, so that the reference can name it."""
    number = iter(range(10_000))
    return [([r | {"id": next(number)} for r in a], [r | {"id": next(number)} for r in b], s) for a, b, s in plan]


def batch_of(rows: list[Row], schema: pa.Schema, keys: Sequence[str]) -> ArrowBatch:
    record = pa.RecordBatch.from_pylist(rows, schema=schema)
    return ArrowBatch(record, buckets_of(record, keys))


def moments(plan: Plan) -> Iterator[tuple[Moment, list[tuple[int, ArrowBatch]]]]:
    """Each epoch's moment and inputs; the last epoch ends the input."""
    watermark, before = -20, BEGINNING
    for epoch, (lefts, rights, step) in enumerate(plan, 1):
        watermark += step
        announced = FOREVER if epoch == len(plan) else watermark
        inputs = [
            (0, batch_of(lefts, LEFT_SCHEMA, LEFT.keys)),
            (1, batch_of(rights, RIGHT_SCHEMA, RIGHT.keys)),
        ]
        yield Moment(epoch, epoch, before, announced), inputs
        before = announced


def numbers(record: pa.RecordBatch) -> list[Row]:
    """Rows as dicts, times as numbers: some are beyond what Python's datetime holds."""
    columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in record.columns]
    return pa.RecordBatch.from_arrays(columns, names=record.schema.names).to_pylist()  # type: ignore[no-any-return]


Shown = dict[str, tuple[list[Row], list[int]]]


def shown(outputs: Sequence[dict[str, ArrowBatch]]) -> Shown:
    """Outputs of neighbouring partitions put together."""
    result: Shown = {}
    for role in ("out", "late_left", "late_right", "errors"):
        parts = [o[role] for o in outputs if role in o]
        if parts:
            whole = ArrowBatch.concat(parts)
            assert (np.diff(whole.buckets.astype(int)) >= 0).all(), f"{role} is not ordered by bucket"
            result[role] = (numbers(whole.record), whole.buckets.tolist())
    return result


def run(make: Callable[[], Join], plan: Plan) -> list[Shown]:
    head = make()
    return [shown([head.take(moment, inputs)]) for moment, inputs in moments(plan)]


# --- against nested loops ----------------------------------------------------------------------------------------


@dataclass
class Waiting:
    key: tuple[Any, Any]
    time: int
    row: Row
    matched: bool = False

    @property
    def bucket(self) -> int:
        return bucket_of_values(self.key, KINDS)


@dataclass
class Reference:
    """The meaning of a join, written down row by row."""

    near: Callable[[int, int], bool]
    final: tuple[Callable[[int, int], bool], Callable[[int, int], bool]]
    keeps: tuple[bool, bool]
    sides: tuple[list[Waiting], list[Waiting]] = field(default_factory=lambda: ([], []))

    def take(self, moment: Moment, lefts: list[Row], rights: list[Row]) -> dict[str, list[Row]]:
        late_left, bad_left, new_left = self.judge(lefts, ("key", "group"), "at", moment)
        late_right, bad_right, new_right = self.judge(rights, ("of", "group"), "when", moment)
        old_left = list(self.sides[0])
        self.sides[0].extend(new_left)
        self.sides[1].extend(new_right)
        ordered = sorted(self.sides[1], key=lambda r: r.time)
        found = [
            (one.bucket, 0, self.pair(one, other)) for one in new_left for other in ordered if self.met(one, other)
        ]
        ordered = sorted(old_left, key=lambda r: r.time)
        found += [(r.bucket, 1, self.pair(one, r)) for r in new_right for one in ordered if self.met(one, r)]
        for side, name in ((0, "left"), (1, "right")):
            over = [
                r for r in self.sides[side] if moment.watermark >= FOREVER or self.final[side](r.time, moment.watermark)
            ]
            self.sides[side][:] = [r for r in self.sides[side] if r not in over]
            alone = sorted((r for r in over if not r.matched), key=lambda r: (self.key_bytes(r), r.time))
            if self.keeps[side]:
                found += [(r.bucket, 2 + side, self.single(r, name)) for r in alone]
        found.sort(key=lambda one: one[:2])
        return {
            "out": [row for _, _, row in found],
            "late_left": late_left,
            "late_right": late_right,
            "errors": [*bad_left, *bad_right],
        }

    def judge(
        self, rows: list[Row], keys: tuple[str, str], time: str, moment: Moment
    ) -> tuple[list[Row], list[Row], list[Waiting]]:
        bad = [r for r in rows if r[time] is None or r[time] > 10**18]
        late = [r for r in rows if r not in bad and r[time] < moment.watermark_before]
        return (
            late,
            bad,
            [Waiting((r[keys[0]], r[keys[1]]), r[time], r) for r in rows if r not in bad and r not in late],
        )

    def met(self, one: Waiting, other: Waiting) -> bool:
        return None not in one.key and one.key == other.key and self.near(one.time, other.time)

    def pair(self, one: Waiting, other: Waiting) -> Row:
        one.matched = other.matched = True
        return self.single(one, "left") | {n: self.single(other, "right")[n] for n in ("id_right", "when", "ok")}

    def single(self, waiting: Waiting, side: str) -> Row:
        row = dict.fromkeys(NAMES) | {"key": waiting.key[0], "group": waiting.key[1]}
        if side == "left":
            return row | {name: waiting.row[name] for name in ("at", "text", "id")}
        return row | {"id_right": waiting.row["id"], "when": waiting.row["when"], "ok": waiting.row["ok"]}

    @staticmethod
    def key_bytes(waiting: Waiting) -> bytes:
        from seep.model.keyform import encode

        arrays = [pa.array([value], kind) for value, kind in zip(waiting.key, KINDS, strict=True)]
        return encode(arrays, 1).words.tobytes()


def by_id(row: Row) -> int:
    return int(row["id"])


def start(time: int) -> int:
    return (time - OFFSET) // SIZE * SIZE + OFFSET


def reference(name: str) -> Reference:
    kind, how = name.split()
    if kind == "window":
        closed = lambda time, watermark: start(time) + SIZE <= watermark  # noqa: E731
        return Reference(lambda one, other: start(one) == start(other), (closed, closed), HOW[how])
    return Reference(
        lambda one, other: LOWER <= other - one <= UPPER,
        (lambda time, watermark: time + UPPER < watermark, lambda time, watermark: time - LOWER < watermark),
        HOW[how],
    )


@given(name=KIND, plan=PLANS)
def test_joins_are_nested_loops(name: str, plan: Plan) -> None:
    plan = numbered(plan)
    model, head = reference(name), FACTORIES[name]()
    for (moment, inputs), (lefts, rights, _) in zip(moments(plan), plan, strict=True):
        want = model.take(moment, lefts, rights)
        found = shown([head.take(moment, inputs)])
        assert found.get("out", ([], []))[0] == want["out"]
        for role in ("late_left", "late_right"):
            assert sorted(found.get(role, ([], []))[0], key=by_id) == sorted(want[role], key=by_id)
        assert len(found.get("errors", ([], []))[0]) == len(want["errors"])
        ids = [row["id"] if row["id"] is not None else row["id_right"] for row in numbers(head.content())]
        waiting = [w for s in (0, 1) for w in model.sides[s] if model.keeps[s] or None not in w.key]
        assert sorted(ids) == sorted(w.row["id"] for w in waiting)
        assert head.statistics()["keys"] == len({w.key for w in waiting})
    assert head.statistics()["keys"] == 0


# --- restarts and partitioning -----------------------------------------------------------------------------------


@given(name=KIND, plan=PLANS, data=st.data())
def test_restarts_do_not_show(name: str, plan: Plan, data: st.DataObject) -> None:
    make, plan = FACTORIES[name], numbered(plan)
    expected = run(make, plan)
    head, chain = make(), list[ArrowState]()
    for (moment, inputs), want in zip(moments(plan), expected, strict=True):
        action = data.draw(st.sampled_from(["go on", "increment", "full", "restart", "restart compacted", "reload"]))
        if action in ("increment", "full"):
            full = action == "full" or not chain
            chain = [head.snapshot(True)] if full else [*chain, head.snapshot(False)]
        elif action == "reload":
            head.load(head.snapshot(True))
            chain = []
        elif action.startswith("restart"):
            chain = [*chain, head.snapshot(not chain)]
            counters, content = head.statistics(), numbers(head.content())
            head = make()
            for state in [compact(chain)] if action.endswith("compacted") else chain:
                head.load(state)
            chain = chain if data.draw(st.booleans()) else []
            assert numbers(head.content()) == content
            assert {**head.statistics(), "state_bytes": 0} == {**counters, "state_bytes": 0}
        assert shown([head.take(moment, inputs)]) == want


@given(name=KIND, plan=PLANS, cuts=st.lists(st.integers(1, 4095), min_size=1, max_size=3, unique=True), data=st.data())
def test_partitioning_does_not_show(name: str, plan: Plan, cuts: list[int], data: st.DataObject) -> None:
    make, plan = FACTORIES[name], numbered(plan)
    expected = run(make, plan)
    ranges: list[KeyRange] = [EVERYTHING]
    heads = [make()]
    fine = [KeyRange(a, b) for a, b in pairwise([0, *sorted(cuts), 4096])]
    for (moment, inputs), want in zip(moments(plan), expected, strict=True):
        if data.draw(st.booleans()):
            chains = [[head.snapshot(True)] for head in heads]
            ranges = fine if ranges == [EVERYTHING] else [EVERYTHING]
            heads = [make() for _ in ranges]
            for head, key_range in zip(heads, ranges, strict=True):
                for state in (state for chain in chains for state in chain):
                    head.load(state.part(key_range))
        outputs = [
            head.take(moment, [(port, batch.part(key_range)) for port, batch in inputs])
            for head, key_range in zip(heads, ranges, strict=True)
        ]
        assert shown(outputs) == want


@given(plan=PLANS, data=st.data())
def test_batch_cuts_do_not_show(plan: Plan, data: st.DataObject) -> None:
    """Of a key the order matters, of its batches nothing: pieces, one row at a time, empty ones."""
    plan = numbered(plan)
    expected = run(FACTORIES["interval full"], plan)
    head = FACTORIES["interval full"]()
    for (moment, inputs), want in zip(moments(plan), expected, strict=True):
        size = data.draw(st.integers(1, 4))
        pieces = [(port, piece) for port, batch in inputs for piece in batch.pieces(size)]
        assert shown([head.take(moment, pieces)]) == want


# --- many rows: lanes move, chunks are put together and rewritten ----------------------------------------------------


def many(seed: int, schema: pa.Schema, key: str, time: str, rows: int) -> pa.Table:
    """Rows nearly in the order of their times, among them nulls in the key; a few keys have most of them."""
    random = np.random.default_rng(seed)
    keys = (random.pareto(1.0, rows) * 5).astype(int) % 300
    times = np.arange(rows) * 5 + random.integers(0, 200, rows)
    names = pa.array([f"key {k}" if k % 50 else None for k in keys], pa.string())
    columns = {key: names, "group": pa.array(keys % 3, pa.int32()), time: pa.array(times).view(TIMESTAMP)}
    others = {f.name: pa.array(np.arange(rows)).cast(f.type, safe=False) for f in schema if f.name not in columns}
    return pa.table({name: (columns | others)[name] for name in schema.names}, schema=schema)


def test_many_rows_as_in_sql() -> None:
    lefts, rights = many(1, LEFT_SCHEMA, "key", "at", 12_000), many(2, RIGHT_SCHEMA, "of", "when", 12_000)
    for how in HOW:
        head = IntervalJoin(LEFT, RIGHT, how, -150, 60)
        out, chain, before, step = list[pa.RecordBatch](), list[ArrowState](), BEGINNING, 200
        for epoch in range(60):
            inputs = [
                (port, batch_of_record(table.slice(epoch * step, step).combine_chunks().to_batches()[0], side.keys))
                for port, (table, side) in enumerate(((lefts, LEFT), (rights, RIGHT)))
            ]
            watermark = FOREVER if epoch == 59 else 5 * (epoch + 1) * step
            outputs = head.take(Moment(epoch + 1, 0, before, watermark), inputs)
            assert set(outputs) <= {"out"}, "no row is late"
            out += [outputs["out"].record] if "out" in outputs else []
            before = watermark
            if epoch % 7 == 6:
                chain = [*chain, head.snapshot(not chain)]
            if epoch == 41:
                head = IntervalJoin(LEFT, RIGHT, how, -150, 60)
                for state in chain:
                    head.load(state)
        found = pa.Table.from_batches(out)
        connection = duckdb.connect()
        connection.register("l", plain(lefts))
        connection.register("r", plain(rights))
        connection.register("found", plain(found))
        connection.execute(
            f"""create table want as
            select coalesce(l.key, r.of) as key, coalesce(l."group", r."group") as "group", l.at, l.text, l.id,
                   r.id as id_right, r."when", r.ok
            from l {how} join r on l.key = r.of and l."group" = r."group" and r."when" - l.at between -150 and 60"""
        )
        for one, other in (("want", "found"), ("found", "want")):
            query = f"select count(*) from (select * from {one} except all select * from {other})"
            assert connection.execute(query).fetchone() == (0,), (how, one)
        assert head.statistics()["keys"] == 0
    assert {loop.__name__ for loop in LOOPS if len(loop.signatures) != 1} == set(), "never compiled, or twice"


def plain(table: pa.Table) -> pa.Table:
    """Times as numbers."""
    columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in table.columns]
    return pa.table(columns, names=table.schema.names)


def batch_of_record(record: pa.RecordBatch, keys: Sequence[str]) -> ArrowBatch:
    return ArrowBatch(record, buckets_of(record, keys))
