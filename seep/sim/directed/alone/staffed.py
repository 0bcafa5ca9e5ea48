"""Which workers are there, how many are wanted, who goes, and where a partition is put: by what was heard of them."""

from __future__ import annotations

from collections.abc import Mapping

from seep.control.attendance import NOTHING_YET, Attendance
from seep.control.placement import idle, place, spread
from seep.control.planner import begin, first_journal, restart, start_shadows
from seep.control.pool import START_WAIT, Pool
from seep.model.ids import PartitionId, Place
from seep.model.settings import Settings
from seep.partition.pulse import Pulse
from seep.protocol.effects import ReleaseWorker, WantWorkers
from seep.protocol.journal import Journal
from seep.protocol.messages import Busy
from seep.sim.directed.registry import demand, scenario
from seep.sim.stage import chain

A, B = PartitionId("a", 0), PartitionId("b", 0)
H1, H2 = Place("h1", "x1"), Place("h2", "x1")


def _there() -> Attendance:
    found = Attendance(Settings(suspect_ms=100.0, stuck_ms=1_000.0))
    found.hear("w1", 0.0, H1)
    found.hear("w2", 0.0)
    return found


@scenario
def who_says_nothing_is_lost_and_who_is_busy_is_not() -> None:
    there = _there()
    for ms in range(50, 500, 50):
        demand(there.hear_busy(Busy("w1", A, 7, ms), ms) == ("" if ms != 150 else _long(0.1)), f"after {ms} ms")
    demand(there.lose_silent(100.0) == [] and there.places == {"w1": H1}, "too early")
    demand(there.lose_silent(100.1) == ["worker w2 silent for 100 ms"], "too late")
    demand(there.lose_silent(550.0) == [] and list(there.heard) == ["w1"], "one that is busy is lost")
    inside = "worker w1 silent for 100 ms, inside the epoch after 7 of a/0"
    demand(there.lose_silent(550.1) == [inside], "a silent one that was busy is not lost")
    demand((there.heard, there.busy, there.places) == ({}, {}, {}), "something of it is left")
    demand(not there.lose("w1"), "it counted twice")


def _long(seconds: float) -> str:
    return f"the epoch after 7 of a/0 goes on for {seconds:.1f} s"


@scenario
def long_work_is_said_once() -> None:
    there = _there()
    said = [there.hear_busy(Busy("w1", A, 7, ms), ms) for ms in (60.0, 100.0, 101.0, 180.0)]
    demand(said == ["", "", _long(0.1), ""], f"{said}")
    there.hear("w1", 200.0)
    demand(there.hear_busy(Busy("w1", A, 7, 2.5 * 60), 350.0) == _long(0.1), "the next time it is not said")
    early = there.hear_busy(Busy("w2", None, -1, 900.0), 350.0)
    demand(early == f"{NOTHING_YET} goes on for 0.9 s", early)
    demand(there.hear_busy(Busy("w3", A, 7, 150.0), 350.0) == "", "of one that does not count")
    demand(sorted(there.heard) == ["w1", "w2"], "it counts by that")


@scenario
def stuck_ones_are_silent_and_excuses_are_made() -> None:
    there = _there()
    there.hear_busy(Busy("w1", A, 7, 1_000.0), 90.0)
    there.hear_busy(Busy("w1", A, 7, 1_000.1), 140.0)
    demand(there.heard == {"w1": 90.0, "w2": 0.0}, f"{there.heard}")
    there.excuse(180.0)
    demand(there.heard == {"w1": 180.0, "w2": 180.0}, f"{there.heard}")
    demand(there.lose_silent(280.0) == [] and len(there.lose_silent(281.0)) == 2, "not from then on")


@scenario
def things_are_put_where_they_begin_at_once() -> None:
    there = _there()
    found = [there.at_hand()]
    for say in (("w1", True), ("w2", True), ("w1", False)):
        if say[1]:
            there.hear_busy(Busy(say[0], A, 7, 10.0), 1.0)
        else:
            there.hear(say[0], 2.0)
        found.append(there.at_hand())
    demand(found == [["w1", "w2"], ["w2"], ["w1", "w2"], ["w1"]], f"{found}")
    demand(there.places == {"w1": H1}, "where it runs is forgotten")


