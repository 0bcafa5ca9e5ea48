"""The receiving side: frames in, whole epochs out; what is out of step is asked for again."""

from __future__ import annotations

from dataclasses import replace as with_fields

import pytest

from seep.model.epoch import Progress
from seep.model.ids import EVERYTHING, FOREVER, Generation, PartitionId
from seep.model.settings import Settings
from seep.partition.contract import Edge
from seep.partition.desk import Desk
from seep.partition.inputs import Channel, Inputs
from seep.protocol.effects import Send
from seep.protocol.journal import LIVE, SEALED, SHADOW, Entry, Journal
from seep.protocol.messages import Accepted, Credit, Frame, Message, Refused, Subscribe, Trim, Unsubscribe
from seep.sim.light import LightBatch

EDGE = Edge("s>a", "s", "a", 0)
LOW, HIGH = EVERYTHING.split(2)
S0, S1, S2 = (PartitionId("s", number) for number in range(3))
ME = Entry(PartitionId("a", 0), EVERYTHING, 1, FOREVER, LIVE, Generation(1, 0), "here")
SENDERS = (
    Entry(S0, LOW, 1, FOREVER, LIVE, Generation(1, 0), "w0"),
    Entry(S1, HIGH, 1, FOREVER, LIVE, Generation(1, 0), "w1"),
)


class Bench:
    def __init__(self, *senders: Entry, taken: int = 0) -> None:
        self.desk = Desk("here", Settings(retry_ms=100.0))
        self.inputs = Inputs(self.desk, ME, [EDGE])
        self.inputs.taken = taken
        self.journal(*(senders or SENDERS))

    def journal(self, *senders: Entry) -> None:
        version = self.desk.journal.version + 1
        self.desk.journal = Journal(version, 1, {e.partition: e for e in (ME, *senders)})
        self.inputs.adopt(FOREVER)

    def sent(self) -> list[tuple[str, Message]]:
        found = [(e.to, e.message) for e in self.desk.effects if isinstance(e, Send)]
        self.desk.effects.clear()
        return found

    def subscribes(self) -> list[Subscribe]:
        return [message for _, message in self.sent() if isinstance(message, Subscribe)]

    def channel(self, sender: PartitionId) -> Channel:
        return self.inputs.channels["s>a", sender]

    def frame(
        self,
        sender: PartitionId,
        epoch: int,
        *values: int,
        sequence: int = -1,
        digest: int = 0,
        end: bool = True,
        idle: bool = False,
    ) -> bool:
        channel = self.channel(sender)
        assert channel.subscription is not None
        batch = LightBatch(tuple((0, (value, 0, 0)) for value in values)) if values else None
        progress = Progress(epoch, epoch, epoch * 10, digest, idle=idle) if end else None
        sequence = channel.sequence if sequence < 0 else sequence
        return self.inputs.on_frame(Frame(channel.subscription, sender, sequence, epoch, batch, progress))

    def take(self, epoch: int) -> list[int]:
        batches = self.inputs.take(epoch).batches
        return [item[1][0] for _, batch in batches for item in batch.items]  # type: ignore[attr-defined]


def test_an_epoch_waits_for_every_sender() -> None:
    bench = Bench()
    bench.frame(S0, 3, 1)
    assert (bench.inputs.next_epoch(), bench.inputs.bound()) == (3, 0)
    bench.frame(S1, 2, 2)
    assert (bench.inputs.next_epoch(), bench.inputs.bound()) == (2, 2)
    bench.frame(S1, 4)
    assert bench.inputs.bound() == 3


def test_batches_come_in_the_order_of_key_ranges_not_of_arrival() -> None:
    bench = Bench()
    bench.frame(S1, 1, 20)
    bench.frame(S0, 1, 10)
    assert bench.take(1) == [10, 20]


def test_frames_of_an_epoch_are_put_together() -> None:
    bench = Bench()
    assert not bench.frame(S0, 1, 1, end=False)
    assert bench.frame(S0, 1, 2)
    bench.frame(S1, 1)
    assert bench.take(1) == [1, 2]


def test_a_gap_means_asking_again_from_what_is_taken() -> None:
    bench = Bench()
    bench.frame(S0, 1, 1)
    bench.frame(S1, 1)
    bench.take(1)
    bench.frame(S0, 2, 2)
    bench.sent()
    bench.frame(S0, 4, 4, sequence=3)
    (again,) = bench.subscribes()
    assert (again.sender, again.after, again.subscription.number) == (S0, 1, 3)
    assert not bench.channel(S0).queue, "what came under the old number will come again"


def test_a_repeated_frame_and_one_of_an_old_subscription_are_dropped() -> None:
    bench = Bench()
    old = bench.channel(S0).subscription
    assert old is not None
    bench.frame(S0, 1, 1)
    assert not bench.frame(S0, 1, 1, sequence=0)
    bench.inputs.subscribe(bench.channel(S0))
    assert not bench.inputs.on_frame(Frame(old, S0, 1, 2, None, Progress(2, 0, 0, 0)))
    assert (bench.desk.counts["dropped_duplicate"], bench.desk.counts["dropped_fenced"]) == (1, 1)


