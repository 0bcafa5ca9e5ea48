"""One controller by itself: what it writes, whom it tells, whom it places where, and when it steps down."""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Any

from seep.control.controller import DRAIN, SLOT_WAIT
from seep.control.planner import first_journal, restart
from seep.control.requests import Rebalance, ScaleTo, StopFlow, WorkerLost
from seep.model.ids import FOREVER, Place
from seep.partition.worker import LOST
from seep.protocol.effects import (
    Effect,
    ReadJournal,
    ReleaseWorker,
    Send,
    StoreReply,
    WantWorkers,
)
from seep.protocol.journal import SEALED, SHADOW
from seep.protocol.messages import Busy, Hello, Plan, Report, Status
from seep.sim.directed.alone.ruled import A0, GRAPH, OUT, S0, Bench, alive, kept_by, plans
from seep.sim.directed.registry import demand, scenario


@scenario
def flow_begins_once_its_workers_are_there() -> None:
    bench = Bench()
    demand(bench.do() == [WantWorkers(3)] and bench.journal.version == 1, f"{bench.journal}")
    demand(plans(bench.do(Hello("w1", Place("h1", "x1")))) == {"w1": 1}, "it is not told")
    demand(not any(e.worker for e in bench.journal.entries.values()), "it begins with one of two")
    effects = bench.do(Hello("w2"))
    demand(bench.journal.version == 2 and plans(effects) == {"w1": 2, "w2": 2}, f"{plans(effects)}")
    places = [e.message.places for e in effects if isinstance(e, Send) and isinstance(e.message, Plan)]
    demand(all(one == {"w1": Place("h1", "x1")} for one in places), f"{places}")
    demand(all(e.worker and e.generation.number for e in bench.journal.entries.values()), f"{bench.journal}")
    demand(not bench.said, f"a start is no restart: {bench.said}")
    demand(
        plans(bench.do(Report("w1", 1, (), 0))) == {"w1": 2} and not bench.do(Report("w1", 2, (), 0)), "who is behind"
    )
    alone = Bench()
    alone.do()
    alone.do(Hello("w1"))
    for now_ms in range(40, 600, 40):
        alone.do(now_ms=float(now_ms))
        alone.do(Hello("w1"))
    demand(not any(e.worker for e in alone.journal.entries.values()), "it does not wait")
    alone.do(Hello("w1"), now_ms=601.0)
    demand(all(e.worker == "w1" for e in alone.journal.entries.values()), "it waits for ever")
    first = with_fields(first_journal(GRAPH, after=40), term=3)
    given = Bench(first=first)
    given.do()
    demand({e.first for e in given.journal.entries.values()} == {41} and given.journal.term == 3, "another one")


@scenario
def controller_goes_on_from_what_is_stored() -> None:
    journal = with_fields(first_journal(GRAPH), version=7, term=2)
    for number, who in enumerate((S0, A0, OUT)):
        journal = restart(journal, who, f"w{number}")
    for stopping, left in (("", ""), ("stop", ""), (DRAIN, DRAIN), ("SeepError: it died", "")):
        bench = Bench(found=with_fields(journal, stopping=stopping))
        bench.do()
        demand((bench.journal.version, bench.journal.term, bench.journal.stopping) == (8, 3, left), f"{bench.journal}")
        demand(bench.journal.entries == journal.entries, "what runs is changed")
        demand(sorted(bench.controller.heard) == ["w0", "w1", "w2"], "they are started again at once")
    bench.do(now_ms=45.0)
    bench.do(now_ms=90.0)
    demand(not bench.said, f"too early: {bench.said}")
    bench.do(Hello("w0"))
    bench.do(now_ms=101.0)
    silent = [what for what in bench.said if "silent" in what]
    demand(silent == [f"worker {name} silent for 100 ms" for name in ("w1", "w2")], f"{bench.said}")
    lost = Bench(resumes=True)
    effects = lost.do()
    demand(lost.controller.lost and lost.journal.stopping == LOST and lost.said == [LOST], f"{lost.said}")
    demand((lost.journal.version, lost.journal.term) == (FOREVER, FOREVER) and lost.stored is None, "it is written")
    demand(not plans(effects) and set(plans(lost.do(Hello("w1")))) == {"w1"}, "who comes later is told")
    demand(not lost.do(ScaleTo("a", 2)), "it goes on")
    emptied = Bench().begin()
    effects = emptied.do(StoreReply(99, error="lost"))
    demand(set(plans(effects)) == {"w1", "w2"} and emptied.journal.stopping == LOST, "not everybody is told")
    demand(not emptied.do(StoreReply(99, error="lost")) and emptied.said.count(LOST) == 1, "it is said twice")


