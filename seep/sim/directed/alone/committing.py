"""One sink partition by itself: what it commits, shows, says and forgets, and when it waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as with_fields
from typing import Any

from seep.model.epoch import Moment, Progress
from seep.model.ids import BEGINNING, EVERYTHING, FOREVER, Generation, PartitionId
from seep.model.settings import Settings
from seep.partition.contract import Edge, Graph, Node
from seep.partition.desk import Desk
from seep.partition.sink import UNPUBLISHED_BYTES, UNPUBLISHED_EPOCHS, SinkPartition
from seep.protocol.effects import Append, FenceStore, Publish, Published, ReadLog, StoreReply, Truncate
from seep.protocol.journal import LIVE, SEALED, Entry, Journal, Replace
from seep.protocol.messages import Accepted, Credit, Frame, Trim
from seep.sim.directed.alone.desks import done
from seep.sim.directed.registry import demand, scenario
from seep.sim.light import LightBatch

EDGE = Edge("s>out", "s", "out", 0)
OUT = PartitionId("out", 3)
LOW, HIGH = EVERYTHING.split(2)
MINE = Entry(OUT, EVERYTHING, 5, FOREVER, LIVE, Generation(1, 7), "w1", base_epoch=4)
SENDER = Entry(PartitionId("s", 0), EVERYTHING, 1, FOREVER, LIVE, Generation(1, 1), "w2")


class Shown:
    """Writes down what it is asked for."""

    repeats = True

    def __init__(self) -> None:
        self.begun: list[tuple[Any, ...]] = []
        self.moments: list[Moment] = []

    def encode(self, moment: Moment, inputs: Sequence[tuple[int, Any]]) -> bytes | None:
        self.moments.append(moment)
        return b"x" * sum(batch.rows for _, batch in inputs) or None

    def begin(self, partition: PartitionId, rows: int, record: bytes | None) -> None:
        self.begun.append((partition, rows, record))


class Once(Shown):
    repeats = False


class _Bench:
    def __init__(
        self, *log: tuple[int, Any], mine: Entry = MINE, others: tuple[Entry, ...] = (), make: Any = Shown, **knobs: Any
    ) -> None:
        self.graph = Graph({"s": Node("s", "source", None), "out": Node("out", "sink", make)}, (EDGE,))
        self.desk = Desk("w1", Settings(**{"checkpoint_ms": 1_000.0, "retry_ms": 100.0, **knobs}))
        self.journal(mine, *others)
        self.sink = SinkPartition(self.desk, mine, self.graph)
        self.answer(FenceStore)
        self.answer(ReadLog, list(log))
        self.accept()

    def journal(self, *entries: Entry, replaces: tuple[Replace, ...] = ()) -> None:
        version = self.desk.journal.version + 1
        named = {e.partition: e for e in (*entries, SENDER)}
        self.desk.journal = Journal(version, 1, named, replaces)

    def adopt(self, mine: Entry = MINE, *others: Entry, replaces: tuple[Replace, ...] = ()) -> None:
        self.journal(mine, *others, replaces=replaces)
        self.sink.adopt(mine)

    def accept(self) -> None:
        for channel in self.sink.inputs.order:
            assert channel.subscription is not None
            self.sink.handle(Accepted(channel.subscription, SENDER.partition))
        self.desk.changed = False
        done(self.desk, Publish)

    def answer(self, kind: Any, value: Any = None, error: str = "") -> Any:
        (asked,) = done(self.desk, kind)
        self.desk.answer(StoreReply(asked.token, value, error))
        return asked

    def frame(self, epoch: int, rows: int = 1, **more: Any) -> None:
        (channel,) = self.sink.inputs.order
        assert channel.subscription is not None
        batch = LightBatch(tuple((n, (n, 0, 0)) for n in range(rows))) if rows else None
        said = Progress(epoch, **{"now_ms": epoch, "watermark": 10 * epoch, **more})
        self.sink.handle(Frame(channel.subscription, SENDER.partition, channel.sequence, epoch, batch, said))

    def appends(self) -> list[list[int]]:
        """Epochs of each append that is asked for."""
        return [[*(epoch for epoch, _ in one.before), one.epoch] for one in done(self.desk, Append)]

    def committed(self, *epochs: int, rows: int = 1) -> None:
        for epoch in epochs:
            self.frame(epoch, rows)
            self.answer(Append)

    def shown(self) -> list[tuple[int, bool]]:
        return [(one.epoch, one.ended) for one in done(self.desk, Publish)]


@scenario
def sink_begins_with_what_its_log_holds() -> None:
    log = [(3, ((7, 1), b"old")), (5, ((9, 2), b"one")), (8, ((12, 3), b"two"))]
    for make, shown in ((Shown, [3, 5, 8]), (Once, [])):
        desk = Desk("w1", Settings())
        bench = _Bench.__new__(_Bench)
        bench.desk = desk
        bench.journal(MINE)
        graph = Graph({"s": Node("s", "source", None), "out": Node("out", "sink", make)}, (EDGE,))
        sink = bench.sink = SinkPartition(desk, MINE, graph)
        demand(sink.status().epoch == -1 and not sink.status().accepted, "it says something before it runs")
        bench.answer(FenceStore, error="failed")
        demand(not desk.effects, "at once again")
        desk.now_ms = 300.0
        desk.tick()
        bench.answer(FenceStore)
        bench.answer(ReadLog, error="failed")
        desk.now_ms = 600.0
        desk.tick()
        bench.answer(ReadLog, log)
        demand(sink.running and desk.changed, "nobody is told")
        demand([epoch for epoch, _ in bench.shown()] == shown, f"{shown} is to be shown")
        demand(sink.outlet.begun == [(OUT, 9, b"one")], f"{sink.outlet.begun}")  # type: ignore[attr-defined]
        status = sink.status()
        demand((status.epoch, status.durable_epoch, status.own_checkpoints) == (8, 8, 2), f"{status}")
        demand(status.statistics == {"rows_in": 12} and not status.accepted, f"{status}")
        demand(status.published == (2 if shown else FOREVER), f"{status.published}")
    empty = _Bench()
    demand(empty.sink.outlet.begun == [(OUT, 0, None)], "of an empty log")  # type: ignore[attr-defined]
    demand((empty.sink.status().epoch, empty.sink.status().own_checkpoints) == (4, 0), f"{empty.sink.status()}")
    damaged = Desk("w1", Settings())
    bench = _Bench.__new__(_Bench)
    bench.desk = damaged
    bench.journal(MINE)
    bench.sink = SinkPartition(damaged, MINE, empty.graph)
    bench.answer(FenceStore)
    bench.answer(ReadLog, error="damaged")
    demand(bench.sink.status().failure == "out/3: its committed log is damaged" and damaged.changed, "it goes on")
    fenced = _Bench.__new__(_Bench)
    fenced.desk = Desk("w1", Settings())
    fenced.journal(MINE)
    fenced.sink = SinkPartition(fenced.desk, MINE, empty.graph)
    fenced.answer(FenceStore, error="fenced")
    demand(fenced.sink.status().fenced and fenced.desk.changed and not fenced.desk.effects, "it goes on")


@scenario
def epochs_are_committed_in_one_append_at_a_time() -> None:
    bench = _Bench()
    bench.frame(5, 2)
    for epoch in (6, 7, 8):
        bench.frame(epoch, 1 if epoch != 7 else 0)
    demand(bench.sink.status().epoch == 4 and not bench.shown(), "before it is in the log")
    bench.desk.wall_ms = 9
    asked = bench.answer(Append)
    demand((asked.epoch, asked.before, asked.generation) == (5, (), MINE.generation), f"{asked}")
    demand(bench.shown() == [(5, False)] and bench.sink.status().epoch == 5, "it is not shown")
    demand(bench.appends() == [[6, 8]], "what came meanwhile goes together")
    status = bench.sink.status()
    demand(status.statistics == {"rows_in": 4} and status.watermark == 80, f"{status}")
    demand(bench.sink.latency.sum_ms == 4.0, f"{bench.sink.latency.sum_ms}")
    moments = bench.sink.outlet.moments  # type: ignore[attr-defined]
    demand(moments[0] == Moment(5, 5, BEGINNING, 50) and moments[2] == Moment(7, 7, 60, 70), f"{moments}")
    early = _Bench()
    early.frame(5, now_ms=50)
    early.answer(Append)
    demand(early.sink.latency.sum_ms == 0.0, "clocks that differ make time go back")
    back = _Bench()
    back.frame(5, now_ms=50, watermark=500)
    back.frame(6, now_ms=40, watermark=400)
    back.answer(Append)
    demand(back.sink.outlet.moments[1] == Moment(6, 50, 500, 500), "time goes back")  # type: ignore[attr-defined]
    again = _Bench()
    again.frame(5)
    again.answer(Append, error="failed")
    demand(not again.appends() and again.sink.status().epoch == 4, "a store that is down is besieged")
    again.desk.now_ms = 100.0
    again.desk.tick()
    again.answer(Append, error="exists")
    demand(again.sink.status().epoch == 5 and again.shown() == [(5, False)], "our own earlier try")
    fenced = _Bench()
    fenced.frame(5)
    fenced.answer(Append, error="fenced")
    demand(fenced.sink.status().fenced and fenced.desk.changed and not fenced.shown(), "it is shown")
    demand(fenced.desk.counts == {"refused_fenced": 1}, f"{fenced.desk.counts}")
    fenced.frame(6)
    fenced.sink.tick()
    demand(not fenced.appends(), "it goes on")


@scenario
def epochs_without_rows_are_marked_now_and_then() -> None:
    bench = _Bench()
    for epoch in (5, 6):
        bench.frame(epoch, 0)
    demand(not bench.appends(), "each epoch without rows is written")
    bench.desk.now_ms = 999.0
    bench.sink.tick()
    demand(not bench.appends(), "too early")
    bench.desk.now_ms = 1_000.0
    bench.sink.tick()
    demand(bench.answer(Append).epoch == 6 and bench.sink.status().epoch == 6, "not the latest")
    demand(not bench.sink.outlet.begun[1:] and bench.shown() == [(6, False)], "nothing is said")  # type: ignore[attr-defined]
    bench.desk.now_ms = 2_000.0
    bench.frame(7, 0)
    demand(bench.answer(Append).epoch == 7, "it is time")
    done(bench.desk, Trim)
    bench.desk.now_ms = 2_999.0
    bench.sink.tick()
    demand(not done(bench.desk, Trim), "too early")
    bench.desk.now_ms = 3_000.0
    bench.sink.tick()
    demand([trim.upto for trim in done(bench.desk, Trim)] == [7], "what was lost is not said again")
    bench.sink.tick()
    demand(not done(bench.desk, Trim), "all the time")
    trims = _Bench()
    trims.committed(5)
    demand([trim.upto for trim in done(trims.desk, Trim)] == [5], "it is not trimmed")
    credits = [(c.taken, c.watermark) for c in done(trims.desk, Credit)]
    demand(credits == [(5, 50)], f"credit for {credits}")


@scenario
def end_is_final_when_all_is_shown() -> None:
    bench = _Bench()
    bench.frame(5, 1, ended=True)
    demand(not bench.sink.status().ended, "before it is committed")
    bench.answer(Append)
    demand(bench.desk.changed and bench.shown() == [(5, True)], "nobody is told")
    demand(not bench.sink.status().ended and bench.sink.status().published == 4, f"{bench.sink.status()}")
    bench.desk.changed = False
    bench.sink.published(Published(OUT, -1))
    demand(bench.sink.status().ended and bench.desk.changed, "nobody is told")
    demand(bench.sink.status().published == FOREVER, f"{bench.sink.status()}")
    marked = _Bench()
    marked.frame(5, 0, ended=True)
    demand(marked.appends() == [[5]], "the end is no news")
    again = _Bench((5, ((1, 1), b"x")))
    again.sink.published(Published(OUT, -1))
    again.frame(5, 0, ended=True)
    demand(again.desk.changed and not again.appends(), "one that came back after its end")
    demand(again.shown() == [(5, True)] and not again.sink.status().ended, "what it holds back stays hidden")
    again.sink.published(Published(OUT, 5))
    demand(again.sink.status().ended and not again.shown(), "it never ends")


@scenario
def life_of_a_sink_ends_at_its_last_epoch() -> None:
    bench = _Bench()
    bench.committed(5)
    bench.frame(9)
    bench.answer(Append)
    bench.sink.published(Published(OUT, -1, count=2))
    bench.shown()
    sealed = with_fields(MINE, last=9, role=SEALED)
    bench.adopt(sealed)
    demand(bench.shown() == [(9, True)] and not bench.sink.status().drained, "what it holds back stays hidden")
    bench.adopt(sealed)
    demand(not bench.shown(), "it is closed twice")
    bench.desk.changed = False
    bench.sink.published(Published(OUT, -1))
    demand(bench.sink.status().drained and bench.desk.changed, "nobody is told")
    late = _Bench()
    late.committed(5)
    late.adopt(with_fields(MINE, last=8, role=SEALED))
    demand(not late.sink.status().drained, "before its last epoch")
    late.frame(11)
    demand(late.appends() == [[8]], "of its last epoch it has heard nothing, and of a later one")
    # A hand-over: nothing is begun while its epoch is agreed on, then all up to there.
    moved = _Bench()
    moved.committed(5)
    replace = Replace(1, "out", (OUT,), EVERYTHING.split(2), True)
    demand(moved.sink.status().begun == -1, "nobody has asked")
    moved.adopt(replaces=(replace,))
    moved.frame(6)
    moved.frame(7)
    demand(not moved.appends() and moved.sink.status().begun == 5, f"{moved.sink.status().begun}")
    moved.desk.changed = False
    moved.adopt(replaces=(with_fields(replace, at=6),))
    demand(moved.sink.status().begun == -1, "while it is being written")
    moved.answer(Append)
    demand(moved.sink.status().begun == 6 and moved.desk.changed and not moved.appends(), "it goes on")
    moved.adopt()
    demand(moved.appends() == [[7]], "given up, it does not go on")


@scenario
def keys_are_shown_in_their_order() -> None:
    """Not before those that had them earlier, by their numbers; others are not waited for."""
    for before, waits in (
        (Entry(PartitionId("out", 1), LOW, 1, 4, SEALED, Generation(1, 2), "w2"), True),
        (Entry(PartitionId("out", 1), LOW, 1, FOREVER, LIVE, Generation(1, 2), "w2"), False),
        (Entry(PartitionId("out", 4), LOW, 1, 4, SEALED, Generation(1, 2), "w2"), False),
        (Entry(PartitionId("out", 1), HIGH, 1, 4, SEALED, Generation(1, 2), "w2"), False),
    ):
        mine = with_fields(MINE, key_range=LOW)
        bench = _Bench(mine=mine, others=(before,))
        bench.committed(5, 6)
        demand(bench.shown() == ([] if waits else [(5, False), (6, False)]), f"{before}")
        bench.adopt(mine)
        demand(bench.shown() == ([(5, False), (6, False)] if waits else []), f"{before} is gone")


@scenario
def what_is_not_shown_yet_is_bounded() -> None:
    for epochs, size, behind in (
        (UNPUBLISHED_EPOCHS - 1, 1, False),
        (UNPUBLISHED_EPOCHS, 1, True),
        (1, UNPUBLISHED_BYTES - 1, False),
        (1, UNPUBLISHED_BYTES, True),
    ):
        record = b"x" * size
        bench = _Bench(*((5 + n, ((n + 1, 0), record)) for n in range(epochs)))
        last = 5 + epochs
        bench.frame(last)
        demand(bench.appends() == ([] if behind else [[last]]), f"{epochs} epochs of {size} bytes")
        bench.sink.published(Published(OUT, -1))
        demand(bench.appends() == ([[last]] if behind else []), f"{epochs} epochs of {size} bytes, one less")
    failed = _Bench()
    failed.committed(5, 6)
    failed.desk.changed = False
    failed.sink.published(Published(OUT, -1, failure="Misuse: it is full"))
    demand(failed.sink.status().failure == "Misuse: it is full" and failed.desk.changed, "nobody is told")
    failed.sink.published(Published(OUT, 5, failure="Misuse: again"))
    demand(failed.sink.status().failure == "Misuse: it is full" and failed.sink.status().published == 4, "it is shown")
    failed.frame(7)
    demand(not failed.appends(), "it goes on")


@scenario
def epochs_without_rows_are_marked_often_while_a_savepoint_waits() -> None:
    bench = _Bench()
    bench.committed(5, 6)
    bench.sink.published(Published(OUT, 5, count=2))
    bench.desk.journal = with_fields(bench.desk.journal, replaces=(Replace(1, "", (), (), False, 6),))
    bench.frame(7, 0)
    bench.desk.now_ms = 99.0
    bench.sink.tick()
    demand(not bench.appends(), "too early")
    bench.desk.now_ms = 100.0
    bench.sink.tick()
    demand(bench.answer(Append).epoch == 7, "a savepoint of 6 waits until that is shown")
    bench.sink.published(Published(OUT, 6, count=1))
    bench.frame(8, 0)
    bench.desk.now_ms = 300.0
    bench.sink.tick()
    demand(not bench.appends(), "nobody waits any more")


@scenario
def what_an_outlet_holds_back_is_not_shown() -> None:
    bench = _Bench()
    bench.committed(5, 6)
    demand(bench.sink.status().shown == -1, "nothing is known of it")
    bench.sink.published(Published(OUT, 4, count=1))
    demand((bench.sink.status().published, bench.sink.status().shown) == (5, 4), f"{bench.sink.status()}")
    bench.sink.published(Published(OUT, 5, count=1))
    demand((bench.sink.status().published, bench.sink.status().shown) == (FOREVER, 5), "6 is held back")
    bench.sink.published(Published(OUT, -1, count=0))
    demand(bench.sink.status().shown == FOREVER, "its log is the result")


@scenario
def log_is_forgotten_a_while_after_it_was_shown() -> None:
    bench = _Bench()
    bench.committed(5, 6, 7)
    found = []
    for now_ms, upto in ((50.0, 5), (100.0, 6), (150.0, 7), (200.0, 7), (310.0, -1)):
        bench.desk.now_ms = now_ms
        bench.sink.published(Published(OUT, upto, count=0))
        found.append([(one.partition, one.generation, one.below) for one in done(bench.desk, Truncate)])
    wanted = [(OUT, MINE.generation, below) for below in (6, 7)]
    demand(found == [[], [], [], [wanted[0]], [wanted[1]]], f"{found}")
    bench.desk.now_ms = 500.0
    bench.sink.published(Published(OUT, 9, count=0))
    demand(not done(bench.desk, Truncate), "nothing was to be forgotten")
    bench.adopt(replaces=(Replace(1, "", (), (), False, 9),))
    bench.desk.now_ms = 900.0
    bench.sink.published(Published(OUT, 9, count=0))
    demand(not done(bench.desk, Truncate), "somebody reads it")
    bench.adopt(replaces=(Replace(1, "a", (), (), False, 9),))
    bench.sink.published(Published(OUT, 9, count=0))
    demand([one.below for one in done(bench.desk, Truncate)] == [9], "nobody reads it")
    bench.sink.stop()
    bench.frame(8) if bench.sink.inputs.order else None
    demand(not bench.appends() and bench.sink.status().epoch == -1, "it goes on after its end")
