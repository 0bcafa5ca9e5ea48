"""The receiving side of a partition by itself: whom it listens to, what it refuses, and what it takes together."""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Any

from seep.model.epoch import UNKNOWN, Progress
from seep.model.ids import BEGINNING, EVERYTHING, FOREVER, Generation, PartitionId
from seep.model.settings import Settings
from seep.partition.contract import Edge
from seep.partition.desk import Desk
from seep.partition.inputs import Channel, Inputs, Taken
from seep.protocol.effects import Send
from seep.protocol.journal import LIVE, SEALED, SHADOW, Entry, Journal
from seep.protocol.messages import Accepted, Credit, Frame, Refused, Subscribe, Trim, Unsubscribe
from seep.sim.directed.alone.desks import done
from seep.sim.directed.registry import demand, scenario
from seep.sim.light import LightBatch

EDGE = Edge("s>a", "s", "a", 0)
LOW, HIGH = EVERYTHING.split(2)
S0, S1, S2 = (PartitionId("s", number) for number in range(3))
ME = Entry(PartitionId("a", 0), LOW, 1, FOREVER, LIVE, Generation(1, 7), "here")
BOTH = (
    Entry(S0, LOW, 1, FOREVER, LIVE, Generation(1, 0), "w0"),
    Entry(S1, HIGH, 1, FOREVER, LIVE, Generation(1, 1), "w1"),
)


class _Bench:
    def __init__(self, *senders: Entry, taken: int = 0, edges: tuple[Edge, ...] = (EDGE,), last: int = FOREVER) -> None:
        self.desk = Desk("here", Settings(retry_ms=100.0))
        self.inputs = Inputs(self.desk, ME, edges)
        self.inputs.taken = taken
        self.journal(*(senders or BOTH), last=last)

    def journal(self, *senders: Entry, last: int = FOREVER) -> None:
        version = self.desk.journal.version + 1
        self.desk.journal = Journal(version, 1, {e.partition: e for e in (ME, *senders)})
        self.inputs.adopt(last)

    def subscribes(self) -> list[Subscribe]:
        return done(self.desk, Subscribe)

    def channel(self, sender: PartitionId, edge: str = "s>a") -> Channel:
        return self.inputs.channels[edge, sender]

    def frame(self, sender: PartitionId, epoch: int, *values: int, edge: str = "s>a", **more: Any) -> bool:
        channel = self.channel(sender, edge)
        assert channel.subscription is not None
        batch = LightBatch(tuple((0, (value, 0, 0)) for value in values)) if values else None
        sequence, end = more.pop("sequence", channel.sequence), more.pop("end", True)
        time = more.pop("watermark", epoch * 10)
        said = Progress(epoch, epoch, time, more.pop("digest", 0), **more) if end else None
        return self.inputs.on_frame(Frame(channel.subscription, sender, sequence, epoch, batch, said))

    def accept(self, *senders: PartitionId) -> None:
        for sender in senders:
            subscription = self.channel(sender).subscription
            assert subscription is not None
            self.inputs.on_accepted(Accepted(subscription, sender))

    def take(self, epoch: int) -> list[int]:
        return _values(self.inputs.take(epoch))


def _values(taken: Taken) -> list[int]:
    return [item[1][0] for _, batch in taken.batches for item in batch.items]  # type: ignore[attr-defined]


