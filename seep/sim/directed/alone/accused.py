"""When a row is suspected, looked for, accused and condemned: death by death."""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Any

from seep.control import planner
from seep.control.deaths import CERTAIN_AFTER, HOPELESS, LONG, NEAR, SUSPECT_AFTER, UNCONFIRMED_AT_MOST, Deaths
from seep.control.verdict import POISONS_AT_MOST, verdict
from seep.errors import DataLoss
from seep.model.care import Condemned, Spot
from seep.model.ids import EVERYTHING, FOREVER, Generation, PartitionId
from seep.model.settings import Settings
from seep.partition.desk import Desk
from seep.partition.wary import CONDEMNED_AFTER, Note, Wary
from seep.protocol.journal import LIVE, Code, Entry, Journal, Poison
from seep.protocol.messages import Status
from seep.sim.directed.registry import demand, scenario
from seep.sim.stage import chain

A, S = PartitionId("a", 0), PartitionId("s", 0)
GRAPH = chain()
SPOT, OTHER = Spot("f", 3, 1), Spot("f", 3, 2)
OURS, THEIRS = Generation(1, 5), Generation(1, 4)


def _entry(**more: Any) -> Entry:
    return with_fields(Entry(A, EVERYTHING, 1, FOREVER, LIVE, OURS, "w1"), **more)


def _at(epoch: int, published: int = FOREVER) -> Status:
    return Status(A, OURS, 1, epoch, published=published)


# --- deaths ------------------------------------------------------------------------------------------------------


@scenario
def deaths_of_long_ago_end_no_flow() -> None:
    """Kills from outside, none of them close to the next, leave a partition suspect; a controller that takes over then
    must not take them for deaths in one place."""
    deaths, entry = Deaths(), _entry(deaths=HOPELESS - 1, reached=40)
    said = [deaths.note(entry, "a/0", _at(40)) for _ in range(HOPELESS - SUSPECT_AFTER)]
    demand(not any(said[:-1]) and "died 25 times at epoch 40" in said[-1], f"{said}")
    demand(Deaths().suspected(entry).deaths == HOPELESS - 1, "what was suspected is forgotten")


@scenario
def deaths_without_progress_end_in_a_report() -> None:
    """Whatever they die of; each that got further counts from one again."""
    deaths = Deaths()
    said = [deaths.note(_entry(), "a/0", _at(40)) for _ in range(HOPELESS)]
    demand(not any(said[:-1]), f"too early: {said}")
    demand(said[-1] == f"SeepError: a/0 died {HOPELESS} times at epoch 40; see the workers' logs", said[-1])
    further = Deaths()
    said = [further.note(_entry(), "a/0", _at(40 + death)) for death in range(3 * HOPELESS)]
    demand(not any(said), f"it got further each time: {said}")
    said = [further.note(_entry(), "a/0", None if death % 2 else _at(20)) for death in range(HOPELESS - 1)]
    demand(not any(said[:-1]) and bool(said[-1]), "what is not heard of, or lies before, is no progress")
    demand(further.reached(_entry()) == 40 + 3 * HOPELESS - 1, f"{further.reached(_entry())}")
    demand(further.reached(_entry(partition=S)) == -1, "of a stranger")
    demand(further.reached(_entry(partition=S, reached=7)) == 7, "of one that another controller knew")
    never = Deaths()
    demand(bool([never.note(_entry(), "a/0", None) for _ in range(HOPELESS)][-1]), "nothing was ever heard")


def _died(deaths: Deaths, *ended: bool | None, at: int = 40, published: int = FOREVER) -> None:
    """Each time: has its process ended, was only a connection lost, or nothing of the kind?"""
    for one in ended:
        deaths.forget_all_but(())
        if one is not None:
            deaths.lost("w1", one)
        deaths.note(_entry(), "a/0", _at(at, published))


