"""Testing flows: `Driver` runs one on the simulator, with every source and sink in the test's hands; `chaos` is for
jobs that really run; `check_source` and `check_sink` are for sources and sinks of one's own.

A crash is a step like a row: ``feed``, ``kill``, ``scale`` and ``advance`` in any order, and the output must be what it
would have been without the kills and the scaling.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import replace as with_fields
from datetime import timedelta
from random import Random
from typing import Any

import pyarrow as pa

from operators.step import DEAD_LETTERS
from seep.connectors.conformance import check_sink, check_source
from seep.connectors.contract import Rows
from seep.connectors.memory import MemorySink, in_one_piece
from seep.control.requests import ScaleTo
from seep.control.scaling import check_count
from seep.errors import Misuse, SeepError, error_of
from seep.flow.build import Flow
from seep.flow.compile import compile_flow, known_flow, name_vertices
from seep.flow.dataset import TIME
from seep.flow.grouping import GROUPING, TwoChoices
from seep.flow.logical import After, Merge, Stage, Tap, Vertex, chains
from seep.flow.outlet import result_table
from seep.flow.stream import Stream
from seep.model.counts import seconds as seconds_number
from seep.model.counts import whole
from seep.model.duration import microseconds
from seep.model.ids import CONTROLLER
from seep.model.schema import physical, record_of, refuse_counted_times
from seep.partition.contract import Graph
from seep.partition.operator import OperatorPartition
from seep.partition.worker import Worker
from seep.running.chaos import Chaos, Verdict
from seep.running.job import Job
from seep.running.result import records_of
from seep.sim.oracle import expected
from seep.sim.world import START_WALL_MS, World

__all__ = ["Driver", "chaos", "check_sink", "check_source"]

PATIENCE_MS = 60_000.0
"""Virtual: what is not done by then will not be."""

_SIDE_KINDS = {"late": "late", "late_left": "late", "late_right": "late", "errors": "errors"}
"""Of which kind each side output is."""


class _Fed:
    """A source that holds what was fed: one chunk, one epoch."""

    splits = 1

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.chunks: list[pa.RecordBatch] = []
        self.closed = False

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Rows | None:
        at = position or 0
        if at < len(self.chunks) and (until is None or at < until):
            return Rows(self.chunks[at], at + 1, self.closed and at + 1 == len(self.chunks))
        return Rows(record_of([], self.schema), at, True) if self.closed else None


class Driver:
    """Runs a flow in a test: feed it by hand, break it, and look at what comes out.

    >>> import seep
    >>> flow = seep.Flow("words")
    >>> words = flow.source("words", seep.MemorySource([{"word": "a"}]))
    >>> words.key_by("word").aggregate(n=seep.count()).named("count").collect("counts")
    >>> driver = Driver(flow, seed=7)
    >>> driver.feed("words", [{"word": "b"}, {"word": "b"}])
    >>> driver.kill("count", 0)
    >>> driver.feed("words", [{"word": "b"}])
    >>> driver.output("counts")
    [{'word': 'b', 'n': 3}]
    >>> driver.assert_exactly_once()
    """

    def __init__(self, flow: Flow, seed: int = 7) -> None:
        self.flow = known_flow(flow)
        self.seed = seed
        self._wall_ms = START_WALL_MS
        self._sides: dict[tuple[str, str], list[str]] = {}
        self._sources: dict[str, _Fed] = {}
        self._graph = self._open(compile_flow(self._with_sides()))
        settings = with_fields(flow.settings, spare_workers=1)
        self.world = World(self._graph, settings, Random(seed), workers=2, wall_ms=lambda: self._wall_ms)
        self._settle()

    # --- steps ---------------------------------------------------------------------------------------------------

    def feed(self, source: str, rows: Iterable[Any] | pa.Table) -> None:
        """These rows, as one epoch of the source."""
        fed = self._source(source)
        if fed.closed:
            raise Misuse(f"source {source!r} is closed")
        fed.chunks.append(_fed_record(source, rows, fed.schema))
        self._settle()

    def advance(self, by: str | timedelta | None = None, epochs: int = 0) -> None:
        """Move epoch time, in one epoch; or let so many epochs pass without moving it."""
        moved_us = 0 if by is None else microseconds(by)
        if moved_us < 0:
            raise Misuse(f"advance({by!r}): time does not go back; give a duration from '0s' up")
        passed = max(1, whole("epochs", epochs))
        if self._sources and all(fed.closed for fed in self._sources.values()):
            raise Misuse("the flow is closed: no epoch comes after its last one; advance it before close()")
        self._wall_ms += moved_us // 1000
        goal = self._announced() + passed
        self._until(lambda: self._announced() >= goal)
        self._settle()

    def checkpoint(self) -> None:
        """Every operator partition makes a checkpoint now."""
        for partition in self._operators():
            partition.checkpoint()
        self._until(lambda: all(not p.saver.busy for p in self._operators()))

    def kill(self, operator: str, index: int) -> None:
        """SIGKILL, as the simulator has it, for the worker of this partition; with all its partitions."""
        if self._known(operator) not in self._graph.nodes:
            raise Misuse(f"{operator} runs inside the operator before it; kill that one")
        live = self.world.controller.journal.live(operator)
        if whole("index", index) >= len(live):
            raise Misuse(f"{operator} has {len(live)} partitions; there is no {operator}/{index}")
        self.world.crash(live[index].worker)
        self._settle()

    def scale(self, operator: str, count: int) -> None:
        """Run the operator as so many partitions."""
        node = self._graph.nodes.get(self._known(operator))
        if node is None:
            raise Misuse(f"{operator} runs inside the operator before it; scale that one")
        if node.kind == "source":
            raise Misuse(f"{operator} is fed by hand, in one piece; only operators and sinks are scaled here")
        count = check_count(node, count)
        self.world.request(ScaleTo(operator, count))
        self._until(lambda: len(self.world.controller.journal.live(operator)) == count)
        self._until(lambda: not self.world.controller.journal.replaces)
        self._settle()

    def close(self) -> None:
        """The end of all input: everything closes."""
        for fed in self._sources.values():
            fed.closed = True
        self._until(lambda: self.world.controller.finished)

    # --- looking -------------------------------------------------------------------------------------------------

    def output(self, name: str) -> list[dict[str, Any]]:
        """What has been committed to a sink, in order; of a Table, its content now."""
        node = self._graph.nodes.get(name)
        if node is None or node.kind != "sink":
            raise Misuse(f"no sink {name!r}; there are: {', '.join(self._sinks())}")
        journal = self.world.controller.journal
        records = records_of(name, journal, self.world.store.perform)
        rows: list[dict[str, Any]] = result_table(node.settings or {}, records).to_pylist()
        return rows

    def late(self, operator: str) -> list[dict[str, Any]]:
        """The rows that came too late for this operator; of a join, the left ones first."""
        return self._side(operator, "late")

    def errors(self, operator: str) -> list[dict[str, Any]]:
        """Its dead letters."""
        return self._side(operator, "errors")

    def assert_exactly_once(self) -> None:
        """The same epochs, run one after the other in one piece and without faults, give the same output.

        Not a second Driver: kills and scaling take time, in which idle epochs pass, so its epochs would have other
        numbers, and `ctx.epoch` and `ctx.random` would differ with them.
        """
        calm = expected(self._graph, self.world.store)
        journal = self.world.controller.journal
        for name, records in calm.items():
            partitions = [p for p in self._partitions() if p.entry.partition.operator == name]
            upto = min(partition.inputs.taken for partition in partitions)
            settings = self._graph.nodes[name].settings or {}
            found = [r for r in records_of(name, journal, self.world.store.perform) if r[0] <= upto]
            ours = result_table(settings, found).to_pylist()
            theirs = result_table(settings, [r for r in sorted(records.items()) if r[0] <= upto]).to_pylist()
            if repr(ours) != repr(theirs):  # which knows a NaN again
                raise AssertionError(f"{name}: {ours} with faults, {theirs} without")

    # --- the world -----------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Until all that was fed is committed at every sink."""

        def settled() -> bool:
            node = self.world.nodes[CONTROLLER]
            if not node.alive or not self.world.controller.journal.version:
                return False
            partitions = self._partitions()
            journal = self.world.controller.journal
            if len(partitions) < len(journal.entries) or not all(p.running for p in partitions):
                return False
            goal = 0
            for partition in partitions:
                fed = self._sources.get(partition.entry.partition.operator)
                if fed is not None:
                    # There is one split: if the flow starts several partitions, all but one read nothing.
                    positions = [split[1] or 0 for split in partition.splits.known.values()]
                    if any(at < len(fed.chunks) for at in positions) or partition.appending is not None:
                        return False
                    goal = max(goal, partition.epoch)
            statuses = [p.inputs.taken for p in partitions if self._graph.nodes[p.node.name].kind == "sink"]
            busy = any(getattr(p, "appending", None) for p in partitions)
            return all(taken >= goal - 1 for taken in statuses) and not busy

        self._until(settled)
        goal = self._announced()
        self._until(lambda: self._announced() >= goal + 2 or self.world.controller.finished)
        self._until(settled)

    def _until(self, done: Any) -> None:
        def over() -> bool:
            return bool(done()) or bool(self.world.controller.journal.stopping)

        if not self.world.run_until(over, self.world.now_ms + PATIENCE_MS):
            raise SeepError("the flow did not come to rest")
        if self.world.controller.journal.stopping:
            raise error_of(self.world.controller.journal.stopping)

    def _partitions(self) -> list[Any]:
        found: list[Any] = []
        for node in self.world.live_workers():
            assert isinstance(node.machine, Worker)
            found.extend(node.machine.partitions.values())
        return found

    def _operators(self) -> list[OperatorPartition]:
        return [p for p in self._partitions() if isinstance(p, OperatorPartition) and p.running]

    def _announced(self) -> int:
        sources = [p for p in self._partitions() if p.entry.partition.operator in self._sources]
        reading = [p for p in sources if not p.ended] or sources
        return min((p.epoch for p in reading), default=0)

    # --- plumbing ------------------------------------------------------------------------------------------------

    def _with_sides(self) -> Flow:
        """The flow, with a sink for late rows and dead letters wherever there can be some."""
        flow = copy.copy(self.flow)
        flow.vertices = list(self.flow.vertices)
        flow._names = dict(self.flow._names)
        names = name_vertices(self.flow)
        stages: dict[Stage, str] = {}
        for vertex in self.flow.vertices:
            for given in vertex.inputs:
                for chain in chains(given.lineage):
                    for after in chain.stages:
                        stages[after.stage] = after.stage.name or names[after.stage.owner or chain.tap.vertex]
            for output, kind in _SIDE_KINDS.items():
                if output in vertex.outputs and not (kind == "late" and _is_halved(vertex)):
                    schema = DEAD_LETTERS if output == "errors" else vertex.outputs[output]
                    side = Stream(flow, Tap(vertex, output), schema)
                    self._collect(side.drop(TIME) if TIME in schema.names else side, names[vertex], kind)
        for stage, owner in stages.items():
            if "errors" in stage.step.schemas and not isinstance(stage.parent, Merge):
                self._collect(Stream(flow, After(stage, "errors"), DEAD_LETTERS), owner, "errors")
        return flow

    def _collect(self, side: Stream, owner: str, output: str) -> None:
        known = self._sides.setdefault((owner, output), [])
        name = f"{output} of {owner} {len(known) + 1}"
        side.collect(name)
        known.append(name)

    def _open(self, graph: Graph) -> Graph:
        nodes = {}
        for name, node in graph.nodes.items():
            if node.kind == "source":
                fed = self._sources[name] = _Fed(node.make.connector.schema)
                # What is fed first is in the test's hands: nobody waits for a Table to be loaded.
                node = with_fields(node, make=with_fields(node.make, connector=fed), loads=False, turn=0)
            elif node.kind == "sink":
                settings = {**(node.settings or {}), "sink": "memory"}
                node = with_fields(node, make=with_fields(node.make, sink=MemorySink()), settings=settings)
            nodes[name] = node
        return Graph(nodes, graph.edges)

    def _sinks(self) -> list[str]:
        sides = {name for names in self._sides.values() for name in names}
        return [n.name for n in self._graph.nodes.values() if n.kind == "sink" and n.name not in sides]

    def _side(self, operator: str, output: str) -> list[dict[str, Any]]:
        names = self._sides.get((self._known(operator), output))
        if not names:
            raise Misuse(f"{operator} has no {output} rows")
        return [row for name in names for row in self.output(name)]

    def _source(self, name: str) -> _Fed:
        if name not in self._sources:
            raise Misuse(f"no source {name!r}; there are: {', '.join(self._sources)}")
        return self._sources[name]

    def _known(self, operator: str) -> str:
        if operator not in self._graph.nodes and not any(owner == operator for owner, _ in self._sides):
            sides = {name for names in self._sides.values() for name in names}
            known = [*self._graph.nodes, *(owner for owner, _ in self._sides)]
            there = dict.fromkeys(name for name in known if name not in sides)
            raise Misuse(f"no operator {operator!r}; there are: {', '.join(there)}")
        return operator


