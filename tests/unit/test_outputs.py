"""The sending side: one buffer, a cursor for each subscription; it is trimmed by the journal's word alone."""

from __future__ import annotations

from dataclasses import replace as with_fields

import numpy as np
import pyarrow as pa
import pytest

from seep.model.arrow import ArrowBatch
from seep.model.epoch import Progress
from seep.model.ids import BEGINNING, EVERYTHING, FOREVER, Generation, KeyRange, PartitionId
from seep.model.settings import Settings
from seep.partition import outputs
from seep.partition.contract import Edge
from seep.partition.desk import Desk
from seep.partition.outputs import Outputs
from seep.protocol.effects import Send
from seep.protocol.journal import LIVE, SEALED, SHADOW, Entry, Journal
from seep.protocol.messages import (
    Accepted,
    Credit,
    Frame,
    Message,
    Refused,
    Subscribe,
    SubscriptionId,
    Trim,
    Unsubscribe,
)
from seep.sim.light import LightBatch

EDGE = Edge("s>a", "s", "a", 0)
ME = Entry(PartitionId("s", 0), EVERYTHING, 1, FOREVER, LIVE, Generation(1, 0), "here")
A0, A1 = PartitionId("a", 0), PartitionId("a", 1)
LOW, HIGH = EVERYTHING.split(2)
RECEIVERS = (
    Entry(A0, LOW, 1, FOREVER, LIVE, Generation(1, 0), "w0"),
    Entry(A1, HIGH, 1, FOREVER, LIVE, Generation(1, 0), "w1"),
)


class Bench:
    def __init__(self, *receivers: Entry, credit_epochs: int = 100, frame_rows: int = 100) -> None:
        self.desk = Desk("here", Settings(credit_epochs=credit_epochs, frame_rows=frame_rows))
        self.outputs = Outputs(self.desk, ME, [EDGE], Progress(0, 0, BEGINNING, 0))
        self.journal(*(receivers or RECEIVERS))

    def journal(self, *receivers: Entry) -> None:
        version = self.desk.journal.version + 1
        self.desk.journal = Journal(version, 1, {e.partition: e for e in (ME, *receivers)})
        self.outputs.adopt()

    def add(self, *epochs: int, buckets: tuple[int, ...] = (5, 4000)) -> None:
        for epoch in epochs:
            batch = LightBatch(tuple((bucket, (bucket, epoch, 0)) for bucket in buckets))
            self.outputs.add(Progress(epoch, 0, epoch, 0), {"s>a": batch})

    def sent(self) -> list[Message]:
        found = [e.message for e in self.desk.effects if isinstance(e, Send)]
        self.desk.effects.clear()
        return found

    def subscribe(self, receiver: PartitionId = A0, after: int = 0, number: int = 1, **other: object) -> list[Message]:
        entry = self.desk.journal.entries[receiver]
        message = Subscribe(
            ME.partition,
            ME.generation,
            SubscriptionId(receiver, entry.generation, number),
            "s>a",
            entry.key_range,
            after,
            self.desk.journal.version,
            entry.worker,
        )
        self.outputs.on_subscribe(with_fields(message, **other))  # type: ignore[arg-type]
        return self.sent()

    def credit(self, taken: int, number: int = 1) -> list[int]:
        subscription = SubscriptionId(A0, Generation(1, 0), number)
        self.outputs.on_credit(Credit(subscription, ME.partition, "s>a", taken, taken, BEGINNING, 0))
        return announced(self.sent())

    def trim(self, receiver: PartitionId, upto: int, generation: Generation | None = None, version: int = 0) -> bool:
        entry = self.desk.journal.entries[receiver]
        version = version or self.desk.journal.version
        return self.outputs.on_trim(Trim(ME.partition, "s>a", receiver, generation or entry.generation, upto, version))

    def held(self) -> list[int]:
        return [entry.progress.epoch for entry in self.outputs.buffers["s>a"].entries]


def announced(messages: list[Message]) -> list[int]:
    return [m.progress.epoch for m in messages if isinstance(m, Frame) and m.progress is not None]


def rows(messages: list[Message]) -> list[tuple[int, int]]:
    return [
        (m.epoch, item[0])
        for m in messages
        if isinstance(m, Frame) and isinstance(m.batch, LightBatch)
        for item in m.batch.items
    ]


def test_a_subscriber_gets_what_is_newer_in_its_range_then_goes_on_live() -> None:
    bench = Bench()
    bench.add(1, 2, 3)
    sent = bench.subscribe(after=1)
    assert isinstance(sent[0], Accepted)
    assert rows(sent) == [(2, 5), (3, 5)]
    assert announced(sent) == [0, 1, 2, 3], "what was announced before is said too, without rows"
    bench.add(4)
    assert rows(bench.sent()) == [(4, 5)]


def test_the_sequence_counts_from_nought_and_an_epoch_may_take_several_frames() -> None:
    bench = Bench(with_fields(RECEIVERS[0], key_range=EVERYTHING), frame_rows=1)
    bench.add(1)
    frames = [m for m in bench.subscribe() if isinstance(m, Frame)]
    assert [f.sequence for f in frames] == [0, 1, 2]
    assert [f.progress is not None for f in frames] == [True, False, True]


def test_credit_holds_back_and_lets_go() -> None:
    bench = Bench(credit_epochs=2)
    bench.subscribe()
    bench.add(1, 2, 3, 4)
    assert announced(bench.sent()) == [1, 2]
    assert bench.outputs.blocked
    assert bench.credit(1) == [3]
    assert bench.credit(3) == [4]
    assert not bench.outputs.blocked


