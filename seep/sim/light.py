"""Light rows for the simulator: the same contract as Arrow batches, on tuples of ints, hundreds of times cheaper.

A row is ``(key, value, time_us)``. The operators are chosen to notice: a fold that is sensitive to the order of its
rows, after a re-key; event-time windows; timers on epoch time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seep.model.care import CAREFREE, Care
from seep.model.epoch import Moment
from seep.model.ids import BUCKETS, FOREVER, GROUP_BUCKETS, KeyRange, PartitionId
from seep.partition.contract import Reading, split_bucket

Row = tuple[int, int, int]
Item = tuple[int, Row]
"""(bucket, row)"""

WINDOW_US = 40_000
LATER_BEGINS = 3
"""The position where a split begins that has appeared later."""
EVERYWHERE = -1
"""The bucket of an entry of the state that every partition has."""


def bucket_of(key: int) -> int:
    return (key * 2_654_435_761 >> 7) % BUCKETS


@dataclass(frozen=True, slots=True)
class LightBatch:
    items: tuple[Item, ...]

    @property
    def rows(self) -> int:
        return len(self.items)

    @property
    def weight(self) -> int:
        return len(self.items)

    @property
    def size_bytes(self) -> int:
        return 32 * len(self.items)

    def part(self, key_range: KeyRange) -> LightBatch:
        low, high = key_range
        return LightBatch(tuple(item for item in self.items if low <= item[0] < high))

    def pieces(self, limit_rows: int) -> list[LightBatch]:
        return [LightBatch(self.items[i : i + limit_rows]) for i in range(0, len(self.items), limit_rows)]

    def concat(self, batches: Iterable[LightBatch]) -> LightBatch:
        return LightBatch(tuple(item for batch in batches for item in batch.items))

    def by_group(self) -> dict[int, int]:
        counts: dict[int, int] = {}
        for bucket, _ in self.items:
            counts[bucket // GROUP_BUCKETS] = counts.get(bucket // GROUP_BUCKETS, 0) + 1
        return counts

    def fullest(self) -> tuple[int, float]:
        counts: dict[int, int] = {}
        for bucket, _ in self.items:
            counts[bucket] = counts.get(bucket, 0) + 1
        bucket = max(counts, key=counts.__getitem__)
        return bucket, counts[bucket] / len(self.items)

    def digest(self) -> int:
        return sum(hash(item) & 0xFFFF_FFFF_FFFF for item in self.items) % 2**64


@dataclass(frozen=True, slots=True)
class LightState:
    entries: tuple[tuple[int, Any, Any], ...]
    """(bucket, key, value); a value of None deletes."""

    @property
    def size_bytes(self) -> int:
        return 32 * len(self.entries)

    def part(self, key_range: KeyRange) -> LightState:
        low, high = key_range
        return LightState(tuple(e for e in self.entries if low <= e[0] < high or e[0] == EVERYWHERE))


Route = Callable[[Item], int]
"""(origin bucket, row) -> target bucket"""


def by_key(item: Item) -> int:
    return bucket_of(item[1][0])


def local(item: Item) -> int:
    return item[0]


class LightLogic:
    """Common to all: keyed state with dirty tracking, canonical order in, routed batches out."""

    shift = 0
    """Other code adds this to every value."""

    def __init__(self, routes: Mapping[str, Route]) -> None:
        self.routes = routes
        self.care: Care = CAREFREE
        self.state: dict[Any, Any] = {}
        self.dirty: dict[Any, None] = {}

    def bucket(self, key: Any) -> int:
        return bucket_of(key)

    def put(self, key: Any, value: Any) -> None:
        self.dirty[key] = None
        if value is None:
            self.state.pop(key, None)
        else:
            self.state[key] = value

    def take(self, moment: Moment, inputs: Sequence[tuple[int, LightBatch]]) -> dict[str, LightBatch]:
        items = [item for _, batch in inputs for item in batch.items]
        items.sort(key=lambda item: item[0])
        if self.shift:
            items = [(bucket, (key, value + self.shift, time)) for bucket, (key, value, time) in items]
        out = self.fold(moment, items)
        out.sort(key=lambda item: item[0])
        return (
            {name: LightBatch(tuple((route(i), i[1]) for i in out)) for name, route in self.routes.items()}
            if out
            else {}
        )

    def fold(self, moment: Moment, items: list[Item]) -> list[Item]:
        raise AssertionError("every operator folds")

    def snapshot(self, full: bool) -> LightState:
        keys = list(self.state) if full else list(self.dirty)
        self.dirty.clear()
        return LightState(tuple((self.bucket(key), key, self.state.get(key)) for key in keys))

    def mostly_changed(self) -> bool:
        """Never: with so few keys there would hardly be an increment."""
        return False

    def load(self, state: LightState) -> None:
        for _, key, value in state.entries:
            if value is None:
                self.state.pop(key, None)
            else:
                self.state[key] = value

    def statistics(self) -> dict[str, int]:
        return {"keys": len(self.state)}


class Chained(LightLogic):
    """Order shows: each key's value is a running hash of all its rows so far. Emits under another key."""

    def __init__(self, routes: Mapping[str, Route], keys: int) -> None:
        super().__init__(routes)
        self.keys = keys

    def fold(self, moment: Moment, items: list[Item]) -> list[Item]:
        out: list[Item] = []
        for bucket, (key, value, time) in items:
            known = (self.state.get(key, 7) * 1_000_003 + value * 31 + time) % 1_000_000_007
            self.put(key, known)
            out.append((bucket, (known % self.keys, known, time)))
        return out


