"""Rows that kill: how user code is run under suspicion, what is noted, and what becomes of an accusation."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace as with_fields
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import seep
from operators.apply import Apply, Operator
from operators.batch_operator import BatchApply, BatchOperator
from operators.reduce import Reduce
from operators.rowwise import FlatMapRows, KeepRows, MapRows
from operators.stateless import MapBatch
from operators.step import Site, Step, positions_of
from operators.tally import Tally
from seep.control import planner
from seep.control.deaths import CERTAIN_AFTER, HOPELESS, SUSPECT_AFTER, Deaths
from seep.control.verdict import POISONS_AT_MOST, verdict
from seep.model.arrow import ArrowBatch
from seep.model.care import CAREFREE, DIED, DIED_IN_CALL, Care, Condemned, Spot
from seep.model.epoch import Moment
from seep.model.ids import Generation, PartitionId
from seep.model.settings import Settings
from seep.partition.desk import Desk
from seep.partition.wary import CONDEMNED_AFTER, Note, Wary
from seep.protocol.journal import Code, Entry, Journal, Poison
from seep.protocol.messages import Status
from seep.sim.stage import chain
from seep.sim.world import SimNotes

SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64())])
BUCKETS = np.array([3, 3, 3, 8, 8, 20], np.uint16)
BATCH = ArrowBatch(pa.record_batch({"k": [1, 1, 2, 3, 3, 4], "n": [0, 1, 2, 3, 4, 5]}, SCHEMA), BUCKETS)
A = PartitionId("a", 0)


class Runs:
    """What a `Care` was told."""

    def __init__(self, condemned: Spot | None = None) -> None:
        self.noted: list[Spot | None] = []
        self.condemned = condemned

    def __call__(self, spot: Spot | None) -> bool:
        self.noted.append(spot)
        return spot is not None and spot == self.condemned


def called(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(["n"])


ONLY_N = pa.schema([("n", pa.int64())])
STEPS: dict[str, Step] = {
    "map": MapRows("f", lambda row: {"n": row.n}, ONLY_N),
    "flat_map": FlatMapRows("f", lambda row: [{"n": row.n}], ONLY_N),
    "filter": KeepRows("f", lambda row: True, SCHEMA),
    "map_batch": MapBatch("f", called, ONLY_N),
}


def run(step: Step, care: Care) -> tuple[list[int], list[dict[str, Any]], dict[str, int]]:
    site = Site("f", 7, Tally(), care=care, step="out.0/")
    found = step.run(BATCH, site)
    letters = found["errors"].record.to_pylist() if "errors" in found else []
    return found["out"].record.column("n").to_pylist(), letters, site.tally.totals()


@pytest.mark.parametrize("verb", list(STEPS))
def test_a_step_leaves_out_what_it_is_told_to(verb: str) -> None:
    skips = frozenset({Spot("out.0/", 3, 1), Spot("out.0/", 20, 0), Spot("out.1/", 8, 0)})
    for care in (Care(skips), Care(skips, Runs())):
        rows, letters, counts = run(STEPS[verb], care)
        assert rows == [0, 2, 3, 4]
        assert [json.loads(letter["row"])["n"] for letter in letters] == [1, 5]
        assert [letter["position"] for letter in letters] == ["3:1", "20:0"]
        assert {(letter["error"], letter["operator"], letter["epoch"]) for letter in letters} == {(DIED, "f", 7)}
        assert counts["errors"] == 2


@pytest.mark.parametrize("verb", list(STEPS))
def test_under_suspicion_each_row_is_noted_before_it_runs(verb: str) -> None:
    told = Runs()
    assert run(STEPS[verb], Care(note=told)) == run(STEPS[verb], CAREFREE)
    spots = [spot for spot in told.noted if spot is not None]
    assert [(spot.bucket, spot.position) for spot in spots] == [(3, 0), (3, 1), (3, 2), (8, 0), (8, 1), (20, 0)]
    assert told.noted[-1] is None, "what comes after is nobody's row"


@pytest.mark.parametrize("on_error", ["dead_letter", "skip", "fail"])
def test_a_condemned_row_is_not_run(on_error: str) -> None:
    ran: list[int] = []
    bad = Spot("out.0/", 8, 0)
    step = MapRows("f", lambda row: ran.append(row.n) or {"n": row.n}, ONLY_N, on_error)
    with pytest.raises(Condemned) as found:
        run(step, Care(note=Runs(bad)))
    assert ran == [0, 1, 2]
    assert (found.value.spot, found.value.shown, found.value.fails) == (bad, "f", on_error == "fail")


def test_skipped_rows_are_counted_as_such() -> None:
    step = MapRows("f", lambda row: {"n": row.n}, ONLY_N, "skip")
    rows, letters, counts = run(step, Care(frozenset({Spot("out.0/", 3, 0)})))
    assert (rows, letters, counts["skipped"]) == ([1, 2, 3, 4, 5], [], 1)


def test_positions_do_not_depend_on_what_lies_between() -> None:
    assert positions_of(np.array([9, 3, 9, 9, 3], np.uint16)).tolist() == [0, 0, 1, 2, 1]


class Sums(Operator):
    def on_row(self, row: Any, ctx: Any) -> None:
        ctx.emit({"n": row.n})


class Passes(BatchOperator):
    def on_batch(self, batch: pa.RecordBatch, ctx: Any) -> None:
        ctx.emit(batch.select(["n"]))


HEADS: dict[str, tuple[Callable[[], Any], str, list[int]]] = {
    # What is left out: one row; of a columnar operator, the key's rows of the epoch.
    "apply": (lambda: Apply(Sums(), "f", (("k",),), (SCHEMA,), {"out": ONLY_N}), "in0", [1]),
    "batch": (lambda: BatchApply(Passes(), "f", ("k",), (SCHEMA,), {"out": ONLY_N}), "in0", [3, 4]),
    "reduce": (lambda: Reduce(["k"], SCHEMA, lambda so_far, row: row, name="f"), "in", [1]),
}


@pytest.mark.parametrize("kind", list(HEADS))
def test_an_operator_leaves_out_what_it_is_told_to(kind: str) -> None:
    make, step, bad = HEADS[kind]
    moment = Moment(7, 0, 0, 0)
    spot = Spot(step, 3, 1) if bad == [1] else Spot(step, 8, 0)
    plain = make().take(moment, [(0, BATCH)])["out"].record
    for care in (Care(frozenset({spot})), Care(frozenset({spot}), Runs()), Care(note=Runs())):
        head = make()
        head.care = care
        found = head.take(moment, [(0, BATCH)])
        letters = found["errors"].record.to_pylist() if "errors" in found else []
        assert [json.loads(letter["row"])["n"] for letter in letters] == (bad if care.skips else [])
        if not care.skips:
            assert found["out"].record.equals(plain), "to look for a row changes nothing"
        else:
            assert not set(bad) & set(found["out"].record.column("n").to_pylist())
        assert head.statistics().get("errors", 0) == len(letters)


class Called(Operator):
    """Each key says when it is called, and by what."""

    seen = seep.ValueState(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> None:
        self.seen.value += 1
        ctx.set_timer(datetime.fromtimestamp(row.n + 1, UTC))

    def on_timer(self, at: Any, ctx: Any) -> None:
        self.seen.value += 10
        ctx.emit({"k": ctx.key, "kind": "on_timer", "seen": self.seen.value})

    def on_tick(self, ctx: Any) -> None:
        self.seen.value += 100
        ctx.emit({"k": ctx.key, "kind": "on_tick", "seen": self.seen.value})

    def on_epoch(self, epoch: int, ctx: Any) -> None:
        ctx.emit({"k": ctx.key, "kind": "on_epoch", "seen": self.seen.value})


SAID = pa.schema([("k", pa.int64()), ("kind", pa.string()), ("seen", pa.int64())])


def calls_of(cares: list[Care], on_error: str = "dead_letter") -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What is said, and refused, by one whose timers, ticks and ends of epochs come in the second epoch."""
    head = Apply(Called(), "f", (("k",),), (SCHEMA,), {"out": SAID}, 1_000, on_error)
    said, refused = [], []
    for epoch, care in enumerate(cares):
        head.care = care
        moment = Moment(epoch, 1_000 * epoch, 0, 60_000_000 * epoch, 60_000_000 * epoch)
        found = head.take(moment, [(0, BATCH)] if not epoch else [])
        said += found["out"].record.to_pylist() if "out" in found else []
        refused += found["errors"].record.to_pylist() if "errors" in found else []
    return said, refused