def test_a_shadow_far_behind_blocks_nobody() -> None:
    bench = Bench(with_fields(RECEIVERS[0], role=SHADOW), credit_epochs=1)
    bench.subscribe()
    bench.add(1, 2, 3, 4)
    assert not bench.outputs.blocked


def test_credit_of_an_older_subscription_counts_for_nothing_but_the_highest_number_heard() -> None:
    bench = Bench(credit_epochs=1)
    bench.subscribe(number=1)
    bench.subscribe(number=2)
    bench.add(1, 2)
    bench.sent()
    assert bench.credit(9, number=1) == []
    assert bench.outputs.highest == 9


def test_what_was_trimmed_is_refused() -> None:
    bench = Bench(RECEIVERS[0])
    bench.add(1, 2, 3)
    bench.trim(A0, 2)
    (refusal,) = bench.subscribe(after=1)
    assert isinstance(refusal, Refused)
    assert refusal.reason == "trimmed"
    assert isinstance(bench.subscribe(after=2)[0], Accepted)


def test_who_knows_a_newer_journal_is_asked_to_wait() -> None:
    bench = Bench()
    (refusal,) = bench.subscribe(journal_version=99)
    assert isinstance(refusal, Refused)
    assert refusal.reason == "behind"


def test_another_generation_on_either_side_gets_no_answer() -> None:
    bench = Bench()
    zombie = SubscriptionId(A0, Generation(0, 9), 1)
    assert bench.subscribe(subscription=zombie) == []
    assert bench.subscribe(sender_generation=Generation(0, 9)) == []
    assert bench.desk.counts["dropped_fenced"] == 2


def test_trimmed_when_every_receiver_of_the_journal_said_so() -> None:
    bench = Bench()
    bench.add(1, 2, 3)
    assert not bench.trim(A0, 3)
    assert bench.held() == [1, 2, 3]
    assert bench.trim(A1, 1)
    assert bench.held() == [2, 3]


def test_a_shadow_and_a_sealed_one_are_waited_for() -> None:
    for role in (SHADOW, SEALED):
        bench = Bench(RECEIVERS[0], with_fields(RECEIVERS[1], role=role))
        bench.add(1)
        assert not bench.trim(A0, 1)


def test_trims_of_zombies_and_of_unknown_journals_count_for_nothing() -> None:
    bench = Bench(RECEIVERS[0])
    bench.add(1)
    assert not bench.trim(A0, 1, generation=Generation(0, 9))
    assert not bench.trim(A0, 1, version=99)
    assert bench.held() == [1]


def test_a_receiver_that_left_the_journal_is_not_waited_for() -> None:
    bench = Bench()
    bench.add(1, 2)
    bench.trim(A0, 1)
    bench.journal(RECEIVERS[0])
    assert bench.held() == [2]


def test_a_receivers_new_generation_leaves_its_old_cursor_without_frames() -> None:
    bench = Bench()
    bench.subscribe()
    bench.journal(with_fields(RECEIVERS[0], generation=Generation(1, 4)), RECEIVERS[1])
    bench.add(1)
    assert bench.sent() == []


def test_sealing_forgets_what_is_later_and_announces_the_last_epoch() -> None:
    bench = Bench(RECEIVERS[0])
    bench.subscribe()
    bench.add(1, 2, 5)
    bench.sent()
    bench.outputs.seal(3)
    assert bench.held() == [1, 2, 3]
    newest = bench.outputs.buffers["s>a"].newest
    assert (newest.epoch, newest.watermark) == (3, 2)
    assert not bench.outputs.empty


def test_unsubscribing_ends_exactly_that_subscription() -> None:
    bench = Bench()
    bench.subscribe(number=2)
    bench.outputs.on_unsubscribe(Unsubscribe(SubscriptionId(A0, Generation(1, 0), 1), ME.partition, "s>a"))
    bench.add(1)
    assert announced(bench.sent()) == [1]
    bench.outputs.on_unsubscribe(Unsubscribe(SubscriptionId(A0, Generation(1, 0), 2), ME.partition, "s>a"))
    bench.add(2)
    assert bench.sent() == []


def test_rows_are_cut_to_the_range_that_was_asked_for() -> None:
    bench = Bench(with_fields(RECEIVERS[0], key_range=KeyRange(3000, 4096)))
    bench.add(1)
    assert rows(bench.subscribe()) == [(1, 4000)]


@pytest.mark.parametrize("widths", [[1_000] * 64, [10] * 60 + [20_000] * 4, [90_000], [1, 90_000, 1, 90_000, 1]])
def test_wide_rows_go_in_frames_that_a_receiver_takes(monkeypatch: pytest.MonkeyPatch, widths: list[int]) -> None:
    """A hundred thousand rows of ten kilobytes were one message, larger than a process takes: its sender died of it."""
    monkeypatch.setattr(outputs, "FRAME_BYTES", 30_000)
    rows = pa.record_batch({"text": ["x" * width for width in widths], "n": range(len(widths))})
    bench = Bench(with_fields(RECEIVERS[0], key_range=EVERYTHING))
    bench.subscribe()
    batch = ArrowBatch(rows, np.zeros(len(widths), dtype=np.uint16))
    bench.outputs.add(Progress(1, 0, 1, 0), {"s>a": batch})
    frames = [frame for frame in bench.sent() if isinstance(frame, Frame)]
    assert [frame.progress is not None for frame in frames] == [False] * (len(frames) - 1) + [True]
    sent = [frame.batch for frame in frames]
    assert all(isinstance(one, ArrowBatch) and (one.rows == 1 or one.size_bytes <= 30_000) for one in sent)
    assert pa.Table.from_batches([one.record for one in sent]).to_pylist() == rows.to_pylist()  # type: ignore[union-attr]
