"""Users' columnar operators: what they are given, what they remember, where their output stands, and failures."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import seep
from operators.batch_operator import BatchApply, BatchContext, BatchOperator
from operators.table_state import TableState
from seep import Flow, MemorySource, Misuse
from seep.model.arrow import ArrowBatch
from seep.model.epoch import Moment
from seep.model.ids import BEGINNING
from seep.model.keyspace import buckets_of
from seep.testing import Driver

IN = pa.schema({"store": pa.string(), "amount": pa.int64()})
OUT = pa.schema({"store": pa.string(), "total": pa.int64()})


def batch(*rows: tuple[str | None, int]) -> ArrowBatch:
    record = pa.RecordBatch.from_pylist([{"store": store, "amount": amount} for store, amount in rows], schema=IN)
    return ArrowBatch(record, buckets_of(record, ["store"]))


def head(operator: BatchOperator, out: pa.Schema = OUT, **settings: Any) -> BatchApply:
    return BatchApply(operator, "op", ("store",), (IN,), {"out": out}, **settings)


def take(head: BatchApply, epoch: int, *rows: tuple[str | None, int]) -> dict[str, ArrowBatch]:
    return head.take(Moment(epoch, epoch * 1000, BEGINNING, BEGINNING), [(0, batch(*rows))])


def rows(outputs: dict[str, ArrowBatch], name: str = "out") -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in outputs[name].record.to_pylist()] if name in outputs else []


class Totals(BatchOperator):
    totals = TableState({"total": int})

    def on_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> None:
        table = pa.Table.from_batches([batch]).group_by("store").aggregate([("amount", "sum")])
        new = table.combine_chunks().to_batches()[0]
        total = pc.add(new["amount_sum"], pc.fill_null(self.totals.get(new)["total"], 0))
        result = pa.record_batch({"store": new["store"], "total": total})
        self.totals.put(result)
        ctx.emit(result)


class Scripted(BatchOperator):
    """Does what the test says."""

    kept = TableState({"store": str, "value": int | None})

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.answers: list[Any] = []

    def on_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> None:
        self.answers.append(self.script.pop(0)(self, batch, ctx))


def values(**by_store: int | None) -> pa.RecordBatch:
    return pa.record_batch({"store": list(by_store), "value": pa.array(by_store.values(), pa.int64())})


def stores(*names: str | None) -> pa.RecordBatch:
    return pa.record_batch({"store": pa.array(names, pa.string())})


def test_state_goes_on_from_epoch_to_epoch() -> None:
    operator = head(Totals())
    assert sorted(rows(take(operator, 1, ("a", 1), ("b", 2), ("a", 3))), key=repr) == [("a", 4), ("b", 2)]
    assert rows(take(operator, 2, ("a", 5))) == [("a", 9)]
    assert take(operator, 3) == {}
    assert sorted(operator.content().to_pylist(), key=repr) == [{"store": "a", "total": 9}, {"store": "b", "total": 2}]


def test_get_gives_a_row_for_each_key_in_order_with_nulls_where_nothing_is() -> None:
    script = Scripted(
        lambda self, batch, ctx: self.kept.put(values(a=1, b=None)),
        lambda self, batch, ctx: self.kept.get(stores("b", "c", "a", "c", "a")).to_pylist(),
        lambda self, batch, ctx: self.kept.get(stores("b", "c", "a", "c", "a").column("store")).to_pylist(),
    )
    operator = head(script)
    for epoch in (1, 2, 3):
        take(operator, epoch, ("a", 1), ("b", 1), ("c", 1))
    assert script.answers[2] == script.answers[1], "of one key column, its array will do"
    assert script.answers[1] == [
        {"store": "b", "value": None},
        {"store": "c", "value": None},
        {"store": "a", "value": 1},
        {"store": "c", "value": None},
        {"store": "a", "value": 1},
    ]


def test_put_and_delete_are_seen_at_once_and_the_last_row_of_a_key_stays() -> None:
    def one(self: Scripted, batch: pa.RecordBatch, ctx: BatchContext) -> list[Any]:
        self.kept.put(pa.record_batch({"value": [1, 2, 3], "store": ["a", "b", "a"]}))
        first = self.kept.get(stores("a", "b"))["value"].to_pylist()
        self.kept.delete(stores("b", "b", "c"))
        return [first, self.kept.get(stores("a", "b"))["value"].to_pylist()]

    script = Scripted(one)
    operator = head(script)
    take(operator, 1, ("a", 1), ("b", 1), ("c", 1))
    assert script.answers == [[[3, 2], [3, None]]]
    assert operator.statistics()["keys"] == 1


def test_increments_hold_what_changed() -> None:
    operator = head(Totals())
    take(operator, 1, *((str(i), i) for i in range(500)))
    assert operator.snapshot(True).tables["rows.totals"].num_rows == 500
    take(operator, 2, ("7", 1), ("8", 1))
    assert operator.snapshot(False).tables["rows.totals"].num_rows == 2
    assert operator.snapshot(False).tables["rows.totals"].num_rows == 0


class Recent(Totals):
    totals = TableState({"total": int}, ttl="1500ms")


def test_a_time_to_live_counts_from_the_last_put() -> None:
    """`take` gives each epoch a second."""
    operator = head(Recent())
    take(operator, 1, ("a", 1), ("b", 2))
    assert rows(take(operator, 2, ("a", 3))) == [("a", 4)]
    assert operator.content().to_pylist() == [{"store": "a", "total": 4}, {"store": "b", "total": 2}]
    assert rows(take(operator, 3, ("a", 1), ("b", 1))) == [("a", 5), ("b", 1)]
    assert operator.content().schema.names == ["store", "total"]


def test_what_has_expired_is_gone_from_state_snapshots_and_memory() -> None:
    operator = head(Recent())
    take(operator, 1, *((str(i), i) for i in range(500)))
    full = operator.snapshot(True)
    held = operator.statistics()["state_bytes"]
    take(operator, 3, ("7", 1))
    assert operator.statistics()["keys"] == 1
    assert operator._tables["totals"]._store._chunks.held < 500
    assert operator.statistics()["state_bytes"] < held
    increment = operator.snapshot(False)
    assert increment.tables["rows.totals"].column("__deleted").to_pylist().count(True) == 499
    again = head(Recent())
    for state in (full, increment):
        again.load(state)
    assert again.content().to_pylist() == [{"store": "7", "total": 1}]
    assert rows(take(again, 4, ("7", 1))) == [("7", 2)]
    assert rows(take(again, 6, ("7", 1))) == [("7", 1)], "a restored row expires too"


def test_a_put_that_is_undone_does_not_prolong() -> None:
    class Picky(Recent):
        def on_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> None:
            super().on_batch(batch, ctx)
            if pc.any(pc.equal(batch["amount"], -1)).as_py():
                raise ValueError("minus one")

    operator = head(Picky())
    take(operator, 1, ("a", 1))
    take(operator, 2, ("a", -1))
    assert rows(take(operator, 3, ("a", 1))) == [("a", 1)]


def test_a_time_to_live_is_a_duration() -> None:
    with pytest.raises(Misuse, match="duration '0s': must be longer than zero"):
        TableState({"total": int}, ttl="0s")


def test_expiry_under_kills_and_splits() -> None:
    flow = Flow("test")
    given = flow.source("in", MemorySource([{"store": "a", "amount": 1}]))
    given.key_by("store").apply(Recent, out=OUT).named("totals").collect("out")
    driver = Driver(flow, seed=3)
    for epoch in range(8):
        driver.feed("in", [{"store": f"store {(i * 5 + epoch) % 11}", "amount": i} for i in range(6)])
        driver.advance("700ms")
        if epoch in (1, 4):
            driver.scale("totals", epoch)
            driver.checkpoint()
        if epoch in (2, 5):
            driver.kill("totals", 0)
    driver.close()
    totals = [row["total"] for row in driver.output("out")]
    assert len(totals) == 48
    assert sum(totals) > 8 * sum(range(6)), "some were still known"
    driver.assert_exactly_once()


def test_reading_is_no_change() -> None:
    script = Scripted(
        lambda self, batch, ctx: self.kept.put(values(a=1)), lambda self, batch, ctx: self.kept.get(batch)
    )
    operator = head(script)
    take(operator, 1, ("a", 1))
    operator.snapshot(True)
    take(operator, 2, ("a", 1))
    assert operator.snapshot(False).tables["rows.kept"].num_rows == 0


def test_a_call_that_raises_leaves_no_trace() -> None:
    """Only the key that fails is refused, with all its rows of the epoch; its state and output are as before."""

    class Picky(Totals):
        def on_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> None:
            super().on_batch(batch, ctx)
            if pc.any(pc.equal(batch["amount"], -1)).as_py():
                raise ValueError("minus one")

    operator = head(Picky())
    take(operator, 1, ("a", 1), ("b", 1))
    outputs = take(operator, 2, ("a", 5), ("b", 5), ("b", -1), ("c", 5), ("d", 5))
    assert sorted(rows(outputs)) == [("a", 6), ("c", 5), ("d", 5)]
    assert [(r[0], r[1]) for r in rows(outputs, "errors")] == [
        ('{"store": "b", "amount": 5}', "ValueError: minus one"),
        ('{"store": "b", "amount": -1}', "ValueError: minus one"),
    ]
    assert rows(take(operator, 3, ("b", 1))) == [("b", 2)]
    assert operator.statistics()["errors"] == 2
    skipping = head(Picky(), on_error="skip")
    assert sorted(take(skipping, 1, ("a", 1), ("b", -1))) == ["out"]
    assert skipping.statistics()["skipped"] == 1
    with pytest.raises(Misuse, match="op: ValueError: minus one; fix it"):
        take(head(Picky(), on_error="fail"), 1, ("b", -1))


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (lambda self, batch, ctx: ctx.emit(pa.record_batch({"store": ["zz"], "total": [1]})), "a key that is not in"),
        (lambda self, batch, ctx: ctx.emit(pa.record_batch({"store": ["a"]})), "give exactly store, total"),
        (lambda self, batch, ctx: ctx.emit(pa.record_batch({"store": ["a"], "total": ["x"]})), "ArrowInvalid"),
        (lambda self, batch, ctx: ctx.emit([]), "give a pyarrow.RecordBatch, not list"),
        (lambda self, batch, ctx: ctx.emit(batch, to="side"), "no output 'side'; declared are out"),
        (lambda self, batch, ctx: self.kept.put(values(zz=1)), "kept.put: a key is not in this batch"),
        (lambda self, batch, ctx: self.kept.get(stores("zz")), "kept.get: a key is not in this batch"),
        (lambda self, batch, ctx: self.kept.delete(stores("zz")), "kept.delete: a key is not in this batch"),
        (lambda self, batch, ctx: self.kept.get(["a"]), "give a pyarrow.RecordBatch, not list"),
        (lambda self, batch, ctx: self.kept.get(values(a=1).select(["value"])), "give exactly store"),
    ],
)
def test_what_a_call_may_not_do(bad: Any, error: str) -> None:
    operator = head(Scripted(bad))
    assert error in rows(take(operator, 1, ("a", 1)), "errors")[0][1]
    assert operator.statistics()["keys"] == 0


def test_output_without_the_key_stands_where_its_input_row_stood() -> None:
    class Doubled(BatchOperator):
        def on_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> None:
            ctx.emit(pa.record_batch({"double": pc.multiply(batch["amount"], 2)}))

    operator = head(Doubled(), pa.schema({"double": pa.int64()}))
    given = batch(("a", 1), ("b", 2), ("c", 3), ("a", 4))
    outputs = operator.take(Moment(1, 0, BEGINNING, BEGINNING), [(0, given)])
    ordered = given.by_bucket()
    assert outputs["out"].buckets.tolist() == ordered.buckets.tolist()
    assert [r[0] for r in rows(outputs)] == [2 * amount for amount in ordered.record["amount"].to_pylist()]
    scripted = Scripted(lambda self, batch, ctx: ctx.emit(pa.record_batch({"double": [1, 2]})))
    outputs = take(head(scripted, pa.schema({"double": pa.int64()})), 1, ("a", 1))
    assert "2 rows for 1; give one for each row, or the key columns store" in rows(outputs, "errors")[0][1]


def test_the_order_of_groups_does_not_show() -> None:
    """Polars groups in any order; a key's own rows stay in the order they are emitted in."""

    def emitted(order: list[int]) -> list[tuple[Any, ...]]:
        def work(self: Scripted, batch: pa.RecordBatch, ctx: BatchContext) -> None:
            names = [f"store {i}" for i in order]
            ctx.emit(pa.record_batch({"store": names, "total": order}))
            ctx.emit(pa.record_batch({"store": names, "total": [-1] * len(order)}))

        outputs = take(head(Scripted(work)), 1, *((f"store {i}", i) for i in range(50)))
        assert (np.diff(outputs["out"].buckets.astype(int)) >= 0).all()
        return rows(outputs)

    assert emitted(list(range(50))) == emitted(list(reversed(range(50))))


