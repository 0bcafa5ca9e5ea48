"""Which key ranges and partitions are chosen for known loads, against a reckoning bucket by bucket."""

from __future__ import annotations

from dataclasses import replace as with_fields
from itertools import pairwise
from random import Random

from seep.control.balance import Loads, Profile, plan_rebalance, plan_scale
from seep.control.planner import first_journal
from seep.control.requests import FixEpoch, Rebalance, ReleaseEpoch, ScaleTo, Upgrade
from seep.control.scaling import begin_request, check_count
from seep.errors import Misuse
from seep.model.ids import BUCKETS, EVERYTHING, FOREVER, GROUP_BUCKETS, Generation, KeyRange, PartitionId
from seep.partition.contract import Node
from seep.protocol.journal import LIVE, SHADOW, Entry, Journal, tiles
from seep.protocol.messages import Status
from seep.sim.directed.registry import demand, scenario
from seep.sim.stage import chain

GROUPS = BUCKETS // GROUP_BUCKETS


def _entries(edges: list[int]) -> list[Entry]:
    return [
        Entry(PartitionId("a", number), KeyRange(low, high), 1, FOREVER, LIVE, Generation(1, 0), "w1")
        for number, (low, high) in enumerate(pairwise(edges))
    ]


def _measured(live: list[Entry], rows: list[int]) -> Loads:
    """What each partition would tell of so many rows in each bucket."""
    return {
        e.partition: tuple(
            sum(rows[max(low, e.key_range.low) : min(low + GROUP_BUCKETS, e.key_range.high)])
            for low in range(0, BUCKETS, GROUP_BUCKETS)
        )
        for e in live
    }


