"""The books name the edge and the epoch of a row that was lost, doubled or altered between two partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as with_fields

import numpy as np
import pyarrow as pa
import pytest

import seep
from operators.books import KEPT_EPOCHS
from seep.model.arrow import ArrowBatch
from seep.protocol.messages import Frame, Message
from tests.golden.flow import build as golden
from tests.saving import fix

ROWS, PER_EPOCH = 2_000, 5


def flow_of(checkpoint: str = "2s") -> seep.Flow:
    """Two hops, the first of them by key; rows travel as they are. With checkpoints a source's log is truncated."""
    flow = seep.Flow("audited", epoch="10ms", checkpoint=checkpoint)
    source = seep.MemorySource([{"k": f"k{i % 7}", "n": i} for i in range(ROWS)], per_epoch=PER_EPOCH)
    keyed = flow.source("rows", source).key_by("k")
    keyed.dedupe("k", "n").named("first").scale(start=2).key_by("n").dedupe("n").named("second").collect("out")
    return flow


Change = Callable[[ArrowBatch], ArrowBatch]


def altered(batch: ArrowBatch) -> ArrowBatch:
    numbers = batch.record.column("n").to_pylist()
    numbers[0] += 1_000_000
    at = batch.record.schema.get_field_index("n")
    return ArrowBatch(batch.record.set_column(at, "n", pa.array(numbers, pa.int64())), batch.buckets)


def lost(batch: ArrowBatch) -> ArrowBatch:
    return ArrowBatch(batch.record.slice(1), batch.buckets[1:])


def doubled(batch: ArrowBatch) -> ArrowBatch:
    return ArrowBatch.concat([batch, ArrowBatch(batch.record.slice(0, 1), batch.buckets[:1])])


class Once:
    """Changes the first batch that a partition of this operator sends after some epoch."""

    def __init__(self, sender: str, after: int, change: Change) -> None:
        self.sender, self.after, self.change = sender, after, change
        self.epoch = 0

    def __call__(self, message: Message) -> Message:
        if self.epoch or not isinstance(message, Frame) or message.batch is None:
            return message
        if message.sender.operator != self.sender or message.epoch <= self.after:
            return message
        assert isinstance(message.batch, ArrowBatch)
        self.epoch = message.epoch
        return with_fields(message, batch=self.change(message.batch))


@pytest.mark.parametrize("workers", [1, 3])
def test_books_that_balance(workers: int) -> None:
    for flow in (flow_of(), golden()):
        found = fix(flow, 25, workers).audit()
        assert (found["balanced"], found["problems"]) == (True, [])
    assert all(edge["sent"] == edge["taken"] for edge in found["edges"] if edge["taken"] is not None)


@pytest.mark.parametrize("change", [altered, lost, doubled])
@pytest.mark.parametrize(
    ("sender", "edge", "done"),
    [
        ("rows", "rows->first:0", "taken"),
        ("first", "first->second:0", "taken"),
        ("second", "second->out:0", "committed"),
    ],
)
def test_the_edge_and_the_epoch_are_named(change: Change, sender: str, edge: str, done: str) -> None:
    once = Once(sender, 12, change)
    found = fix(flow_of(), 40, workers=4, carry=once).audit()
    assert once.epoch, "nothing crossed from one worker to another"
    assert not found["balanced"]
    (problem,) = found["problems"]
    assert problem.startswith(f"edge {edge}: ")
    said = problem.partition(f"first in epoch {once.epoch}: ")[2]
    if change is altered:
        assert said.endswith("rows, altered")
    else:
        sent, was = (int(part.split()[0]) for part in said.split(", "))
        assert was - sent == (1 if change is doubled else -1)
        assert said.endswith(done)


def test_what_is_longer_ago_is_still_noticed() -> None:
    once = Once("rows", 3, altered)
    found = fix(flow_of("200ms"), KEPT_EPOCHS + 60, workers=4, carry=once).audit()
    (problem,) = found["problems"]
    assert problem.startswith("edge rows->first:0: the ")
    assert "are not those sent; before epoch " in problem
    assert int(problem.rpartition(" ")[2]) > once.epoch


def test_a_digest_is_the_sum_of_its_parts() -> None:
    generator = np.random.default_rng(3)
    record = pa.record_batch({"n": generator.integers(0, 99, 50), "s": [f"t{i % 9}" for i in range(50)]})
    batch = ArrowBatch(record, generator.integers(0, 4096, 50).astype(np.uint16))
    parts = [ArrowBatch(record.slice(at, 10), batch.buckets[at : at + 10]) for at in range(0, 50, 10)]
    whole = batch.digest()
    assert sum(part.digest() for part in parts) % 2**64 == whole
    for order in (parts, [part.by_bucket() for part in reversed(parts)]):
        assert ArrowBatch.concat(order).digest() == whole