def test_the_context() -> None:
    script = Scripted(lambda self, batch, ctx: (ctx.epoch, ctx.now.timestamp(), ctx.watermark, ctx.port))
    take(head(script), 7, ("a", 1))
    assert script.answers == [(7, 7.0, None, 0)]
    with pytest.raises(AttributeError, match="state 'kept' belongs to keys: use it inside on_batch"):
        script.kept.get(stores("a"))
    with pytest.raises(AttributeError, match="cannot be replaced"):
        script.kept = 3


def test_several_states_and_inputs() -> None:
    class Both(BatchOperator):
        left = TableState({"l": int})
        right = TableState({"r": int})

        def on_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> None:
            state, name = (self.left, "l") if ctx.port == 0 else (self.right, "r")
            state.put(pa.record_batch({"store": batch["store"], name: batch["amount"]}))
            if ctx.port == 1:
                ctx.emit(self.left.get(batch).rename_columns(["store", "total"]))

    operator = BatchApply(Both(), "op", ("store",), (IN, IN), {"out": OUT}, ports=(0, 0, 1))
    moment = Moment(1, 0, BEGINNING, BEGINNING)
    outputs = operator.take(moment, [(0, batch(("a", 1))), (1, batch(("b", 2))), (2, batch(("b", 3), ("c", 4)))])
    assert sorted(rows(outputs)) == [("b", 2), ("c", None)]
    assert sorted(operator.content().to_pylist(), key=repr) == [
        {"store": "a", "left.l": 1, "right.r": None},
        {"store": "b", "left.l": 2, "right.r": 3},
        {"store": "c", "left.l": None, "right.r": 4},
    ]