@scenario
def one_change_is_written_at_a_time_and_asked_about() -> None:
    bench = Bench().begin()
    bench.holds = True
    bench.do(ScaleTo("a", 2))
    demand(len(bench.waiting) == 1 and not bench.do(ScaleTo("out", 2)) and len(bench.waiting) == 1, "two at a time")
    asked: Any = bench.waiting.pop()
    demand((asked.expected, asked.journal.version) == (2, 3) and bench.journal.version == 2, f"{asked}")
    bench.holds = False
    bench.do(StoreReply(asked.token, error="failed"))
    demand(bench.journal.version == 2, "it is not known whether it was written")
    bench.do(now_ms=1.0)
    demand(bench.stored is not None and bench.stored.version >= 2, "it asks")
    bench.do(now_ms=2.0)
    demand(bench.journal.version >= 3 and len(bench.journal.replaces) >= 1, f"{bench.journal.version}")
    # It had worked: the answer alone was lost.
    worked = Bench().begin()
    worked.holds = True
    worked.do(ScaleTo("a", 2))
    swap: Any = worked.waiting.pop()
    worked.stored = swap.journal
    worked.do(StoreReply(swap.token, error="failed"))
    worked.do(now_ms=1.0)
    (read,) = worked.waiting
    worked.waiting.clear()
    demand(isinstance(read, ReadJournal), f"{read}")
    worked.do(StoreReply(read.token, error="failed"))
    worked.do(now_ms=25.9)
    demand(not worked.waiting, "a store that is down is besieged")
    worked.do(now_ms=26.0)
    (read,) = worked.waiting
    effects = worked.do(StoreReply(read.token, worked.stored))
    demand(worked.journal.version == 3 and set(plans(effects)) == {"w1", "w2"}, "nobody is told")
    for term, version, deposed in ((2, 3, True), (1, 5, False)):
        other = Bench().begin()
        other.holds = True
        other.do(ScaleTo("a", 2))
        swap = other.waiting.pop()
        before = other.journal
        theirs = with_fields(before, version=version, term=term)
        effects = other.do(StoreReply(swap.token, theirs))
        demand(other.controller.deposed == deposed and other.journal == before, f"{term}, {version}")
        demand(not plans(effects), "somebody is told")
        if deposed:
            demand(other.said == ["a: 1 -> 2 partitions", "a controller of term 2 has taken over"], f"{other.said}")
            demand(not other.do(Hello("w1")) and not other.do(ScaleTo("s", 2)) and not other.waiting, "it goes on")
    gone = Bench().begin()
    gone.holds = True
    gone.do(ScaleTo("a", 2))
    swap = gone.waiting.pop()
    gone.do(StoreReply(swap.token, None))
    demand(gone.journal.stopping == LOST, "a journal that is gone is written anew")


@scenario
def who_is_lost_is_started_elsewhere() -> None:
    bench = Bench(workers=3).begin("w1", "w2", "w3", "w4")
    at = {p: e.worker for p, e in bench.journal.entries.items()}
    demand(len(set(at.values())) == 3 and "w4" not in at.values(), f"{at}")
    before = bench.journal.entries[A0]
    bench.do(WorkerLost(at[A0]))
    after = bench.journal.entries[A0]
    demand(after.worker == "w4" and after.generation > before.generation, f"{after}")
    demand(bench.said == [f"worker {at[A0]} lost", "a/0 restarts on w4"], f"{bench.said}")
    bench.do(WorkerLost("w4", asked=True))
    demand(
        bench.said[2] == "worker w4 lost, as asked" and ", beside others: no slot is free" in bench.said[3],
        f"{bench.said}",
    )
    bench.do(WorkerLost("w4"))
    demand(len(bench.said) == 4, "it counts twice")
    fenced = Bench().begin()
    host = fenced.journal.entries[A0]
    fenced.report(a0={"fenced": True})
    fenced.do(now_ms=1.0)
    entry = fenced.journal.entries[A0]
    demand(entry.generation > host.generation and "a/0 restarts" in fenced.said[0], f"{fenced.said}")
    fenced.do(Report(host.worker, fenced.journal.version, (Status(A0, host.generation, 2, 100, fenced=True),), 0))
    fenced.do(now_ms=1.0)
    demand(fenced.journal.entries[A0] == entry, "by the word of a generation that is gone")
    dead = Bench(workers=1).begin("w1")
    for death in range(25):
        dead.do(WorkerLost(f"w{death + 1}", asked=True))
        dead.do(Hello(f"w{death + 2}"))
    demand("died 25 times" in dead.journal.stopping, f"{dead.journal.stopping}")


