"""The sending side of a partition by itself: to whom what goes, how far ahead, and when it is forgotten."""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Any

from seep.model.epoch import Progress
from seep.model.ids import BEGINNING, EVERYTHING, FOREVER, Generation, KeyRange, PartitionId
from seep.model.settings import Settings
from seep.partition.contract import Edge
from seep.partition.desk import Desk
from seep.partition.outputs import FRAME_BYTES, Outputs
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
from seep.sim.directed.alone.desks import done
from seep.sim.directed.registry import demand, scenario
from seep.sim.light import LightBatch
from seep.state.checkpoint import Buffered, Checkpoint

EDGE = Edge("s>a", "s", "a", 0)
ME = Entry(PartitionId("s", 0), EVERYTHING, 1, FOREVER, LIVE, Generation(1, 4), "here")
A0, A1 = PartitionId("a", 0), PartitionId("a", 1)
LOW, HIGH = EVERYTHING.split(2)
BOTH = (
    Entry(A0, LOW, 1, FOREVER, LIVE, Generation(1, 5), "w0"),
    Entry(A1, HIGH, 1, FOREVER, LIVE, Generation(1, 6), "w1"),
)
ROW_BYTES = 32


class _Bench:
    def __init__(self, *receivers: Entry, **knobs: Any) -> None:
        self.desk = Desk("here", Settings(**knobs))
        self.outputs = Outputs(self.desk, ME, [EDGE], Progress(0, 0, BEGINNING, 0))
        self.journal(*(receivers or BOTH))

    def journal(self, *receivers: Entry) -> None:
        version = self.desk.journal.version + 1
        self.desk.journal = Journal(version, 1, {e.partition: e for e in (ME, *receivers)})
        self.outputs.adopt()

    def add(self, *epochs: int, rows: tuple[int, ...] = (5, 4000)) -> None:
        for epoch in epochs:
            batch = LightBatch(tuple((bucket, (bucket, epoch, 0)) for bucket in rows))
            self.outputs.add(Progress(epoch, epoch, 10 * epoch, 0), {"s>a": batch})

    def sent(self) -> list[Message]:
        return [effect.message for effect in done(self.desk, Send)]

    def subscribe(self, who: PartitionId = A0, after: int = 0, number: int = 1, **other: Any) -> list[Message]:
        entry = self.desk.journal.entries.get(who, BOTH[0])
        subscription = SubscriptionId(who, entry.generation, number)
        version = self.desk.journal.version
        asked = Subscribe(
            ME.partition, ME.generation, subscription, "s>a", entry.key_range, after, version, entry.worker
        )
        self.outputs.on_subscribe(with_fields(asked, **other))
        return self.sent()

    def credit(self, taken: int, who: PartitionId = A0, number: int = 1, **other: Any) -> list[int]:
        subscription = SubscriptionId(who, self.desk.journal.entries[who].generation, number)
        said = Credit(subscription, ME.partition, "s>a", taken, 0, BEGINNING, 0)
        self.outputs.on_credit(with_fields(said, **other))
        return _announced(self.sent())

    def trim(self, who: PartitionId, upto: int, **other: Any) -> bool:
        generation, version = self.desk.journal.entries[who].generation, self.desk.journal.version
        return self.outputs.on_trim(with_fields(Trim(ME.partition, "s>a", who, generation, upto, version), **other))

    def held(self) -> list[int]:
        return [entry.progress.epoch for entry in self.outputs.buffers["s>a"].entries]


def _announced(messages: list[Message]) -> list[int]:
    return [m.progress.epoch for m in messages if isinstance(m, Frame) and m.progress is not None]


def _rows(messages: list[Message]) -> list[tuple[int, int]]:
    frames = (m for m in messages if isinstance(m, Frame) and isinstance(m.batch, LightBatch))
    return [(m.epoch, item[0]) for m in frames for item in m.batch.items]  # type: ignore[union-attr]