class Informed(LightLogic):
    """Like `Chained`, and each row is folded with what every partition was told about its value (port 1, broadcast)."""

    def __init__(self, routes: Mapping[str, Route], keys: int) -> None:
        super().__init__(routes)
        self.keys = keys

    def bucket(self, key: Any) -> int:
        return EVERYWHERE if isinstance(key, tuple) else bucket_of(key)

    def take(self, moment: Moment, inputs: Sequence[tuple[int, LightBatch]]) -> dict[str, LightBatch]:
        told = [item for port, batch in inputs if port == 1 for item in batch.items]
        for _, (key, value, time) in sorted(told, key=lambda item: item[0]):
            topic = ("told", key % 3)
            self.put(topic, (self.state.get(topic, 11) * 1_000_003 + value * 31 + time) % 1_000_000_007)
        return super().take(moment, [(port, batch) for port, batch in inputs if port != 1])

    def fold(self, moment: Moment, items: list[Item]) -> list[Item]:
        out: list[Item] = []
        for bucket, (key, value, time) in items:
            told = self.state.get(("told", value % 3), 5)
            known = (self.state.get(key, 7) * 1_000_003 + value * 31 + told) % 1_000_000_007
            self.put(key, known)
            out.append((bucket, (known % self.keys, known, time)))
        return out


