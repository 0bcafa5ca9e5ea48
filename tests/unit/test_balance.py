"""Split points follow the load: ranges always tile, and parts are equal as far as what was measured can tell."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seep.control.balance import GAIN, UNEVEN, Loads, Profile, plan_rebalance, plan_scale
from seep.control.requests import Rebalance, ScaleTo
from seep.control.scaling import begin_request
from seep.model.arrow import ArrowBatch
from seep.model.ids import BUCKETS, EVERYTHING, FOREVER, GROUP_BUCKETS, Generation, KeyRange, PartitionId
from seep.partition.load import GROUPS, Load
from seep.protocol.journal import LIVE, Entry, Journal
from seep.protocol.messages import Status
from seep.sim.light import LightBatch
from seep.sim.stage import chain

UNKNOWN: Loads = {}


def entry(low: int, high: int, number: int = 0) -> Entry:
    return Entry(PartitionId("a", number), KeyRange(low, high), 1, FOREVER, LIVE, Generation(1, 0), "w1")


def entries(edges: list[int]) -> list[Entry]:
    return [entry(low, high, number) for number, (low, high) in enumerate(pairwise(edges))]


def measured(live: list[Entry], rows: list[int]) -> Loads:
    """What each partition would tell if `rows` (one number for each bucket) came in."""
    return {
        e.partition: tuple(
            sum(rows[max(low, e.key_range.low) : min(low + GROUP_BUCKETS, e.key_range.high)])
            for low in range(0, BUCKETS, GROUP_BUCKETS)
        )
        for e in live
    }


def assert_tiles(ranges: list[KeyRange]) -> None:
    assert (ranges[0].low, ranges[-1].high) == (0, BUCKETS)
    assert all(one.high == other.low for one, other in pairwise(ranges))
    assert all(r.size > 0 for r in ranges)


def after(live: list[Entry], old: list[PartitionId], ranges: list[KeyRange]) -> list[KeyRange]:
    return sorted([*(e.key_range for e in live if e.partition not in old), *ranges])


@st.composite
def skewed(draw: st.DrawFn) -> tuple[list[Entry], list[int]]:
    """Partitions with any edges, and rows by bucket: most nothing, some a little, a few very much."""
    inner = draw(st.sets(st.integers(1, BUCKETS - 1), max_size=8))
    rows = [0] * BUCKETS
    for low, size, each in draw(
        st.lists(
            st.tuples(st.integers(0, BUCKETS - 1), st.integers(1, 2_000), st.sampled_from([1, 7, 1_000, 250_000])),
            max_size=6,
        )
    ):
        for bucket in range(low, min(BUCKETS, low + size)):
            rows[bucket] += each
    return entries([0, *sorted(inner), BUCKETS]), rows


@pytest.mark.parametrize("count", range(1, 9))
@pytest.mark.parametrize("start", [1, 2, 3, 5, 8])
def test_without_a_load_ranges_are_cut_by_width(start: int, count: int) -> None:
    live = [entry(r.low, r.high, number) for number, r in enumerate(EVERYTHING.split(start))]
    found = after(live, *plan_scale(live, count, UNKNOWN))
    assert len(found) == count
    assert_tiles(found)


def test_what_need_not_change_is_left_alone() -> None:
    live = [entry(0, 1024, 0), entry(1024, 4096, 1)]
    assert plan_scale(live, 3, UNKNOWN) == ([PartitionId("a", 1)], [KeyRange(1024, 2560), KeyRange(2560, 4096)])
    assert plan_scale(live, 2, UNKNOWN) == ([], [])


def test_one_bucket_is_not_split() -> None:
    assert plan_scale([entry(7, 8)], 4, UNKNOWN) == ([], [])


@given(skewed(), st.integers(1, 12))
def test_scaling_gets_there_and_tiles(given_load: tuple[list[Entry], list[int]], count: int) -> None:
    live, rows = given_load
    found = after(live, *plan_scale(live, count, measured(live, rows)))
    assert len(found) == count
    assert_tiles(found)


@given(skewed(), st.integers(2, 8))
def test_parts_have_equal_load_to_within_one_bucket(given_load: tuple[list[Entry], list[int]], parts: int) -> None:
    live, rows = given_load
    profile = Profile(live, measured(live, rows))
    total = profile.of(EVERYTHING)
    found = profile.split(EVERYTHING, parts)
    assert_tiles(found)
    largest = max(profile.of(KeyRange(bucket, bucket + 1)) for bucket in range(BUCKETS))
    # Each edge is the nearest there is, half a bucket off at most, unless every part's one bucket moved it.
    crowded = any(r.size == 1 for r in found)
    assert crowded or not total or all(abs(profile.of(r) - total / parts) <= largest for r in found)


@given(skewed())
def test_the_profile_is_what_was_measured(given_load: tuple[list[Entry], list[int]]) -> None:
    live, rows = given_load
    profile, loads = Profile(live, measured(live, rows)), measured(live, rows)
    for e in live:
        # Shares of a bucket are cut off below 1/4,096 of a row.
        assert profile.of(e.key_range) / 4096 == pytest.approx(sum(loads[e.partition]), abs=2)


@given(skewed())
def test_rebalancing_lowers_the_busiest_or_says_why_not(given_load: tuple[list[Entry], list[int]]) -> None:
    live, rows = given_load
    profile = Profile(live, measured(live, rows))
    ranges, why = plan_rebalance(live, measured(live, rows))
    before = max(profile.of(e.key_range) for e in live)
    assert why
    if ranges:
        assert len(ranges) == len(live)
        assert_tiles(ranges)
        assert max(map(profile.of, ranges)) < before
        assert before > UNEVEN * profile.of(EVERYTHING) / len(live)


def test_a_split_halves_the_load_not_the_range() -> None:
    rows = [9 if bucket < 512 else 1 for bucket in range(BUCKETS)]
    live = [entry(0, BUCKETS)]
    _, (low, high) = plan_scale(live, 2, measured(live, rows))
    assert low == KeyRange(0, 455), "9 * 455 is half of 9 * 512 + 3,584, to the nearest bucket"
    assert high == KeyRange(455, BUCKETS)


def test_the_busiest_is_split_and_the_idle_are_merged() -> None:
    live = entries([0, 1024, 2048, 3072, 4096])
    rows, fewer = ([loads[bucket // 1024] for bucket in range(BUCKETS)] for loads in ((8, 16, 8, 8), (8, 8, 4, 4)))
    assert plan_scale(live, 5, measured(live, rows))[0] == [PartitionId("a", 1)]
    assert plan_scale(live, 3, measured(live, fewer)) == (
        [PartitionId("a", 2), PartitionId("a", 3)],
        [KeyRange(2048, 4096)],
    )


@given(skewed(), st.integers(1, 12))
def test_no_partition_stays_a_bottleneck_that_even_parts_would_relieve(
    given_load: tuple[list[Entry], list[int]], count: int
) -> None:
    live, rows = given_load
    profile = Profile(live, measured(live, rows))
    old, ranges = plan_scale(live, count, measured(live, rows))
    busiest = profile.busiest(after(live, old, ranges))
    even = profile.busiest(profile.split(EVERYTHING, count))
    mean = profile.of(EVERYTHING) / count
    assert not old or busiest <= max(UNEVEN * mean, even / GAIN)


def test_one_hot_key_alone_is_left_alone() -> None:
    rows = [1] * BUCKETS
    rows[1000] = 1_000_000
    live = entries([0, 1000, 1001, 4096])
    ranges, why = plan_rebalance(live, measured(live, rows))
    assert ranges == []
    assert "nothing to gain" in why


def test_what_is_even_or_unknown_is_left_alone() -> None:
    live = entries([0, 2048, 4096])
    assert plan_rebalance(live, measured(live, [1] * BUCKETS)) == (
        [],
        "already balanced: the busiest partition has 1.00 times the mean",
    )
    one_only = {live[0].partition: (1,) * GROUPS}
    assert plan_rebalance(live, one_only) == ([], "the load is not measured yet")
    assert plan_rebalance(entries([0, 4096]), UNKNOWN) == ([], "there is one partition only")


# --- what the controller does with it ----------------------------------------------------------------------------


def status_of(e: Entry, load: tuple[int, ...]) -> Status:
    return Status(e.partition, e.generation, 1, 40, load=load)


def test_a_rebalance_replaces_only_what_changes() -> None:
    live = entries([0, 1024, 2048, 4096])
    rows = [9 if bucket < 512 else 1 for bucket in range(BUCKETS)]
    loads = measured(live, rows)
    journal = Journal(1, 1, {e.partition: e for e in live}, (), {"a": 3})
    statuses = {e.partition: status_of(e, tuple(loads[e.partition])) for e in live}
    graph = chain(starts={"a": 3})
    begun, why = begin_request(graph, journal, statuses, Rebalance("a"))
    assert begun is not None
    (replace,) = begun.replaces
    assert "rebalanced" in why
    assert len(replace.old) == len(replace.ranges)
    assert_tiles(after(live, list(replace.old), list(replace.ranges)))
    assert replace.at == 42, "ranges that join parts of two need both at one epoch"
    assert begin_request(graph, begun, statuses, Rebalance("a")) == (None, ""), "one at a time"
    even = {e.partition: status_of(e, (1,) * GROUPS) for e in live}
    assert begin_request(graph, journal, even, ScaleTo("a", 3)) == (journal, "")


# --- measuring ---------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, BUCKETS - 1), max_size=300))
def test_arrow_and_light_batches_count_alike(buckets: list[int]) -> None:
    arrow = ArrowBatch(pa.record_batch({"n": pa.array(buckets, pa.int64())}), np.array(buckets, np.uint16))
    light = LightBatch(tuple((bucket, (0, 0, 0)) for bucket in buckets))
    assert arrow.by_group() == light.by_group()
    assert sum(light.by_group().values()) == len(buckets)


def test_of_a_large_batch_a_sample_is_enough() -> None:
    buckets = np.random.default_rng(3).choice([5, 700, 4000], 100_000, p=[0.7, 0.2, 0.1]).astype(np.uint16)
    found = ArrowBatch(pa.record_batch({"n": buckets}), buckets).by_group()
    assert set(found) == {0, 10, 62}
    assert found[0] / sum(found.values()) == pytest.approx(0.7, abs=0.05)
    assert sum(found.values()) == pytest.approx(100_000, rel=0.01)


def batch_of(rows: int, bucket: int) -> LightBatch:
    return LightBatch(((bucket, (0, 0, 0)),) * rows)


def test_a_load_is_rows_in_an_epoch_however_long_it_was_measured() -> None:
    short, long = Load(), Load()
    assert short.by_group() == ()
    for load, epochs in ((short, 16), (long, 1_000)):
        for _ in range(epochs):
            load.add(2, [batch_of(6, 100)])  # every other epoch has rows
    assert short.by_group()[1] == 3_000
    assert long.by_group()[1] == pytest.approx(3_000, rel=0.01)
    assert sum(long.by_group()) == long.by_group()[1]


def test_a_load_follows_the_input() -> None:
    load = Load()
    for _ in range(400):
        load.add(1, [batch_of(5, 0)])
    for _ in range(400):
        load.add(1, [batch_of(5, 4095)])
    told = load.by_group()
    assert told[GROUPS - 1] > 5 * told[0]