def _even(live: list[Entry], loads: Loads) -> list[int]:
    """4,096 times the load of each bucket, spread evenly over what a partition has of a group."""
    found = [0] * BUCKETS
    for entry in live:
        low, high = entry.key_range
        for bucket in range(low, high):
            start = bucket // GROUP_BUCKETS * GROUP_BUCKETS
            width = min(high, start + GROUP_BUCKETS) - max(low, start)
            found[bucket] = loads[entry.partition][bucket // GROUP_BUCKETS] * 4096 // width
    return found


def _uneven(random: Random) -> tuple[list[Entry], list[int]]:
    edges = sorted({0, BUCKETS, *random.sample(range(1, BUCKETS), random.randrange(6))})
    rows = [0] * BUCKETS
    for _ in range(random.randrange(1, 5)):
        low, each = random.randrange(BUCKETS), random.choice([1, 7, 1_000])
        for bucket in range(low, min(BUCKETS, low + random.randrange(1, 1_500))):
            rows[bucket] += each
    return _entries(edges), rows


@scenario
def split_points_are_the_nearest_to_equal_loads() -> None:
    """Sums bucket by bucket say what lies below each edge; of all edges the closest to a share is taken."""
    checked = 0
    for seed in range(60):
        random = Random(seed)
        live, rows = _uneven(random)
        loads = _measured(live, rows)
        below = [0]
        for each in _even(live, loads):
            below.append(below[-1] + each)
        profile, whole = Profile(live, loads), random.choice([EVERYTHING, live[-1].key_range])
        demand(profile.known, "it is not known")
        for bucket in random.sample(range(BUCKETS + 1), 60):
            demand(profile.below(bucket) == below[bucket], f"seed {seed}: below {bucket}")
        demand(profile.of(whole) == below[whole.high] - below[whole.low], f"seed {seed}: of {whole}")
        parts = random.randrange(2, 7)
        if whole.size < parts or not profile.of(whole):
            continue
        checked += 1
        found = profile.split(whole, parts)
        demand(tiles(found, *whole) and len(found) == parts, f"seed {seed}: {found}")
        edges, total = [whole.low], profile.of(whole)
        for part in range(1, parts):
            goal = below[whole.low] * parts + total * part
            first = next(edge for edge in range(BUCKETS + 1) if below[edge] * parts >= goal)
            closer = first > 0 and goal - below[first - 1] * parts < below[first] * parts - goal
            edge = first - 1 if closer else first
            edges.append(min(max(edge, edges[-1] + 1), whole.high - parts + part))
        demand([one.low for one in found] == edges, f"seed {seed}: {found}, not from {edges}")
    demand(checked > 30, f"{checked} splits")
    hot = _entries([0, 100, 101, BUCKETS])
    rows = [int(bucket == 100) for bucket in range(BUCKETS)]
    found = Profile(hot, _measured(hot, rows)).split(EVERYTHING, 4)
    demand([one.low for one in found] == [0, 100, 101, 102], f"one bucket has all: {found}")


@scenario
def loads_that_are_not_known_are_cut_by_width() -> None:
    live = _entries([0, 1000, BUCKETS])
    for loads in ({}, {live[0].partition: (1,) * GROUPS}, {live[0].partition: (), live[1].partition: (1,) * GROUPS}):
        profile = Profile(live, loads)
        demand(not profile.known and profile.of(EVERYTHING) == 0, "it is known")
        demand(profile.split(KeyRange(0, 1000), 4) == list(KeyRange(0, 1000).split(4)), "not by width")
        demand(plan_rebalance(live, loads) == ([], "the load is not measured yet"), "rebalanced blindly")
    short = Profile(live, {entry.partition: (5,) for entry in live})
    demand(short.of(KeyRange(0, 64)) == 5 * 4096 and short.of(KeyRange(64, BUCKETS)) == 0, "what is not told is none")
    demand(Profile(_entries([7, 8]), {}).split(KeyRange(7, 8), 1) == [KeyRange(7, 8)], "one bucket")


def _plan(edges: list[int], rows: list[int], count: int) -> tuple[list[int], list[tuple[int, int]]]:
    """``rows``: of each bucket, by quarters of 1,024."""
    live = _entries(edges)
    loads = _measured(live, [rows[bucket // 1024] for bucket in range(BUCKETS)]) if rows else {}
    old, ranges = plan_scale(live, count, loads)
    return [p.number for p in old], [(low, high) for low, high in ranges]


@scenario
def busiest_are_split_and_the_least_are_joined() -> None:
    """Where that is even enough; else all are cut anew, where that is any better."""
    quarters, busy = [0, 1024, 2048, 3072, 4096], [5, 40, 1, 2]
    everybody = [0, 1, 2, 3]
    for edges, rows, count, wanted in (
        (quarters, busy, 4, ([], [])),
        (quarters, [16, 32, 16, 16], 5, ([1], [(1024, 1536), (1536, 2048)])),
        (quarters, [30, 30, 15, 15], 6, ([0, 1], [(0, 512), (512, 1024), (1024, 1536), (1536, 2048)])),
        (quarters, [16, 48, 16, 16], 6, ([1], [(1024, 1365), (1365, 1707), (1707, 2048)])),
        (quarters, [8, 8, 4, 4], 3, ([2, 3], [(2048, 4096)])),
        (quarters, [30, 9, 10, 11], 2, ([1, 2, 3], [(1024, 4096)])),
        (quarters, [1, 1, 9, 9], 2, ([0, 1, 2], [(0, 3072)])),
        (quarters, busy, 1, (everybody, [(0, 4096)])),
        (quarters, [0, 0, 0, 0], 3, ([0, 1], [(0, 2048)])),
        (quarters, busy, 3, (everybody, [(0, 1306), (1306, 1715), (1715, 4096)])),
        (quarters, busy, 5, (everybody, [(0, 1142), (1142, 1388), (1388, 1633), (1633, 1879), (1879, 4096)])),
        (quarters, [5, 5, 5, 5], 3, (everybody, [(0, 1365), (1365, 2731), (2731, 4096)])),
        ([0, 2048, 4096], [4, 4, 4, 4], 3, ([0, 1], [(0, 1365), (1365, 2731), (2731, 4096)])),
        ([0, 2048, 4096], [4, 4, 4, 4], 4, ([0, 1], [(0, 1024), (1024, 2048), (2048, 3072), (3072, 4096)])),
        ([0, 1024, 2048, 4096], [6, 6, 4, 4], 4, ([2], [(2048, 3072), (3072, 4096)])),
        ([0, 1024, 2560, 4096], [7, 4, 1, 1], 4, (everybody[:3], [(0, 475), (475, 951), (951, 1728), (1728, 4096)])),
        ([0, 1024, 4096], [], 3, ([1], [(1024, 2560), (2560, 4096)])),
        ([0, 3000, 4096], [], 3, ([0], [(0, 1500), (1500, 3000)])),
        ([0, 1024, 4096], [], 4, ([1], [(1024, 2048), (2048, 3072), (3072, 4096)])),
        ([0, 2048, 3000, 4096], [], 2, ([1, 2], [(2048, 4096)])),
        ([0, 1, 2, 4096], [], 2, ([0, 1], [(0, 2)])),
        (quarters, [4, 0, 0, 4], 3, (everybody, [(0, 683), (683, 3413), (3413, 4096)])),
        ([7, 8], [], 4, ([], [])),
        ([7, 9], [], 4, ([0], [(7, 8), (8, 9)])),
    ):
        found = _plan(edges, rows, count)
        demand(found == wanted, f"{edges} of {rows} to {count}: {found}")


@scenario
def rebalancing_begins_where_it_is_worth_it() -> None:
    live = _entries([0, 2048, 4096])

    def plan(first: int, second: int) -> tuple[list[tuple[int, int]], str]:
        load = {live[0].partition: (first,) * 32 + (0,) * 32, live[1].partition: (0,) * 32 + (second,) * 32}
        ranges, why = plan_rebalance(live, load)
        return [(low, high) for low, high in ranges], why

    demand(plan(60, 40) == ([], "already balanced: the busiest partition has 1.20 times the mean"), f"{plan(60, 40)}")
    moved = plan(640, 359)
    demand(
        moved == ([(0, 1598), (1598, 4096)], "the busiest partition goes from 1.28 times the mean to 1.00 times"),
        f"{moved}",
    )
    demand(plan(0, 0) == ([], "already balanced: the busiest partition has 1.00 times the mean"), f"{plan(0, 0)}")
    demand(plan_rebalance(live[:1], {}) == ([], "there is one partition only"), "of one")
    two = plan_rebalance(live, {entry.partition: (1,) * GROUPS for entry in live})
    demand(two[1].startswith("already balanced"), f"{two}")
    hot = _entries([0, 1000, 1001, 4096])
    rows = [1] * BUCKETS
    rows[1000] = 1_000_000
    told = "nothing to gain: few keys make the busiest partition, with 2.99 times the mean"
    demand(plan_rebalance(hot, _measured(hot, rows)) == ([], told), f"{plan_rebalance(hot, _measured(hot, rows))}")
    # One bucket has nearly all: of 1,000 rows 950 may be left, 951 are no gain.
    for hottest, moves in ((950, True), (951, False)):
        load = [0] * GROUPS
        load[0], load[1] = hottest, 1_000 - hottest
        near = _entries([63, 128, 192])
        ranges, why = plan_rebalance(near, {near[0].partition: load, near[1].partition: [0] * GROUPS})
        demand(bool(ranges) == moves and ("nothing to gain" in why) != moves, f"{hottest}: {ranges}, {why}")


def _known(journal: Journal) -> dict[PartitionId, Status]:
    return {
        p: Status(p, e.generation, journal.version, 40 + p.number, load=(p.number,) * GROUPS)
        for p, e in journal.entries.items()
    }


@scenario
def what_is_asked_for_is_begun_once() -> None:
    """And not before all who are concerned are known to run."""
    graph, journal = chain(starts={"a": 3}), first_journal(chain(starts={"a": 3}))
    known, a = _known(journal), [PartitionId("a", number) for number in range(3)]
    known = {p: with_fields(status, load=()) for p, status in known.items()}
    begun, why = begin_request(graph, journal, known, ScaleTo("a", 2))
    assert begun is not None
    (one,) = begun.replaces
    demand(why == "a: 3 -> 2 partitions", why)
    demand((one.old, one.at, one.handover, one.operator) == ((a[0], a[1]), 43, False, "a"), f"{one}")
    demand(begin_request(graph, journal, known, ScaleTo("a", 3)) == (journal, ""), "nothing is to be done")
    for request in (ScaleTo("a", 2), Rebalance("a"), Upgrade("a", "new"), FixEpoch()):
        demand(begin_request(graph, begun, known, request) == (None, ""), f"{request}: two at a time")
        missing = {p: s for p, s in known.items() if p != a[1]}
        demand(begin_request(graph, journal, missing, request) == (None, ""), f"{request}: before all have spoken")
    demand(begin_request(graph, begun, known, ScaleTo("out", 2))[0] is not None, "another operator is held up")
    split, _ = begin_request(graph, journal, known, ScaleTo("a", 4))
    assert split is not None
    demand(split.replaces[0].at == 0 and split.replaces[0].old == (a[2],), f"{split.replaces}")
    handed, _ = begin_request(graph, journal, known, ScaleTo("out", 2))
    assert handed is not None
    demand(handed.replaces[0].handover and handed.replaces[0].at == 0, f"{handed.replaces}")
    fixed, why = begin_request(graph, journal, known, FixEpoch())
    assert fixed is not None
    (one,) = fixed.replaces
    demand((one.operator, one.old, one.at, one.ranges, why) == ("", tuple(a), 44, (), ""), f"{one}")
    demand(begin_request(graph, fixed, known, ScaleTo("a", 2)) == (None, ""), "an epoch is being kept")
    demand(begin_request(graph, fixed, known, ReleaseEpoch(99)) == (fixed, ""), "of another number")
    demand(
        begin_request(graph, fixed, known, ReleaseEpoch(one.number))[0] == with_fields(fixed, replaces=()),
        "it is still kept",
    )
    upgraded, why = begin_request(graph, journal, known, Upgrade("a", "0123456789abcdef"))
    assert upgraded is not None
    (one,) = upgraded.replaces
    demand((one.old, one.at, one.ranges, one.code) == (tuple(a), 0, (), "0123456789abcdef"), f"{one}")
    demand(why == "a: upgrade to 0123456789ab", why)
    shadow = dict(journal.entries)
    shadow[a[0]] = Entry(a[0], KeyRange(0, 9), 1, FOREVER, SHADOW, Generation(1, 0), "")
    unrest = Journal(1, 1, shadow)
    demand(begin_request(graph, unrest, _known(unrest), FixEpoch()) == (None, ""), "somebody is starting")


@scenario
def rebalancing_replaces_what_changes() -> None:
    graph, journal = chain(starts={"a": 4}), first_journal(chain(starts={"a": 4}))
    known = _known(journal)
    begun, why = begin_request(graph, journal, known, Rebalance("a"))
    assert begun is not None
    (one,) = begun.replaces
    demand(why.startswith("a: rebalanced, the busiest partition goes from 2.00 times the mean to 1.0"), why)
    demand(len(one.old) == len(one.ranges) == 4 and one.at == 45, f"{one}")
    even = {p: Status(p, s.generation, 1, 40, load=(5,) * GROUPS) for p, s in known.items()}
    demand(begin_request(graph, journal, even, Rebalance("a"))[0] == journal, "it is balanced")
    quiet = {p: Status(p, s.generation, 1, 40) for p, s in known.items()}
    told = "a: not rebalanced, the load is not measured yet"
    demand(begin_request(graph, journal, quiet, Rebalance("a")) == (journal, told), "nothing is known")


@scenario
def numbers_of_partitions_are_checked() -> None:
    node = Node("a", "operator", None, minimum=2, maximum=5)
    demand([check_count(node, count) for count in (2, 5)] == [2, 5], "a number that it may have")
    for wrong in (1, 6, 0, -1, "3", 2.5, None):
        try:
            check_count(node, wrong)
        except Misuse:
            continue
        demand(False, f"{wrong} is a number of partitions")
