"""What the output must be: the whole flow run one epoch after the other, in one piece, from the logged cuts.

It shares the operators with the run it judges, and nothing of the protocol: no partitions, buffers, subscriptions,
checkpoints. The cut into epochs is the run's own (timing decides it), so it is read from the history of the logs;
that the logs hold every row of every source once is checked first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import msgpack

from seep.model.batch import State
from seep.model.care import Care
from seep.model.epoch import Moment
from seep.model.ids import BEGINNING, BUCKETS, FOREVER, KeyRange, PartitionId
from seep.partition.contract import Graph, Node, Upgrade, split_bucket
from seep.protocol.journal import SHADOW, Journal, tiles
from seep.sim.store import SimStore


class Violation(AssertionError):
    """A promise was broken."""


class Logs(Protocol):
    """What was ever written: by the simulator's store, or by an onlooker of a real job."""

    history: dict[PartitionId, list[tuple[int, Any]]]
    """(epoch, record) of each partition's log, forgotten or not, in order."""
    journals: list[Journal]


@dataclass(frozen=True)
class Begun:
    """Where to begin, if not at the beginning: after an epoch, with what each operator held then."""

    epoch: int = 0
    states: Mapping[str, State] = field(default_factory=dict)
    moments: Mapping[str, Moment] = field(default_factory=dict)


NOTHING_YET = Begun()
NONE: Mapping[str, Upgrade] = {}


def source_cuts(graph: Graph, store: Logs, source: str) -> dict[int, dict[int, list[Any]]]:
    """epoch -> split -> [start, end, time, ended, heard], over all partitions the source ever had."""
    cuts: dict[int, dict[int, list[Any]]] = {}
    for partition, log in store.history.items():
        if partition.operator != source:
            continue
        for epoch, record in log:
            for split, known in record["splits"].items():
                held = cuts.setdefault(epoch, {}).get(int(split))
                if held is not None and held[:2] != known[:2] and held[0] != held[1] and known[0] != known[1]:
                    raise Violation(f"{source}: split {split} was cut twice in epoch {epoch}")
                if held is None or known[0] != known[1]:
                    cuts[epoch][int(split)] = known
    return cuts


def check_sources(graph: Graph, store: SimStore, complete: bool = True) -> None:
    for node in graph.nodes.values():
        if node.kind != "source":
            continue
        cuts, intake = source_cuts(graph, store, node.name), node.make()
        at: dict[int, Any] = dict(intake.appeared(0))
        for epoch in sorted(cuts):
            for split, (start, end, *_) in cuts[epoch].items():
                if (at.get(split) or 0) != (start or 0):
                    raise Violation(f"{node.name}: split {split} epoch {epoch} starts at {start}, not {at.get(split)}")
                at[split] = end
        _check_records(store, node.name)
        _check_tables_first(graph, store, node, cuts)
        if complete and any((at.get(split) or 0) != intake.end(split) for split in (*range(intake.splits), *at)):
            raise Violation(f"{node.name}: not all rows were read: {at}")


def _check_records(store: SimStore, source: str) -> None:
    """Its own count of rows, and the greatest event time of each split, which never goes back."""
    for partition, log in store.history.items():
        times: dict[str, int] = {}
        for epoch, record in log if partition.operator == source else ():
            read = sum((end or 0) - (start or 0) for start, end, *_ in record["splits"].values())
            if record["rows"] != read:
                raise Violation(f"{partition} says of epoch {epoch} that it has {record['rows']} rows, not {read}")
            for split, known in record["splits"].items():
                if known[2] < times.get(split, known[2]):
                    raise Violation(f"{partition}: the greatest time of split {split} goes back in epoch {epoch}")
                times[split] = known[2]


def _check_tables_first(graph: Graph, store: SimStore, node: Node, cuts: dict[int, dict[int, list[Any]]]) -> None:
    """A source that waits has no row before the last one of those that load, and whose turn is earlier."""
    loading = [other.name for other in graph.nodes.values() if other.loads and other.turn < node.turn]
    loaded = max((epoch for name in loading for epoch in _filled(source_cuts(graph, store, name))), default=0)
    begins = min(_filled(cuts), default=FOREVER)
    if begins < loaded:
        raise Violation(f"{node.name} has rows in epoch {begins}, and Tables are loaded up to epoch {loaded}")