@pytest.mark.parametrize("kind", ["on_timer", "on_tick", "on_epoch"])
def test_calls_without_a_row_are_noted_and_left_out(kind: str) -> None:
    plain, none = calls_of([CAREFREE, CAREFREE])
    runs = Runs()
    assert calls_of([CAREFREE, Care(note=runs)]) == (plain, none), "to look for a call changes nothing"
    # In bucket 3 are the keys 1 (two rows) and 2.
    count = {"on_timer": 3, "on_tick": 2, "on_epoch": 2}[kind]
    noted = [spot for spot in runs.noted if spot is not None and (spot.step, spot.bucket) == (kind, 3)]
    assert (noted, runs.noted[-1]) == ([Spot(kind, 3, at) for at in range(count)], None)
    left_out = Care(frozenset({Spot(kind, 8, 0)}))
    said, [letter] = calls_of([CAREFREE, left_out])
    assert (json.loads(letter["row"])["key"], letter["error"]) == (3, DIED_IN_CALL)
    assert [row for row in said if row["k"] != 3] == [row for row in plain if row["k"] != 3]
    mine = [row for row in plain if (row["k"], row["kind"]) == (3, kind)]
    assert len([row for row in said if (row["k"], row["kind"]) == (3, kind)]) == len(mine) - 1
    assert calls_of([CAREFREE, left_out], "skip") == (said, [])