@scenario
def one_listens_to_those_that_the_journal_names() -> None:
    bench = _Bench(taken=10)
    asked = bench.subscribes()
    demand(
        [(one.sender, one.after, one.key_range, one.worker) for one in asked]
        == [(S0, 10, LOW, "here"), (S1, 10, LOW, "here")],
        f"{asked}",
    )
    demand([one.subscription.number for one in asked] == [1, 2], "numbers are used twice")
    demand({(one.edge, one.journal_version) for one in asked} == {("s>a", 1)}, f"{asked}")
    demand([one.sender_generation for one in asked] == [e.generation for e in BOTH], f"{asked}")
    wide = _Bench(edges=(with_fields(EDGE, broadcast=True),))
    demand({one.key_range for one in wide.subscribes()} == {EVERYTHING}, "it hears a part of what is for all")
    for entry, heard in (
        (with_fields(BOTH[1], role=SHADOW), False),
        (with_fields(BOTH[1], last=10, role=SEALED), False),
        (with_fields(BOTH[1], last=11, role=SEALED), True),
        (with_fields(BOTH[1], first=15, last=14, role=SEALED), False),
        (with_fields(BOTH[1], first=15), True),
        (with_fields(BOTH[1], first=20), True),
        (with_fields(BOTH[1], first=21), False),
    ):
        some = _Bench(BOTH[0], entry, taken=10, last=20)
        found = some.subscribes()
        demand((len(found) == 2) == heard, f"{entry}")
        demand(not heard or found[1].after == max(10, entry.first - 1), f"{found}")
    over = _Bench(taken=20, last=20)
    demand(not over.subscribes() and over.inputs.bound() == 20 and not over.inputs.ended, "it has all that it needs")
    bench.journal(BOTH[0], with_fields(BOTH[1], worker="w9"))
    (moved,) = bench.subscribes()
    demand((moved.sender, moved.subscription.number) == (S1, 3), f"{moved}")
    bench.journal(with_fields(BOTH[0], generation=Generation(1, 9)), with_fields(BOTH[1], worker="w9"))
    demand([one.sender for one in bench.subscribes()] == [S0], "who was started again")
    bench.journal(with_fields(BOTH[1], worker="w9"))
    (left,) = done(bench.desk, Unsubscribe)
    demand((left.sender, left.subscription.number) == (S0, 4), f"{left}")
    demand(not bench.subscribes() and len(bench.inputs.by_subscription) == 1, "it is listened to")


@scenario
def epoch_waits_for_all_and_is_taken_in_order() -> None:
    bench = _Bench()
    bench.frame(S1, 3, 20, 21)
    demand((bench.inputs.next_epoch(), bench.inputs.bound()) == (3, 0), "without the other one")
    bench.frame(S0, 2, 10)
    demand((bench.inputs.next_epoch(), bench.inputs.bound()) == (2, 2), f"{bench.inputs.bound()}")
    bench.frame(S0, 3, 11, end=False)
    demand(bench.inputs.bound() == 2, "in the middle of one")
    bench.frame(S0, 3, 12)
    demand(bench.take(2) == [10] and bench.take(3) == [11, 12, 20, 21], "not in the order of key ranges")
    demand(bench.inputs.taken == 3 and bench.inputs.next_epoch() == FOREVER, f"{bench.inputs.taken}")
    demand(bench.inputs.rows == 5 and bench.inputs.heard == 3, f"{bench.inputs.rows}")
    ports = (Edge("t>a", "t", "a", 1), EDGE)
    t0 = Entry(PartitionId("t", 0), LOW, 1, FOREVER, LIVE, Generation(1, 3), "w3")
    two = _Bench(*BOTH, t0, edges=ports)
    two.frame(t0.partition, 1, 30, edge="t>a")
    two.frame(S1, 1, 20)
    two.frame(S0, 1, 10)
    taken = two.inputs.take(1)
    demand([port for port, _ in taken.batches] == [0, 0, 1] and _values(taken) == [10, 20, 30], f"{taken}")
    demand(two.inputs.rows_by_edge == {"s>a": 2, "t>a": 1}, f"{two.inputs.rows_by_edge}")
    after = _Bench(with_fields(BOTH[0], last=4, role=SEALED), Entry(S2, LOW, 5, FOREVER, LIVE, Generation(1, 5), "w2"))
    after.frame(S0, 4, 1)
    after.frame(S2, 5, 2)
    after.frame(S2, 6, 3)
    demand(after.inputs.bound() == 6 and after.take(4) == [1], "a life that is over holds it back")
    demand([c.sender.partition for c in after.inputs.order] == [S2], "it is listened to still")
    (left,) = done(after.desk, Unsubscribe)
    demand(left.sender == S0, f"{left}")
    demand(after.take(5) == [2] and after.take(6) == [3], "not its successor's")