@scenario
def subscriber_gets_what_is_newer_in_its_range() -> None:
    bench = _Bench()
    bench.add(1, 2, 3)
    sent = bench.subscribe(after=1)
    demand(isinstance(sent[0], Accepted) and sent[0].sender == ME.partition, f"{sent[0]}")
    demand(_rows(sent) == [(2, 5), (3, 5)], f"{_rows(sent)}")
    demand(_announced(sent) == [0, 1, 2, 3], f"{_announced(sent)}")
    bench.add(4)
    live = bench.sent()
    demand(_rows(live) == [(4, 5)] and all(isinstance(m, Frame) and m.sender == ME.partition for m in live), f"{live}")
    bench.add(5, rows=(4000,))
    (empty,) = bench.sent()
    assert isinstance(empty, Frame)
    demand(empty.batch is None and empty.progress is not None, f"{empty}")
    assert empty.progress is not None
    demand(empty.progress.digest == LightBatch(((4000, (4000, 5, 0)),)).digest(), "not of all the rows")
    bench.add(6, rows=())
    (empty,) = bench.sent()
    demand(isinstance(empty, Frame) and empty.progress == Progress(6, 6, 60, 0), f"{empty}")
    later = bench.subscribe(A1, after=3)
    demand(_announced(later) == [3, 4, 5, 6] and _rows(later) == [(4, 4000), (5, 4000)], f"{later}")
    pieces = _Bench(with_fields(BOTH[0], key_range=EVERYTHING), frame_rows=2)
    pieces.add(1, rows=(1, 2, 3, 4, 5))
    frames = [m for m in pieces.subscribe() if isinstance(m, Frame)]
    demand([f.sequence for f in frames] == [0, 1, 2, 3], f"{frames}")
    demand([f.progress is not None for f in frames] == [True, False, False, True], f"{frames}")
    demand([f.batch.rows for f in frames if f.batch] == [2, 2, 1], f"{frames}")


class _Wide(LightBatch):
    """Two of its rows fill a frame."""

    @property
    def size_bytes(self) -> int:
        return FRAME_BYTES // 2 * self.rows

    def part(self, key_range: KeyRange) -> LightBatch:
        return _Wide(LightBatch.part(self, key_range).items)

    def pieces(self, limit_rows: int) -> list[LightBatch]:
        return [_Wide(piece.items) for piece in LightBatch.pieces(self, limit_rows)]


@scenario
def wide_rows_go_in_more_frames() -> None:
    bench = _Bench(with_fields(BOTH[0], key_range=EVERYTHING), frame_rows=100)
    bench.outputs.add(Progress(1, 1, 10, 0), {"s>a": _Wide(tuple((n, (n, 1, 0)) for n in range(7)))})
    frames = [m for m in bench.subscribe() if isinstance(m, Frame)][1:]
    rows = [frame.batch.rows for frame in frames if frame.batch]
    demand(sum(rows) == 7 and max(rows) <= 2, f"{rows}")
    demand([f.progress is not None for f in frames] == [False] * (len(frames) - 1) + [True], f"{frames}")


@scenario
def subscriptions_of_others_are_refused_or_dropped() -> None:
    bench = _Bench()
    bench.add(1, 2, 3)
    behind = bench.subscribe(journal_version=bench.desk.journal.version + 1)
    demand([getattr(m, "reason", "") for m in behind] == ["behind"], f"{behind}")
    strange = bench.subscribe(PartitionId("a", 9))
    demand([getattr(m, "reason", "") for m in strange] == ["behind"], f"{strange}")
    for other in ({"sender_generation": Generation(1, 3)}, {"subscription": SubscriptionId(A0, Generation(1, 4), 1)}):
        demand(not bench.subscribe(**other), f"{other}")
    demand(bench.desk.counts == {"dropped_fenced": 2}, f"{bench.desk.counts}")
    demand(isinstance(bench.subscribe(number=3)[0], Accepted), "a first one")
    demand(not bench.subscribe(number=2), "an older one takes its place")
    demand(isinstance(bench.subscribe(number=3)[0], Accepted), "the same once more")
    bench.trim(A0, 2)
    bench.trim(A1, 2)
    demand(bench.held() == [3], f"{bench.held()}")
    trimmed = bench.subscribe(after=1, number=5)
    demand(isinstance(trimmed[0], Refused) and trimmed[0].reason == "trimmed", f"{trimmed}")
    demand(_announced(bench.subscribe(after=2, number=5)) == [2, 3], "what is there is refused")
    bench.journal(with_fields(BOTH[0], generation=Generation(2, 0)), BOTH[1])
    demand(not bench.outputs.cursors["s>a"], "one of an older generation is served")
    demand(isinstance(bench.subscribe(after=2, number=1)[0], Accepted), "a later generation begins its numbers anew")
    bench.outputs.on_unsubscribe(Unsubscribe(SubscriptionId(A0, Generation(2, 0), 9), ME.partition, "s>a"))
    demand(A0 in bench.outputs.cursors["s>a"], "another one was given up")
    bench.outputs.on_unsubscribe(Unsubscribe(SubscriptionId(A0, Generation(2, 0), 1), ME.partition, "s>a"))
    demand(A0 not in bench.outputs.cursors["s>a"], "it is served still")