@scenario
def only_processes_that_ended_make_rows_suspect() -> None:
    demand((SUSPECT_AFTER, CERTAIN_AFTER, NEAR, LONG) == (3, 5, 4, 10), "reckoned for others")
    for ended, suspected, certain in (
        ((True, True), 0, False),
        ((True, True, True), 3, False),
        ((None, True, None, True), 0, False),
        ((None, True, None, True, True), 3, False),
        ((True,) * 4, 4, False),
        ((True,) * 5, 5, True),
    ):
        deaths = Deaths()
        _died(deaths, *ended)
        entry = deaths.suspected(_entry(deaths=9, reached=9, heir_of=THEIRS, died=True))
        demand(entry.deaths == suspected and deaths.certain(_entry()) == certain, f"{ended}: {entry}")
        told = (entry.reached, entry.heir_of, entry.died)
        demand(told == ((40, OURS, True) if suspected else (-1, None, False)), f"{ended}: {told}")
    silent = Deaths()
    _died(silent, True, True, True, None)
    entry = silent.suspected(_entry())
    demand((entry.deaths, entry.died) == (3, False), f"the last one was only silent: {entry}")
    # A connection is closed; a moment later the backend says that the process has ended.
    late = Deaths()
    _died(late, True, True, False)
    demand(late.suspected(_entry()).deaths == 0, "a cable was pulled")
    late.lost("w1", True)
    demand(late.suspected(_entry()).deaths == 3, "its end is known by now")
    late.lost("w1", True)
    demand(late.suspected(_entry()).deaths == 3, "it counts twice")
    late.forget_all_but(("w1",))
    demand(late.suspected(_entry()).died, "it is forgotten though its entry names it")
    late.forget_all_but(("w2",))
    demand(not late.suspected(_entry()).died, "it is not forgotten")
    known = Deaths()
    known.lost("w1", True)
    known.lost("w1", False)
    known.note(_entry(), "a/0", _at(40))
    _died(known, True, True)
    demand(known.suspected(_entry()).deaths == 3, "that it has ended is forgotten")
    many = Deaths()
    _died(many, True, True)
    for number in range(UNCONFIRMED_AT_MOST + 1):
        many.lost(f"v{number}", False)
        many.note(_entry(partition=A if number < 2 else S, worker=f"v{number}"), "a/0", _at(40))
    many.forget_all_but(())
    many.lost("v0", True)
    demand(many.suspected(_entry()).deaths == 0, "so many are kept")
    many.lost("v1", True)
    demand(many.suspected(_entry()).deaths == 3, "too few are kept")


@scenario
def suspicion_ends_with_progress_that_is_seen() -> None:
    """Of one, two, ... deaths so many epochs, twice as many with each; of a sink, of what is published."""
    for crashes, further, left in ((1, 8, 2), (1, 9, 1), (2, 16, 3), (2, 17, 1), (4, 64, 5), (4, 65, 1)):
        deaths = Deaths()
        _died(deaths, *(True,) * crashes)
        _died(deaths, True, at=40 + further)
        _died(deaths, *(True,) * 4, at=40 + further)
        found = deaths.suspected(_entry()).deaths
        demand(found == left + 4, f"{further} epochs further after {crashes}: {found}")
    hidden = Deaths()
    for epoch in (40, 400, 4_000):
        _died(hidden, True, at=epoch, published=30)
    demand(hidden.suspected(_entry()).deaths == 3, "nobody has seen that")
    demand(hidden.reached(_entry()) == 4_000, f"{hidden.reached(_entry())}")
    heir = Deaths()
    heir.lost("w1", True)
    heir.note(_entry(deaths=4, reached=40), "a/0", _at(40))
    demand(heir.certain(_entry()), "what another controller knew is forgotten")
    far = Deaths()
    _died(far, *(True,) * 20)
    _died(far, True, at=40 + NEAR * 2**LONG)
    demand(far.certain(_entry()), "so much is no progress")
    _died(far, True, at=41 + 2 * NEAR * 2**LONG)
    demand(not far.certain(_entry()), "more than that is")


# --- verdicts ----------------------------------------------------------------------------------------------------

POISON = Poison("a", 41, SPOT, "f")


def _judged(
    crashes: int = 5, late: bool = False, poison: Poison = POISON, sink: int = 40, journal: Journal | None = None
) -> tuple[Journal, Journal, str, Deaths]:
    before = journal or planner.restart(planner.first_journal(GRAPH), A, "w1")
    deaths, entry = Deaths(), before.entries[A]
    for _ in range(crashes):
        deaths.lost("w1", True)
        deaths.note(entry, "a/0", Status(A, entry.generation, 1, 40))
    entry = with_fields(entry, heir_of=THEIRS)
    before = planner.suspect(before, entry)
    status = Status(A, entry.generation, 1, 40, accused=poison)
    out = PartitionId("out", 0)
    statuses = {A: status, out: Status(out, Generation(1, 0), 1, sink), S: Status(S, Generation(1, 0), 1, 99)}
    after, said = verdict(GRAPH, before, status, statuses, deaths, late)
    return before, after, said, deaths