class Windowed(LightLogic):
    """Tumbling event-time windows: (key, sum) when the watermark passes; late rows come out at once, marked."""

    def bucket(self, key: Any) -> int:
        return bucket_of(key[0])

    def fold(self, moment: Moment, items: list[Item]) -> list[Item]:
        out: list[Item] = []
        for bucket, (key, value, time) in items:
            end = (time // WINDOW_US + 1) * WINDOW_US
            if end <= moment.watermark_before:
                out.append((bucket, (key, -value - 1, time)))
            else:
                self.put((key, end), self.state.get((key, end), 0) * 3 % 1_000_000_007 + value)
        closing = sorted((self.bucket(k), k[1], k[0]) for k in self.state if k[1] <= moment.watermark)
        for bucket, end, key in closing:
            out.append((bucket, (key, self.state[key, end], end - 1)))
            self.put((key, end), None)
        return out


class Timed(LightLogic):
    """Timers on epoch time: a key that has been quiet for a while says how much it saw."""

    def fold(self, moment: Moment, items: list[Item]) -> list[Item]:
        out: list[Item] = []
        for _, (key, value, time) in items:
            total = self.state.get(key, (0, 0, 0))[1]
            self.put(key, (moment.now_ms + 25, total * 7 % 1_000_000_007 + value, time))
        due = [k for k, (at, _, _) in self.state.items() if at <= moment.now_ms or moment.watermark >= 2**61]
        for bucket, key in sorted((bucket_of(k), k) for k in due):
            _, total, time = self.state[key]
            out.append((bucket, (key + 1, total, time)))
            self.put(key, None)
        return out


class Supply:
    """What a source will ever have, shared by every intake that reads it: open-ended until somebody says where it ends.

    So a schedule lasts until enough has happened in it, and it is still known to the row what must come out.
    """

    def __init__(self) -> None:
        self.ends: dict[int, int] | None = None
        """By split: where it ends (None: open)."""
        self.furthest: dict[int, int] = {}
        self.paused: set[int] = set()
        """Splits that have nothing new for a while."""
        self.grows = False
        self.later: list[int] = []
        """Splits that have appeared since the beginning."""

    def end(self, splits: int, more: int) -> None:
        """A few rows more than anybody has read, and that is all."""
        self.ends = {split: self.furthest.get(split, 0) + more for split in range(splits)}
        self.ends |= {split: self.furthest.get(split, LATER_BEGINS) + more for split in self.later}


class LightIntake:
    """Splits of rows; a row is a function of (source, split, position). Of a fixed number, unless a supply says."""

    def __init__(
        self,
        salt: int,
        splits: int,
        rows: int,
        keys: int,
        routes: Mapping[str, Route],
        idle_ms: int | None = None,
        supply: Supply | None = None,
    ) -> None:
        self.salt, self.splits, self.keys, self.routes = salt, splits, keys, routes
        self.lateness_us = 15_000
        self.epoch = 0
        self.care: Care = CAREFREE
        self.idle_ms = idle_ms
        self.supply = supply or Supply()
        if supply is None:
            self.supply.ends = dict.fromkeys(range(splits), rows)

    @property
    def grows(self) -> bool:
        return self.supply.grows and self.supply.ends is None

    def appeared(self, now_ms: int) -> dict[int, int]:
        """Some are not heard of at some moments, like of a broker that is behind; of all in the end."""
        supply = self.supply
        told = [split for split in supply.later if supply.ends is not None or (split + now_ms) % 3]
        return dict.fromkeys(told, LATER_BEGINS)

    def end(self, split: int) -> int:
        ends = self.supply.ends
        return FOREVER if ends is None else ends[split]

    def row(self, split: int, index: int) -> Row:
        noise = (index * 7919 + split * 104_729 + self.salt * 15_485_863) * 2_654_435_761 >> 5
        return noise % self.keys, noise % 9973, index * 4_000 + (noise >> 9) % 20_000

    def step(self, split: int, items: list[Item]) -> list[Item]:
        """What is fused behind the source."""
        return items

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Reading | None:
        start, last, supply = position or 0, self.end(split), self.supply
        if until is None and split in supply.paused:
            return None
        end = until if until is not None else min(last, start + max(1, min(limit_rows, 1 + (now_ms + split) % 5)))
        if end > supply.furthest.get(split, 0):
            supply.furthest[split] = end
        if end <= start:
            return Reading({}, start, 0, ended=True) if start >= last else None
        rows = [self.row(split, i) for i in range(start, end)]
        items = self.step(split, [(split_bucket(split, self.splits), row) for row in rows])
        outputs = {name: LightBatch(tuple((route(i), i[1]) for i in items)) for name, route in self.routes.items()}
        return Reading(outputs, end, len(rows), max(r[2] for r in rows), ended=end >= last)


class LightOutlet:
    """The committed record is the rows themselves, in canonical order. Like a file, it shows a few epochs at once: the
    log of those is needed until then."""

    repeats = True
    shown = -1
    """Up to this epoch."""

    def encode(self, moment: Moment, inputs: Sequence[tuple[int, LightBatch]]) -> Any:
        items = [item for _, batch in inputs for item in batch.items]
        items.sort(key=lambda item: item[0])
        return tuple(items) or None

    def begin(self, partition: PartitionId, rows: int, record: Any) -> None:
        """It shows nothing: what was committed is looked up in its log."""

    def publish(self, commits: Sequence[tuple[int, Any, bool]]) -> int:
        epoch, _, ended = commits[-1]
        self.shown = epoch if ended else max(self.shown, epoch - 3)
        return self.shown