@scenario
def credit_holds_back_and_lets_go() -> None:
    """By epochs and by bytes; the oldest epoch that is not taken goes out, whatever its size."""
    bench = _Bench(credit_epochs=2)
    bench.subscribe()
    bench.add(1, 2, 3, 4, 5)
    demand(_announced(bench.sent()) == [1, 2], "more than credit")
    demand(
        (bench.outputs.waiting, bench.outputs.credit) == (5, (0, (32 << 20) - 2 * ROW_BYTES)),
        f"{bench.outputs.waiting}",
    )
    demand(bench.outputs.blocked, "three wait, two may")
    demand(bench.credit(1) == [3] and bench.credit(1) == [], "one was taken")
    demand(bench.credit(2, number=9) == [] and bench.credit(0) == [], "by an older word, or another subscription's")
    demand(bench.credit(3) == [4, 5], "all were taken")
    demand((bench.outputs.waiting, bench.outputs.blocked) == (2, False), f"{bench.outputs.waiting}")
    bench.credit(4)
    demand(bench.outputs.credit[0] == 1 and bench.outputs.waiting == 1, f"{bench.outputs.credit}")
    wide = _Bench(with_fields(BOTH[0], key_range=EVERYTHING), credit_bytes=3 * ROW_BYTES)
    wide.subscribe()
    wide.add(1, 2, 3)
    demand(_announced(wide.sent()) == [1, 2], "by bytes")
    demand(wide.outputs.credit == (30, 0), f"{wide.outputs.credit}")
    demand(wide.credit(1) == [3] and wide.outputs.credit == (30, 0), f"{wide.outputs.credit}")
    demand(wide.credit(3) == [] and wide.outputs.credit == (32, 3 * ROW_BYTES), f"{wide.outputs.credit}")
    wide.add(4, rows=(1, 2, 3, 4))
    demand(_announced(wide.sent()) == [4], "one that is larger than all credit")
    none = _Bench(credit_epochs=0)
    none.subscribe()
    none.add(1, 2)
    demand(_announced(none.sent()) == [1], "the oldest is held back")
    # Others than live ones hold nobody back.
    for role in (SHADOW, SEALED):
        slow = _Bench(with_fields(BOTH[0], role=role), BOTH[1], credit_epochs=2)
        slow.subscribe()
        slow.subscribe(A1)
        slow.add(1, 2, 3, 4)
        slow.credit(2, A1)
        slow.credit(3, A1)
        demand(not slow.outputs.blocked and slow.outputs.credit[0] == 1, f"held back by one that is {role}")
        demand(slow.outputs.waiting == 1, f"{slow.outputs.waiting} wait for one that is {role}")


@scenario
def what_receivers_say_is_known() -> None:
    bench = _Bench()
    demand((bench.outputs.watermark, bench.outputs.rows, bench.outputs.waiting) == (FOREVER, 0, 0), "of nobody")
    bench.subscribe()
    bench.subscribe(A1)
    demand(bench.outputs.watermark == FOREVER, "nobody has said")
    bench.credit(0, highest=17, watermark=70, rows=4)
    demand((bench.outputs.watermark, bench.outputs.rows, bench.outputs.highest) == (70, 4, 17), "of one")
    bench.credit(0, A1, highest=9, watermark=60, rows=5)
    demand((bench.outputs.watermark, bench.outputs.rows, bench.outputs.highest) == (60, 9, 17), "of two")
    bench.outputs.count({"s>a": LightBatch(((1, (2, 0, 0)), (3, (4, 0, 0))))})
    demand(bench.outputs.sent == {"s>a": 2}, f"{bench.outputs.sent}")
    bench.add(1, 2)
    demand(bench.outputs.size_bytes == 4 * ROW_BYTES and not bench.outputs.empty, f"{bench.outputs.size_bytes}")
    for limit, full in ((4 * ROW_BYTES, True), (4 * ROW_BYTES + 1, False)):
        kept = _Bench(buffer_bytes=limit)
        kept.add(1, 2)
        demand(kept.outputs.full == full, f"at {limit} bytes")
    spilling = _Bench(spill_bytes=3 * ROW_BYTES)
    spilling.desk.spill = lambda batch: LightBatch(())
    spilling.add(1, 2)
    demand([len(e.batches[0].items) for e in spilling.outputs.buffers["s>a"].entries] == [0, 2], "nothing was spilled")  # type: ignore[attr-defined]


