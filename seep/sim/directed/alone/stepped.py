"""Every change of the journal, and when each next step of a Replace is taken: from one value to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as with_fields
from typing import Any

from seep.control import planner
from seep.control.leftovers import leftovers
from seep.control.pressure import PATIENCE_CHECKPOINTS, Pressure
from seep.control.steps import LAG_EPOCHS, PATIENCE_EPOCHS, Known, next_step
from seep.model.care import Spot
from seep.model.ids import EVERYTHING, FOREVER, Generation, KeyRange, PartitionId
from seep.model.settings import Settings
from seep.protocol.effects import DropCheckpoints, Truncate
from seep.protocol.journal import LIVE, SEALED, SHADOW, Code, Journal, Poison, Replace
from seep.protocol.messages import Status
from seep.sim.directed.registry import demand, scenario
from seep.sim.oracle import check_journal
from seep.sim.stage import chain

GRAPH = chain(starts={"a": 2})
A0, A1, S0, OUT0 = PartitionId("a", 0), PartitionId("a", 1), PartitionId("s", 0), PartitionId("out", 0)
LOW, HIGH = EVERYTHING.split(2)
SPOT = Spot("", 3, 1)


def _placed() -> Journal:
    journal = planner.first_journal(GRAPH)
    for number, partition in enumerate(sorted(journal.entries)):
        journal = planner.restart(journal, partition, f"w{number}")
    return journal


def _begun(old: tuple[PartitionId, ...], ranges: tuple[KeyRange, ...], at: int = 0, handover: bool = False) -> Journal:
    return planner.begin(_placed(), old[0].operator, old, ranges, at, handover)


def _shadows(journal: Journal, *epochs: int) -> Journal:
    (replace,) = journal.replaces
    fixed = {p: (3, epoch) for p, epoch in zip(replace.old, epochs, strict=True)}
    return planner.start_shadows(journal, replace, fixed)


def _said(journal: Journal, **of: Mapping[str, Any]) -> dict[PartitionId, Status]:
    """Of each: up to epoch 100, under this journal, and this."""
    found = {}
    for who, entry in journal.entries.items():
        more = of.get(str(who).replace("/", ""), {})
        found[who] = with_fields(Status(who, entry.generation, journal.version, 100), **more)
    return found


def _step(journal: Journal, hopeless: str = "", waited: float = 0.0, **of: Mapping[str, Any]) -> tuple[Journal, str]:
    return next_step(
        journal, journal.replaces[0], Known(journal.version, _said(journal, **of), waited, GRAPH), hopeless
    )


@scenario
def first_journal_has_everything_at_its_size() -> None:
    for after in (0, 40):
        journal = planner.first_journal(GRAPH, 3, after)
        check_journal(GRAPH, journal)
        found = [
            (str(p), tuple(e.key_range), e.first, e.last, e.role, e.base_epoch) for p, e in journal.entries.items()
        ]
        whole = (0, 4096, after + 1, FOREVER, LIVE, after)
        wanted = [("s/0", *whole), ("a/0", 0, 2048, *whole[2:]), ("a/1", 2048, *whole[1:]), ("out/0", *whole)]
        demand([(name, *key, *rest) for name, key, *rest in found] == wanted, f"{found}")
        demand((journal.version, journal.term, journal.begins) == (1, 3, ()), f"{journal}")
        demand(dict(journal.next_number) == {"s": 1, "a": 2, "out": 1}, f"{journal.next_number}")
        demand({e.generation for e in journal.entries.values()} == {Generation(3, 0)}, "somebody acts already")
    waits = with_fields(GRAPH, nodes={**GRAPH.nodes, "s": with_fields(GRAPH.nodes["s"], turn=2)})
    demand(planner.first_journal(waits).begins == (FOREVER, FOREVER), "it waits for nobody")


@scenario
def replace_changes_lives_at_one_epoch() -> None:
    journal = _shadows(_begun((A0,), LOW.split(2)), 20)
    check_journal(GRAPH, journal)
    news = journal.replaces[0].new
    demand(news == (PartitionId("a", 2), PartitionId("a", 3)), f"{news}")
    for new, low in zip(news, LOW.split(2), strict=True):
        entry = journal.entries[new]
        demand((entry.role, entry.first, entry.last, entry.base_epoch) == (SHADOW, 21, FOREVER, 20), f"{entry}")
        demand((entry.base, entry.key_range, entry.worker) == (((A0, 3),), low, ""), f"{entry}")
    done = planner.commit(journal, journal.replaces[0], 30)
    check_journal(GRAPH, done)
    demand((done.entries[A0].role, done.entries[A0].last) == (SEALED, 29), f"{done.entries[A0]}")
    demand({(done.entries[p].first, done.entries[p].role) for p in news} == {(30, LIVE)} and not done.replaces, "new")
    undone = planner.abort(journal, journal.replaces[0])
    demand((undone.entries, undone.replaces) == (_placed().entries, ()), "it leaves something behind")
    demand(undone.next_number["a"] == 4 and undone.next_replace == 2, "numbers are used again")
    merged = _shadows(_begun((A0, A1), (EVERYTHING,), 20), 20, 20)
    (new,) = merged.replaces[0].new
    demand(merged.entries[new].base == ((A0, 3), (A1, 3)), "it starts from one of two")
    across = _begun((A0, A1), (KeyRange(0, 1000), KeyRange(1000, 4096)), 20)
    bases = [entry.base for entry in _shadows(across, 20, 20).of("a") if entry.role == SHADOW]
    demand(bases == [((A0, 3),), ((A0, 3), (A1, 3))], f"{bases}")
    two = planner.begin(across, "out", (OUT0,), EVERYTHING.split(2), 0, handover=True)
    demand([one.number for one in two.replaces] == [1, 2], "of two Replaces")
    demand([r.at for r in planner.decide_epoch(two, two.replaces[1], 55).replaces] == [20, 55], "of another one")
    handed = planner.commit_handover(two, with_fields(two.replaces[1], at=55))
    demand(handed.entries[OUT0].last == 55 and {e.first for e in handed.live("out")} == {56}, "not at one epoch")
    demand([one.number for one in handed.replaces] == [1], "the other one is gone")


@scenario
def restarts_and_parts_go_on_from_what_there_is() -> None:
    journal = _placed()
    again = planner.restart(journal, A0, "w9")
    demand(again.entries[A0].generation == Generation(1, 5) and again.next_generation == 6, f"{again}")
    demand(again.entries[A0].worker == "w9", f"{again}")
    for first, epoch, begins, sealed in ((1, 40, 41, 40), (50, 40, 50, None), (41, 40, 41, None), (41, 41, 42, 41)):
        begun = with_fields(journal, entries={**journal.entries, A0: with_fields(journal.entries[A0], first=first)})
        parts = planner.recover_in_parts(begun, A0, 5, epoch, LOW.split(2))
        demand({e.first for e in parts.live("a") if e.key_range.low < 2048} == {begins}, f"{first}, {epoch}")
        demand(A0 not in parts.entries if sealed is None else parts.entries[A0].last == sealed, f"{first}, {epoch}")
        bases = {(e.base, e.base_epoch) for e in parts.live("a") if e.key_range.low < 2048}
        demand(bases == {(((A0, 5),), epoch)}, f"{bases}")
    for other, stays in (((A1,), False), ((OUT0,), True), ((S0,), True)):
        under = _begun(other, _placed().entries[other[0]].key_range.split(2))
        parts = planner.recover_in_parts(under, A0, 5, 40, LOW.split(2))
        demand(len(parts.replaces) == stays, f"a Replace of {other}")
    kept = planner.begin(_placed(), "", (A0, A1), (), 44, handover=False)
    demand(not planner.recover_in_parts(kept, A0, 5, 40, LOW.split(2)).replaces, "one that is gone keeps nothing")
    poison = Poison("a", 7, SPOT, "f")
    under = _shadows(_begun((A1,), HIGH.split(2)), 20)
    under = planner.begin(under, "out", (OUT0,), EVERYTHING.split(2), 0, handover=True)
    heir = planner.suspect(under, with_fields(under.entries[A0], heir_of=Generation(1, 1), deaths=4))
    found = planner.condemn(heir, A0, poison)
    demand(found.poisons == (poison,) and [r.operator for r in found.replaces] == ["out"], f"{found.replaces}")
    entry, before = found.entries[A0], under.entries[A0]
    demand((entry.heir_of, entry.deaths, entry.worker) == (None, 4, before.worker), f"{entry}")
    demand(entry.generation > before.generation and not [e for e in found.of("a") if e.role == SHADOW], f"{entry}")


@scenario
def what_nobody_needs_goes() -> None:
    """Who is drained by what it said under this very journal; bases, once there are two checkpoints of one's own."""
    done = _shadows(_begun((A0,), LOW.split(2)), 20)
    done = planner.commit(done, done.replaces[0], 30)
    for status, gone in (
        ({"drained": True}, True),
        ({}, False),
        ({"drained": True, "journal_version": 0}, False),
        ({"drained": True, "generation": Generation(9, 9)}, False),
    ):
        left = planner.let_go(done, _said(done, a0=status))
        demand((A0 not in left.entries) == gone, f"{status}")
    demand(planner.let_go(done, {}) is done, "nothing was said")
    demand(A1 in planner.let_go(done, _said(done, a1={"drained": True})).entries, "a live one goes")
    for number, freed in ((1, False), (2, True)):
        left = planner.let_go(done, _said(done, a2={"own_checkpoints": number}))
        demand((not left.entries[PartitionId("a", 2)].base) == freed, f"with {number} checkpoints")
        demand(bool(left.entries[PartitionId("a", 3)].base), "another one's")
    shadow = _shadows(_begun((A0,), LOW.split(2)), 20)
    kept = planner.let_go(shadow, _said(shadow, a2={"own_checkpoints": 2}))
    demand(bool(kept.entries[PartitionId("a", 2)].base), "a shadow's")
    # Of those gone the store forgets what nobody starts from.
    retired = planner.retire(done, A0)
    demand(not list(leftovers(GRAPH, done, retired)), "the new ones start from it")
    freed_all = retired
    for new in ("a/2", "a/3"):
        freed_all = planner.free_base(freed_all, PartitionId.parse(new))
    last = Generation(1, FOREVER)
    found = list(leftovers(GRAPH, retired, freed_all))
    demand(found == [DropCheckpoints(A0, last, FOREVER)], f"{found}")
    source = list(leftovers(GRAPH, done, planner.retire(done, S0)))
    demand(source == [Truncate(S0, last, FOREVER)], f"{source}")
    demand(not list(leftovers(GRAPH, done, planner.retire(done, OUT0))), "what a sink has committed")


