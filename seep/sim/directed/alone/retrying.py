"""One controller by itself: what is begun anew after it has failed, and what is not."""

from __future__ import annotations

from dataclasses import replace as with_fields

from seep.control.asked import TRIES
from seep.control.requests import FixEpoch, ReleaseEpoch, ScaleTo, Upgrade, WorkerLost
from seep.model.ids import BUCKETS, GROUP_BUCKETS, Generation
from seep.protocol.effects import FenceStore, FindCheckpoint, KillWorker, StoreReply
from seep.protocol.messages import Hello
from seep.sim.directed.alone.ruled import A0, OUT, Bench, alive, kept_by
from seep.sim.directed.registry import demand, scenario


@scenario
def replace_that_failed_is_begun_anew_a_few_times() -> None:
    bench = Bench(workers=3).begin("w1", "w2", "w3", "w4", "w5")
    bench.do(ScaleTo("a", 2))
    for number in range(1, TRIES + 2):
        shadows = kept_by(bench)
        demand(len(shadows) == 2 and all(e.worker for e in shadows), f"try {number}: {bench.said}")
        bench.report(**{str(shadows[0].partition).replace("/", ""): {"failure": "no"}})
        demand(f"Replace {number} of a given up: no" in bench.said, f"{bench.said}")
        bench.report()
    demand(not bench.journal.replaces, "it is tried for ever")
    live = Bench().begin()
    live.report(a0={"failure": "Misuse: a: no"})
    live.do()
    demand(live.journal.stopping == "Misuse: a: no", "it goes on")
    version = live.journal.version
    live.report(a0={"failure": "Misuse: a: no"})
    live.do(now_ms=1.0)
    demand(live.journal.version == version, "it is written again and again")
    late = Bench(workers=3).begin("w1", "w2", "w3", "w4", "w5")
    late.do(ScaleTo("a", 2))
    for now_ms in range(40, 3_041, 40):
        alive(late, float(now_ms))
    given_up = [what for what in late.said if "given up" in what]
    demand(given_up == ["Replace 1 of a: given up, it took too long"], f"{late.said}")
    demand(len(late.journal.replaces) == 1 and late.journal.replaces[0].number == 2, "it is not begun anew")
    upgrade = Bench().begin()
    upgrade.do(Upgrade("a", "new"))
    upgrade.report(a0={"refusal": "it has no place for it"})
    demand(upgrade.controller.given_up == {1: "given up: it has no place for it"}, f"{upgrade.controller.given_up}")
    demand(not upgrade.journal.replaces and not upgrade.controller.asked.waiting, "it is asked for again")
    epoch = Bench().begin()
    epoch.do(FixEpoch())
    demand([r.at for r in epoch.journal.replaces] == [102], f"{epoch.journal.replaces}")
    epoch.report(a0={"epoch": 120})
    demand(epoch.said[-1] == "Replace 1 of nothing: another epoch", f"{epoch.said}")
    epoch.do(ReleaseEpoch(1))
    demand(not epoch.journal.replaces, "it is kept")


@scenario
def silent_worker_is_ended_if_others_wait_for_its_partitions() -> None:
    """It may hold a lock of the store. Not one that nobody waits for, nor while it is not known who has its partitions:
    a controller that was deposed and does not know it hears nobody. Nor one that has spoken again, or whose connection
    was closed."""

    for case, wanted in (("they wait", [320.0]), ("they run", []), ("it spoke", []), ("deposed", [])):
        bench = Bench(workers=3).begin("w1", "w2", "w3")
        worker, ended = bench.journal.entries[A0].worker, []
        others = sorted(set(bench.controller.heard) - {worker})
        for now_ms in map(float, range(10, 500, 10)):
            bench.now_ms = now_ms
            for other in others:
                bench.do(Hello(other))
            if case == "it spoke" and now_ms == 300.0:
                bench.do(Hello(worker))
            if case == "deposed" and now_ms == 100.0:
                bench.stored = with_fields(bench.journal, version=bench.journal.version + 1, term=9)
            done = bench.do(now_ms=now_ms)
            ended += [now_ms for effect in done if effect == KillWorker(worker)]
            if worker not in bench.controller.heard:
                bench.report(**({} if case == "they run" else {"a0": {"epoch": -1}}))
        demand(ended == wanted, f"{case}: {ended}")
        demand(f"worker {worker} silent for 100 ms" in bench.said, f"{bench.said}")
        demand(bench.controller.deposed == (case == "deposed"), case)
    closed = Bench(workers=3).begin("w1", "w2", "w3")
    closed.do(WorkerLost(closed.journal.entries[A0].worker, ended=False))
    demand(not closed.controller.silent, "a cable was pulled")


@scenario
def dead_one_comes_back_as_parts() -> None:
    """Fenced, then cut at its newest checkpoint by its load; as it is, where there is none, or not so many may be."""
    load = tuple(3 if group < 16 else 1 for group in range(BUCKETS // GROUP_BUCKETS))
    for value, parts in (((7, 90), 2), (None, 1)):
        bench = Bench(workers=3, parts=2).begin("w1", "w2", "w3")
        bench.report(a0={"load": load})
        before = bench.journal.entries[A0]
        bench.holds = True
        bench.do(WorkerLost(before.worker))
        (fence,) = bench.waiting
        assert isinstance(fence, FenceStore)
        demand((fence.partition, fence.generation) == (A0, Generation(1, bench.journal.next_generation)), f"{fence}")
        bench.waiting.clear()
        bench.do(now_ms=1.0)
        demand(not bench.waiting, "it is fenced twice")
        bench.do(StoreReply(fence.token))
        (find,) = bench.waiting
        assert isinstance(find, FindCheckpoint)
        bench.waiting.clear()
        bench.holds = False
        bench.do(StoreReply(find.token, value))
        live = bench.journal.live("a")
        demand(len(live) == parts, f"{live}")
        if parts == 2:
            # 16 groups of 3 and 48 of 1 are 96: 48 lie below the sixteenth.
            demand([e.key_range.low for e in live] == [0, 1_024], f"{live}")
            demand({e.base for e in live} == {((A0, 7),)} and {e.first for e in live} == {91}, f"{live}")
            demand("a/0 comes back as 2 parts" in bench.said, f"{bench.said}")
        else:
            demand(live[0].generation > before.generation and live[0].worker != before.worker, f"{live}")
    failed = Bench(workers=3, parts=2).begin("w1", "w2", "w3")
    failed.holds = True
    failed.do(WorkerLost(failed.journal.entries[A0].worker))
    fence = failed.waiting.pop()
    failed.do(StoreReply(fence.token, error="failed"))
    failed.do(now_ms=1.0)
    demand(len(failed.waiting) == 1, "it is forgotten")
    sink = Bench(workers=3, parts=2).begin("w1", "w2", "w3")
    sink.do(WorkerLost(sink.journal.entries[OUT].worker))
    demand(len(sink.journal.live("out")) == 1 and sink.journal.entries[OUT].worker in sink.controller.heard, "a sink")