def _filled(cuts: dict[int, dict[int, list[Any]]]) -> list[int]:
    return [epoch for epoch, splits in cuts.items() if any(start != end for start, end, *_ in splits.values())]


def expected(
    graph: Graph,
    store: Logs,
    begun: Begun = NOTHING_YET,
    upto: int = FOREVER,
    upgrades: Mapping[str, Upgrade] = NONE,
) -> dict[str, dict[int, Any]]:
    """For each sink: epoch -> record. `upgrades`: by code, what operators were upgraded to."""
    cuts = {n.name: source_cuts(graph, store, n.name) for n in graph.nodes.values() if n.kind == "source"}
    walls, afters = _walls(store), {name: _afters(store, name) for name in cuts}
    # Not only those with rows: time passes in the others, too, and the end may be said by one that has no split.
    epochs = sorted({epoch for name in cuts for epoch in walls.get(name, ()) if begun.epoch < epoch <= upto})
    machines = {name: node.make() for name, node in graph.nodes.items()}
    known = store.journals[-1].codes if store.journals else {}
    codes = {name: [code for code in of if code.first > begun.epoch] for name, of in known.items()}
    for name, state in begun.states.items():
        machines[name].load(state)
    before: dict[str, Moment] = dict(begun.moments)
    clocks = {name: _Clock(store, name, machines[name]) for name in cuts}
    journal = store.journals[-1] if store.journals else Journal()
    now = {name: _latest(walls.get(name, {}), begun.epoch) for name in cuts}
    result: dict[str, dict[int, Any]] = {n.name: {} for n in graph.nodes.values() if n.kind == "sink"}
    for epoch in epochs:
        batches: dict[str, Any] = {}
        marks: dict[str, tuple[int, int, bool, int]] = {}
        for name, node in graph.nodes.items():
            if node.kind == "source":
                now[name] = max(now[name], walls.get(name, {}).get(epoch, 0))  # one that never cut has none
                machines[name].epoch = epoch
                for split, cut in _in_order(machines[name], cuts[name].get(epoch, {})):
                    machines[name].care = Care(journal.skips(name, afters[name][epoch, split]))
                    _read(machines[name], split, cut, now[name], batches)
                marks[name] = (now[name], *clocks[name].at(epoch), clocks[name].reached())
                continue
            inputs = graph.inputs(name)
            then = before.get(name, Moment(0, 0, BEGINNING, BEGINNING))
            while codes.get(name) and codes[name][0].first <= epoch:
                upgrade, was = upgrades[codes[name].pop(0).name], machines[name]
                machines[name] = upgrade.node.make()
                machines[name].load(upgrade.fit(was.snapshot(True), then.now_ms))
            told = [(e, *marks[e.source]) for e in inputs]
            timed = [one for one in told if not one[0].timeless]
            said = [(now_ms, e.watermark(mark), still) for e, now_ms, mark, still, _ in timed]
            idle = any(one[2] for one in said) and all(one[2] or one[1] == FOREVER for one in said)
            watermark = BEGINNING if idle else min(one[1] for one in said if not one[2])
            now_ms = max(then.now_ms, *(one[1] for one in told))
            reached = BEGINNING
            if watermark >= FOREVER:
                reached = max(then.watermark, *(one[0].watermark(one[4]) for one in timed))
            moment = Moment(epoch, now_ms, then.watermark, max(then.watermark, watermark), reached)
            rows = [(e.port, batches[e.name]) for e in sorted(inputs, key=lambda e: e.port) if e.name in batches]
            before[name], marks[name] = moment, (moment.now_ms, moment.watermark, idle, reached)
            if node.kind == "sink":
                record = machines[name].encode(moment, rows)
                if record is not None:
                    result[name][epoch] = record
            else:
                machines[name].care = Care(journal.skips(name, epoch))
                batches.update({k: b for k, b in machines[name].take(moment, rows).items() if b.rows})
    return result


def _latest(times: Mapping[int, int], upto: int) -> int:
    return max((at for epoch, at in times.items() if epoch <= upto), default=0)


def _walls(store: Logs) -> dict[str, dict[int, int]]:
    walls: dict[str, dict[int, int]] = {}
    for partition, log in store.history.items():
        for epoch, record in log:
            if isinstance(record, dict):
                times = walls.setdefault(partition.operator, {})
                times[epoch] = max(times.get(epoch, 0), record["now"])
    return walls