@scenario
def flow_ends_and_tables_open() -> None:
    journal = _placed()
    two = planner.commit_handover(
        _begun((OUT0,), EVERYTHING.split(2), 7, True), Replace(1, "out", (OUT0,), EVERYTHING.split(2), True, 7)
    )
    for of, ended in (
        ({}, False),
        ({"out1": {"ended": True}}, False),
        ({"out1": {"ended": True}, "out2": {"ended": True}}, True),
        ({"a0": {"ended": True}, "a1": {"ended": True}, "s0": {"ended": True}}, False),
    ):
        demand(planner.has_ended(GRAPH, two, _said(two, **of)) == ended, f"{of}")
    demand(not planner.has_ended(GRAPH, journal, {}), "nobody has said anything")
    demand(not planner.has_ended(GRAPH, Journal(), {}), "nothing runs")
    loads = with_fields(GRAPH, nodes={**GRAPH.nodes, "s": with_fields(GRAPH.nodes["s"], loads=True)})
    waiting = with_fields(journal, begins=(FOREVER,))
    demand(planner.open_waiting(loads, waiting, _said(waiting)).begins == (FOREVER,), "before it has ended")
    opened = planner.open_waiting(loads, waiting, _said(waiting, s0={"ended": True, "epoch": 33}))
    demand(opened.begins == (33,), f"{opened.begins}")
    demand(planner.open_waiting(loads, opened, _said(opened, s0={"ended": True, "epoch": 50})) is opened, "again")
    demand(planner.open_waiting(loads, waiting, {}) is waiting, "nothing was said")
    split = planner.commit_handover(
        _begun((S0,), EVERYTHING.split(2), 7, True), Replace(1, "s", (S0,), EVERYTHING.split(2), True, 7)
    )
    split = with_fields(split, begins=(FOREVER,))
    one = {"s1": {"ended": True, "epoch": 60}}
    demand(planner.open_waiting(loads, split, _said(split, **one)).begins == (FOREVER,), "one of two")
    both = planner.open_waiting(loads, split, _said(split, **one, s2={"ended": True, "epoch": 50}))
    demand(both.begins == (60,), f"{both.begins}")
    later = {"s": with_fields(GRAPH.nodes["s"], loads=True, turn=1), "a": with_fields(GRAPH.nodes["a"], loads=True)}
    turns = with_fields(GRAPH, nodes={**GRAPH.nodes, **later})
    waiting, told = with_fields(journal, begins=(FOREVER, FOREVER)), {"ended": True, "epoch": 20}
    first = planner.open_waiting(turns, waiting, _said(waiting, a0=told, a1=told))
    demand(first.begins == (20, FOREVER), f"{first.begins}")
    demand(planner.open_waiting(turns, first, _said(first, a0=told, a1=told)) is first, "the second has not ended")
    last = planner.open_waiting(turns, first, _said(first, a0=told, a1=told, s0={"ended": True, "epoch": 50}))
    demand(last.begins == (20, 50), f"{last.begins}")


