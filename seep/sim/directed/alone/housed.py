"""One worker by itself: what it runs, for whom it keeps messages, and what it reports."""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Any

from seep.model.epoch import Progress
from seep.model.ids import CONTROLLER, EVERYTHING, FOREVER, Generation, KeyRange, PartitionId, Place
from seep.model.settings import Settings
from seep.partition.contract import Edge, Graph, Node
from seep.partition.sink import SinkPartition
from seep.partition.worker import LOST, Worker
from seep.protocol.effects import (
    Effect,
    FenceStore,
    LoadCheckpoints,
    NewestVersion,
    Published,
    ReadLog,
    Send,
    StoreReply,
)
from seep.protocol.journal import LIVE, Entry, Journal
from seep.protocol.messages import (
    Accepted,
    Backup,
    Busy,
    Fetch,
    Frame,
    Held,
    Hello,
    Holding,
    Leave,
    Message,
    Plan,
    Refused,
    Report,
    Subscribe,
    SubscriptionId,
)
from seep.sim.directed.alone.desks import checkpoint_of
from seep.sim.directed.alone.worked import Counts
from seep.sim.directed.registry import demand, scenario
from seep.sim.light import LightIntake, LightOutlet

S0, A0, OUT = PartitionId("s", 0), PartitionId("a", 0), PartitionId("out", 0)
EDGES = (Edge("s>a", "s", "a", 0), Edge("a>out", "a", "out", 0))
GRAPH = Graph(
    {
        "s": Node("s", "source", lambda: LightIntake(1, 1, 9, 9, {})),
        "a": Node("a", "operator", Counts),
        "out": Node("out", "sink", LightOutlet),
    },
    EDGES,
)


def _entry(who: PartitionId, worker: str, number: int = 1) -> Entry:
    return Entry(who, EVERYTHING, 1, FOREVER, LIVE, Generation(1, number), worker)


def _plan(version: int, *entries: Entry, term: int = 1, **more: Any) -> Plan:
    return Plan(Journal(version, term, {e.partition: e for e in entries}, next_generation=90, **more))


def _worker(**knobs: Any) -> Worker:
    return Worker("w1", GRAPH, Settings(**{"report_ms": 10.0, "copies_bytes": 1 << 20, **knobs}))


def _sent(effects: list[Effect], kind: Any) -> list[Any]:
    return [one.message for one in effects if isinstance(one, Send) and isinstance(one.message, kind)]


def _run(worker: Worker, effects: list[Effect], now_ms: float = 1.0) -> list[Effect]:
    """Answers what its partitions ask of the store, until they run; what else they did."""
    left: list[Effect] = []
    while effects:
        effect = effects.pop(0)
        if isinstance(effect, FenceStore):
            effects += worker.handle(StoreReply(effect.token), now_ms)
        elif isinstance(effect, LoadCheckpoints | ReadLog):
            effects += worker.handle(StoreReply(effect.token, []), now_ms)
        elif isinstance(effect, NewestVersion):
            effects += worker.handle(StoreReply(effect.token, 0), now_ms)
        else:
            left.append(effect)
    return left


@scenario
def worker_says_that_it_is_there_and_then_what_it_runs() -> None:
    worker = _worker()
    worker.desk.place = Place("h1", "x1")
    (hello,) = worker.tick(0.0, 5)
    demand(hello == Send(CONTROLLER, Hello("w1", Place("h1", "x1"))), f"{hello}")
    demand(worker.tick(9.0, 5) == [] and len(worker.tick(10.0, 5)) == 1, "too often, or too seldom")
    effects = worker.handle(_plan(3, _entry(A0, "w1"), _entry(OUT, "w2")), 11.0)
    (report,) = _sent(effects, Report)
    demand((report.worker, report.journal_version, report.place) == ("w1", 3, Place("h1", "x1")), f"{report}")
    demand([status.partition for status in report.statuses] == [A0] and report.time_ms == 5, f"{report}")
    demand(set(worker.partitions) == {A0}, f"{worker.partitions}")
    later = _run(worker, effects, 12.0)
    demand(bool(_sent(later, Report)) and worker.partitions[A0].running, "nobody is told that it runs")
    demand(worker.tick(13.0, 7) == [] and _sent(worker.tick(30.0, 8), Report)[0].time_ms == 8, "no heartbeat")
    demand(worker.desk.wall_ms == 8 and worker.desk.now_ms == 30.0, f"{worker.desk.wall_ms}")
    lost = worker.handle(StoreReply(99, error="lost"), 31.0)
    demand({status.failure for status in _sent(lost, Report)[0].statuses} == {LOST}, f"{lost}")
    demand(worker.statistics() == worker.desk.counts, "it counts something else")