@scenario
def nothing_is_forgotten_that_the_journal_still_names() -> None:
    bench = _Bench()
    bench.add(1, 2, 3, 4)
    demand(not bench.trim(A0, 3) and bench.held() == [1, 2, 3, 4], "one of two has said so")
    demand(bench.trim(A1, 2) and bench.held() == [3, 4], f"{bench.held()}")
    demand(not bench.trim(A1, 1) and bench.trim(A1, 3) and bench.held() == [4], f"{bench.held()}")
    version = bench.desk.journal.version
    for other in ({"generation": Generation(1, 9)}, {"journal_version": version + 1}):
        demand(not bench.trim(A0, 4, **other), f"{other}")
    bench.trim(A0, 4)
    demand(bench.held() == [4], "without the other one")
    bench.journal(BOTH[0], with_fields(BOTH[1], partition=PartitionId("a", 2)))
    demand(bench.held() == [4] and set(bench.outputs.trims["s>a"]) == {A0}, "another one has not said so")
    bench.journal(BOTH[0])
    demand(bench.held() == [] and bench.outputs.empty, "by the journal alone")
    trimmed = bench.outputs.buffers["s>a"].trimmed
    demand(trimmed == Progress(4, 4, 40, trimmed.digest), f"{trimmed}")
    gone = _Bench()
    gone.subscribe()
    gone.add(1, 2, 3)
    gone.sent()
    gone.trim(A0, 2)
    gone.trim(A1, 2)
    gone.add(4)
    demand(_announced(gone.sent()) == [4], "its place has moved")
    slow = _Bench(credit_epochs=1)
    slow.subscribe()
    slow.add(1, 2, 3, 4, 5)
    slow.sent()
    slow.trim(A0, 2)
    slow.trim(A1, 2)
    demand(slow.credit(2) == [3], "what is trimmed is sent")


@scenario
def sealed_one_announces_its_last_epoch() -> None:
    bench = _Bench()
    bench.subscribe()
    bench.add(3, 5, 8)
    bench.sent()
    bench.outputs.seal(6)
    demand(bench.held() == [3, 5, 6] and _announced(bench.sent()) == [], "it has heard more")
    newest = bench.outputs.buffers["s>a"].newest
    demand(newest == Progress(6, 5, 50), f"{newest}")
    late = _Bench(credit_epochs=1)
    late.subscribe()
    late.add(3, 5, 8)
    late.sent()
    late.outputs.seal(6)
    demand(late.credit(3) == [5] and late.credit(5) == [6] and late.credit(6) == [], "who is behind hears less")
    just = _Bench()
    just.subscribe()
    just.add(3, 6)
    just.sent()
    just.outputs.seal(6)
    demand(just.held() == [3, 6] and not just.sent(), "said twice")
    demand(just.outputs.size_bytes == 4 * ROW_BYTES, "rows of its last epoch are gone")
    ahead = _Bench()
    ahead.subscribe()
    ahead.add(3)
    ahead.sent()
    ahead.outputs.seal(6)
    demand(_announced(ahead.sent()) == [6], "it is not announced")
    ended = _Bench()
    ended.outputs.add(Progress(3, 0, 0, 0, ended=True, idle=True), {})
    ended.outputs.seal(6)
    demand(ended.held() == [3], "after its end")
    idle = _Bench()
    idle.outputs.add(Progress(3, 0, 0, 0, idle=True), {})
    idle.outputs.seal(6)
    demand(idle.outputs.buffers["s>a"].newest.idle, "it is awake")


@scenario
def outputs_are_restored_from_a_chain() -> None:
    def saved(version: int, trimmed: int, *epochs: int) -> Checkpoint:
        entries = tuple(Buffered(Progress(epoch, 0, 0, 0), ()) for epoch in epochs)
        return Checkpoint(
            ME.partition, ME.generation, EVERYTHING, version, version - 1, 9, 0, 0, False, None,
            {"s>a": entries}, {"s>a": Progress(trimmed, 0, 0, 0)},
        )  # fmt: skip

    for chain, held, trimmed in (
        ([saved(1, 2, 3, 4)], [3, 4], 2),
        ([saved(1, 2, 3, 4), saved(2, 3, 5)], [4, 5], 3),
        ([saved(1, 2), saved(2, 7), saved(3, 8, 9)], [9], 8),
        ([saved(1, 2, 3), saved(2, 3)], [], 3),
    ):
        bench = _Bench()
        bench.outputs.restore(chain)
        buffer = bench.outputs.buffers["s>a"]
        demand((bench.held(), buffer.trimmed.epoch) == (held, trimmed), f"{bench.held()}, {buffer.trimmed}")
        demand(not buffer.unsaved(full=False), "it is saved again")