READY = {"own_checkpoints": 1, "accepted": True}


@scenario
def switch_comes_when_shadows_are_near() -> None:
    journal = _shadows(_begun((A0,), LOW.split(2)), 20)
    for behind, waited, committed in (
        (LAG_EPOCHS, 0.0, True),
        (LAG_EPOCHS + 1, 0.0, False),
        (LAG_EPOCHS + 1, PATIENCE_EPOCHS + 1.0, False),
        (LAG_EPOCHS + 1, PATIENCE_EPOCHS + 2.0, True),
        (LAG_EPOCHS + 10, PATIENCE_EPOCHS + 19.0, False),
        (LAG_EPOCHS + 10, PATIENCE_EPOCHS + 20.0, True),
    ):
        of: dict[str, Any] = {"a2": {**READY, "epoch": 100 - behind}, "a3": READY}
        after, why = _step(journal, waited=waited, **of)
        demand((not after.replaces) == committed, f"{behind} behind after {waited}: {why!r}")
        demand(why == ("committed from epoch 103" if committed else ""), f"{why!r}")
    for missing in ({"own_checkpoints": 0}, {"accepted": False}, {"journal_version": 0}):
        demand(_step(journal, a2=READY, a3={**READY, **missing}) == (journal, ""), f"{missing}")
    ahead = _step(journal, a2={**READY, "epoch": 110}, a3={**READY, "epoch": 120})
    demand(ahead[1] == "committed from epoch 111", f"{ahead[1]}")
    late = with_fields(journal, entries={**journal.entries, A0: with_fields(journal.entries[A0], first=200)})
    demand(_step(late, a2=READY, a3=READY)[1] == "committed from epoch 200", "before it has begun")
    given_up, why = _step(journal, "it took too long", a2=READY, a3=READY)
    demand(why == "given up, it took too long" and given_up.entries == _placed().entries, f"{why}")
    gone = Replace(9, "a", (A0,), (), False)
    demand(next_step(journal, gone, Known(1, {}), "hopeless") == (journal, ""), "of one that is gone")


