"""Which part of an app takes which part of a savepoint: by name, renamed or dropped as asked, never silently.

Everything is decided from the savepoint's manifest, before a process is started or a store is touched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from seep.errors import Misuse
from seep.flow.fitting import Fitting, fitting_of
from seep.flow.fused import IN, IN_DIGEST, OUT, OUT_DIGEST
from seep.flow.layout import Layout, layout_of
from seep.partition.contract import Graph, Node

Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class Asked:
    """What a user says about what has changed since the savepoint was taken."""

    rename: Mapping[str, str] = field(default_factory=dict)
    """Old name -> new name, of operators and sources."""
    drop: Collection[str] = ()
    """Operators and sources (by old name) whose state is not wanted, and columns and states: ``visits.seen``."""


UNCHANGED = Asked()
SHOWN_NAMES = 5
"""Of the files or streams of a source, in a message."""
_OF_EDGES = (IN, OUT, IN_DIGEST, OUT_DIGEST)


@dataclass(frozen=True)
class Match:
    """By new name: what each operator and source goes on from. Who is in neither begins empty."""

    operators: Mapping[str, Fitting]
    sources: Mapping[str, str]
    books: Mapping[str, Mapping[str, str]]
    """By new name: what its counters of edges are called now. Those that are not here are closed: what was sent on an
    edge that is gone has been taken."""

    def counters(self, name: str, counted: Mapping[str, int]) -> dict[str, int]:
        """The books of a node, as they go on."""
        renamed = {self.counter(name, counter): number for counter, number in counted.items()}
        return {counter: number for counter, number in renamed.items() if counter is not None}

    def counter(self, name: str, counter: str) -> str | None:
        return self.books[name].get(counter) if counter.startswith(_OF_EDGES) else counter


def match(where: str, manifest: Manifest, graph: Graph, asked: Asked) -> Match:
    """``where``: the savepoint's name, for messages. Raises Misuse."""
    _check_asked(where, manifest, graph, asked)
    operators: dict[str, Fitting] = {}
    sources: dict[str, str] = {}
    for kind in ("operator", "source"):
        there = {node.name: node for node in graph.nodes.values() if node.kind == kind}
        for old in manifest[f"{kind}s"]:
            if old in asked.drop:
                continue
            new = asked.rename.get(old, old)
            if new not in there:
                raise Misuse(
                    f"savepoint {where!r} was taken from another app: this one has no {kind} {new!r} to put its saved"
                    f" state into; give it one of that name, rename {old!r} to what it is called now, or drop it"
                )
            if kind == "operator":
                operators[new] = _fitting(there[new], old, manifest, asked)
            else:
                _check_source(where, there[new], old, manifest["sources"][old])
                sources[new] = old
    for fitting in operators.values():
        fitting.check()
    return Match(operators, sources, _books(manifest, graph, {n: f.saved_as for n, f in operators.items()} | sources))


def _check_asked(where: str, manifest: Manifest, graph: Graph, asked: Asked) -> None:
    saved = [*manifest["operators"], *manifest["sources"]]
    for old, new in asked.rename.items():
        if old not in saved:
            raise Misuse(f"rename {old}={new}: savepoint {where!r} has no {old!r}; it has {', '.join(saved)}")
        if new not in graph.nodes:
            raise Misuse(f"rename {old}={new}: the app has no {new!r}; it has {', '.join(graph.nodes)}")
        others = [one for one in saved if one != old and one not in asked.drop and asked.rename.get(one, one) == new]
        if others:
            raise Misuse(f"rename {old}={new}: {others[0]!r} of savepoint {where!r} goes there, too; drop one of them")
    for name in asked.drop:
        owner = next((one for one in saved if name.startswith(f"{one}.")), None)
        if name not in saved and (owner is None or name.removeprefix(f"{owner}.") not in _parts(manifest, owner)):
            raise Misuse(f"drop {name}: savepoint {where!r} has nothing of that name; it has {', '.join(saved)}")


def _parts(manifest: Manifest, name: str) -> set[str]:
    """What can be dropped of an operator."""
    if name not in manifest["operators"]:
        return set()
    layout = Layout.of_plain(manifest["operators"][name]["layout"])
    tables = {part for table in layout.tables for part in (table, table.removeprefix("rows."))}
    columns = {column.partition(".")[2] or column for schema in layout.tables.values() for column in schema.names}
    return {*tables, *columns, *layout.columns.names, *layout.aggregates.names, *layout.states.names}