def test_an_epoch_already_taken_is_a_duplicate_but_its_announcement_holds() -> None:
    bench = Bench(SENDERS[0], with_fields(SENDERS[1], role=SHADOW), taken=5)
    bench.frame(S0, 5, 1)
    assert bench.inputs.next_epoch() == FOREVER
    assert bench.channel(S0).current.watermark == 50


def test_shadows_are_not_heard() -> None:
    bench = Bench(SENDERS[0], with_fields(SENDERS[1], role=SHADOW))
    assert [m.sender for m in bench.subscribes()] == [S0]


def test_a_new_generation_is_asked_anew_and_the_old_one_is_deaf_ground() -> None:
    bench = Bench()
    bench.sent()
    bench.journal(with_fields(SENDERS[0], generation=Generation(1, 7), worker="w9"), SENDERS[1])
    ((to, message),) = bench.sent()
    assert isinstance(message, Subscribe)
    assert (to, message.sender_generation) == ("w9", Generation(1, 7))


def test_a_commit_drops_what_the_old_one_said_past_its_life_and_asks_the_new_one_from_its_beginning() -> None:
    bench = Bench()
    for epoch in (1, 2, 3, 4):
        bench.frame(S0, epoch, epoch)
    bench.sent()
    new = Entry(S2, LOW, 3, FOREVER, LIVE, Generation(1, 3), "w2")
    bench.journal(with_fields(SENDERS[0], last=2, role=SEALED), SENDERS[1], new)
    assert [p.epoch for p, _ in bench.channel(S0).queue] == [1, 2]
    assert [(m.sender, m.after) for m in bench.subscribes()] == [(S2, 2)]


def test_a_sender_whose_life_is_taken_is_left() -> None:
    bench = Bench(with_fields(SENDERS[0], last=2, role=SEALED), SENDERS[1])
    bench.sent()
    bench.inputs.move(2)
    ((to, message),) = bench.sent()
    assert isinstance(message, Unsubscribe)
    assert (to, message.sender) == ("w0", S0)
    assert [c.sender.partition for c in bench.inputs.order] == [S1]


def test_the_watermark_is_the_least_and_now_the_greatest() -> None:
    bench = Bench()
    bench.frame(S0, 1, 1)
    bench.frame(S0, 3, 3)
    bench.frame(S1, 3)
    _, now_ms, watermark, ended, *_ = bench.inputs.take(1)
    assert (now_ms, watermark, ended) == (1, -(2**62), False)
    _, now_ms, watermark, *_ = bench.inputs.take(3)
    assert (now_ms, watermark) == (3, 30)


def test_an_idle_sender_holds_nobody_back_and_all_idle_ones_hold_time_still() -> None:
    bench = Bench()
    bench.frame(S0, 2, 1)
    bench.frame(S1, 2, idle=True)
    assert bench.inputs.take(2)[2:5] == (20, False, False)
    bench.frame(S0, 3, idle=True)
    bench.frame(S1, 3, idle=True)
    assert bench.inputs.take(3)[2:5] == (-(2**62), False, True)


def test_a_replay_that_says_something_else_is_a_failure() -> None:
    bench = Bench()
    bench.frame(S0, 1, 1, digest=77)
    bench.inputs.subscribe(bench.channel(S0))
    bench.frame(S0, 1, 1, digest=77)
    assert not bench.inputs.failure
    bench.inputs.subscribe(bench.channel(S0))
    bench.frame(S0, 1, 2, digest=78)
    assert "s/0 replayed epoch 1" in bench.inputs.failure


def test_silence_without_an_answer_is_asked_again_and_with_something_queued_is_not() -> None:
    bench = Bench()
    for sender in (S0, S1):
        subscription = bench.channel(sender).subscription
        assert subscription is not None
        bench.inputs.on_accepted(Accepted(subscription, sender))
    bench.frame(S1, 1, 1)
    bench.sent()
    bench.desk.now_ms = 99.0
    bench.inputs.retry()
    assert bench.sent() == []
    bench.desk.now_ms = 101.0
    bench.inputs.retry()
    sent = bench.sent()
    assert [type(message) for _, message in sent] == [Subscribe, Credit]
    assert [to for to, _ in sent] == ["w0", "w1"]


@pytest.mark.parametrize(("reason", "fails"), [("behind", False), ("trimmed", True)])
def test_a_refusal(reason: str, fails: bool) -> None:
    bench = Bench()
    subscription = bench.channel(S0).subscription
    assert subscription is not None
    bench.inputs.on_refused(Refused(subscription, S0, reason))
    assert bool(bench.inputs.failure) == fails


def test_trim_goes_to_everybody_the_journal_names() -> None:
    bench = Bench(SENDERS[0], with_fields(SENDERS[1], role=SHADOW))
    bench.sent()
    bench.inputs.trim(4)
    assert [(to, m.upto) for to, m in bench.sent() if isinstance(m, Trim)] == [("w0", 4), ("w1", 4)]