def _fed_record(source: str, rows: Any, schema: pa.Schema) -> pa.RecordBatch:
    """What is fed, in the columns of the source."""
    if isinstance(rows, pa.Table | pa.RecordBatch):
        wanted = physical(schema)
        try:
            record = in_one_piece(rows).select(wanted.names)
            refuse_counted_times(record.schema, wanted)
            return record.cast(wanted)
        except (KeyError, pa.ArrowException, Misuse) as problem:
            columns = ", ".join(f"{field.name} ({field.type})" for field in wanted)
            raise Misuse(f"feed({source!r}, ..): the table does not fit: {problem}; give it {columns}") from problem
    if isinstance(rows, str | Mapping) or hasattr(rows, "_fields") or not isinstance(rows, Iterable):
        raise Misuse(f"feed({source!r}, {rows!r:.60}): give a list of rows, such as [{{..}}], or a pyarrow.Table")
    return record_of(list(rows), schema)


def _is_halved(vertex: Vertex) -> bool:
    """Behind `two_choices`: only what is folded on the way goes there, so its late rows cannot be taken."""
    ways = [way for given in vertex.inputs for way in chains(given.lineage)]
    return any(isinstance(way.tap.vertex.settings.get(GROUPING), TwoChoices) for way in ways)


def chaos(job: Job, plan: str, seconds: float, seed: int = 42) -> Verdict:
    """Kill, pause, cut and scale a real job for so many seconds, by a plan, and judge it.

        verdict = chaos(job, "kill every 5s; scale random", seconds=30)
        assert verdict.good, verdict

    Good means: it came back after every kill, and its sinks have committed what the same input gives in one piece,
    nothing lost, doubled, wrong or out of order. It works on local processes, Spark and Ray alike.
    """
    lasts = seconds_number("seconds", seconds)
    return Chaos(job.unwaiting(), job.directory.path, seed).run(plan, lasts, seed)