@scenario
def loop_that_turns_needs_no_pulse() -> None:
    """Who is busy, and for how long with the same epoch, is said from the second look on."""
    pulse = Pulse("w1")
    for turns, work, ms, wanted in (
        (1, (A, 7), 0.0, None),
        (5, (A, 7), 100.0, None),
        (5, (A, 7), 200.0, Busy("w1", A, 7, 100.0)),
        (5, (A, 7), 900.0, Busy("w1", A, 7, 800.0)),
        (6, (A, 7), 950.0, None),
        (6, (A, 8), 990.0, Busy("w1", A, 8, 0.0)),
        (6, (A, 8), 995.0, Busy("w1", A, 8, 5.0)),
        (6, (B, 8), 1_000.0, Busy("w1", B, 8, 0.0)),
        (6, None, 1_001.0, Busy("w1", None, -1, 0.0)),
        (6, None, 1_011.0, Busy("w1", None, -1, 10.0)),
    ):
        found = pulse.look(turns, work, ms)
        demand(found == wanted, f"at {ms}: {found}")


# --- how many ----------------------------------------------------------------------------------------------------

FEW = Settings(spare_workers=1, release_ms=100.0, suspect_ms=1_000.0)


def _placed(*workers: str) -> Journal:
    """Of a flow of four partitions."""
    journal = first_journal(chain(starts={"a": 2}))
    for partition, worker in zip(sorted(journal.entries), workers, strict=True):
        journal = restart(journal, partition, worker)
    return journal


ON_ONE = ("w1",) * 4


@scenario
def as_many_are_wanted_as_are_used_and_spare() -> None:
    pool, three = Pool(2, FEW), _placed("w1", "w2", "w3", "w1")
    demand(list(pool.look(three, ["w1", "w2", "w3"], 0.0)) == [WantWorkers(4)], "not four")
    demand(list(pool.look(three, ["w1", "w2", "w3", "w4"], 1.0)) == [], "said again")
    demand(list(pool.look(_placed(*ON_ONE), ["w1"], 1.0)) == [WantWorkers(3)], "not three, though two are asked for")
    a0 = PartitionId("a", 0)
    journal = _placed(*ON_ONE)
    journal = begin(journal, "a", (a0,), journal.entries[a0].key_range.split(2), 0, handover=False)
    journal = start_shadows(journal, journal.replaces[0], {a0: (3, 20)})
    demand(list(pool.look(journal, ["w1"], 2.0)) == [WantWorkers(5)], "none for shadows")
    shadow = journal.replaces[0].new[0]
    demand(list(pool.look(restart(journal, shadow, "w1"), ["w1"], 2.0)) == [WantWorkers(4)], "one that has its place")
    demand(list(Pool(3, FEW).look(first_journal(chain()), [], 0.0)) == [WantWorkers(4)], "before it starts")


@scenario
def longest_idle_go_first_and_none_too_many() -> None:
    pool, journal = Pool(1, FEW), _placed(*ON_ONE)
    list(pool.look(journal, ["w1", "w5"], 0.0))
    for ms in (50.0, 99.0):
        demand(list(pool.look(journal, ["w1", "w2", "w3", "w4", "w5"], ms)) == [], "before they have rested")
    demand(list(pool.look(journal, ["w1", "w2", "w3", "w4", "w5"], 100.0)) == [ReleaseWorker("w5")], "not the longest")
    gone = list(pool.look(journal, ["w1", "w2", "w3", "w4"], 160.0))
    demand(gone == [ReleaseWorker("w2"), ReleaseWorker("w3")], f"{gone}")
    demand(pool.released == {"w5", "w2", "w3"}, f"{pool.released}")
    demand(list(pool.look(journal, ["w1", "w4"], 1_000.0)) == [], "one that is wanted goes")
    again = Pool(1, FEW)
    list(again.look(journal, ["w1", "w2", "w3"], 0.0))
    list(again.look(_placed("w1", "w2", "w3", "w1"), ["w1", "w2", "w3"], 50.0))
    later = [list(again.look(journal, ["w1", "w2", "w3"], ms)) for ms in (120.0, 219.0, 220.0)]
    demand([len(one) for one in later] == [1, 0, 1], f"who was at work meanwhile rests from then on: {later}")


