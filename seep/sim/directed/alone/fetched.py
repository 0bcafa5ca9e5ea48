"""How one that starts gets what it starts from: out of a memory, out of the store, or as a last resort an older one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as with_fields
from typing import Any

from seep.model.ids import Generation, KeyRange, PartitionId
from seep.partition.loader import LAST_RESORT_MS, PATIENCE_MS, Loader
from seep.protocol.effects import LoadCheckpoints, NewestVersion, StoreReply
from seep.protocol.messages import Fetch, Held
from seep.sim.directed.alone.desks import A0, GRAPH, MINE, checkpoint_of, desk_of, done, entry_of, sent_to
from seep.sim.directed.registry import demand, scenario


class _Loading:
    def __init__(self, **knobs: Any) -> None:
        self.desk = desk_of(**knobs)
        self.loader = Loader(self.desk, with_fields(entry_of(A0, "w1"), key_range=KeyRange(0, 9)), GRAPH)
        self.answers: list[StoreReply] = []

    def newest(self, there: int | None) -> list[str]:
        """Asks for our own, of which the store has this version; answers whom."""
        self.loader.newest(self.answers.append, self.desk.call)
        if there is not None:
            (asked,) = done(self.desk, NewestVersion)
            self.desk.answer(StoreReply(asked.token, there))
        return sorted(sent_to(self.desk))

    def held(self, holder: str, *versions: int, generation: Generation = MINE, who: PartitionId = A0) -> None:
        chain = tuple(checkpoint_of(version, 10) for version in versions)
        self.loader.on_held(Held(who, A0, generation, holder, chain))

    def at(self, now_ms: float) -> list[LoadCheckpoints]:
        self.desk.now_ms = now_ms
        self.loader.tick()
        return done(self.desk, LoadCheckpoints)

    def versions(self) -> list[Sequence[int] | str]:
        return [answer.error or [one.version for one in answer.value] for answer in self.answers]


@scenario
def memory_is_asked_first_and_the_store_when_nobody_has_it() -> None:
    bench = _Loading()
    demand(bench.newest(7) == ["w2", "w3"], "not all are asked")
    fetches = done(bench.desk, Fetch)
    demand(
        {(f.partition, f.upto, f.part, f.worker, f.generation) for f in fetches} == {(A0, 0, None, "w1", MINE)}, "for"
    )
    bench.held("w2", 7, generation=Generation(2, 2))
    bench.held("w2", 6)
    demand(not bench.answers and not bench.at(PATIENCE_MS - 1.0), "an older one will do")
    bench.held("w3", 7)
    demand(bench.versions() == [[7]] and bench.loader.from_memory, f"{bench.versions()}")
    bench.held("w2", 8)
    demand(len(bench.answers) == 1 and not bench.at(99.0), "it goes on")
    none = _Loading()
    none.newest(7)
    none.held("w2")
    none.held("w2")
    demand(not none.at(1.0), "not all have answered")
    none.held("w3", 3)
    (load,) = none.at(1.0)
    demand((load.partition, load.upto, load.part) == (A0, 0, None), f"{load}")
    none.desk.answer(StoreReply(load.token, [checkpoint_of(7, 10)]))
    demand(none.versions() == [[7]] and not none.loader.from_memory, f"{none.versions()}")
    slow = _Loading()
    slow.newest(7)
    demand(not slow.at(PATIENCE_MS - 0.1) and len(slow.at(PATIENCE_MS)) == 1, "patience")
    empty = _Loading()
    demand(empty.newest(0) == [] and empty.versions() == [[]], "there is none")
    failed = _Loading()
    failed.newest(None)
    (asked,) = done(failed.desk, NewestVersion)
    failed.desk.answer(StoreReply(asked.token, error="failed"))
    demand(failed.versions() == ["failed"], "the store is away")
    for knobs, again in (({"copies_bytes": 0}, False), ({}, True)):
        alone = _Loading(**knobs)
        call = alone.desk.call_again if again else alone.desk.call
        alone.loader.newest(alone.answers.append, call)
        alone.desk.now_ms = 100.0
        alone.desk.tick()
        demand(len(done(alone.desk, LoadCheckpoints)) == 1 and not alone.desk.effects, f"{knobs}: others are asked")


@scenario
def bases_are_read_in_part_and_exactly() -> None:
    bench = _Loading()
    other = PartitionId("a", 5)
    bench.loader.base(other, 7, bench.answers.append, bench.desk.call)
    fetches = done(bench.desk, Fetch)
    demand({(f.partition, f.upto, f.part) for f in fetches} == {(other, 7, KeyRange(0, 9))}, f"{fetches}")
    demand(not done(bench.desk, NewestVersion), "which is the newest does not matter")
    bench.held("w2", 7, who=other)
    demand(bench.versions() == [[7]] and not bench.loader.from_memory, "it is not our own")
    late = _Loading()
    late.loader.base(other, 7, late.answers.append, late.desk.call)
    (load,) = late.at(PATIENCE_MS)
    demand((load.partition, load.upto, load.part) == (other, 7, KeyRange(0, 9)), f"{load}")


@scenario
def last_resort_is_the_version_before() -> None:
    """Nothing in the store can be used: whoever has that version, or of our own the one before it, is waited for."""
    for wanted, answer, found in ((7, 6, True), (7, 5, False)):
        bench = _Loading()
        bench.newest(wanted)
        done(bench.desk, Fetch)
        (load,) = bench.at(PATIENCE_MS)
        bench.desk.answer(StoreReply(load.token, error="damaged"))
        demand(len(done(bench.desk, Fetch)) == 2 and not bench.answers, "nobody is asked again")
        demand(not bench.at(PATIENCE_MS + LAST_RESORT_MS - 1.0) and not bench.answers, "no patience")
        bench.held("w2", answer)
        demand(bench.versions() == ([[answer]] if found else []), f"{bench.versions()}")
        bench.at(PATIENCE_MS + LAST_RESORT_MS)
        demand(bench.versions() == [[answer] if found else "damaged"], f"{bench.versions()}")
    base = _Loading()
    base.loader.base(PartitionId("a", 5), 7, base.answers.append, base.desk.call)
    (load,) = base.at(PATIENCE_MS)
    base.desk.answer(StoreReply(load.token, error="damaged"))
    base.held("w2", 6, who=PartitionId("a", 5))
    demand(not base.answers, "of another one only that version will do")
    base.held("w3", who=PartitionId("a", 5))
    demand(base.versions() == ["damaged"], f"{base.versions()}")
    alone = _Loading()
    alone.newest(7)
    (load,) = alone.at(PATIENCE_MS)
    alone.desk.journal = with_fields(alone.desk.journal, entries={A0: entry_of(A0, "w1")})
    alone.desk.answer(StoreReply(load.token, error="damaged"))
    demand(alone.versions() == ["damaged"], "nobody is left to ask")
