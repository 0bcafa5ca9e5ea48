"""Parts of the machines, each used at random beside a plain model of what it is: a list, a sum, a count of rows."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from random import Random

from seep.control.balance import Profile, plan_rebalance, plan_scale
from seep.model.batch import Batch
from seep.model.epoch import Progress
from seep.model.ids import BEGINNING, BUCKETS, FOREVER, GROUP_BUCKETS, Generation, KeyRange, PartitionId
from seep.partition.load import GROUPS, HALVING_EPOCHS, Load
from seep.protocol.journal import LIVE, Entry
from seep.sim.directed.registry import demand, scenario
from seep.sim.light import LightBatch
from seep.state.buffer import Buffer
from seep.state.checkpoint import Buffered


class OnDisk(LightBatch):
    """The same rows, elsewhere."""


def _entry(epoch: int, rows: int) -> Buffered:
    batch = LightBatch(tuple((bucket, (bucket, epoch, 0)) for bucket in range(rows)))
    return Buffered(Progress(epoch, epoch, epoch, rows), (batch,) if rows else ())


def _to_disk(batch: Batch) -> Batch:
    assert isinstance(batch, LightBatch)
    return OnDisk(batch.items)


def _bytes(entries: Iterable[Buffered], of: type[LightBatch] | None = None) -> int:
    batches = [batch for entry in entries for batch in entry.batches]
    return sum(batch.size_bytes for batch in batches if of is None or type(batch) is of)


@scenario
def buffer_is_a_list() -> None:
    """Added to, trimmed, cut, spilled and saved at random: its content, its counts and its places are a list's."""
    for seed in range(40):
        random, base = Random(seed), Progress(0, 0, BEGINNING, 0)
        buffer, model, epoch, gone, saved = Buffer(base), list[Buffered](), 0, 0, 0
        for _ in range(60):
            match random.randrange(7):
                case 0 | 1 | 2:
                    epoch += random.randint(1, 2)
                    model.append(_entry(epoch, random.randrange(4)))
                    buffer.add(model[-1])
                case 3:
                    upto = epoch - random.randrange(6)
                    going = [entry for entry in model if entry.progress.epoch <= upto]
                    demand(buffer.trim(upto) == bool(going), "it does not say whether it forgot anything")
                    base, gone = (going[-1].progress, gone + len(going)) if going else (base, gone)
                    model = model[len(going) :]
                case 4:
                    epoch = max(base.epoch, epoch - random.randrange(3))
                    buffer.cut_from(epoch + 1)
                    model = [entry for entry in model if entry.progress.epoch <= epoch]
                case 5:
                    limit = random.randrange(200)
                    buffer.spill(limit, _to_disk)
                    demand(buffer.memory_bytes <= limit, f"{buffer.memory_bytes} bytes in memory, limit {limit}")
                    kinds = [type(batch) is LightBatch for entry in buffer.entries for batch in entry.batches]
                    demand(kinds == sorted(kinds), "a newer one went to disk before an older one")
                case 6:
                    full = random.random() < 0.3
                    expected = model if full else model[max(saved - gone, 0) :]
                    demand(_same(buffer.unsaved(full), expected), "others are saved than were added since")
                    saved = gone + len(model)
            saved = min(saved, gone + len(model))
            demand(_same(buffer.entries, model), "it holds other entries")
            demand(buffer.trimmed == base, "it does not know what was said last of what is gone")
            demand((buffer.first, buffer.end) == (gone, gone + len(model)), "places have moved")
            demand(buffer.size_bytes == _bytes(model), "its size is not that of its entries")
            demand(buffer.memory_bytes == _bytes(buffer.entries, LightBatch), "its size in memory is wrong")
            demand(buffer.saved_bytes == _bytes(model[: max(saved - gone, 0)]), "its saved size is wrong")
            asked = epoch - random.randrange(5)
            after = gone + sum(entry.progress.epoch <= asked for entry in model)
            demand(buffer.after(asked) == after, f"the first after {asked} is at {after}, not {buffer.after(asked)}")
        _restored(buffer, model)