@scenario
def worker_runs_what_the_newest_journal_says() -> None:
    worker = _worker()
    _run(worker, worker.handle(_plan(3, _entry(A0, "w1"), _entry(OUT, "w1")), 1.0))
    first = dict(worker.partitions)
    for plan, why in (
        (_plan(2, _entry(OUT, "w1")), "an older version"),
        (_plan(9, _entry(OUT, "w1"), term=0), "an older term"),
    ):
        worker.handle(plan, 2.0)
        demand(worker.partitions == first, why)
    demand(worker.desk.counts["dropped_fenced"] == 2, f"{worker.desk.counts}")
    places = {"w2": Place("h2", "x1")}
    worker.handle(with_fields(_plan(3, _entry(OUT, "w1")), places=places), 3.0)
    demand(worker.partitions == first and worker.desk.places == places, "the same version")
    old = worker.partitions[A0]
    _run(worker, worker.handle(_plan(4, _entry(A0, "w1", 2), _entry(OUT, "w2")), 4.0))
    demand(set(worker.partitions) == {A0} and worker.partitions[A0] is not old, f"{worker.partitions}")
    demand(not old.running and worker.partitions[A0].running, "the old one goes on")
    kept = worker.partitions[A0]
    sealed = with_fields(_entry(A0, "w1", 2), last=50)
    worker.handle(_plan(5, sealed), 5.0)
    demand(worker.partitions[A0] is kept and kept.entry == sealed, "it is not told")
    worker.handle(_plan(1, term=2), 6.0)
    demand(not worker.partitions and worker.desk.journal.term == 2, "a later term begins its versions anew")
    worker.holder.chains[A0] = (checkpoint_of(1, 2),)
    worker.holder.bytes[A0] = 9
    worker.handle(_plan(2, term=2), 7.0)
    demand(not worker.holder.chains, "copies of nobody's")


@scenario
def subscriptions_that_come_early_are_served_later() -> None:
    worker = _worker()
    receiver = SubscriptionId(OUT, Generation(1, 1), 1)

    def asked(number: int, version: int = 3, generation: int = 1) -> Subscribe:
        subscription = receiver if number == 1 else SubscriptionId(OUT, Generation(1, 1), number)
        return Subscribe(A0, Generation(1, generation), subscription, "a>out", KeyRange(0, 9), 0, version, "w2")

    demand(not worker.handle(asked(1), 1.0)[1:] and len(worker.early) == 1, "it is not kept")
    worker.handle(asked(2), 1.0)
    demand(len(worker.early) == 1, "of one receiver the latest is enough")
    effects = worker.handle(_plan(3, _entry(A0, "w1"), _entry(OUT, "w2")), 2.0)
    demand(not _sent(effects, Accepted) and len(worker.early) == 1, "it does not run yet")
    accepted = _sent(_run(worker, effects, 3.0), Accepted)
    demand([one.subscription.number for one in accepted] == [2] and not worker.early, f"{accepted}")
    demand(not worker.handle(asked(3, version=4), 4.0) and len(worker.early) == 1, "of a journal that has not come")
    effects = worker.handle(_plan(4, _entry(A0, "w1"), _entry(OUT, "w2")), 5.0)
    demand(len(_sent(effects, Accepted)) == 1 and not worker.early, f"{effects}")
    demand(not worker.handle(asked(4, version=4, generation=9), 6.0), "of another generation")
    gone = with_fields(asked(5, version=4), sender=PartitionId("a", 7))
    demand(not worker.handle(gone, 6.0) and not worker.early, "of one that is not here")