def _fitting(node: Node, old: str, manifest: Manifest, asked: Asked) -> Fitting:
    saved = Layout.of_plain(manifest["operators"][old]["layout"])
    dropped = frozenset(name.removeprefix(f"{old}.") for name in asked.drop if name.startswith(f"{old}."))
    return fitting_of(node, old, saved, dropped)


def kind_of(node: Node) -> str:
    """What a source is, by the name of its class: a position means something to this kind alone."""
    return type(node.make.connector).__name__


def described(node: Node) -> dict[str, Any]:
    """Of a source, for the manifest."""
    names = _names_of(node)
    return {"kind": kind_of(node)} | ({} if names is None else {"names": names})


def _names_of(node: Node) -> list[str] | None:
    """What each split is, where a number does not say it."""
    names: list[str] | None = getattr(node.make.connector, "split_names", None)
    return names


def _check_source(where: str, node: Node, old: str, saved: Mapping[str, Any]) -> None:
    if saved["kind"] != kind_of(node):
        raise Misuse(
            f"source {node.name!r} was a {saved['kind']} when savepoint {where!r} was taken and is a {kind_of(node)}"
            f" now, which has other positions; to read it from its beginning, drop {old!r}"
        )
    splits_now(where, node, saved)


def splits_now(where: str, node: Node, saved: Mapping[str, Any]) -> dict[int, tuple[str | None, Any]]:
    """The splits of a saved source by the numbers that they have now: (number in the savepoint, position). Those that
    appeared after it was taken have None for a number, where the source knows where they begin."""
    taken_up = getattr(node.make.connector, "taken_up", None)
    positions = {int(split): known[1] for split, known in saved["splits"].items()}
    before = saved.get("names", [])
    now = {name: split for split, name in enumerate(_names_of(node) or [])}
    gone = [name for name in before if name not in now] if now else []
    if gone:
        there = ", ".join([*list(now)[:SHOWN_NAMES], *["..."] * (len(now) > SHOWN_NAMES)])
        raise Misuse(
            f"savepoint {where!r} holds {gone[0]!r} of source {node.name!r}, which now has {there}: what was"
            " read of it would be forgotten; give it the files or streams it had, or drop the source to begin anew"
        )
    if taken_up is not None:
        found = taken_up(positions).items()
        return {number: (None if old is None else str(old), position) for number, (old, position) in found}
    if before and now:
        return {now[before[split]]: (str(split), position) for split, position in positions.items()}
    splits = node.make().splits
    lost = [split for split in positions if split >= splits]
    if lost:
        raise Misuse(
            f"savepoint {where!r} holds {splits + len(lost)} splits of source {node.name!r}, which now has {splits}:"
            " what was read of the others would be forgotten; give it the files or splits it had"
        )
    return {split: (str(split), position) for split, position in positions.items()}


def _books(manifest: Manifest, graph: Graph, was: Mapping[str, str]) -> dict[str, dict[str, str]]:
    books: dict[str, dict[str, str]] = {name: {} for name in graph.nodes}
    known = {(source, target, port): name for name, source, target, port in manifest["edges"]}
    for edge in graph.edges:
        # A sink has no state and keeps its name, or its books begin anew.
        ends = (was.get(edge.source), was.get(edge.target, edge.target), edge.port)
        if ends in known:
            books[edge.source] |= {prefix + known[ends]: prefix + edge.name for prefix in (OUT, OUT_DIGEST)}
            books[edge.target] |= {f"{prefix}{edge.port}": f"{prefix}{edge.port}" for prefix in (IN, IN_DIGEST)}
    return books


def edges_of(graph: Graph) -> list[list[Any]]:
    """For the manifest."""
    return [[edge.name, edge.source, edge.target, edge.port] for edge in graph.edges]


def layouts_of(graph: Graph) -> Iterator[tuple[str, dict[str, Any]]]:
    for node in graph.nodes.values():
        if node.kind == "operator":
            yield node.name, layout_of(node).as_plain()