@scenario
def row_is_condemned_only_for_certain_and_before_anybody_has_passed_it() -> None:
    before, after, said, deaths = _judged()
    demand(after.poisons == (POISON,) and said.startswith("POISON: a/0 died again and again on row 3:1 of f"), said)
    demand(after.entries[A].heir_of is None and after.entries[A].generation > before.entries[A].generation, "as it was")
    demand(deaths.suspected(_entry()).deaths == SUSPECT_AFTER, f"{deaths.suspected(_entry())}")
    before, after, said, _ = _judged(crashes=4)
    demand((after, said) == (before, ""), "it is not certain yet")
    before, after, said, _ = _judged(crashes=4, late=True)
    demand(not after.poisons and said == "a/0: nobody is known to have died", said)
    entry = after.entries[A]
    demand(
        entry.heir_of is None and entry.worker == "w1" and entry.generation > before.entries[A].generation, f"{entry}"
    )
    reason = "and it cannot be left out: the epoch was taken before without harm; is there too little memory?"
    for sink, poison, stops in (
        (40, POISON, False),
        (41, POISON, True),
        (40, with_fields(POISON, epoch=40), True),
        (41, with_fields(POISON, after=True), False),
    ):
        _, after, said, _ = _judged(sink=sink, poison=poison)
        demand(bool(after.stopping) == stops and bool(after.poisons) != stops, f"{sink}, {poison}: {said}")
        demand(not stops or (after.stopping == said and said.endswith(reason)), said)
    first = planner.restart(planner.first_journal(GRAPH), A, "w1")
    for number, stops in ((POISONS_AT_MOST - 1, False), (POISONS_AT_MOST, True)):
        full = with_fields(first, poisons=(with_fields(POISON, epoch=1),) * number)
        _, after, said, _ = _judged(journal=full)
        demand(bool(after.stopping) == stops, f"with {number}: {said}")
    shadowed = planner.begin(first, "a", (A,), EVERYTHING.split(2), 0, handover=False)
    shadowed = planner.start_shadows(shadowed, shadowed.replaces[0], {A: (3, 20)})
    new = shadowed.replaces[0].new[1]
    status = Status(new, Generation(1, 0), 1, 40, accused=POISON)
    after, said = verdict(GRAPH, shadowed, status, {}, Deaths(), False)
    demand(not after.replaces and new not in after.entries and not after.poisons, "a shadow's word counts")
    told = "Replace 1 given up: the new a of buckets 2048-4095 dies on row 3:1 of f in epoch 41"
    demand(said == told, said)


@scenario
def others_that_died_with_it_begin_anew() -> None:
    deaths = Deaths()
    for who in (A, S):
        for _ in range(HOPELESS - 1):
            deaths.lost("w1", True)
            deaths.note(_entry(partition=who), "x", _at(40))
    deaths.found(_entry())
    demand(deaths.suspected(_entry()).deaths == SUSPECT_AFTER, "it may die again on others that are near")
    demand(deaths.suspected(_entry(partition=S)).deaths == 0, "a neighbour is suspected still")
    for _ in range(SUSPECT_AFTER):
        deaths.note(_entry(partition=S), "x", _at(40))
    demand(deaths.suspected(_entry(partition=S)).deaths == SUSPECT_AFTER, "a neighbour is never suspected again")
    deaths.found(_entry())
    said = [deaths.note(_entry(partition=S), "x", _at(40)) for _ in range(HOPELESS)]
    demand(not any(said[:-1]) and bool(said[-1]), "a neighbour is given up for it")
    said = [deaths.note(_entry(), "x", _at(40)) for _ in range(HOPELESS - SUSPECT_AFTER)]
    demand(not any(said[:-1]) and bool(said[-1]), "it begins from nothing")


# --- notes -------------------------------------------------------------------------------------------------------


class Notes:
    """By partition and generation."""

    def __init__(self) -> None:
        self.kept: dict[tuple[PartitionId, Generation], Note | None] = {}
        self.waited = 0
        self.away = False

    def write(self, partition: PartitionId, generation: Generation, note: Note | None) -> None:
        if self.away:
            raise DataLoss("the store is away")
        self.kept[partition, generation] = note

    def read(self, partition: PartitionId, generation: Generation) -> Note | None:
        return self.kept.get((partition, generation))

    def wait(self) -> None:
        self.waited += 1


def _wary(notes: Notes | None, codes: int = 0, **more: Any) -> Wary:
    desk = Desk("w1", Settings())
    desk.notes = notes
    poisons = (Poison("a", 9, SPOT, "f"), Poison("s", 9, OTHER, "f"), Poison("a", 8, OTHER, "f"))
    named = {"a": tuple(Code(7 + code, "new") for code in range(codes))}
    desk.journal = Journal(1, 1, {}, poisons=poisons, codes=named)
    return Wary(desk, _entry(**{"deaths": 3, "reached": 40, "heir_of": THEIRS, "died": True, **more}))