@scenario
def shadows_start_from_what_is_kept() -> None:
    split = _begun((A0,), LOW.split(2))
    demand(_step(split)[1] == "", "nothing is kept yet")
    started, why = _step(split, a0={"fixed_version": 7, "fixed_epoch": 95})
    demand(why == "shadows start" and len(started.replaces[0].new) == 2, f"{why}")
    demand({e.base for e in started.of("a") if e.role == SHADOW} == {((A0, 7),)}, "from another one")
    demand(_step(split, a0={"fixed_version": 7, "fixed_epoch": 95, "journal_version": 0})[1] == "", "said before that")
    merge = _begun((A0, A1), (EVERYTHING,), 102)
    right, other = {"fixed_version": 7, "fixed_epoch": 102, "epoch": 104}, {"fixed_version": 8, "fixed_epoch": 99}
    demand(_step(merge, a0=right, a1=right)[1] == "shadows start", "both have it")
    demand(_step(merge, a0=right)[1] == "", "one has not come there")
    demand(_step(merge, a0=right, a1=other)[1] == "", "one has kept another one")
    demand(_step(merge, a0=right, a1={**right, "journal_version": 0})[1] == "", "one has not heard")
    writing = {"fixed_version": 0, "fixed_epoch": 102, "epoch": 103}
    demand(_step(merge, a0=right, a1=writing)[1] == "", "it is being written")
    for epoch, said in ((101, ""), (102, "checkpoint at epoch 106 instead"), (107, "checkpoint at epoch 109 instead")):
        again, why = _step(merge, a0=right, a1={**other, "epoch": epoch})
        demand(why == said and again.replaces[0].at == (int(said.split()[3]) if said else 102), f"{epoch}: {why}")