@scenario
def messages_reach_their_partition_or_are_counted() -> None:
    worker = _worker()
    _run(worker, worker.handle(_plan(3, _entry(A0, "w1"), _entry(OUT, "w1"), _entry(S0, "w2")), 1.0))
    worker.desk.counts.clear()
    a0, out = worker.partitions[A0], worker.partitions[OUT]
    assert isinstance(out, SinkPartition)
    demand(out.inputs.accepted, "two in one worker have not found each other")
    mine = a0.inputs.order[0].subscription  # type: ignore[union-attr]
    assert mine is not None
    stale = with_fields(mine, generation=Generation(1, 0))
    strange = with_fields(mine, receiver=PartitionId("a", 9))
    frame = Frame(mine, S0, 0, 1, None, Progress(1, 0, 0, 0))
    dropped: tuple[Message, ...] = (
        with_fields(frame, subscription=stale),
        with_fields(frame, subscription=strange),
        Accepted(stale, S0),
        Refused(stale, S0, "trimmed"),
        Held(A0, A0, Generation(1, 0), "w2", ()),
        Held(A0, OUT, Generation(1, 1), "w2", ()),
        Holding(A0, Generation(1, 0), 5, True),
        Holding(PartitionId("a", 9), Generation(1, 1), 5, True),
    )
    for number, message in enumerate(dropped, 1):
        worker.handle(message, 2.0)
        demand(worker.desk.counts == {"dropped_fenced": number}, f"{message}: {worker.desk.counts}")
    demand(not a0.inputs.accepted, "another one's word counts")  # type: ignore[union-attr]
    worker.handle(Accepted(mine, S0), 3.0)
    demand(a0.inputs.accepted, "its own does not")  # type: ignore[union-attr]
    worker.handle(frame, 3.0)
    demand(a0.status().epoch == 1 and out.status().epoch == 0, f"{a0.status()}")
    worker.handle(Holding(A0, Generation(1, 1), 5, True), 3.0)
    demand(a0.protection.held == 5, "what is held is not heard")  # type: ignore[union-attr]
    other = PartitionId("b", 0)
    backup = Backup(other, Generation(1, 95), 4, "w2", with_fields(checkpoint_of(4, 2), partition=other))
    (said,) = _sent(worker.handle(backup, 4.0), Holding)
    demand(said.held and other in worker.holder.chains, f"{said}")
    (held,) = _sent(worker.handle(Fetch(other, 0, None, A0, Generation(1, 1), "w2"), 4.0), Held)
    demand(len(held.chain) == 1, f"{held}")
    for ignored in (Hello("w2"), Report("w2", 1, (), 0), Busy("w2", None, 0, 1.0), Leave("w1")):
        demand(not worker.handle(ignored, 4.0), f"{ignored}")
    out.unpublished.extend([(1, 0), (2, 0), (3, 0)])
    for generation, left in ((None, 2), (Generation(1, 0), 2), (Generation(1, 1), 1)):
        worker.handle(Published(OUT, -1, generation=generation), 5.0)
        demand(len(out.unpublished) == left, f"of {generation}: {out.unpublished}")
    worker.handle(Published(A0, -1), 5.0)
    worker.handle(Published(PartitionId("x", 0), -1), 5.0)


@scenario
def time_at_work_is_known_by_partition() -> None:
    worker = _worker(checkpoint_ms=25.0)
    clock = [0.0]
    worker.clock = lambda: clock[0]

    def pass_time() -> float:
        clock[0] += 1.0
        return clock[0]

    effects = worker.handle(_plan(3, _entry(A0, "w1"), _entry(OUT, "w1")), 1.0)
    demand(worker.busy_ms.get(A0, 0.0) == 0.0, f"{worker.busy_ms}")
    worker.clock = pass_time
    _run(worker, effects)
    worker.tick(10.0, 10)
    busy = dict(worker.busy_ms)
    demand(busy[A0] > 0 and busy[OUT] > 0, f"busy {busy}")
    demand(worker.at_work is None and worker.working_on() is None, "somebody is at work")
    worker.tick(12.0, 12)
    demand(worker.busy_ms[A0] == busy[A0] + 1.0 and worker.busy_ms[OUT] == busy[OUT] + 1.0, f"{worker.busy_ms}")
    done = [(A0, 0), (OUT, 0)]
    tried: list[Any] = []
    for who in (A0, OUT):
        partition = worker.partitions[who]
        worker._timed(partition, lambda: tried.append(worker.working_on()))
    demand(tried == done, f"{tried}")
    worker.clock = pass_time
    a0: Any = worker.partitions[A0]
    out = worker.partitions[OUT]
    for owner, asker in ((a0, a0), (out, out), (a0.saver, a0), (a0.loader, a0), (worker.holder, None)):
        worker.desk.call(owner, lambda token: ReadLog(token, A0), lambda reply: None)
        token = worker.desk.effects.pop().token  # type: ignore[union-attr]
        demand(worker._asker(StoreReply(token)) is asker, f"who asks for {owner}")
    before = dict(worker.busy_ms)
    saves = [one for one in worker.tick(30.0, 30) if hasattr(one, "checkpoint")]
    demand(len(saves) == 1, f"{saves}")
    again = worker.busy_ms[A0]
    worker.handle(StoreReply(saves[0].token), 31.0)  # type: ignore[union-attr]
    demand(worker.busy_ms[A0] == again + 1.0 and before[A0] < again, "what its saver does is nobody's work")