def _restored(buffer: Buffer, model: list[Buffered]) -> None:
    """From two checkpoints that overlap."""
    again = Buffer(buffer.trimmed)
    again.restore(model[: len(model) // 2 + 1])
    again.restore(model[len(model) // 2 :])
    demand(_same(again.entries, model) and again.unsaved(full=False) == (), "restored, it is not the same")


def _same(found: Iterable[Buffered], expected: Iterable[Buffered]) -> bool:
    return [(e.progress, [b.digest() for b in e.batches]) for e in found] == [
        (e.progress, [b.digest() for b in e.batches]) for e in expected
    ]


@scenario
def load_follows_the_rows() -> None:
    """Rows in 1,000 epochs by group; what was long ago counts little; nothing is told before it is known."""
    load = Load()

    def pass_by(epochs: int, group: int, rows: int, step: int = 1) -> tuple[int, ...]:
        batch = LightBatch(tuple((group * GROUP_BUCKETS, (0, 0, 0)) for _ in range(rows)))
        for _ in range(epochs // step):
            load.add(step, (batch,))
        return load.by_group()

    demand(pass_by(7, 3, 5) == (), "it tells what it cannot know")
    told = pass_by(500, 3, 5)
    demand(told == tuple(5_000 if group == 3 else 0 for group in range(GROUPS)), f"5 rows an epoch, told {told[3]}")
    demand(pass_by(7, 4, 900)[4] == 0, "it tells more often than it should")
    load = Load()
    pass_by(600, 3, 4)
    told = pass_by(2 * HALVING_EPOCHS, 9, 4, step=2)
    demand(0 < told[3] < 2_000, f"after two half-lives {told[3]} of 4,000 are left")
    demand(1_000 < told[9] < 2_000, f"2 rows an epoch are told as {told[9]}")


def _live(edges: list[int]) -> list[Entry]:
    ranges = [KeyRange(low, high) for low, high in pairwise(edges)]
    return [Entry(PartitionId("a", i), r, 1, FOREVER, LIVE, Generation(1, i), "w") for i, r in enumerate(ranges)]


@scenario
def ranges_are_cut_by_the_load() -> None:
    """Against the load of every single bucket: sums are right, and no other cut would be nearer to even."""
    for seed in range(12):
        random = Random(seed)
        edges = [0, *sorted(random.sample(range(1, BUCKETS), 2)), BUCKETS]
        live = _live(edges)
        loads = {e.partition: [random.choice((0, 1, 7, 90)) for _ in range(GROUPS)] for e in live}
        buckets = [0.0] * BUCKETS
        for entry in live:
            for group in range(GROUPS):
                low, high = group * GROUP_BUCKETS, (group + 1) * GROUP_BUCKETS
                mine = range(max(low, entry.key_range.low), min(high, entry.key_range.high))
                for bucket in mine:
                    buckets[bucket] = loads[entry.partition][group] * 4096 // len(mine)
        below = [0.0]
        for share in buckets:
            below.append(below[-1] + share)
        profile = Profile(live, loads)
        for bucket in (0, 1, *random.sample(range(BUCKETS), 60), BUCKETS):
            demand(profile.below(bucket) == below[bucket], f"below {bucket}: {profile.below(bucket)}")
        parts = random.randint(2, 5)
        ranges = profile.split(KeyRange(0, BUCKETS), parts)
        demand(ranges[0].low == 0 and ranges[-1].high == BUCKETS, "the ranges do not tile")
        for part, (one, other) in enumerate(pairwise(ranges), start=1):
            goal = below[-1] * part / parts
            nearest = min(abs(load - goal) for load in below)
            demand(one.high == other.low, "the ranges do not tile")
            demand(abs(below[one.high] - goal) == nearest, f"cut at {one.high}, {below[one.high]} of {goal}")
        _scaled(live, loads, profile, random)


@scenario
def all_the_load_in_one_bucket_still_makes_ranges() -> None:
    live = _live([0, 1, BUCKETS])
    loads = {entry.partition: [90 * (entry.key_range.high == 1)] * GROUPS for entry in live}
    ranges = Profile(live, loads).split(KeyRange(0, BUCKETS), 4)
    demand(ranges[0].low == 0 and ranges[-1].high == BUCKETS, f"{ranges}")
    for one, other in pairwise(ranges):
        demand(one.low < one.high == other.low, f"{ranges}")


def _scaled(live: list[Entry], loads: dict[PartitionId, list[int]], profile: Profile, random: Random) -> None:
    pairs = [profile.of(KeyRange(live[i].key_range.low, live[i + 1].key_range.high)) for i in range(2)]
    first = pairs.index(min(pairs))
    merged = KeyRange(live[first].key_range.low, live[first + 1].key_range.high)
    loaded = max(live, key=lambda e: profile.of(e.key_range))
    for count, least, new in (
        (2, [live[first].partition, live[first + 1].partition], [merged]),
        (4, [loaded.partition], profile.split(loaded.key_range, 2)),
    ):
        mean, left = profile.of(KeyRange(0, BUCKETS)) / count, [e.key_range for e in live if e.partition not in least]
        old, ranges = plan_scale(live, count, loads)
        most = max(map(profile.of, [*left, *new]))
        if most <= 1.2 * mean:
            demand((old, ranges) == (least, new), "more changes than has to")
        elif (old, ranges) != (least, new):
            there = sorted([*(e.key_range for e in live if e.partition not in old), *ranges])
            demand(len(there) == count and max(map(profile.of, there)) <= 0.95 * most, "for nothing")
            demand(there == profile.split(KeyRange(0, BUCKETS), count), "not cut anew")
        else:
            even = profile.split(KeyRange(0, BUCKETS), count)
            demand(max(map(profile.of, even)) > 0.95 * most, "the busiest stays the bottleneck")
    new, why = plan_rebalance(live, loads)
    mean, most = profile.of(KeyRange(0, BUCKETS)) / 3, max(profile.of(e.key_range) for e in live)
    demand(bool(new) == (most > 1.2 * mean), f"the busiest has {most / mean:.2f} times the mean: {why}")
