"""Who counts as there: those that report, and those that are busy, but not for ever."""

from __future__ import annotations

from seep.control.attendance import Attendance
from seep.model.ids import PartitionId
from seep.model.settings import Settings
from seep.partition.pulse import Pulse
from seep.protocol.messages import Busy

A, B = PartitionId("a", 0), PartitionId("b", 0)


def attendance() -> Attendance:
    found = Attendance(Settings(suspect_ms=100.0, stuck_ms=1_000.0))
    found.hear("w1", 0.0)
    found.hear("w2", 0.0)
    return found


def test_a_loop_that_turns_needs_no_pulse() -> None:
    pulse = Pulse("w1")
    assert pulse.look(1, (A, 7), 0.0) is None
    assert pulse.look(5, (A, 7), 100.0) is None
    assert pulse.look(5, (A, 7), 200.0) == Busy("w1", A, 7, 100.0)
    assert pulse.look(5, (A, 7), 900.0) == Busy("w1", A, 7, 800.0)
    assert pulse.look(6, (A, 7), 950.0) is None


def test_one_that_gets_from_epoch_to_epoch_is_busy_with_the_latest() -> None:
    pulse = Pulse("w1")
    pulse.look(1, (A, 7), 0.0)
    assert pulse.look(1, (A, 8), 400.0) == Busy("w1", A, 8, 0.0)
    assert pulse.look(1, (A, 8), 500.0) == Busy("w1", A, 8, 100.0)
    assert pulse.look(1, (B, 8), 600.0) == Busy("w1", B, 8, 0.0)
    assert pulse.look(1, None, 700.0) == Busy("w1", None, -1, 0.0)


def test_busy_keeps_a_worker_and_silence_loses_it() -> None:
    there = attendance()
    for ms in range(50, 500, 50):
        there.hear_busy(Busy("w1", A, 7, ms), ms)
    assert there.lose_silent(500.0) == ["worker w2 silent for 100 ms"]
    [said] = there.lose_silent(551.0)
    assert said == "worker w1 silent for 100 ms, inside the epoch after 7 of a/0"
    assert (there.heard, there.busy) == ({}, {})


def test_a_long_epoch_is_said_once() -> None:
    there = attendance()
    said = [there.hear_busy(Busy("w1", A, 7, ms), ms) for ms in (60.0, 120.0, 180.0)]
    assert said == ["", "the epoch after 7 of a/0 goes on for 0.1 s", ""]
    there.hear("w1", 200.0)
    assert there.hear_busy(Busy("w1", A, 8, 150.0), 350.0)


def test_one_that_is_stuck_is_silent() -> None:
    there = attendance()
    there.hear_busy(Busy("w1", A, 7, 1_000.0), 90.0)
    there.hear_busy(Busy("w1", A, 7, 1_050.0), 140.0)
    assert len(there.lose_silent(195.0)) == 2
    there.hear_busy(Busy("w1", A, 7, 10.0), 200.0)
    assert there.heard == {}


def test_things_are_placed_where_they_begin_at_once_if_there_is_such_a_place() -> None:
    there = attendance()
    assert there.at_hand() == ["w1", "w2"]
    there.hear_busy(Busy("w1", A, 7, 10.0), 1.0)
    assert there.at_hand() == ["w2"]
    there.hear_busy(Busy("w2", A, 7, 10.0), 1.0)
    assert there.at_hand() == ["w1", "w2"]
    there.hear("w1", 2.0)
    assert there.at_hand() == ["w1"]