@pytest.mark.parametrize("on_error", ["dead_letter", "fail"])
def test_a_condemned_call_is_not_run(on_error: str) -> None:
    spot = Spot("on_timer", 8, 1)
    with pytest.raises(Condemned) as found:
        calls_of([CAREFREE, Care(note=Runs(condemned=spot))], on_error)
    assert (found.value.spot, found.value.shown, found.value.fails) == (spot, "f.on_timer", on_error == "fail")
    assert str(Poison("f", 1, spot, found.value.shown)) == "call 8:1 of f.on_timer in epoch 1"


# --- notes --------------------------------------------------------------------------------------------------------


def entry(**fields: Any) -> Entry:
    journal = planner.restart(planner.first_journal(chain()), A, "w1")
    return with_fields(journal.entries[A], **fields)


def wary(notes: SimNotes, **fields: Any) -> Wary:
    desk = Desk("w1", Settings())
    desk.notes = notes
    return Wary(desk, entry(**fields))


def test_nothing_is_noted_without_suspicion() -> None:
    assert wary(SimNotes()).care(5, 4) is CAREFREE


def test_the_same_row_twice_condemns_it() -> None:
    notes, spot, heir_of = SimNotes(), Spot("", 3, 1), None
    for number in range(1, CONDEMNED_AFTER + 2):
        generation = Generation(1, number)
        care = wary(notes, generation=generation, deaths=3, reached=4, heir_of=heir_of, died=True).care(5, 4)
        care.begin(Spot("", 3, 0), "f", False)
        if number > CONDEMNED_AFTER:
            with pytest.raises(Condemned):
                care.begin(spot, "f", False)
        else:
            care.begin(spot, "f", False)
            heir_of = generation
            assert notes.kept[A, generation] == Note(5, spot, number)


def test_a_note_from_before_an_upgrade_accuses_nobody() -> None:
    """What an operator before this one sends is another row by then, at the same place."""
    notes, spot, heir_of = SimNotes(), Spot("", 3, 1), None
    for number, upgrades in zip((1, 2, 3, 4), (0, 0, 1, 1), strict=True):
        generation, desk = Generation(1, number), Desk("w1", Settings())
        desk.notes = notes
        codes = {"before": tuple(Code(at, "new") for at in range(upgrades))}
        desk.journal = with_fields(desk.journal, codes=codes)
        one = Wary(desk, entry(generation=generation, deaths=3, reached=4, heir_of=heir_of, died=True))
        one.care(5, 4).begin(spot, "f", False)
        heir_of = generation
    assert notes.kept[A, Generation(1, 4)] == Note(5, spot, 2, upgrades=1)


