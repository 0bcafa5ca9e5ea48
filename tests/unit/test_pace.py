"""A source that has more than the flow can take: how much it puts into an epoch."""

from __future__ import annotations

import pytest

from seep.model.ids import BEGINNING, FOREVER
from seep.partition.pace import AHEAD_EPOCHS, Pace

EPOCH_MS = 50.0


def settled(first_rows: int, rows_a_ms: float, fixed_ms: float = 0.0, epochs: int = 400) -> list[int]:
    """The rows of each epoch when the flow takes so many rows a millisecond, one epoch after the other, and each epoch
    so long in any case."""
    pace, now_ms, found, done_ms = Pace(first_rows, EPOCH_MS), 0.0, list[int](), list[float]()
    for _ in range(epochs):
        waiting = sum(at > now_ms for at in done_ms)
        if waiting >= AHEAD_EPOCHS:
            now_ms = sorted(done_ms)[-AHEAD_EPOCHS]
            waiting = AHEAD_EPOCHS - 1
        pace.begin(now_ms, waiting, sum(rows for rows, at in zip(found, done_ms, strict=True) if at <= now_ms))
        found.append(pace.rows)
        done_ms.append(max(now_ms, done_ms[-1] if done_ms else 0.0) + fixed_ms + pace.rows / rows_a_ms)
        pace.end(now_ms, pace.rows, True, BEGINNING)
        now_ms += EPOCH_MS
    return found


@pytest.mark.parametrize("first_rows", [1, 1_000, 100_000])
@pytest.mark.parametrize("rows_a_ms", [0.05, 20.0, 5_000.0])
def test_an_epoch_is_about_as_much_work_as_its_interval_is_long(first_rows: int, rows_a_ms: float) -> None:
    wanted = max(1.0, rows_a_ms * EPOCH_MS)
    found = settled(first_rows, rows_a_ms)[-50:]
    assert wanted / 2 <= sum(found) / len(found) <= wanted * 2


def test_epochs_do_not_shrink_when_it_is_not_the_rows_that_take_the_time() -> None:
    """The interval cannot be kept whatever is done: then rows for most of the time."""
    found = settled(1_000, rows_a_ms=20.0, fixed_ms=70.0)[-50:]
    assert 70 * 20.0 / 2 <= sum(found) / len(found) <= 300 * 20.0


def test_a_source_that_gives_all_it_has_is_not_held_back() -> None:
    pace = Pace(100, EPOCH_MS)
    pace.begin(0.0, 0, 0)
    pace.end(0.0, 10, False, 7)
    pace.begin(1_000.0, 2, 10)
    assert (pace.rows, pace.ahead) == (100, False)
    assert pace.hears(1_000.0, 1, 0)


class Racing:
    """A source whose event time moves by ten in an epoch, in a flow whose watermark is so far behind."""

    def __init__(self) -> None:
        self.pace, self.now_ms, self.own = Pace(100, EPOCH_MS), 0.0, 1_000

    def cut(self, flow: int) -> bool:
        """One interval later the flow's watermark is this: does the source read?"""
        self.now_ms += EPOCH_MS
        reads = self.pace.hears(self.now_ms, flow, 0)
        self.own += 10 * reads
        self.pace.end(self.now_ms, 100, True, self.own)
        return reads


def test_one_that_runs_away_from_the_watermark_waits_until_it_follows() -> None:
    racing = Racing()
    assert all(racing.cut(racing.own - 20) for _ in range(30)), "a constant distance is the flow's own"
    flow = racing.own - 20
    apart = []
    for _ in range(200):
        flow += 2
        racing.cut(flow)
        apart.append(racing.own - flow)
    assert max(apart) < 20 + 10 * 12, "it gets no further than some epochs"
    flow = racing.own - 20
    assert racing.cut(flow), "and goes on when the others are there"


def test_it_does_not_wait_for_those_who_stand_still() -> None:
    racing = Racing()
    for _ in range(20):
        racing.cut(racing.own - 20)
    flow = racing.own - 20
    read = [racing.cut(flow) for _ in range(200)]
    assert not all(read)
    assert sum(read) > 100


@pytest.mark.parametrize("unknown", [BEGINNING, FOREVER])
def test_an_unknown_watermark_is_not_waited_for(unknown: int) -> None:
    racing = Racing()
    assert all(racing.cut(unknown) for _ in range(100))


def test_two_that_began_apart_come_to_move_alike() -> None:
    """Two partitions of one source, of which one reads fifty times as much at first: soon they read about as much, and
    hardly ever wait for each other."""
    paces, times, now_ms = [Pace(100, EPOCH_MS), Pace(5_000, EPOCH_MS)], [1, 1], 0.0
    read: list[list[int]] = []
    for _ in range(400):
        now_ms += EPOCH_MS
        watermark, rows = min(times), []
        for at, pace in enumerate(paces):
            if not pace.hears(now_ms, watermark, 0):
                rows.append(0)
            else:
                # The flow takes 2,000 rows in an interval: beyond that, epochs wait.
                pace.begin(now_ms, 2 if sum(p.rows for p in paces) > 2_000 else 0, sum(map(sum, read)))
                rows.append(pace.rows)
            times[at] += rows[-1]
        for pace, taken, time in zip(paces, rows, times, strict=True):
            pace.end(now_ms, taken, True, time)
        read.append(rows)
    late = read[-100:]
    first, second = (sum(rows[at] for rows in late) for at in (0, 1))
    assert 0.5 <= first / second <= 2.0
    assert sum(0 in rows for rows in late) <= 20
    assert first + second >= 100 * 1_000