def _afters(store: Logs, source: str) -> dict[tuple[int, int], int]:
    """(epoch, split) -> the last epoch before it that had rows, where the split's rows were."""
    found: dict[tuple[int, int], int] = {}
    for partition, log in store.history.items():
        for epoch, record in log if partition.operator == source else ():
            for split, (start, end, *_) in record["splits"].items():
                if start != end or (epoch, int(split)) not in found:
                    found[epoch, int(split)] = record["base"]
    return found


def _in_order(intake: Any, cut: dict[int, list[Any]]) -> list[tuple[int, list[Any]]]:
    return sorted(cut.items(), key=lambda one: (split_bucket(one[0], intake.splits), one[0]))


def _read(intake: Any, split: int, cut: list[Any], now_ms: int, batches: dict[str, Any]) -> None:
    """The rows of one split, behind those of the splits before it."""
    start, end, *_ = cut
    if start == end:
        return
    reading = intake.read(split, start, end, FOREVER, now_ms)
    if reading is None:
        raise Violation(f"split {split} can no longer be read from {start} to {end}")
    for name, batch in reading.outputs.items():
        batches[name] = batches[name].concat([batches[name], batch]) if name in batches else batch


class _Clock:
    """A source's watermark and idleness, by what its logs say of each split at each cut."""

    def __init__(self, store: Logs, source: str, intake: Any) -> None:
        self.intake = intake
        firsts = {p: e.first for journal in store.journals for p, e in journal.entries.items()}
        said: list[tuple[float, int, list[Any], int]] = []
        for partition, log in store.history.items():
            if partition.operator == source:
                for epoch, record in log:
                    # What it says of the epoch before its life counts from its life on.
                    # No journal that an onlooker saw names one whose life was over before it looked.
                    since = epoch if epoch >= firsts.get(partition, 0) else epoch + 0.5
                    said += [(since, int(split), known, record["now"]) for split, known in record["splits"].items()]
        self.said = sorted(said, key=lambda one: one[:2], reverse=True)
        self.over = _over(store, source)
        self.known: dict[int, tuple[list[Any], int]] = {}

    def at(self, epoch: int) -> tuple[int, bool]:
        """(watermark, idle) as of this epoch."""
        while self.said and self.said[-1][0] <= epoch:
            _, split, known, now_ms = self.said.pop()
            self.known[split] = (known, now_ms)
        if any(split not in self.known for split in range(self.intake.splits)):
            return BEGINNING, False
        open_ones = [(known, now_ms) for known, now_ms in self.known.values() if not known[3]]
        if epoch >= self.over:
            return FOREVER, False
        idle_ms, lateness = self.intake.idle_ms, self.intake.lateness_us
        active = [known[2] for known, now_ms in open_ones if idle_ms is None or now_ms - known[4] < idle_ms]
        return min((t - lateness if t > BEGINNING else BEGINNING for t in active), default=BEGINNING), not active

    def reached(self) -> int:
        """By the latest of all rows so far."""
        latest = max((known[2] for known, _ in self.known.values()), default=BEGINNING)
        return latest - self.intake.lateness_us if latest > BEGINNING else BEGINNING


def _over(store: Logs, source: str) -> int:
    """The first epoch by which every partition that is alive in it has said that nothing follows."""
    lives = {e.partition: e for journal in store.journals for e in journal.of(source) if e.role != SHADOW}
    ends = {
        p: min((epoch for epoch, record in store.history.get(p, ()) if record["ended"]), default=FOREVER) for p in lives
    }
    for epoch in sorted(set(ends.values()) - {FOREVER}):
        if all(ends[p] <= epoch for p, e in lives.items() if e.first <= epoch <= e.last):
            return epoch
    return FOREVER


def committed(store: SimStore, sink: str) -> dict[int, Any]:
    """epoch -> the rows of all partitions of the sink, in canonical order."""
    found: dict[int, list[Any]] = {}
    for partition, log in store.history.items():
        if partition.operator == sink:
            for epoch, (_, record) in log:
                if record is not None:
                    found.setdefault(epoch, []).extend(_rows(record))
    return {epoch: tuple(sorted(rows, key=lambda item: item[0])) for epoch, rows in found.items()}


