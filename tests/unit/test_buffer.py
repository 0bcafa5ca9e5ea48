"""Buffer state: entries by position, trimmed from the front, cut from the back, saved once."""

from __future__ import annotations

from seep.model.epoch import Progress
from seep.sim.light import LightBatch
from seep.state.buffer import Buffer
from seep.state.checkpoint import Buffered


def entry(epoch: int, rows: int = 1) -> Buffered:
    batch = LightBatch(tuple((bucket, (bucket, epoch, 0)) for bucket in range(rows)))
    return Buffered(Progress(epoch, 0, epoch * 10, 0), (batch,) if rows else ())


def filled(*epochs: int) -> Buffer:
    buffer = Buffer(Progress(0, 0, 0, 0))
    for epoch in epochs:
        buffer.add(entry(epoch))
    return buffer


def epochs(buffer: Buffer) -> list[int]:
    return [held.progress.epoch for held in buffer.entries]


def test_after_finds_the_first_newer_entry_also_between_epochs() -> None:
    buffer = filled(2, 5, 9)
    assert [buffer.after(epoch) for epoch in (0, 2, 4, 5, 8, 9, 20)] == [0, 1, 1, 2, 2, 3, 3]


def test_positions_stay_when_older_entries_go() -> None:
    buffer = filled(1, 2, 3)
    kept = buffer.at(2)
    assert buffer.trim(2)
    assert (buffer.first, buffer.end, buffer.at(2)) == (2, 3, kept)
    assert buffer.trimmed.epoch == 2
    assert buffer.trimmed.watermark == 20


def test_trim_between_epochs_keeps_the_later_one_and_says_whether_it_did_anything() -> None:
    buffer = filled(2, 5)
    assert buffer.trim(4)
    assert not buffer.trim(4)
    assert epochs(buffer) == [5]


def test_size_follows_what_is_held() -> None:
    buffer = filled(1, 2, 3)
    whole = buffer.size_bytes
    buffer.trim(1)
    buffer.cut_from(3)
    assert (buffer.size_bytes * 3, epochs(buffer)) == (whole, [2])


def test_an_increment_holds_what_came_since_and_a_full_one_everything() -> None:
    buffer = filled(1, 2)
    assert [e.progress.epoch for e in buffer.unsaved(full=True)] == [1, 2]
    buffer.add(entry(3))
    buffer.trim(1)
    assert [e.progress.epoch for e in buffer.unsaved(full=False)] == [3]
    assert buffer.unsaved(full=False) == ()
    assert [e.progress.epoch for e in buffer.unsaved(full=True)] == [2, 3]


def test_entries_trimmed_before_they_were_saved_are_not_missed() -> None:
    buffer = filled(1, 2, 3)
    buffer.trim(2)
    assert [e.progress.epoch for e in buffer.unsaved(full=False)] == [3]


def test_what_is_cut_off_is_saved_again_when_it_comes_again() -> None:
    buffer = filled(1, 2, 3)
    buffer.unsaved(full=True)
    buffer.cut_from(2)
    buffer.add(entry(2))
    assert [e.progress.epoch for e in buffer.unsaved(full=False)] == [2]


def test_restore_puts_a_chain_together_without_repeating() -> None:
    buffer = Buffer(Progress(0, 0, 0, 0))
    buffer.restore([entry(1), entry(2)])
    buffer.restore([entry(2), entry(3)])
    assert epochs(buffer) == [1, 2, 3]
    assert buffer.unsaved(full=False) == ()


def test_newest_of_an_empty_buffer_is_what_was_trimmed() -> None:
    buffer = filled(4)
    assert buffer.newest.epoch == 4
    buffer.trim(4)
    assert (buffer.newest.epoch, buffer.end) == (4, 1)