@scenario
def busy_and_sleeping_ones_are_told_apart() -> None:
    bench = Bench().begin()
    host = bench.journal.entries[A0].worker
    for now_ms in (40.0, 80.0, 120.0):
        bench.do(now_ms=now_ms)
        for worker in ("w1", "w2"):
            event = Busy(host, A0, 7, now_ms + 5) if worker == host else Hello(worker)
            demand(not bench.do(event) or worker != host, "it is told something")
    demand(bench.said == ["the epoch after 7 of a/0 goes on for 0.1 s"], f"{bench.said}")
    slept = Bench().begin()
    slept.do(now_ms=10.0)
    slept.do(now_ms=500.0)
    demand(not slept.said and slept.controller.heard == {"w1": 500.0, "w2": 500.0}, f"{slept.said}")
    slept.do(now_ms=549.0)
    slept.do(now_ms=598.0)
    demand(not slept.said, f"{slept.said}")
    slept.do(now_ms=601.0)
    demand(len([what for what in slept.said if "silent" in what]) == 2, "it sleeps for ever")


@scenario
def workers_that_rest_go_and_are_not_heard() -> None:
    bench = Bench(workers=1).begin("w1", "w2", "w3", "w4")
    found: list[Effect] = []
    for now_ms in range(25, 526, 25):
        for worker in ("w1", "w2", "w3", "w4"):
            found += bench.do(Hello(worker), now_ms=float(now_ms))
        found += bench.do()
    gone = [effect.worker for effect in found if isinstance(effect, ReleaseWorker)]
    demand(len(gone) == 2 and set(gone) <= {"w2", "w3", "w4"}, f"{gone}")
    demand([f"worker {name} released" for name in gone] == bench.said, f"{bench.said}")
    demand(not bench.do(Hello(gone[0])) and gone[0] not in bench.controller.heard, "it counts again")
    bench.do(WorkerLost(gone[0]))
    demand(len(bench.said) == 2 and plans(bench.do(Hello(gone[0]))) != {}, "another one of its name")


@scenario
def what_is_asked_for_waits_its_turn() -> None:
    bench = Bench(workers=3).begin("w1", "w2", "w3")
    bench.do(ScaleTo("a", 2))
    bench.do(ScaleTo("a", 3))
    bench.do(Rebalance("out"))
    demand(list(bench.controller.asked.waiting) == [ScaleTo("a", 3)], f"{bench.controller.asked.waiting}")
    demand(bench.said == ["a: 1 -> 2 partitions", "out: not rebalanced, there is one partition only"], f"{bench.said}")
    shadows = kept_by(bench)
    demand(len(shadows) == 2 and bench.said[-1] == "Replace 1 of a: shadows start", f"{bench.said}")
    demand(not any(entry.worker for entry in shadows), "beside others, though a slot may come")
    bench.do(now_ms=40.0)
    for now_ms in (80.0, 120.0, 160.0, 199.0):
        alive(bench, now_ms)
    demand(not any(e.worker for e in bench.journal.of("a") if e.role == SHADOW), "it does not wait")
    alive(bench, SLOT_WAIT * 100.0 + 1.0)
    placed = [e for e in bench.journal.of("a") if e.role == SHADOW]
    demand(all(e.worker for e in placed), "it waits for ever")
    demand(any("starts on" in what and "beside others" in what for what in bench.said), f"{bench.said}")
    demand(not any("restarts" in what for what in bench.said), f"{bench.said}")
    bench.report(a1={"own_checkpoints": 1}, a2={"own_checkpoints": 1})
    demand("Replace 1 of a: committed from epoch 103" in bench.said, f"{bench.said}")
    demand([e.role for e in bench.journal.of("a")].count(SEALED) == 1, f"{bench.journal.of('a')}")
    bench.report(a0={"drained": True})
    demand(A0 not in bench.journal.entries and A0 not in bench.controller.statuses, "it stays")
    bench.report()
    demand(len(bench.journal.replaces) == 1 and not bench.controller.asked.waiting, "what waited is forgotten")
    stops = Bench().begin()
    stops.do(StopFlow("enough"))
    demand(stops.journal.stopping == "enough", f"{stops.journal}")
    stops.do(ScaleTo("a", 2))
    demand(not stops.journal.replaces, "it goes on")
    drains = Bench().begin()
    drains.do(StopFlow(DRAIN))
    drains.do(ScaleTo("a", 2))
    demand(len(drains.journal.replaces) == 1, "it is stopped at once")
    demand(not drains.controller.finished, "it has not ended")
    drains.report(out0={"ended": True})
    demand(drains.controller.finished, "it has ended")