def check_output(graph: Graph, store: SimStore, complete: bool = True, upgrades: Mapping[str, Upgrade] = NONE) -> int:
    """Compare; answers the number of rows. Of a flow that stopped, each partition of a sink must have committed the
    right rows of its own keys in the epochs it committed (there is no atomicity across sink partitions)."""
    upto = FOREVER if complete else _last_committed(graph, store)
    wanted = expected(graph, store, upto=upto, upgrades=upgrades)
    ranges = {p: e.key_range for journal in store.journals for p, e in journal.entries.items()}
    rows = 0
    for sink, epochs in wanted.items():
        rows += sum(map(len, epochs.values()))
        _check_order(store, sink, ranges)
        if not complete:
            _check_partitions(store, sink, epochs, ranges)
            continue
        got = committed(store, sink)
        for epoch in sorted(set(epochs) | set(got)):
            _compare(f"sink {sink}", epoch, epochs.get(epoch), got.get(epoch))
    return rows


def _last_committed(graph: Graph, store: SimStore) -> int:
    """Nobody knows what later rows would have done."""
    sinks = {node.name for node in graph.nodes.values() if node.kind == "sink"}
    return max((epoch for partition, epoch in store.order if partition.operator in sinks), default=0)


def _check_order(store: SimStore, sink: str, ranges: Mapping[PartitionId, KeyRange]) -> None:
    """A key's epochs are committed in their order, whichever partitions of the sink commit them."""
    reached: dict[PartitionId, int] = {}
    for partition, epoch in store.order:
        if partition.operator != sink:
            continue
        reached[partition] = epoch
        for other, further in reached.items():
            if further > epoch and ranges[other].overlaps(ranges[partition]):
                raise Violation(f"{partition} committed epoch {epoch} after {other} committed epoch {further}")


def _check_partitions(
    store: SimStore, sink: str, wanted: dict[int, Any], ranges: Mapping[PartitionId, KeyRange]
) -> None:
    for partition, log in store.history.items():
        if partition.operator == sink:
            for epoch, (_, record) in log:
                mine = tuple(row for row in wanted.get(epoch, ()) if row[0] in ranges[partition])
                _compare(f"sink {partition}", epoch, mine or None, _rows(record) or None)


def _compare(where: str, epoch: int, wanted: Any, found: Any) -> None:
    if wanted != found:
        raise Violation(f"{where}, epoch {epoch}: expected {_short(wanted)}, committed {_short(found)}")


def _rows(record: Any) -> Any:
    """A record is the rows themselves, or their bytes where the sink keeps bytes."""
    return msgpack.unpackb(record, use_list=False) if isinstance(record, bytes) else record


def _short(rows: Any) -> str:
    return "nothing" if rows is None else f"{len(rows)} rows {str(rows)[:160]}"


def check_journal(graph: Graph, journal: Journal) -> None:
    """The open lives of an operator tile the key space, and no bucket has two owners in one epoch."""
    for name in graph.nodes:
        entries = [e for e in journal.of(name) if e.role != SHADOW and e.last >= e.first]
        if not tiles([e.key_range for e in entries if e.last == FOREVER], 0, BUCKETS):
            raise Violation(f"journal {journal.version}: the open lives of {name} do not tile: {entries}")
        for i, one in enumerate(entries):
            for other in entries[i + 1 :]:
                shared = one.first <= other.last and other.first <= one.last
                if shared and one.key_range.overlaps(other.key_range):
                    raise Violation(f"journal {journal.version}: two owners: {one} and {other}")


def check_journals(graph: Graph, store: SimStore) -> None:
    """Each is right, and one version later than the one before, under no earlier term: a controller that was replaced
    can never find the version that it expects."""
    for journal in store.journals:
        check_journal(graph, journal)
    for one, other in pairwise(store.journals):
        if other.version != one.version + 1 or other.term < one.term:
            raise Violation(f"journal {other.version} of term {other.term} follows {one.version} of term {one.term}")
        for name, codes in other.codes.items():
            before = one.codes.get(name, ())
            if codes[: len(before)] != before or any(a.first >= b.first for a, b in pairwise(codes)):
                raise Violation(f"journal {other.version}: the past of {name} was {before} and is {codes}")