def test_apply_refuses() -> None:
    stream = Flow("test").source("in", MemorySource([{"store": "a", "amount": 1}]))
    with pytest.raises(Misuse, match="must have its own on_batch"):
        stream.key_by("store").apply(BatchOperator, out=OUT)
    with pytest.raises(Misuse, match=r"works by key; call key_by\(\.\.\) before it, or use map_batch"):
        stream.apply(Totals, out=OUT)
    with pytest.raises(Misuse, match="has no on_tick; leave out every="):
        stream.key_by("store").apply(Totals, out=OUT, every="1s")
    with pytest.raises(Misuse, match="key columns of other names"):
        stream.key_by("store").apply(Totals, stream.rename(shop="store").key_by("shop"), out=OUT)

    class Numbered(Totals):
        totals = TableState({"store": int, "total": int})

    with pytest.raises(Misuse, match="state 'totals': 'store' is a int64, but as a key it is a string"):
        stream.key_by("store").apply(Numbered, out=OUT)

    class Empty(Totals):
        totals = TableState({"store": str})

    with pytest.raises(Misuse, match="no column beside the key"):
        stream.key_by("store").apply(Empty, out=OUT)


class PolarsTotals(BatchOperator):
    totals = TableState({"total": int})

    def on_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> None:
        new = pl.DataFrame(pl.from_arrow(batch)).group_by("store").agg(amount=pl.col("amount").sum())
        table = new.to_arrow().combine_chunks().to_batches()[0]
        total = pc.add(table["amount"], pc.fill_null(self.totals.get(table)["total"], 0))
        result = pa.record_batch({"store": table["store"], "total": total})
        self.totals.put(result)
        ctx.emit(result)