@scenario
def what_is_out_of_step_is_asked_for_again() -> None:
    bench = _Bench()
    bench.subscribes()
    bench.frame(S0, 1, 5, end=False)
    bench.frame(S0, 1, 6, sequence=2)
    (again,) = bench.subscribes()
    demand((again.sender, again.after, again.subscription.number) == (S0, 0, 3), f"{again}")
    bench.frame(S0, 1, 7)
    bench.frame(S1, 1, 8)
    demand(bench.take(1) == [7, 8], "rows of before are taken")
    demand(not bench.frame(S0, 1, 9, sequence=0) and not bench.subscribes(), "one that came twice")
    demand(bench.desk.counts == {"dropped_duplicate": 1}, f"{bench.desk.counts}")
    stale = bench.channel(S0).subscription
    assert stale is not None
    bench.inputs.subscribe(bench.channel(S0))
    bench.subscribes()
    demand(not bench.inputs.on_frame(Frame(stale, S0, 1, 2, None, Progress(2, 0, 0, 0))), "of an older subscription")
    demand(bench.desk.counts["dropped_fenced"] == 1, f"{bench.desk.counts}")
    bench.inputs.on_accepted(Accepted(stale, S0))
    demand(not bench.inputs.accepted and not bench.channel(S0).accepted, "an older one was accepted")
    bench.frame(S0, 1, 1, 2, 3)
    demand(bench.desk.counts["dropped_duplicate"] == 4 and bench.inputs.next_epoch() == FOREVER, "it is taken twice")
    ended = _Bench(with_fields(BOTH[0], last=5, role=SEALED), BOTH[1])
    ended.frame(S0, 6, 1)
    demand(ended.inputs.next_epoch() == FOREVER, "later than its life")
    cut = _Bench()
    for epoch in (4, 5, 6):
        cut.frame(S0, epoch, epoch)
    cut.journal(with_fields(BOTH[0], last=4, role=SEALED), BOTH[1])
    cut.frame(S1, 6)
    demand(cut.inputs.next_epoch() == 4 and cut.take(4) == [4] and cut.take(6) == [], "of a life that is over")


@scenario
def silence_is_broken_after_a_while() -> None:
    bench = _Bench(with_fields(BOTH[0], last=9, role=SEALED), BOTH[1])
    bench.subscribes()

    def at(now_ms: float) -> tuple[list[PartitionId], list[PartitionId]]:
        bench.desk.now_ms = now_ms
        bench.inputs.retry()
        return [one.sender for one in bench.subscribes()], [one.sender for one in done(bench.desk, Credit)]

    demand(at(99.0) == ([], []) and at(100.0) == ([S0, S1], []), "asked again by those that have not answered")
    bench.accept(S0, S1)
    demand(bench.desk.changed and bench.inputs.accepted, "nobody is told")
    demand(at(199.0) == ([], []) and at(200.0) == ([S0, S1], []), "nothing came")
    bench.accept(S0, S1)
    bench.desk.now_ms = 250.0
    bench.frame(S0, 9)
    demand(at(300.0) == ([S1], []), "one that was heard")
    bench.accept(S1)
    demand(at(350.0) == ([], [S0]), "whose last word is there is only told how far we are")
    demand(at(400.0) == ([S1], []) and at(449.0) == ([], []), "too early")
    refused = _Bench()
    for reason, later_ms in (("behind", 20.0), ("trimmed", 20.0)):
        refused.subscribes()
        refused.desk.now_ms += 1_000.0
        refused.inputs.retry()
        refused.subscribes()
        subscription = refused.channel(S0).subscription
        assert subscription is not None
        refused.inputs.on_refused(Refused(subscription, S0, reason))
        for ms, found in ((later_ms - 1.0, []), (1.0, [S0])):
            refused.desk.now_ms += ms
            refused.inputs.retry()
            demand([one.sender for one in refused.subscribes()] == found, f"{reason}, {ms}")
        demand(bool(refused.inputs.failure) == (reason == "trimmed"), f"{refused.inputs.failure}")
    told = "a/0 needs epochs after 0 from s/0, which no longer has them: restore from a savepoint"
    demand(refused.inputs.failure == told and refused.desk.changed, refused.inputs.failure)