@scenario
def epoch_that_is_kept_moves_when_it_was_missed() -> None:
    kept = planner.begin(_placed(), "", (A0, A1), (), 102, handover=False)
    for one, other, at in (
        ({}, {}, 102),
        ({"epoch": 103, "fixed_epoch": 102}, {}, 102),
        ({"epoch": 103, "fixed_epoch": 102}, {"epoch": 101}, 102),
        ({"epoch": 102}, {}, 104),
        ({"epoch": 103}, {"epoch": 110, "fixed_epoch": 102}, 112),
        ({"epoch": 103, "journal_version": 0}, {}, 102),
    ):
        after, why = _step(kept, a0=one, a1=other)
        demand(after.replaces[0].at == at and (why == "another epoch") == (at != 102), f"{one}, {other}: {why}")


@scenario
def hand_over_comes_after_the_last_epoch_of_all() -> None:
    both = planner.commit_handover(
        _begun((OUT0,), EVERYTHING.split(2), 7, True), Replace(1, "out", (OUT0,), EVERYTHING.split(2), True, 7)
    )
    names = tuple(e.partition for e in both.live("out"))
    asked = planner.begin(both, "out", names, (EVERYTHING,), 0, handover=True)
    named = planner.decide_epoch(asked, asked.replaces[0], 50)
    for journal, one, other, at, said in (
        (asked, 40, -1, 0, ""),
        (asked, 40, 45, 45, "hand-over after epoch 45"),
        (asked, 0, 0, 1, "hand-over after epoch 1"),
        (asked, FOREVER, 45, 100, "hand-over after epoch 100"),
        (named, 49, 50, 50, ""),
        (named, 50, 50, None, "handed over after epoch 50"),
        (named, 50, FOREVER, None, "handed over after epoch 50"),
        (asked, FOREVER, FOREVER, None, "given up, its input has ended"),
    ):
        after, why = _step(journal, out1={"begun": one}, out2={"begun": other})
        found = after.replaces[0].at if after.replaces else None
        demand((found, why) == (at, said), f"{one}, {other}: {found}, {why}")
    demand(_step(asked, out1={"begun": 4}, out2={"begun": 4, "journal_version": 0})[1] == "", "said before that")