@scenario
def what_does_not_come_is_said() -> None:
    pool, journal = Pool(2, FEW), _placed("w1", "w2", "w1", "w1")
    list(pool.look(journal, ["w1", "w2"], 0.0))
    demand(pool.shortage(1_000.0) == "", "it may be on its way")
    list(pool.look(journal, ["w1", "w2"], 900.0))
    demand(pool.shortage(1_001.0) == "2 of 3 workers wanted are there, for 1 s; none is idle", pool.shortage(1_001.0))
    list(pool.look(journal, ["w1", "w2", "w3"], 3_100.0))
    demand(pool.shortage(9_000.0) == "", "it has come")
    list(pool.look(journal, ["w1", "w2"], 9_000.0))
    demand(pool.shortage(9_900.0) == "" != pool.shortage(10_001.0), "not from when it went")
    waits = Pool(4, FEW)
    list(waits.look(first_journal(chain()), ["w1", "w2"], 0.0))
    list(waits.look(first_journal(chain()), ["w1", "w2"], 6_000.0))
    told = "2 of 5 workers wanted are there, for 6 s; the flow waits for more before it starts"
    demand(waits.shortage(6_000.0) == told, waits.shortage(6_000.0))
    rests = Pool(4, FEW)
    list(rests.look(_placed(*ON_ONE), ["w1", "w2"], 0.0))
    demand(rests.shortage(9_000.0) == "", "one is idle")


@scenario
def flow_starts_with_those_that_came() -> None:
    wait_ms = START_WAIT * FEW.suspect_ms
    pool = Pool(4, FEW)
    for there, ms, later in (
        (0, 0.0, True),
        (0, 10 * wait_ms, True),
        (1, 10 * wait_ms, True),
        (2, 10.9 * wait_ms, True),
        (2, 11.8 * wait_ms, True),
        (2, 11.9 * wait_ms, False),
        (3, 12.0 * wait_ms, True),
        (4, 12.0 * wait_ms, False),
    ):
        demand(pool.starts_later(there, ms) == later, f"{there} at {ms} ms")
    demand(Pool(1, FEW).starts_later(0, 0.0) and not Pool(1, FEW).starts_later(1, 0.0), "of one")


# --- where -------------------------------------------------------------------------------------------------------


@scenario
def partitions_are_put_where_least_is() -> None:
    """Without the same operator first; then the least loaded; then by host and executor; then by name."""
    x2 = Place("h1", "x2")
    for workers, places, wanted in (
        # a/0 on w1, a/1 on w2, out/0 on w3, s/0 on w4; a/1 is to be put.
        (("w1", "w2", "w3", "w4"), {}, "w2"),
        (("w1", "w3", "w4"), {}, "w3"),
        (("w4", "w3"), {}, "w3"),
        (("w1",), {}, "w1"),
        ((), {}, ""),
        (("w3", "w4"), {"w1": H1, "w3": H1, "w4": H2}, "w4"),
        (("w3", "w4"), {"w1": H1, "w3": H1, "w4": x2}, "w4"),
        (("w3", "w4", "w5"), {"w3": H1, "w4": H2, "w5": H1}, "w5"),
        (("w5", "w6"), {"w1": H2, "w5": H2, "w6": H1, "w3": H1, "w4": H1}, "w6"),
        (("w5", "w6"), {"w3": H1, "w4": H1, "w5": H1, "w6": H2}, "w6"),
        (("w5", "w6"), {"w3": H1, "w5": H1, "w6": x2}, "w6"),
        (("w5", "w6"), {"w5": H1, "w6": H1}, "w5"),
        (("w5", "w6"), {"w2": H1, "w5": H1, "w6": H2}, "w5"),  # itself does not count
    ):
        journal = _placed("w1", "w2", "w3", "w4")
        found = place(journal, PartitionId("a", 1), workers, places)
        demand(found == wanted, f"of {workers} at {places}: {found}")
    busy = _placed("w1", "w1", "w1", "w2")  # a/0, a/1, out/0 on w1; s/0 on w2
    demand(place(busy, PartitionId("out", 0), ["w1", "w2"], {}) == "w2", "not the least loaded")
    demand(place(busy, PartitionId("b", 0), ["w1", "w2"], {}) == "w2", "not the least loaded")
    demand(idle(busy, ["w3", "w1", "w2", "w4"]) == ["w3", "w4"], "who runs nothing")


@scenario
def first_workers_are_of_many_hosts() -> None:
    places: Mapping[str, Place] = {
        "w1": H1,
        "w2": H1,
        "w3": Place("h1", "x2"),
        "w4": H2,
        "w5": H2,
    }
    for count, wanted in ((1, "w1"), (2, "w1 w4"), (3, "w1 w3 w4"), (4, "w1 w3 w4 w5"), (9, "w1 w2 w3 w4 w5"), (0, "")):
        found = spread(["w5", "w2", "w3", "w1", "w4"], count, places)
        demand(found == wanted.split(), f"{count}: {found}")
    demand(spread(["w3", "w1", "w2"], 2, {}) == ["w1", "w2"], "without places by name")
