"""What the output must be: the whole flow run one epoch after the other, in one piece, from the logged cuts.

It shares the operators with the run it judges, and nothing of the protocol: no partitions, buffers, subscriptions,
checkpoints. The cut into epochs is the run's own (timing decides it), so it is read from the history of the logs;
that the logs hold every row of every source once is checked first.
"""

from __future__ import annotations

from typing import Any

from seep.model.epoch import Moment
from seep.model.ids import BEGINNING, BUCKETS, FOREVER
from seep.partition.contract import Graph
from seep.protocol.journal import SHADOW, Journal, tiles
from seep.sim.store import SimStore


class Violation(AssertionError):
    """A promise was broken."""


def source_cuts(graph: Graph, store: SimStore, source: str) -> dict[int, dict[int, list[Any]]]:
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
        at: dict[int, Any] = {}
        for epoch in sorted(cuts):
            for split, (start, end, *_) in cuts[epoch].items():
                if (at.get(split) or 0) != (start or 0):
                    raise Violation(f"{node.name}: split {split} epoch {epoch} starts at {start}, not {at.get(split)}")
                at[split] = end
        if complete and any((at.get(split) or 0) != intake.rows for split in range(intake.splits)):
            raise Violation(f"{node.name}: not all rows were read: {at}")


def expected(graph: Graph, store: SimStore) -> dict[str, dict[int, Any]]:
    """For each sink: epoch -> record."""
    cuts = {n.name: source_cuts(graph, store, n.name) for n in graph.nodes.values() if n.kind == "source"}
    epochs = sorted({epoch for cut in cuts.values() for epoch in cut})
    machines = {name: node.make() for name, node in graph.nodes.items()}
    before: dict[str, Moment] = {}
    known: dict[str, dict[int, list[Any]]] = {name: {} for name in cuts}
    now: dict[str, int] = dict.fromkeys(cuts, 0)
    result: dict[str, dict[int, Any]] = {n.name: {} for n in graph.nodes.values() if n.kind == "sink"}
    walls = _walls(store)
    for epoch in epochs:
        batches: dict[str, Any] = {}
        marks: dict[str, tuple[int, int]] = {}
        for name, node in graph.nodes.items():
            if node.kind == "source":
                now[name] = max(now[name], walls[name].get(epoch, 0))
                _read(machines[name], cuts[name].get(epoch, {}), known[name], now[name], batches)
                watermark = _watermark(machines[name], known[name], now[name])
                marks[name] = (now[name], max(watermark, _mark(before, name)))
                before[name] = Moment(epoch, marks[name][0], 0, marks[name][1])
                continue
            inputs = graph.inputs(name)
            then = before.get(name, Moment(0, 0, BEGINNING, BEGINNING))
            moment = Moment(
                epoch,
                max(then.now_ms, *(marks[e.source][0] for e in inputs)),
                then.watermark,
                max(then.watermark, min(marks[e.source][1] for e in inputs)),
            )
            rows = [(e.port, batches[e.name]) for e in sorted(inputs, key=lambda e: e.port) if e.name in batches]
            before[name], marks[name] = moment, (moment.now_ms, moment.watermark)
            if node.kind == "sink":
                record = machines[name].encode(moment, rows)
                if record is not None:
                    result[name][epoch] = record
            else:
                batches.update({k: b for k, b in machines[name].take(moment, rows).items() if b.rows})
    return result


def _mark(before: dict[str, Moment], name: str) -> int:
    return before[name].watermark if name in before else BEGINNING


def _walls(store: SimStore) -> dict[str, dict[int, int]]:
    walls: dict[str, dict[int, int]] = {}
    for partition, log in store.history.items():
        for epoch, record in log:
            if isinstance(record, dict):
                times = walls.setdefault(partition.operator, {})
                times[epoch] = max(times.get(epoch, 0), record["now"])
    return walls


def _read(
    intake: Any, cut: dict[int, list[Any]], known: dict[int, list[Any]], now_ms: int, batches: dict[str, Any]
) -> None:
    outputs: dict[str, list[Any]] = {}
    for split in sorted(cut):
        start, end, time, ended, *_ = cut[split]
        if start != end:
            for name, batch in intake.read(split, start, end, FOREVER, now_ms).outputs.items():
                outputs.setdefault(name, []).append(batch)
        known[split] = [None, end, time, ended, *cut[split][4:5]]
    batches.update({name: found[0].concat(found) for name, found in outputs.items()})


def _watermark(intake: Any, known: dict[int, list[Any]], now_ms: int) -> int:
    if len(known) < intake.splits:
        return BEGINNING
    open_ones = [split for split in known.values() if not split[3]]
    if not open_ones:
        return FOREVER
    idle_ms = intake.idle_ms
    active = [split[2] for split in open_ones if idle_ms is None or now_ms - split[4] < idle_ms]
    return min((time - intake.lateness_us if time > BEGINNING else BEGINNING for time in active), default=BEGINNING)


def committed(store: SimStore, sink: str) -> dict[int, Any]:
    """epoch -> the rows of all partitions of the sink, in canonical order."""
    found: dict[int, list[Any]] = {}
    for partition, log in store.history.items():
        if partition.operator == sink:
            for epoch, (_, record) in log:
                if record is not None:
                    found.setdefault(epoch, []).extend(record)
    return {epoch: tuple(sorted(rows, key=lambda item: item[0])) for epoch, rows in found.items()}


def check_output(graph: Graph, store: SimStore, complete: bool = True) -> int:
    """Compare; answers the number of rows. A flow that stopped may lack epochs, but what it has must be right."""
    wanted = expected(graph, store)
    rows = 0
    for sink, epochs in wanted.items():
        got = committed(store, sink)
        for epoch in sorted(set(epochs) | set(got)):
            if epochs.get(epoch) != got.get(epoch) and (complete or epoch in got):
                wanted_rows, found_rows = _short(epochs.get(epoch)), _short(got.get(epoch))
                raise Violation(f"sink {sink}, epoch {epoch}: expected {wanted_rows}, committed {found_rows}")
            rows += len(epochs.get(epoch, ()))
    return rows


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