@scenario
def old_code_ends_after_all_that_was_heard_of_it() -> None:
    graph = chain(deep=True)
    journal = planner.begin(planner.first_journal(graph), "a", (A0,), (), 0, handover=False, code="new")

    def step(known: Journal, begun: int, b: int = 12, out: int = 40, **more: Any) -> tuple[int | None, str]:
        statuses = {p: Status(p, e.generation, known.version, 9) for p, e in known.entries.items()}
        for who, heard in ((PartitionId("b", 0), b), (OUT0, out)):
            statuses[who] = with_fields(statuses[who], heard=heard)
        statuses[A0] = with_fields(statuses[A0], begun=begun, **more)
        after, why = next_step(known, known.replaces[0], Known(known.version, statuses, graph=graph))
        return (after.replaces[0].at if after.replaces else None), why

    poisons = (Poison("b", 50, SPOT, "f"), Poison("s", 70, SPOT, "f"))
    coded = with_fields(journal, codes={"a": (Code(44, "old"),), "b": (Code(60, "b"),)})
    sealed = planner.commit(_like(journal), Replace(9, "b", (PartitionId("b", 0),), (), False), 78)
    named = planner.decide_epoch(journal, journal.replaces[0], 40)
    ended = "the old code ends with epoch"
    for known, begun, at, why in (
        (journal, -1, 0, ""),
        (journal, 9, 40, f"{ended} 40"),
        (journal, 45, 45, f"{ended} 45"),
        (with_fields(journal, poisons=poisons), 9, 50, f"{ended} 50"),
        (with_fields(journal, poisons=(Poison("a", 51, SPOT, "f"),)), 9, 51, f"{ended} 51"),
        (coded, 9, 44, f"{ended} 44"),
        (sealed, 9, 40, f"{ended} 40"),
        (named, 39, 40, ""),
        (named, 41, 41, f"{ended} 41"),
        (named, 40, None, "upgraded from epoch 41 on"),
        (named, FOREVER, 40, ""),
    ):
        found = step(known, begun)
        demand(found == (at, why), f"{begun}: {found}, not {at}, {why!r}")
    demand(step(journal, 9, out=-1) == (0, ""), "who is furthest behind has not said anything")
    demand(step(journal, 0, 0, 0) == (1, f"{ended} 1"), "there is one epoch at least")
    demand(step(journal, 9, refusal="no") == (None, "given up: no"), "it is refused")
    of_a = planner.commit(_like(journal), Replace(9, "a", (PartitionId("a", 7),), (), False), 78)
    demand(step(of_a, 9) == (77, f"{ended} 77"), f"one of the operator's own that is sealed: {step(of_a, 9)}")


def _like(journal: Journal) -> Journal:
    """With one more partition of the operator."""
    more = with_fields(journal.entries[A0], partition=PartitionId("a", 7))
    return with_fields(journal, entries={**journal.entries, more.partition: more})


@scenario
def replace_that_keeps_too_much_is_named_after_a_while() -> None:
    """The youngest whose shadows follow one that can keep no more, once it has been so for four checkpoints' time."""
    settings, graph = Settings(buffer_bytes=1_000, checkpoint_ms=10.0), chain(deep=True)
    journal = planner.first_journal(graph)
    journal = planner.begin(journal, "b", (PartitionId("b", 0),), EVERYTHING.split(2), 0, handover=False)
    started = planner.start_shadows(journal, journal.replaces[0], {PartitionId("b", 0): (3, 20)})

    def look(pressure: Pressure, known: Journal, now_ms: float, **of: int) -> int | None:
        statuses = {
            p: Status(p, e.generation, known.version, 9, statistics={"buffer_bytes": of.get(p.operator, 0)})
            for p, e in known.entries.items()
        }
        return pressure.look(known, Known(known.version, statuses, graph=graph), settings, now_ms)

    patience_ms = PATIENCE_CHECKPOINTS * settings.checkpoint_ms
    for known, of, found in (
        (started, {"a": 1_000}, 1),
        (started, {"a": 999}, None),
        (started, {"s": 1_000}, None),
        (journal, {"a": 1_000}, None),
    ):
        pressure = Pressure()
        looks = [look(pressure, known, ms, **of) for ms in (100.0, 100.0 + patience_ms, 101.0 + patience_ms)]
        demand(looks == [None, None, found], f"{of}: {looks}")
    pressure = Pressure()
    now_and_then = [
        look(pressure, started, ms, a=kept) for ms, kept in ((0.0, 1_000), (30.0, 0), (31.0, 1_000), (60.0, 1_000))
    ]
    demand(now_and_then == [None] * 4, "it did not last")
    younger = planner.begin(started, "b", (PartitionId("b", 9),), (), 0, handover=False)
    younger = with_fields(
        younger, replaces=(younger.replaces[0], with_fields(younger.replaces[1], new=(PartitionId("b", 8),)))
    )
    pressure = Pressure()
    demand([look(pressure, younger, ms, a=1_000) for ms in (0.0, 50.0)] == [None, 2], "not the youngest")