def test_a_suspected_row_is_waited_before() -> None:
    """Who is killed from outside is killed then, and what he dies of is nobody's row."""
    notes, spot = SimNotes(), Spot("", 3, 1)
    wary(notes, generation=Generation(1, 1), deaths=3, reached=4).care(5, 4).begin(spot, "f", False)
    assert notes.waited == 0
    noted: list[Note | None] = []
    heir = Generation(1, 2)
    notes.wait = lambda: noted.append(notes.kept[A, heir])  # type: ignore[method-assign]
    care = wary(notes, generation=heir, deaths=3, reached=4, heir_of=Generation(1, 1), died=True).care(5, 4)
    care.begin(Spot("", 3, 0), "f", False)
    care.begin(spot, "f", False)
    assert noted == [Note(5, spot, 1, running=False)]
    assert notes.kept[A, heir] == Note(5, spot, 2)


def test_another_row_in_between_begins_anew() -> None:
    notes, generations = SimNotes(), [Generation(1, n) for n in range(1, 5)]
    for before, generation, position in zip([None, *generations], generations, [1, 2, 1, 2], strict=False):
        care = wary(notes, generation=generation, deaths=3, reached=4, heir_of=before, died=True).care(5, 4)
        care.begin(Spot("", 3, position), "f", False)
        note = notes.kept[A, generation]
        assert note is not None
        assert note.times == 1


def test_what_others_die_of_in_between_changes_nothing() -> None:
    """Deaths outside of any of its rows hand the note on; a stopped one is not counted; a survived row is forgotten."""
    notes, spot = SimNotes(), Spot("", 3, 1)

    def life(number: int, died: bool = True) -> tuple[Care, Callable[[], Note | None]]:
        generation, before = Generation(1, number), Generation(1, number - 1)
        one = wary(notes, generation=generation, deaths=3, reached=4, heir_of=before, died=died)
        return one.care(5, 4), lambda: notes.kept.get((A, generation))

    life(1)[0].begin(spot, "f", False)
    care, noted = life(2)
    assert noted() == Note(5, spot, 1, running=False)
    care.end()
    assert noted() == Note(5, spot, 1, running=False)
    care, noted = life(3)
    care.begin(spot, "f", False)
    assert noted() == Note(5, spot, 2)
    care, noted = life(4, died=False)
    assert noted() == Note(5, spot, 1, running=False)
    care.begin(spot, "f", False)
    care.end()
    assert noted() is None


def test_the_search_ends_and_grows_with_every_death() -> None:
    early = wary(SimNotes(), deaths=3, reached=10)
    assert [early.care(epoch, epoch - 1).one_by_one for epoch in (5, 18, 19)] == [True, True, False]
    late = wary(SimNotes(), deaths=5, reached=10)
    assert [late.care(epoch, epoch - 1).one_by_one for epoch in (5, 42, 43)] == [True, True, False]


def test_what_is_read_again_is_not_looked_through() -> None:
    assert not wary(SimNotes(), deaths=3, reached=10).care(5, 4, first=False).one_by_one


# --- the controller -----------------------------------------------------------------------------------------------


def died(deaths: Deaths, one: Entry, times: int, ended: bool = True) -> None:
    for _ in range(times):
        deaths.lost(one.worker, ended)
        deaths.note(one, "a/0", None)


def test_only_processes_that_ended_by_themselves_make_a_row_suspect() -> None:
    silent, deaths, one = Deaths(), Deaths(), entry()
    for _ in range(HOPELESS - 1):
        assert not silent.note(one, "a/0", None)
        assert silent.suspected(one).deaths == 0
    died(deaths, one, SUSPECT_AFTER - 1)
    assert deaths.suspected(one).deaths == 0
    died(deaths, one, 1)
    assert (deaths.suspected(one).heir_of, deaths.suspected(one).died) == (one.generation, True)
    deaths.forget_all_but(())
    assert not deaths.suspected(one).died, "the next one was only silent"


def test_a_closed_connection_is_a_death_once_the_backend_says_so() -> None:
    deaths, one = Deaths(), entry()
    died(deaths, one, CERTAIN_AFTER, ended=False)
    assert deaths.suspected(one).deaths == 0
    deaths.lost(one.worker, ended=True)
    assert deaths.certain(one)


