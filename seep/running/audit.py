"""The books of a flow at one epoch: every row that was put on an edge was taken from it, once, and as it was; and every
row that came into a node is accounted for in it (`seep.flow.accounts`).

Counters and sums of digests are state: they lie by bucket in the operators' checkpoints, by split in the sources' epoch
logs, and in the sinks' committed logs. So splits, merges, kills and replays do not blur them. They say that something
is wrong on an edge; the same of each of the last epochs (`operators.books`, the logs) says when.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from seep.flow.accounts import Entries, account_of, cut_wrong, of_sink, of_splits, of_state, problems_of, together
from seep.flow.fused import BOOKS, IN, IN_DIGEST, OFF, OUT, OUT_DIGEST, TAILS
from seep.flow.outlet import decode
from seep.model.arrow import ArrowState
from seep.model.batch import DIGESTS
from seep.model.ids import PartitionId
from seep.partition.contract import Edge, Graph
from seep.protocol.effects import ReadLog
from seep.protocol.journal import Journal
from seep.state.checkpoint import Checkpoint

Counters = dict[str, int]
Count = tuple[int, int]
"""Rows, and the sum of their digests."""
History = dict[str, dict[int, Count]]
"""By counter and epoch."""
ELSEWHERE = ("filtered", "late", "errors", "skipped")


@dataclass
class Books:
    """Of one node."""

    counters: Counters = field(default_factory=dict)
    history: History = field(default_factory=dict)
    entries: Entries = field(default_factory=dict)
    """Of all its accounts."""
    problems: list[str] = field(default_factory=list)

    def note(self, counter: str, epoch: int, count: Count) -> None:
        by_epoch = self.history.setdefault(counter, {})
        by_epoch[epoch] = sum_of(by_epoch.get(epoch, (0, 0)), count)

    def reckon(self, name: str, epoch: int) -> list[str]:
        """What does not add up inside the node."""
        offs = {
            counter.removeprefix(OFF): {at: rows for at, (rows, _) in by_epoch.items()}
            for counter, by_epoch in self.history.items()
            if counter.startswith(OFF)
        }
        since = min((at for by_epoch in self.history.values() for at in by_epoch), default=None)
        return [*self.problems, *problems_of(name, self.entries, offs, since, epoch)]


def audit_of(
    graph: Graph, journal: Journal, store: Any, epoch: int, checkpoints: Iterable[Checkpoint], sources: Any
) -> dict[str, Any]:
    """For each edge what was sent and taken up to the epoch; for each node where its rows went. ``balanced``: all, and
    if not, ``problems`` names nodes, edges and epochs."""
    books = {name: Books() for name in graph.nodes}
    for name, found in sources.items():
        _of_source(books[name], graph, journal, store, name, found, epoch)
    for checkpoint in checkpoints:
        if isinstance(checkpoint.state, ArrowState):
            name = checkpoint.partition.operator
            _of_operator(books[name], checkpoint.state, graph.nodes[name].make())
    nodes = {name: one.counters for name, one in books.items()}
    edges, problems = [], []
    for edge in graph.edges:
        found, problem = _edge(edge, books, graph)
        edges.append(found)
        problems += problem
    sinks = {}
    for node in graph.nodes.values():
        if node.kind == "sink":
            sinks[node.name], problem = _sink(graph, books, journal, store, node.name, epoch)
            problems += problem
    for name, one in books.items():
        # What a sink was sent and has not committed is a problem of its edges, above.
        problems += one.problems if name in sinks else one.reckon(name, epoch)
    elsewhere = {
        name: {counter: number for counter, number in counters.items() if counter in ELSEWHERE and number}
        for name, counters in nodes.items()
    }
    return {
        "epoch": epoch,
        "balanced": not problems,
        "problems": problems,
        "read": {name: nodes[name].get("read", 0) for name in sources},
        "edges": edges,
        "sinks": sinks,
        "nodes": {name: account_of(one.entries) for name, one in books.items()},
        "elsewhere": {name: counters for name, counters in elsewhere.items() if counters},
    }


# --- reading the books -------------------------------------------------------------------------------------------


def _of_source(
    books: Books, graph: Graph, journal: Journal, store: Any, name: str, found: Mapping[str, Any], upto: int
) -> None:
    for known in found["splits"].values():
        add(books.counters, known[5])
    books.entries = of_splits(found["splits"])
    for entry in journal.of(name):
        reply = store.perform(ReadLog(0, entry.partition))
        records = reply.value if reply and reply.value else ()
        for (_, before), (epoch, record) in pairwise(records):
            if epoch <= upto:
                offs, wrong = cut_wrong(before, record)
                books.problems += [f"node {name}, its epoch log: epoch {epoch}: {wrong}"] if wrong else []
                for account, rows in offs.items():
                    books.note(OFF + account, epoch, (rows, 0))
        for epoch, record in records:
            for edge, (digest, rows, _) in record["edges"].items():
                if entry.first <= epoch <= min(upto, entry.last):
                    books.note(OUT + edge, epoch, (rows, digest))


def _of_operator(books: Books, state: ArrowState, logic: Any) -> None:
    add(books.counters, counted_in(state))
    books.entries = together([books.entries, of_state(logic, state)])
    if BOOKS in state.tables:
        for row in state.tables[BOOKS].to_pylist():
            books.note(row["name"], row["epoch"], (row["rows"], row["digest"]))


def counted_in(state: ArrowState) -> Counters:
    """What an operator's saved state has counted."""
    found: Counters = {}
    for table in (TAILS, "counters"):
        if table in state.tables:
            rows = state.tables[table]
            for counter, number in zip(rows.column("name").to_pylist(), rows.column("count").to_pylist(), strict=True):
                add(found, {counter: number})
    return found


