"""Which operators of a running flow another version of its app changes, and whether they can go on in place.

Only code may differ, and what an operator remembers, as far as a savepoint could be restored into it. Whatever others
rely on stays: names, streams, keys, the columns on every stream, the flow's settings. All of it is decided before
anything is asked of the running job; so are the names of the code, which goes into the job's directory sealed.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import cloudpickle

from seep.backends.shipping import OURS, own_modules
from seep.errors import Misuse
from seep.flow.build import Flow
from seep.flow.check import runnable
from seep.flow.fitting import fitting_of
from seep.flow.fused import Route, Tails
from seep.flow.layout import layout_of
from seep.partition.contract import Graph, Node, Upgrade
from seep.runtime.fingerprint import fingerprint
from seep.runtime.identity import differences, identity_of
from seep.runtime.job import JobDirectory

INSTEAD = "take a savepoint and restore it into the new app"


def planned(
    directory: JobDirectory, flow: Flow, operators: Collection[str] = (), drop: Collection[str] = ()
) -> list[tuple[str, str]]:
    """(operator, code) for each operator to upgrade, in the order of the flow. Raises Misuse."""
    graph, codes = runnable(flow), directory.codes()
    now = identity_of(graph, flow.settings)
    parts, libraries = differences(directory.app(codes), now)
    if libraries:
        raise _refused(f"the job runs with other libraries ({'; '.join(libraries)})")
    running = directory.graph(codes)
    changed = [name for name in graph.nodes if name in parts]
    _check_frame(running, graph, parts)
    for name in operators:
        if name not in graph.nodes:
            raise Misuse(f"no operator {name!r}; there are: {', '.join(graph.nodes)}")
        if name not in changed:
            raise Misuse(f"operator {name!r} is the same in the new app; changed: {', '.join(changed) or 'nothing'}")
    chosen = [name for name in changed if not operators or name in operators]
    if not chosen:
        raise Misuse("the new app is the one that runs; there is nothing to upgrade")
    upgrades = [_upgrade(running, graph, name, drop) for name in chosen]
    _check_drop(chosen, drop)
    with _by_value():
        pickled = [_pickled(upgrade) for upgrade in upgrades]
    found = zip(chosen, pickled, strict=True)
    return [(name, directory.add_code(data, now["parts"][name])) for name, data in found]


def _refused(what: str) -> Misuse:
    return Misuse(f"this cannot be upgraded in place: {what}; {INSTEAD}")


def _check_frame(running: Graph, graph: Graph, parts: Collection[str]) -> None:
    """Everything but the code of operators is as it was."""
    for names, here, there in ((graph, running, "new"), (running, graph, "gone")):
        for name, node in names.nodes.items():
            if name not in here.nodes:
                raise _refused(f"{node.kind} {name!r} is {there}")
    for old, new in zip(running.edges, graph.edges, strict=False):
        if old != new:
            raise _refused(f"the stream from {old.source!r} to {old.target!r} is not as it was")
    if len(running.edges) != len(graph.edges):
        raise _refused("there are other streams")
    if "the flow's settings" in parts:
        raise _refused("the flow's settings differ")
    for name, node in graph.nodes.items():
        if name in parts and {node.kind, running.nodes[name].kind} != {"operator"}:
            raise _refused(f"{node.kind} {name!r} differs, or a step that runs inside it, or what is read of it")


def _upgrade(running: Graph, graph: Graph, name: str, drop: Collection[str]) -> Upgrade:
    old, new = running.nodes[name], graph.nodes[name]
    if fingerprint(_taken(old)) != fingerprint(_taken(new)):
        raise _refused(f"operator {name!r} takes other columns than it did, or in another way")
    before, after = _sent(old), _sent(new)
    for edge in graph.outputs(name):
        if fingerprint(before[edge.name]) != fingerprint(after[edge.name]):
            raise _refused(f"operator {name!r} sends other columns to {edge.target!r} than it did, or by another key")
    dropped = frozenset(one.removeprefix(f"{name}.") for one in drop if one.startswith(f"{name}."))
    fitting = fitting_of(new, name, layout_of(old), dropped)
    fitting.check()
    return Upgrade(new, fitting.fit)


def _taken(node: Node) -> tuple[Any, ...]:
    """What its senders rely on."""
    plan = node.make
    columns = (node.settings or {}).get("columns")
    return plan.ports, plan.groupings, plan.combine, plan.unread, plan.replicated, columns


def _sent(node: Node) -> dict[str, Any]:
    """By edge: what its receivers rely on."""
    return {route.edge: (route.grouping, route.schema, route.combine) for route in _routes(node.make.tails)}


def _routes(tails: Tails) -> Iterator[Route]:
    for followers in tails.values():
        for one in followers:
            if isinstance(one, Route):
                yield one
            else:
                yield from _routes(one.after)


def _check_drop(chosen: Collection[str], drop: Collection[str]) -> None:
    for one in drop:
        if not any(one.startswith(f"{name}.") for name in chosen):
            raise Misuse(f"drop {one}: give OPERATOR.NAME, of an operator that is upgraded: {', '.join(chosen)}")


@contextmanager
def _by_value() -> Iterator[None]:
    """Workers have imported the user's modules as they were: what is new of them goes along with the code."""
    known = set(cloudpickle.list_registry_pickle_by_value())
    names = [n for n in own_modules() if n not in OURS and n not in known and n in sys.modules]
    for name in names:
        cloudpickle.register_pickle_by_value(sys.modules[name])
    try:
        yield
    finally:
        for name in names:
            cloudpickle.unregister_pickle_by_value(sys.modules[name])


def _pickled(upgrade: Upgrade) -> bytes:
    try:
        data: bytes = cloudpickle.dumps(upgrade)
        return data
    except Exception as problem:  # whatever a user's object raises when it is asked to
        raise Misuse(f"operator {upgrade.node.name!r} cannot be sent to workers: {problem}") from problem
