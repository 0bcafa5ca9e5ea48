"""What is kept for replay, beside a plain list that is done the same to; and loads, beside their reckoning by hand."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from seep.model.batch import Batch
from seep.model.epoch import Progress
from seep.model.ids import GROUP_BUCKETS, KeyRange
from seep.partition.histogram import BOUNDS_MS, Histogram
from seep.partition.load import FIRST_EPOCHS, FRESH_EPOCHS, GROUPS, HALVING_EPOCHS, HOT, Load
from seep.partition.reread import Reread, counted, merged, same_rows, shapes_of
from seep.sim.directed.registry import demand, scenario
from seep.sim.light import LightBatch
from seep.state.buffer import Buffer
from seep.state.checkpoint import Buffered


def _batch(*buckets: int) -> LightBatch:
    return LightBatch(tuple((bucket, (bucket, 0, 0)) for bucket in buckets))


def _entry(epoch: int, rows: int) -> Buffered:
    return Buffered(Progress(epoch, epoch, 10 * epoch, 0), (_batch(*range(rows)),) if rows else ())


class _OnDisk(LightBatch):
    """The same rows, elsewhere."""


class _Plain:
    """The same as a list of [entry, is it saved, is it on disk], and how many are gone."""

    def __init__(self) -> None:
        self.held: list[list[Any]] = []
        self.gone = 0
        self.trimmed = 0

    def trim(self, upto: int) -> bool:
        left = [one for one in self.held if one[0].progress.epoch > upto]
        went = len(self.held) - len(left)
        if went:
            self.trimmed = self.held[went - 1][0].progress.epoch
        self.held, self.gone = left, self.gone + went
        return went > 0

    def cut_from(self, epoch: int) -> None:
        self.held = [one for one in self.held if one[0].progress.epoch < epoch]

    def unsaved(self, full: bool) -> list[int]:
        found = [one[0].progress.epoch for one in self.held if full or not one[1]]
        for one in self.held:
            one[1] = True
        return found

    def spill(self, limit_bytes: int) -> None:
        for one in self.held:
            if self.bytes(2, False) > limit_bytes and not one[2]:
                one[2] = True

    def bytes(self, which: int = 0, value: bool = True) -> int:
        held = [one for one in self.held if not which or one[which] is value]
        return sum(32 * sum(batch.rows for batch in one[0].batches) for one in held)


def _epochs(entries: Any) -> list[int]:
    return [entry.progress.epoch for entry in entries]


@scenario
def buffer_keeps_what_a_list_keeps() -> None:
    """Added, trimmed, cut off, saved, put on disk, in any order: the same is held, counted and found."""
    for seed in range(30):
        random, plain = Random(seed), _Plain()
        buffer, newest = Buffer(Progress(0, 0, 0, 0)), 0
        for _ in range(120):
            what = random.randrange(9)
            if what < 4:
                newest += random.randrange(1, 4)
                entry = _entry(newest, random.randrange(4))
                buffer.add(entry)
                plain.held.append([entry, False, False])
            elif what == 4:
                upto = random.randrange(max(0, newest - 12), newest + 2)
                demand(buffer.trim(upto) == plain.trim(upto), f"seed {seed}: something was trimmed")
            elif what == 5:
                epoch = newest - random.randrange(4)
                buffer.cut_from(epoch)
                plain.cut_from(epoch)
                newest = buffer.newest.epoch
            elif what == 6:
                full = random.random() < 0.3
                demand(_epochs(buffer.unsaved(full)) == plain.unsaved(full), f"seed {seed}: something else is saved")
            elif what == 7:
                limit = random.choice((0, 64, 160, 320))
                buffer.spill(limit, lambda batch: _OnDisk(batch.items))  # type: ignore[attr-defined]
                plain.spill(limit)
            epoch = random.randrange(newest + 2)
            position = plain.gone + sum(one[0].progress.epoch <= epoch for one in plain.held)
            demand(buffer.after(epoch) == position, f"seed {seed}: after {epoch} comes {buffer.after(epoch)}")
            _demand_like(buffer, plain, f"seed {seed}")


def _demand_like(buffer: Buffer, plain: _Plain, where: str) -> None:
    held = [one[0].progress.epoch for one in plain.held]
    demand(_epochs(buffer.entries) == held, f"{where}: {_epochs(buffer.entries)} are held, not {held}")
    demand((buffer.first, buffer.end) == (plain.gone, plain.gone + len(held)), f"{where}: positions have moved")
    demand(buffer.trimmed.epoch == plain.trimmed, f"{where}: trimmed up to {buffer.trimmed.epoch}")
    demand(buffer.newest.epoch == (held[-1] if held else plain.trimmed), f"{where}: {buffer.newest} is the newest")
    demand([buffer.at(buffer.first + i) for i in range(len(held))] == list(buffer.entries), f"{where}: others at it")
    demand(buffer.size_bytes == plain.bytes(), f"{where}: {buffer.size_bytes} bytes are held")
    demand(buffer.memory_bytes == plain.bytes(2, False), f"{where}: {buffer.memory_bytes} bytes are in memory")
    demand(buffer.saved_bytes == plain.bytes(1), f"{where}: {buffer.saved_bytes} bytes are saved")
    disk = [all(isinstance(batch, _OnDisk) for batch in entry.batches) for entry in buffer.entries if entry.batches]
    demand(disk == [one[2] for one in plain.held if one[0].batches], f"{where}: others are on disk")


@scenario
def buffer_is_put_together_from_a_chain() -> None:
    buffer = Buffer(Progress(2, 0, 0, 0))
    for epochs in ((1, 2, 3), (3, 5), (), (5, 9)):
        buffer.restore([_entry(epoch, 1) for epoch in epochs])
    demand(_epochs(buffer.entries) == [3, 5, 9], f"{_epochs(buffer.entries)}")
    demand(buffer.unsaved(full=False) == () and buffer.saved_bytes == 96, "what was restored is saved")


# --- loads -------------------------------------------------------------------------------------------------------


def _loaded(epochs: int, *buckets: int, passed: int = 1) -> Load:
    load = Load()
    for _ in range(epochs):
        load.add(passed, [_batch(*buckets)])
    return load


@scenario
def load_is_rows_in_a_thousand_epochs() -> None:
    """From the eighth on, and told anew after eight more; what is older than 128 counts half, and half of that."""
    demand(FIRST_EPOCHS == FRESH_EPOCHS == 8 and HALVING_EPOCHS == 128, "reckoned for others")
    demand(_loaded(7, 5).by_group() == (), "too early")
    found = _loaded(8, 5, 70, 70, 4095).by_group()
    wanted = {0: 1_000, 1: 2_000, GROUPS - 1: 1_000}
    demand(found == tuple(wanted.get(group, 0) for group in range(GROUPS)), f"{found}")
    demand(_loaded(4, 5, passed=2).by_group()[0] == 500, "epochs without rows do not count")
    demand(_loaded(3, 5, passed=3).by_group()[0] == 333, "it is rounded up")
    load, told = _loaded(8, 5), []
    load.by_group()
    for _ in range(8):
        load.add(1, [_batch(5, 5, 5)])
        told.append(load.by_group()[0])
    demand(told == [1_000] * 7 + [2_000], f"told: {told}")
    for first, second, wanted_rows in ((127, 1, 0), (128, 0, 1_000), (128, 128, 333), (64, 64, 500)):
        load = _loaded(first, 5)
        for _ in range(second):
            load.add(1, [])
        rows = load.by_group()[0]
        wanted_rows = wanted_rows or 1_000 * first // (first + second)
        demand(rows == wanted_rows, f"after {first} epochs with and {second} without: {rows}, not {wanted_rows}")
    # Twice 128 epochs at once: a quarter of 8 rows in a quarter of 264 epochs, then one row in each of 33 more.
    load = _loaded(8, 5)
    load.add(256, [])
    for _ in range(33):
        load.add(1, [_batch(5)])
    demand(load.by_group()[0] == 1_000 * (2 + 33) // (66 + 33), f"{load.by_group()[0]}")


@scenario
def hottest_bucket_is_known() -> None:
    """By every eighth epoch that has rows; none of these is forgotten for a colder one."""
    demand(Load().hot_share == 0.0, "of nothing")
    demand(_loaded(1, 5, 5, 5, 9).hot_share == 0.75, "of the first")
    load = _loaded(1, 5, 5, 5, 9)
    for _ in range(7):
        load.add(1, [_batch(1)])
    demand(load.hot_share == 0.75, f"too many are looked at: {load.hot_share}")
    load.add(1, [_batch(5, 5, 5, 6), _batch(9)])
    demand(load.hot_share == 6 / 9, f"too few are looked at: {load.hot_share}")
    load.add(7, [_batch(1)])
    load.add(1, [_batch()])
    load.add(1, [_batch(9, 9, 9)])
    demand(load.hot_share == 6 / 12, f"an epoch without rows tells nothing: {load.hot_share}")
    many = _loaded(1, 1, 1, 1)
    for bucket in range(100, 100 + HOT + 3):
        many.add(8, [_batch(bucket)])
    demand(many.hot_share == 3 / (3 + HOT + 3), f"it is forgotten: {many.hot_share}")
    half = _loaded(1, 5, 5, 5, 5)
    half.add(127, [])
    half.add(1, [_batch(9, 9, 9, 9)])
    demand(abs(half.hot_share - 4 / 6) < 1e-9, f"what is old counts as much: {half.hot_share}")


@scenario
def lengths_are_counted_by_their_bounds() -> None:
    histogram = Histogram()
    for took_ms in (0.0, 0.5, 0.6, 1.0, 16_000.0, 16_384.0, 16_385.0, 1e9):
        histogram.add(took_ms)
    found = dict(histogram.buckets())
    demand(len(found) == 17 and list(found)[-1] == "+Inf", f"{found}")
    demand(BOUNDS_MS[0] == 0.5 and BOUNDS_MS[-1] == 16_384.0, f"{BOUNDS_MS}")
    wanted = {"0.0005": 2.0, "0.001": 4.0, "0.002": 4.0, "8.192": 4.0, "16.384": 6.0, "+Inf": 8.0}
    demand({bound: found[bound] for bound in wanted} == wanted, f"{found}")
    more = histogram.with_one(0.7)
    demand(dict(more.buckets())["0.001"] == 5.0 and dict(histogram.buckets()) == found, "it is the same one")
    demand(more.sum_ms == histogram.sum_ms + 0.7, "another sum")


# --- what is read again ------------------------------------------------------------------------------------------


@scenario
def rows_read_again_are_as_good_as_the_first() -> None:
    """Digest, number and size without reading; all else by reading."""
    first, second = _batch(1, 70, 70), _batch(4000)
    reads: list[int] = []

    def read() -> Batch:
        reads.append(1)
        return first

    again = Reread(shapes_of({"e": first})["e"], read)
    same = (again.digest(), again.rows, again.size_bytes) == (first.digest(), first.rows, first.size_bytes)
    demand(same and not reads, "it was read")
    calls: tuple[Callable[[Batch], Any], ...] = (
        lambda batch: batch.weight,
        lambda batch: batch.part(KeyRange(0, GROUP_BUCKETS)),
        lambda batch: list(batch.pieces(2)),
        lambda batch: batch.concat([first, second]),
        lambda batch: dict(batch.by_group()),
        lambda batch: batch.fullest(),
    )
    for call in calls:
        demand(call(again) == call(first), "it is another one")
    demand(len(reads) == len(calls), "somebody has not read")
    shapes = shapes_of({"e": first, "none": _batch(), "f": second})
    demand(shapes == {"e": (first.digest(), 3, 96), "f": (second.digest(), 1, 32)}, f"{shapes}")
    here = {"e": (7, 3, 96)}
    others: tuple[dict[str, Any], ...] = ({"e": (8, 3, 96)}, {"e": (7, 2, 96)}, {"f": (7, 3, 96)}, {})
    demand(same_rows(here, {"e": [7, 3, 1]}) and not any(same_rows(here, other) for other in others), "other rows")
    joined = merged([{"e": first}, {"e": second, "f": second}])
    demand(joined == {"e": first.concat([first, second]), "f": second}, f"{joined}")
    total = counted({"a": 2**64 - 1, "b": 1}, {"a": 3, "c": 4})
    demand(total == {"a": 2, "b": 1, "c": 4}, f"{total}")