def test_a_sink_that_commits_and_never_publishes_makes_no_progress() -> None:
    deaths, out = Deaths(), with_fields(entry(), partition=PartitionId("out", 0))
    for epoch in range(100, 100 + 100 * CERTAIN_AFTER, 100):
        deaths.lost(out.worker, ended=True)
        assert not deaths.note(out, "out/0", Status(out.partition, out.generation, 1, epoch, published=90))
    assert deaths.certain(out)
    deaths.note(out, "out/0", Status(out.partition, out.generation, 1, 2_000))
    assert deaths.suspected(out).deaths <= 1, "all that it has committed is published"


def test_a_call_that_is_condemned_stops_with_its_name() -> None:
    runs, spot, why = Runs(Spot("write", 0, 0)), Spot("write", 0, 0), "sink 'out': write of epoch 3: the process died"
    care = Care(note=runs)
    with pytest.raises(seep.Misuse, match=why), care.whole(spot, lambda: "sink 'out': write of epoch 3"):
        raise AssertionError("it was run")
    with pytest.raises(OSError, match="down"), care.whole(Spot("write", 0, 1), lambda: "another"):
        raise OSError("the outside is down")
    assert runs.noted[-1] is None, "who waits for the outside runs no user's code"


def test_a_controller_that_comes_later_knows_what_was_suspected() -> None:
    deaths, known = Deaths(), entry(deaths=4, reached=9)
    died(deaths, known, 1)
    assert (deaths.suspected(known).deaths, deaths.reached(known)) == (5, 9)


def test_who_died_of_a_neighbours_row_begins_anew_once_it_is_found() -> None:
    """Also by what the journal says of it: ten such rows are no reason to give a sink up that stands still."""
    deaths, guilty = Deaths(), entry()
    beside = with_fields(entry(deaths=4, reached=9), partition=PartitionId("out", 0))
    for one in (guilty, beside):
        died(deaths, one, CERTAIN_AFTER)
    deaths.found(guilty)
    assert deaths.suspected(beside).deaths == 0
    assert deaths.suspected(guilty).deaths == SUSPECT_AFTER


POISON = Poison("a", 12, Spot("", 3, 1), "f")


def judged(journal: Journal, deaths: int = CERTAIN_AFTER, late: bool = False, sink: int = 0) -> tuple[Journal, str]:
    """What becomes of it, after so many deaths; `sink`: what was committed downstream."""
    known = Deaths()
    died(known, journal.entries[A], deaths)
    accuses = Status(A, journal.entries[A].generation, journal.version, -1, accused=POISON)
    out = PartitionId("out", 0)
    statuses = {A: accuses, out: Status(out, Generation(1, 0), 1, sink)}
    return verdict(chain(), journal, accuses, statuses, known, late)


JOURNAL = planner.restart(planner.first_journal(chain()), A, "w1")


def test_an_accused_row_is_condemned_and_who_found_it_starts_again() -> None:
    after, what = judged(JOURNAL)
    assert after.poisons == (POISON,)
    assert after.skips("a", 12) == {POISON.spot}
    assert after.entries[A].generation > JOURNAL.entries[A].generation
    assert "row 3:1 of f in epoch 12" in what


def test_without_deaths_that_are_certain_it_is_waited_and_then_run_again() -> None:
    assert judged(JOURNAL, CERTAIN_AFTER - 1) == (JOURNAL, "")
    after, _ = judged(JOURNAL, CERTAIN_AFTER - 1, late=True)
    assert after.poisons == ()
    assert after.entries[A].generation > JOURNAL.entries[A].generation


def test_an_epoch_that_was_taken_stays_as_it_was() -> None:
    assert not judged(JOURNAL, sink=11)[0].stopping
    after, _ = judged(JOURNAL, sink=12)
    assert "cannot be left out" in after.stopping
    assert after.poisons == ()


def test_there_is_an_end_to_it() -> None:
    after, _ = judged(with_fields(JOURNAL, poisons=(POISON,) * POISONS_AT_MOST))
    assert "fix the function" in after.stopping