@scenario
def rows_are_noted_for_so_long_as_one_is_looked_for() -> None:
    care = _wary(None).care(9, 8)
    demand(care.skips == {SPOT} and not care.one_by_one, "where nothing can be kept")
    demand(not _wary(None).care(7, 6).needed, "without a reason")
    demand(not _wary(Notes(), deaths=0).care(50, 49).needed, "nobody has died")
    for deaths, done, until in ((3, 10, 48), (3, 45, 53), (4, 10, 56), (40, 10, 40 + 2**30)):
        wary = _wary(Notes(), deaths=deaths)
        found = [wary.care(epoch + 1, epoch).one_by_one for epoch in (done, until - 1, until)]
        demand(found == [True, True, False], f"after {deaths} deaths from {done}: {found}")
    again = _wary(Notes())
    demand(not again.care(20, 10, first=False).one_by_one and again.care(20, 10).one_by_one, "of one that did no harm")


def _run(wary: Wary, *spots: Spot | None, epoch: int = 41) -> list[bool]:
    care, found = wary.care(epoch, 40), []
    for spot in spots:
        try:
            if spot is None:
                care.end()
            else:
                care.begin(spot, "f", fails=False)
            found.append(False)
        except Condemned:
            found.append(True)
    return found


@scenario
def row_that_two_have_died_on_is_not_run() -> None:
    demand(CONDEMNED_AFTER == 2, "reckoned for others")
    notes = Notes()
    first = _wary(notes)
    demand(_run(first, OTHER, SPOT) == [False, False], "nobody has died on it")
    demand(notes.kept[A, OURS] == Note(41, SPOT, 1) and notes.waited == 0, f"{notes.kept}")
    for before, upgrades, more, kept, condemned, waited in (
        (Note(41, SPOT, 1), 0, {}, Note(41, SPOT, 1, False), False, 1),
        (Note(41, SPOT, 2), 0, {}, Note(41, SPOT, 2, False), True, 0),
        (Note(41, SPOT, 2), 0, {"died": False}, Note(41, SPOT, 1, False), False, 1),
        (Note(41, SPOT, 1), 0, {"died": False}, None, False, 0),
        (Note(41, SPOT, 2, False), 0, {"died": False}, Note(41, SPOT, 2, False), True, 0),
        (Note(41, OTHER, 2), 0, {}, Note(41, OTHER, 2, False), False, 0),
        (Note(42, SPOT, 2), 0, {}, Note(42, SPOT, 2, False), False, 0),
        (Note(41, SPOT, 2), 1, {}, "none", False, 0),
        (Note(41, SPOT, 2, True, 1), 1, {}, Note(41, SPOT, 2, False, 1), True, 0),
        (Note(41, SPOT, 2), 0, {"heir_of": None}, "none", False, 0),
    ):
        notes = Notes()
        notes.kept[A, THEIRS] = before
        wary = _wary(notes, upgrades, **more)
        demand(notes.kept.get((A, OURS), "none") == kept, f"{before} of {more}: {notes.kept}")
        demand(_run(wary, SPOT) == [condemned] and notes.waited == waited, f"{before} of {more}, {upgrades}")
        if not condemned:
            times = 2 if waited else 1
            demand(notes.kept[A, OURS] == Note(41, SPOT, times, upgrades=upgrades), f"{notes.kept}")
    notes = Notes()
    notes.kept[A, THEIRS] = Note(41, SPOT, 1)
    wary = _wary(notes)
    demand(_run(wary, SPOT, None, SPOT) == [False] * 3, "it has done no harm")
    demand(notes.kept[A, OURS] == Note(41, SPOT, 1) and notes.waited == 1, f"{notes.kept}")
    notes = Notes()
    notes.kept[A, THEIRS] = Note(41, SPOT, 2)
    wary = _wary(notes)
    demand(_run(wary, OTHER, None, SPOT) == [False, False, True], "another row came first")
    between = Notes()
    between.kept[A, THEIRS] = Note(41, SPOT, 1)
    wary = _wary(between)
    _run(wary, None)
    demand(between.kept[A, OURS] == Note(41, SPOT, 1, False), "at no row it is handed on")
    away = Notes()
    away.kept[A, THEIRS] = Note(41, SPOT, 2)
    away.away = True
    lost = _wary(away)
    away.away = False
    demand(_run(lost, SPOT) == [False], "what nobody has on record is no evidence")


@scenario
def accusations_are_told() -> None:
    wary = _wary(Notes())
    wary._desk.changed = False
    demand(wary.accuse(41, Condemned(SPOT, "f", False), after=True) == "" and wary._desk.changed, "nobody is told")
    demand(wary.accused == Poison("a", 41, SPOT, "f", True), f"{wary.accused}")
    strict = _wary(Notes())
    said = strict.accuse(41, Condemned(SPOT, "f", True))
    told = "Misuse: f: the process died again and again on row 3:1 of f in epoch 41; "
    demand(said.startswith(told) and strict.accused is None, said)