def test_kills_and_scaling_do_not_show() -> None:
    flow = Flow("test")
    given = flow.source("in", MemorySource([{"store": "a", "amount": 1}]))
    given.key_by("store").apply(PolarsTotals, out=OUT).named("totals").collect("out")
    driver = Driver(flow, seed=5)
    for epoch in range(6):
        driver.feed("in", [{"store": f"store {(i * 7 + epoch) % 9}", "amount": i} for i in range(15)])
        if epoch in (1, 3):
            driver.scale("totals", epoch)
            driver.checkpoint()
        if epoch in (2, 4):
            driver.kill("totals", 0)
    driver.close()
    want = {f"store {s}": sum(i for e in range(6) for i in range(15) if (i * 7 + e) % 9 == s) for s in range(9)}
    assert {row["store"]: row["total"] for row in driver.output("out")} == want
    driver.assert_exactly_once()


def test_through_a_flow() -> None:
    flow = Flow("test")
    given = flow.source("in", MemorySource([{"store": "ab"[i % 2], "amount": i} for i in range(6)], per_epoch=3))
    applied = given.key_by("store").apply(Totals(), out={"store": str, "total": int})
    applied.collect("out")
    found = seep.run(flow, on="inline")["out"].to_pylist()
    assert sorted((row["store"], row["total"]) for row in found) == [("a", 2), ("a", 6), ("b", 1), ("b", 9)]