def sent_to(graph: Graph, nodes: Mapping[str, Counters], sink: str) -> Count:
    """What was put on the edges to a sink."""
    found = (0, 0)
    for edge in graph.inputs(sink):
        counters = nodes[edge.source]
        found = sum_of(found, (counters.get(OUT + edge.name, 0), counters.get(OUT_DIGEST + edge.name, 0)))
    return found


def _committed(store: Any, journal: Journal, books: Books, sink: str, upto: int) -> tuple[Count, dict[int, Count]]:
    """By all partitions of a sink: up to the epoch, and in each of those that their logs still hold. A record must hold
    what was counted with it."""
    everything: Count = (0, 0)
    history: dict[int, Count] = {}
    for number in range(journal.next_number[sink]):
        reply = store.perform(ReadLog(0, PartitionId(sink, number)))
        kept = [
            (at, tuple(count), record) for at, (count, record) in (reply.value or () if reply else ()) if at <= upto
        ]
        for (_, before, _), (at, (rows, digest), record) in pairwise(kept):
            taken, written = rows - before[0], 0 if record is None else decode(record).num_rows
            history[at] = sum_of(history.get(at, (0, 0)), (taken, (digest - before[1]) % DIGESTS))
            if taken != written:
                books.problems.append(
                    f"node {sink}, its committed log: epoch {at}: {taken} rows taken, {written} in the record"
                )
        everything = sum_of(everything, kept[-1][1]) if kept else everything
    return everything, history


# --- comparing ---------------------------------------------------------------------------------------------------


def _edge(edge: Edge, books: Mapping[str, Books], graph: Graph) -> tuple[dict[str, Any], list[str]]:
    # What every partition takes is not counted there: it would be counted as often as there are partitions.
    sender, receiver = books[edge.source], books[edge.target]
    sent = (sender.counters.get(OUT + edge.name, 0), sender.counters.get(OUT_DIGEST + edge.name, 0))
    if graph.nodes[edge.target].kind != "operator" or edge.broadcast:
        return {"edge": edge.name, "sent": sent[0], "taken": None}, []
    taken = (receiver.counters.get(f"{IN}{edge.port}", 0), receiver.counters.get(f"{IN_DIGEST}{edge.port}", 0))
    found = {"edge": edge.name, "sent": sent[0], "taken": taken[0]}
    if sent == taken:
        return found, []
    histories = (sender.history.get(OUT + edge.name, {}), receiver.history.get(f"{IN}{edge.port}", {}))
    return found, [_problem(f"edge {edge.name}", "taken", (sent, taken), histories)]


def _sink(
    graph: Graph, books: Mapping[str, Books], journal: Journal, store: Any, name: str, epoch: int
) -> tuple[dict[str, Any], list[str]]:
    sent = sent_to(graph, {node: one.counters for node, one in books.items()}, name)
    committed, kept = _committed(store, journal, books[name], name, epoch)
    found = {"sent": sent[0], "committed": committed[0]}
    books[name].entries = of_sink(sent[0], committed[0])
    if sent == committed:
        return found, []
    history: dict[int, Count] = {}
    for edge in graph.inputs(name):
        for at, count in books[edge.source].history.get(OUT + edge.name, {}).items():
            history[at] = sum_of(history.get(at, (0, 0)), count)
    into = " + ".join(edge.name for edge in graph.inputs(name))
    return found, [_problem(f"edge {into}", "committed", (sent, committed), (history, kept))]


def _problem(
    where: str, done: str, totals: tuple[Count, Count], histories: tuple[Mapping[int, Count], Mapping[int, Count]]
) -> str:
    """What is wrong, and in which epoch first, as far back as both sides remember."""
    (sent, _), (taken, _) = totals
    what = f"{sent} rows sent, {taken} {done}" if sent != taken else f"the {sent} rows {done} are not those sent"
    since = max((min(history) for history in histories if history), default=None)
    if since is None:
        return f"{where}: {what}; no epoch of it is remembered"
    for epoch in sorted({*histories[0], *histories[1]}):
        one, other = (history.get(epoch, (0, 0)) for history in histories)
        if epoch >= since and one != other:
            rows = f"{one[0]} sent, {other[0]} {done}" if one[0] != other[0] else f"{one[0]} rows, altered"
            return f"{where}: {what}; first in epoch {epoch}: {rows}"
    return f"{where}: {what}; before epoch {since}"


def sum_of(one: Count, other: Count) -> Count:
    return one[0] + other[0], (one[1] + other[1]) % DIGESTS


def add(counters: Counters, more: Mapping[str, int]) -> None:
    for name, number in more.items():
        counters[name] = (counters.get(name, 0) + number) % DIGESTS
