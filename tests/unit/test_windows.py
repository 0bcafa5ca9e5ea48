"""What each kind of window means, sentence by sentence, through the flow that a user writes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import seep
from operators.aggregates import count, maximum, variance
from operators.copying import CopyingWindow
from operators.session import SessionWindow
from operators.sliding import SlidingWindow
from seep import count_window, every, session, sliding, tumbling
from seep.errors import Misuse
from seep.flow.compile import compile_flow
from seep.model.arrow import ArrowBatch
from seep.model.epoch import Moment
from seep.model.ids import BEGINNING, FOREVER
from seep.model.keyspace import buckets_of
from seep.model.schema import TIMESTAMP
from seep.testing import Driver

START = datetime(2024, 1, 1, tzinfo=UTC)
Run = Callable[..., dict[str, pa.Table]]
Window = Any


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def click(seconds: float, user: str | None = "ann", amount: int = 1) -> dict[str, Any]:
    return {"user": user, "amount": amount, "at": at(seconds)}


def seconds_of(row: dict[str, Any]) -> tuple[float, float]:
    return (row["window_start"] - START).total_seconds(), (row["window_end"] - START).total_seconds()


def clicks(
    rows: list[dict[str, Any]], per_epoch: int | None = 1, lateness: str = "0s"
) -> tuple[seep.Flow, seep.Stream]:
    flow = seep.Flow("clicks")
    source = flow.source("clicks", seep.MemorySource(rows, per_epoch=per_epoch), time="at", lateness=lateness)
    return flow, source.key_by("user")


def windows(run: Run, window: Window, rows: list[dict[str, Any]], **more: Any) -> tuple[list[Any], list[float]]:
    """(start, end, rows) of each window that came out, and the times of the late rows."""
    flow, keyed = clicks(rows, **more)
    made = keyed.window(window, n=seep.count())
    made.collect("out")
    made.late.collect("late")
    found = run(flow)
    for partitions in (2, 3):
        again = run(flow, partitions=partitions, reload=True)
        assert all(again[name].equals(found[name]) for name in found)
    late = [(row["at"] - START).total_seconds() for row in found["late"].to_pylist()]
    return [(*seconds_of(row), row["n"]) for row in found["out"].to_pylist()], late


# --- sliding -----------------------------------------------------------------------------------------------------


def test_sliding_windows_are_aligned_half_open_and_shifted_by_the_offset(run: Run) -> None:
    out, _ = windows(run, sliding("10s", every="5s"), [click(0), click(5), click(10)])
    assert out == [(-5, 5, 1), (0, 10, 2), (5, 15, 2), (10, 20, 1)]
    out, _ = windows(run, sliding("10s", every="5s", offset="1s"), [click(0), click(5), click(10)])
    assert out == [(-9, 1, 1), (-4, 6, 2), (1, 11, 2), (6, 16, 1)]


def test_a_row_late_for_some_of_its_windows_counts_in_the_open_ones_and_is_not_late(run: Run) -> None:
    out, late = windows(run, sliding("10s", every="5s"), [click(1), click(12), click(6), click(3)])
    # At 12 the windows that end at 5 and 10 close; the row of 6 still counts until 15, that of 3 has no window left.
    assert out == [(-5, 5, 1), (0, 10, 1), (5, 15, 2), (10, 20, 1)]
    assert late == [3]


def test_rows_between_windows_are_filtered_never_late(run: Run) -> None:
    out, late = windows(run, sliding("2s", every="5s"), [click(0), click(3), click(6), click(4), click(13)])
    assert out == [(0, 2, 1), (5, 7, 1)]
    assert late == []
    head = SlidingWindow(["user"], SCHEMA, "at", 2, 5, 0, ("a", "b"), {"n": count()})
    head.take(Moment(1, 0, BEGINNING, 0), [(0, batch([3, 4, 5]))])
    assert head.statistics()["filtered"] == 2


def test_a_jump_over_many_windows_gives_no_row_for_the_empty_ones(run: Run) -> None:
    far = 40 * 365 * 86_400
    out, _ = windows(run, sliding("2s", every="1s"), [click(0), click(far)])
    assert out == [(-1, 1, 1), (0, 2, 1), (far - 1, far + 1, 1), (far, far + 2, 1)]


def test_sliding_windows_by_arrival_use_the_time_of_the_epoch(run: Run) -> None:
    # In this run an epoch comes every 50 ms, from 50 ms on; one row each.
    flow = seep.Flow("clicks")
    source = flow.source("clicks", seep.MemorySource([click(0), click(0), click(0)], per_epoch=1))
    source.key_by("user").window(sliding("100ms", every="50ms", by="arrival"), n=seep.count()).collect("out")
    found = run(flow)["out"].to_pylist()
    assert [row["n"] for row in found] == [1, 2, 2, 1]
    assert {row["window_end"] - row["window_start"] for row in found} == {timedelta(milliseconds=100)}
    assert run(flow, partitions=2, reload=True)["out"].to_pylist() == found


def test_aggregates_that_do_not_merge_give_the_same_windows() -> None:
    made = [
        kind(["user"], SCHEMA, "at", 10, 4, 1, ("a", "b"), {"n": count(), "most": maximum("at")})
        for kind in (SlidingWindow, CopyingWindow)
    ]
    for epoch, (times, before, watermark) in enumerate([([3, 9, 4], BEGINNING, 9), ([2, 8, 30], 9, FOREVER)]):
        moment = Moment(epoch, 0, before, watermark)
        first, second = (head.take(moment, [(0, batch(times))]) for head in made)
        assert {k: v.record.to_pylist() for k, v in first.items()} == {
            k: v.record.to_pylist() for k, v in second.items()
        }


# --- sessions ----------------------------------------------------------------------------------------------------


def test_a_distance_of_the_gap_separates_sessions_and_inclusive_joins_them(run: Run) -> None:
    rows = [click(0), click(9.999999), click(19.999999)]
    assert windows(run, session("10s"), rows)[0] == [(0, 19.999999, 2), (19.999999, 29.999999, 1)]
    assert windows(run, session("10s", inclusive=True), rows)[0] == [(0, 29.999999, 3)]


def test_an_inclusive_session_waits_for_rows_at_its_very_end() -> None:
    """However the rows are cut into epochs: none of them is late."""
    rows = [{"user": "a", "at": at(0)}, {"user": "b", "at": at(10)}, {"user": "a", "at": at(10)}]
    for per_epoch in (1, 2, 3):
        flow = seep.Flow("clicks")
        clicks = flow.source("clicks", seep.MemorySource(rows, per_epoch=per_epoch), time="at")
        clicks.key_by("user").window(session("10s", inclusive=True), n=seep.count()).collect("out")
        found = seep.run(flow, on="inline")["out"].to_pylist()
        assert sorted((row["user"], row["n"]) for row in found) == [("a", 2), ("b", 1)]


def test_a_row_joins_two_sessions(run: Run) -> None:
    rows = [click(0), click(8), click(4)]
    assert windows(run, session("5s"), rows, lateness="10s")[0] == [(0, 13, 3)]


def test_a_row_is_late_when_its_session_would_have_ended(run: Run) -> None:
    # At 20 the session of 0 has ended at 5; a row of 14 would end at 19, and that of 16 just joins that of 20.
    out, late = windows(run, session("5s"), [click(0), click(20), click(14), click(16)])
    assert out == [(0, 5, 1), (16, 25, 2)]
    assert late == [14]


def test_lateness_is_judged_with_all_rows_of_the_epoch(run: Run) -> None:
    rows = [click(20), click(20, "bob"), click(13), click(17)]
    # Alone the row of 13 would have ended at 18; that of 17 joins it to the session of 20.
    assert windows(run, session("5s"), rows, per_epoch=2) == ([(13, 25, 3), (20, 25, 1)], [])


def test_sessions_of_each_key_are_their_own_and_null_is_a_key(run: Run) -> None:
    out, _ = windows(run, session("5s"), [click(0), click(1, None), click(2), click(3, None)], lateness="9s")
    assert sorted(out) == [(0, 7, 2), (1, 8, 2)]


def test_sessions_refuse_aggregates_that_do_not_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operators.accumulators.Count.mergeable", False, raising=False)
    _, keyed = clicks([click(0)])
    with pytest.raises(Misuse, match=r"sessions merge, and n = count\(\) cannot"):
        keyed.window(session("5s"), n=seep.count())


def test_a_key_may_have_many_sessions_open() -> None:
    head = SessionWindow(["user"], SCHEMA, "at", 5, False, ("a", "b"), {"n": count()})
    head.take(Moment(1, 0, BEGINNING, 0), [(0, batch([10 * i for i in range(1000)]))])
    # More sessions are at hand than rows came. Some of the rows join the first two, one is a session of its own.
    out = head.take(Moment(2, 0, 0, FOREVER), [(0, batch([9_995, 14, 6, 5, 4]))])["out"].record
    found = plain(out)
    assert len(found) == 1000
    assert found[:2] == [(0, 19, 6), (20, 25, 1)]
    assert found[-2:] == [(9_990, 9_995, 1), (9_995, 10_000, 1)]


# --- windows by count --------------------------------------------------------------------------------------------


def counted(run: Run, window: Window, rows: list[dict[str, Any]], **more: Any) -> list[Any]:
    flow, keyed = clicks(rows, **more)
    keyed.window(window, sum=seep.total("amount")).collect("out")
    found: list[dict[str, Any]] = run(flow)["out"].to_pylist()
    assert run(flow, partitions=3, reload=True)["out"].to_pylist() == found
    return [(row["user"], *seconds_of(row), row["sum"]) for row in found]


def test_windows_by_count_follow_arrival_and_say_the_times_of_their_first_and_last_row(run: Run) -> None:
    rows = [click(5, amount=1), click(3, amount=2), click(9, "bob", 100), click(4, amount=4), click(1, amount=8)]
    assert counted(run, count_window(2), rows) == [
        ("ann", 5, 3, 3),
        ("ann", 4, 1, 12),
        ("bob", 9, 9, 100),  # not full: at the end of input
    ]


def test_a_window_by_count_may_begin_before_the_last_one_is_full(run: Run) -> None:
    rows = [click(i, amount=2**i) for i in range(5)]
    assert counted(run, count_window(3, every=1), rows, per_epoch=4) == [
        ("ann", 0, 2, 7),
        ("ann", 1, 3, 14),
        ("ann", 2, 4, 28),
        ("ann", 3, 4, 24),
        ("ann", 4, 4, 16),
    ]
    assert counted(run, count_window(1, every=3), rows) == [("ann", 0, 0, 1), ("ann", 3, 3, 8)]


def test_windows_by_count_need_no_event_time(run: Run) -> None:
    flow = seep.Flow("clicks")
    rows = [{"user": "ann"}] * 3
    source = flow.source("clicks", seep.MemorySource(rows, per_epoch=1))
    source.key_by("user").window(count_window(2), n=seep.count()).collect("out")
    first, last = run(flow)["out"].to_pylist()
    assert (first["n"], last["n"]) == (2, 1)
    assert first["window_end"] - first["window_start"] == timedelta(milliseconds=50)


# --- what comes out, and when ------------------------------------------------------------------------------------


def test_a_window_row_has_the_last_moment_before_its_end_as_its_time(run: Run) -> None:
    flow, keyed = clicks([click(0), click(11), click(30)])
    ten = keyed.window(session("10s"), names=("from", "to"), n=seep.count())
    ten.key_by("user").window(tumbling("10s"), n=seep.total("n")).collect("out")
    # The sessions end at 10, 21 and 40: they are rows of 9.999999, 20.999999 and 39.999999.
    assert [seconds_of(row)[0] for row in run(flow)["out"].to_pylist()] == [0, 20, 30]


def test_a_growing_session_is_deleted_from_its_table_and_comes_again(run: Run) -> None:
    flow, keyed = clicks([click(0), click(8), click(4)], lateness="10s")
    keyed.window(session("5s"), emit="update", n=seep.count()).changes().collect("out")
    found = [(*seconds_of(row), row["n"], row["change"]) for row in run(flow)["out"].to_pylist()]
    assert found == [
        (0, 5, 1, "insert"),
        (8, 13, 1, "insert"),
        (0, 5, 1, "delete"),
        (0, 13, 3, "insert"),
        (8, 13, 1, "delete"),
    ]


@pytest.mark.parametrize("window", [tumbling("10s"), sliding("10s", every="5s"), session("5s")])
def test_a_table_has_in_the_end_what_closes_as_a_stream(run: Run, window: Window) -> None:
    rows = [click(i * 7 % 31, "ab"[i % 2], i) for i in range(20)]
    found = []
    for emit in ("close", "update", every("100ms")):
        flow, keyed = clicks(rows, per_epoch=3, lateness="31s")
        keyed.window(window, emit=emit, n=seep.count(), most=seep.maximum("amount")).collect("out")
        found.append(sorted(map(repr, run(flow)["out"].to_pylist())))
        assert sorted(map(repr, run(flow, partitions=2, reload=True)["out"].to_pylist())) == found[-1]
    assert found[0] == found[1] == found[2]


def test_every_tells_a_window_at_most_once_a_second_of_epoch_time() -> None:
    flow, keyed = clicks([click(0)], lateness="5s")
    keyed.window(tumbling("1m"), emit=every("1s"), n=seep.count()).named("minute").changes().collect("changes")
    driver = Driver(flow)
    driver.feed("clicks", [click(1)])
    driver.feed("clicks", [click(2)])
    assert driver.output("changes") == []
    driver.advance("1s")
    assert [(row["n"], row["change"]) for row in driver.output("changes")] == [(2, "insert")]
    driver.feed("clicks", [click(3)])
    driver.kill("minute", 0)
    driver.feed("clicks", [click(4)])
    assert len(driver.output("changes")) == 1
    driver.advance("1s")
    assert [(row["n"], row["change"]) for row in driver.output("changes")] == [(2, "insert"), (4, "update")]
    driver.advance("5s")
    driver.feed("clicks", [click(5)])
    driver.feed("clicks", [click(66)])  # closes the minute: its last value comes at once
    assert [row["n"] for row in driver.output("changes")] == [2, 4, 5]
    driver.close()
    driver.assert_exactly_once()


@pytest.mark.parametrize(
    ("window", "emit"),
    [
        (sliding("10s", every="5s"), "close"),
        (sliding("10s", every="4s"), "update"),
        (session("5s"), "close"),
        (session("5s"), every("1s")),
        (count_window(3, every=2), "close"),
    ],
)
def test_neither_kills_nor_scaling_show(window: Window, emit: Any) -> None:
    flow, keyed = clicks([click(0)], lateness="10s")
    keyed.window(window, emit=emit, n=seep.count(), sum=seep.total("amount")).named("windows").collect("out")
    driver = Driver(flow)

    def feed(first: int) -> None:
        driver.feed("clicks", [click(first + 3 * i % 20, "abcdefgh"[i % 8], i) for i in range(16)])

    feed(0)
    driver.checkpoint()
    feed(7)
    driver.kill("windows", 0)
    feed(14)
    driver.scale("windows", 3)
    driver.advance("1s")
    feed(30)
    driver.kill("windows", 1)
    driver.scale("windows", 1)
    feed(60)
    driver.close()
    assert driver.output("out")
    driver.assert_exactly_once()


# --- state, limits, mistakes -------------------------------------------------------------------------------------

SCHEMA = pa.schema({"user": pa.string(), "at": TIMESTAMP})


def batch(times: list[int], user: str = "ann") -> ArrowBatch:
    record = pa.RecordBatch.from_pydict({"user": [user] * len(times), "at": times}, schema=SCHEMA)
    return ArrowBatch(record, buckets_of(record, ["user"]))


def plain(record: pa.RecordBatch) -> list[tuple[int, ...]]:
    columns = [c.view(pa.int64()).to_pylist() for c in record.columns[1:]]
    return list(zip(*columns, strict=True))


def test_content_is_the_open_windows_so_far() -> None:
    head = SlidingWindow(["user"], SCHEMA, "at", 10, 5, 0, ("a", "b"), {"n": count()})
    head.take(Moment(1, 0, BEGINNING, 7), [(0, batch([1, 6]))])
    assert plain(head.content()) == [(0, 10, 2), (5, 15, 1)]
    fresh = SlidingWindow(["user"], SCHEMA, "at", 10, 5, 0, ("a", "b"), {"n": count()})
    fresh.load(head.snapshot(True))
    assert fresh.content().equals(head.content())


@pytest.mark.parametrize("sign", [-1, 1])
def test_times_at_the_limits(sign: int) -> None:
    edge = sign * (2**62 - 1)
    long = SlidingWindow(["user"], SCHEMA, "at", 2**60, 2**59, 0, ("a", "b"), {"n": count()})
    out = long.take(Moment(1, 0, BEGINNING, FOREVER), [(0, batch([edge, edge + sign]))])
    assert [row[2] for row in plain(out["out"].record)] == [1, 1]
    assert out["errors"].rows == 1
    far = SessionWindow(["user"], SCHEMA, "at", 2**61 - 1, False, ("a", "b"), {"n": count()})
    out = far.take(Moment(1, 0, BEGINNING, FOREVER), [(0, batch([edge, 0, edge]))])
    assert sorted(row[2] for row in plain(out["out"].record)) == [1, 2]


def test_a_key_is_forgotten_with_its_last_window() -> None:
    for head in (
        SlidingWindow(["user"], SCHEMA, "at", 10, 5, 0, ("a", "b"), {"n": count()}),
        SessionWindow(["user"], SCHEMA, "at", 5, False, ("a", "b"), {"n": count()}),
    ):
        for epoch in range(50):
            head.take(Moment(epoch, 0, 100 * epoch, 100 * epoch + 100), [(0, batch([100 * epoch + 9], str(epoch)))])
        assert head.statistics()["keys"] == 0
        assert head.snapshot(True).tables["groups"].num_rows == 0


def test_an_increment_holds_only_what_changed() -> None:
    head = SessionWindow(["user"], SCHEMA, "at", 5, False, ("a", "b"), {"n": count()})
    for user in range(100):
        head.take(Moment(user, 0, BEGINNING, 0), [(0, batch([9], str(user)))])
    assert head.snapshot(True).tables["groups"].num_rows == 100
    head.take(Moment(100, 0, 0, 0), [(0, batch([7], "3"))])
    # The session begins earlier now: it is another entry.
    assert head.snapshot(False).tables["groups"].num_rows == 2
    head.take(Moment(101, 0, 0, 0), [(0, batch([50, 60, 70], "3"))])
    assert head.snapshot(False).tables["groups"].num_rows == 3
    head.take(Moment(102, 0, 0, 0), [(0, batch([61], "3"))])
    assert head.snapshot(False).tables["groups"].num_rows == 1, "the other sessions of the key are as they were"
    assert head.snapshot(False).tables["groups"].num_rows == 0


def test_sliding_rows_are_folded_by_pane_before_they_travel() -> None:
    flow, keyed = clicks([click(0)])
    keyed.window(sliding("10s", every="4s"), n=seep.count()).named("windows").collect("out")
    plan = compile_flow(flow).nodes["windows"].make
    assert plan.combine.size_us == 2_000_000
    plan.warm()


@pytest.mark.parametrize("window", [sliding("10s", every="4s"), session("5s"), count_window(3, every=2)])
def test_a_worker_can_warm_up(window: Window) -> None:
    flow, keyed = clicks([click(0)])
    keyed.window(window, n=seep.count(), most=seep.maximum("user")).named("windows").collect("out")
    compile_flow(flow).nodes["windows"].make.warm()


def timeless() -> seep.Stream:
    return seep.Flow("clicks").source("clicks", seep.MemorySource([{"user": "ann"}])).key_by("user")


MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: sliding("0s", every="1s"), "must be longer than zero"),
    (lambda: sliding("1s", every="-1s"), "must be longer than zero"),
    (lambda: sliding("1s", every="1s", by="chance"), "choose 'time' or 'arrival'"),
    (lambda: session("0s"), "must be longer than zero"),
    (lambda: session(timedelta(days=999_999_999)), "longer than any time"),
    (lambda: session(5), "a number has no unit"),  # type: ignore[arg-type]
    (lambda: count_window(0), "a whole number above zero"),
    (lambda: count_window(3, every=-1), "a whole number above zero"),
    (lambda: every("0s"), "must be longer than zero"),
    (lambda: clicks([click(0)])[1].window("1m", n=seep.count()), "is no window"),  # type: ignore[arg-type]
    (lambda: clicks([click(0)])[1].window(tumbling("1m"), emit="often", n=seep.count()), "choose 'close', 'update'"),
    (lambda: clicks([click(0)])[1].window(count_window(2), emit="update", n=seep.count()), "use emit='close'"),
    (lambda: clicks([click(0)])[1].window(tumbling("1m"), names=("user", "end"), n=seep.count()), "give two names"),
    (lambda: clicks([click(0)])[1].window(count_window(2), n=seep.count()).late, "no 'late' output"),
    (lambda: timeless().window(session("1s"), n=count()), "no event time"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_mistakes_are_refused_before_anything_runs(mistake: Callable[[], Any], message: str) -> None:
    with pytest.raises(Misuse, match=message) as found:
        mistake()
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("per_epoch", [1, 2, None])
def test_a_count_window_that_fills_is_not_late_for_what_stands_behind_it(per_epoch: int | None) -> None:
    flow, stream = clicks([click(10), click(10)], per_epoch)
    pairs = stream.key_by("user").window(count_window(2), n=count())
    tens = pairs.window(tumbling("10s"), names=("start", "end"), pairs=count())
    tens.collect("tens")
    tens.late.collect("late")
    result = seep.run(flow, on="inline")
    assert (result["tens"].num_rows, result["late"].num_rows) == (1, 0)


def test_a_variance_of_huge_values_is_the_same_by_panes() -> None:
    flow, stream = clicks([click(0), click(1)], lateness="1h")
    huge = stream.with_columns(amount=pl.col("amount") * 1e308).key_by("user")
    huge.window(sliding("4s", every="2s"), spread=variance("amount")).collect("spread")
    assert set(seep.run(flow, on="inline")["spread"].column("spread").to_pylist()) == {0.0}