@scenario
def replay_that_differs_is_told() -> None:
    """Of epochs of the sender's life, until they are durable here."""
    for first, epoch, digests, fails in (
        (1, 3, (7, 7), False),
        (1, 3, (7, 8), True),
        (1, 3, (7, UNKNOWN), False),
        (1, 3, (UNKNOWN, 8), False),
        (4, 3, (7, 8), False),
        (3, 3, (7, 8), True),
    ):
        bench = _Bench(with_fields(BOTH[0], first=first))
        for digest in digests:
            bench.frame(S0, epoch, digest=digest)
            bench.inputs.subscribe(bench.channel(S0))
        demand(("s/0 replayed epoch 3 with other output" in bench.inputs.failure) == fails, f"{digests} of {first}")
        demand(bench.desk.changed == fails, "nobody is told")
    saved = _Bench(BOTH[0])
    for epoch in (3, 4):
        saved.frame(S0, epoch, digest=7)
    saved.inputs.trim(3)
    demand(saved.inputs.digests == {("s>a", S0): {4: 7}}, f"{saved.inputs.digests}")
    trims = done(saved.desk, Trim)
    demand(
        [(t.sender, t.edge, t.receiver, t.generation, t.upto, t.journal_version) for t in trims]
        == [(S0, "s>a", ME.partition, ME.generation, 3, 1)],
        f"{trims}",
    )


@scenario
def time_is_the_least_of_those_awake() -> None:
    """And of those that have ended the greatest that they had got to."""
    cases: tuple[tuple[dict[str, Any], dict[str, Any], tuple[Any, ...]], ...] = (
        ({}, {}, (30, False, False, BEGINNING)),
        ({"idle": True}, {}, (30, False, False, BEGINNING)),
        ({"idle": True}, {"idle": True}, (BEGINNING, False, True, BEGINNING)),
        ({"ended": True}, {}, (30, False, False, 30)),
        ({"ended": True}, {"ended": True}, (FOREVER, True, False, 30)),
        ({"ended": True}, {"idle": True}, (BEGINNING, False, True, BEGINNING)),
    )
    for one, other, wanted in cases:
        bench = _Bench()
        bench.frame(S0, 3, 1, **one)
        bench.frame(S1, 3, **other)
        demand(bench.inputs.bound() == (FOREVER if one.get("ended") and other.get("ended") else 3), f"{one}, {other}")
        taken = bench.inputs.take(3)
        demand((taken.watermark, taken.ended, taken.idle, taken.reached) == wanted, f"{one}, {other}: {taken}")
        demand(taken.now_ms == 3 and bench.inputs.ended == taken.ended, f"{taken}")
    bench = _Bench()
    bench.frame(S0, 3)
    bench.frame(S1, 5)
    bench.inputs.take(3)
    bench.frame(S0, 6)
    later = bench.inputs.take(5)
    demand((later.watermark, later.now_ms) == (30, 5), f"what was said last holds on: {later}")
    t0 = Entry(PartitionId("t", 0), LOW, 1, FOREVER, LIVE, Generation(1, 3), "w3")
    table = _Bench(BOTH[0], t0, edges=(EDGE, Edge("t>a", "t", "a", 1, timeless=True)))
    table.frame(S0, 3)
    table.frame(t0.partition, 1, 5, edge="t>a")
    table.frame(t0.partition, 3, edge="t>a", watermark=7)
    table.inputs.take(1)
    demand(table.inputs.take(3).watermark == 30, "a table's time counts")
    heard = _Bench()
    heard.frame(S0, 9, idle=True)
    heard.inputs.subscribe(heard.channel(S0))
    heard.inputs.taken = 9
    heard.inputs.subscribe(heard.channel(S0))
    heard.frame(S0, 8)
    heard.frame(S0, 9, idle=True)
    demand(heard.channel(S0).current.idle and heard.channel(S0).current.epoch == 9, "what it said of before")
    demand(heard.inputs.heard == 9, f"{heard.inputs.heard}")


@scenario
def credit_goes_to_those_that_have_accepted() -> None:
    bench = _Bench()
    bench.subscribes()
    bench.accept(S1)
    bench.frame(S1, 4, 1, 2)
    bench.frame(S0, 2)
    bench.inputs.take(2)
    bench.inputs.watermark = 17
    bench.inputs.give_credit()
    (credit,) = done(bench.desk, Credit)
    demand((credit.sender, credit.edge, credit.taken, credit.highest) == (S1, "s>a", 2, 4), f"{credit}")
    demand((credit.watermark, credit.rows) == (17, 0), f"{credit}")
    demand(not [e for e in bench.desk.effects if isinstance(e, Send)], f"{bench.desk.effects}")
