"""What Streams and Tables share: columns, lineage, and the plumbing of every verb."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import polars as pl
import pyarrow as pa

from operators.stateless import Project
from operators.step import DEAD_LETTERS, ON_ERROR, Step
from seep.connectors.own import connector_of
from seep.control.policies import Policy, policy_of
from seep.errors import Misuse
from seep.flow.logical import After, Input, Lineage, Merge, Stage, Tap, Time, Vertex
from seep.flow.place import at_place, place
from seep.model.counts import whole
from seep.model.ids import BUCKETS
from seep.model.schema import refuse_names

if TYPE_CHECKING:
    from seep.flow.build import Flow
    from seep.flow.stream import Stream

_SIDES = ("late", "late_left", "late_right", "errors")

TIME = "__time"
"""The column in which event time travels to an operator when no plain timestamp column holds it."""


class Dataset:
    """A stream of rows in a flow. Never changed: each verb gives a new one."""

    def __init__(
        self,
        flow: Flow,
        lineage: Lineage,
        wire: pa.Schema,
        keys: tuple[str, ...] | None = None,
        time: Time | None = None,
    ) -> None:
        self.flow = flow
        self.lineage = lineage
        self.wire = wire
        """The columns as they travel; a Table's have `change` at the end."""
        self.keys = keys
        self.time = time
        self.regrouped = False
        """Is it what `key_by` gives? That runs nowhere: what made the rows was named and scaled before."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self.wire

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{f.name}: {f.type}' for f in self.schema)})"

    # --- names, scale, side outputs --------------------------------------------------------------------------------

    def named(self, name: str) -> Self:
        """Name the verb that made this stream; sources, operators and sinks share one namespace."""
        with at_place("named"):
            maker = self._maker()
            if maker is None:
                raise Misuse("a union runs nowhere, so it has no name")
            if self.regrouped:
                raise Misuse("key_by runs nowhere, so it has no name; name what is before it, or the verb behind it")
            if maker.name not in (None, name):
                raise Misuse(f"it is named {maker.name!r} already, so it cannot be {name!r}; give it one name")
            if isinstance(maker, Vertex):
                self.flow.claim(name, maker)
            else:
                maker.name = name
        return self

    def scale(self, start: int = 1, min: int = 1, max: int = 16, policy: str | Policy | None = None) -> Self:
        """How many partitions the operator starts with, and between which bounds it may change.

        `policy` ("rate", "threshold", "latency:250ms", or an object with ``decide``) lets the controller change it;
        without one it changes only when asked to.
        """
        with at_place("scale"):
            vertex = self._maker()
            if self.regrouped:
                raise Misuse("key_by runs nowhere; scale what is before it, or the verb behind it")
            if not isinstance(vertex, Vertex):
                raise Misuse("this verb runs inside the operator before it; scale that one")
            start, min, max = whole("start", start, 1), whole("min", min, 1), whole("max", max, 1)
            if not min <= start <= max <= BUCKETS:
                raise Misuse(f"start={start}, min={min}, max={max}; give 1 <= min <= start <= max <= {BUCKETS}")
            if policy is not None:
                policy_of(policy)
            vertex.start, vertex.minimum, vertex.maximum, vertex.policy = start, min, max, policy
        return self

    @property
    def errors(self) -> Stream:
        """The dead letters of the verb that made this stream: row, error, operator, epoch, position."""
        with at_place("errors"):
            return self._side("errors", DEAD_LETTERS)

    @property
    def late(self) -> Stream:
        """The rows that came too late for the window that made this stream."""
        with at_place("late"):
            return self._side("late", None)

    @property
    def late_left(self) -> Stream:
        """The left rows that came too late for the join that made this stream."""
        with at_place("late_left"):
            return self._side("late_left", None)

    @property
    def late_right(self) -> Stream:
        """The right rows that came too late for the join that made this stream."""
        with at_place("late_right"):
            return self._side("late_right", None)

    def _maker(self) -> Vertex | Stage | None:
        match self.lineage:
            case Tap(vertex, _):
                return vertex
            case After(stage, _):
                return stage.owner or stage
        return None

    def _side(self, output: str, schema: pa.Schema | None) -> Stream:
        from seep.flow.stream import Stream

        maker = self._maker()
        if isinstance(maker, Vertex) and maker.guard is not None and output == "errors":
            refused = After(maker.guard, output)
            lineage = Merge((Tap(maker, output), refused)) if output in maker.outputs else refused
            return Stream(self.flow, lineage, schema or DEAD_LETTERS)
        if isinstance(maker, Vertex) and output in maker.outputs:
            side = Stream(self.flow, Tap(maker, output), schema or maker.outputs[output])
            return side.drop(TIME) if TIME in side.schema.names else side
        if isinstance(maker, Stage) and output in maker.step.schemas:
            return Stream(self.flow, After(maker, output), schema or maker.step.schemas[output])
        outputs = {} if maker is None else maker.outputs if isinstance(maker, Vertex) else maker.step.schemas
        sides = ", ".join(f".{name}" for name in _SIDES if name in outputs)
        there_are = f"; it has {sides}" if sides else ""
        raise Misuse(f"the verb that made this stream has no {output!r} output{there_are}")

    # --- ends ------------------------------------------------------------------------------------------------------

    def sink(self, name: str, sink: Any) -> None:
        """End here: rows go to the sink once they are committed."""
        with at_place("sink"):
            self._end(name, sink)

    def collect(self, name: str) -> None:
        """End here: `seep.run` gives the rows (of a Table: its final content) back under this name."""
        from seep.connectors.memory import MemorySink

        with at_place("collect"):
            self._end(name, MemorySink())

    def _end(self, name: str, sink: Any) -> None:
        sink = connector_of(sink)
        if not hasattr(sink, "open"):
            raise Misuse(f"{sink!r} is no sink")
        check = getattr(sink, "check", None)
        if check is not None:
            check(self.wire, self._table_keys())
        settings: dict[str, Any] = {"sink": sink.kind, "schema": self.wire, "table_keys": self._table_keys()}
        inputs = (Input(self.lineage, None, self.wire),)
        vertex = Vertex("sink", "sink", place(), {}, sink, inputs, settings=settings)
        self.flow.claim(name, vertex)
        self.flow.add(vertex)

    def _table_keys(self) -> tuple[str, ...] | None:
        return None

    # --- plumbing --------------------------------------------------------------------------------------------------

    def _stage(self, verb: str, step: Step, output: str = "out") -> After:
        return After(Stage(self.lineage, step, verb, place()), output)

    def _following(self, step: Project) -> tuple[tuple[str, ...] | None, Time | None]:
        """Key and time behind a projection: they follow their columns, or are lost with them."""
        copies = step.copies
        keys = self.keys
        if keys is not None:
            keys = tuple(copies[key] for key in keys) if all(key in copies for key in keys) else None
        return keys, None if self.time is None else self.time.renamed(copies)

    def _operator(
        self,
        verb: str,
        make: Any,
        outputs: Mapping[str, pa.Schema],
        inputs: tuple[Input, ...],
        hint: str,
        stateful: bool = True,
    ) -> Vertex:
        vertex = Vertex("operator", verb, place(), outputs, make, inputs, hint=hint, stateful=stateful)
        self.flow.add(vertex)
        return vertex


def expressions_of(expressions: tuple[Any, ...], named: Mapping[str, Any]) -> list[pl.Expr]:
    """What users give to `select` and `with_columns`: names, expressions, lists of them, plain values by name."""
    found: list[pl.Expr] = []
    for given in expressions:
        for one in given if isinstance(given, list | tuple) else [given]:
            if not isinstance(one, str | pl.Expr):
                raise Misuse(f"{one!r} is neither a column name nor a Polars expression")
            found.append(pl.col(one) if isinstance(one, str) else one)
    for name, given in named.items():
        found.append(_value(name, given).alias(name))
    if not found:
        raise Misuse("no columns are given")
    return found


def _value(name: str, given: Any) -> pl.Expr:
    if isinstance(given, str | pl.Expr):
        return pl.col(given) if isinstance(given, str) else given
    try:
        return pl.lit(given)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise Misuse(f"{name}={given!r} is no column name, no Polars expression and no plain value") from error


def known_columns(schema: pa.Schema, names: tuple[Any, ...]) -> None:
    for name in names:
        if not isinstance(name, str) or schema.get_field_index(name) < 0:
            raise Misuse(f"unknown column {name!r}; there are {', '.join(schema.names)}")


def known_on_error(on_error: Any) -> None:
    if isinstance(on_error, pl.Expr):
        raise Misuse("there is one condition; put several together, such as (a) & (b)")
    if not isinstance(on_error, str) or on_error not in ON_ERROR:
        raise Misuse(f"on_error={on_error!r}; choose one of {', '.join(ON_ERROR)}")


def dropping(schema: pa.Schema, columns: tuple[str, ...]) -> Project:
    known_columns(schema, columns)
    kept = [name for name in schema.names if name not in columns]
    if not kept:
        raise Misuse("no column is left")
    fields = pa.schema([schema.field(name) for name in kept])
    return Project("drop", tuple((name, name) for name in kept), (), fields)


def renaming(schema: pa.Schema, new: dict[str, str]) -> Project:
    known_columns(schema, tuple(new.values()))
    refuse_names(new)
    by_old = {old: name for name, old in new.items()}
    names = [by_old.get(name, name) for name in schema.names]
    if len(set(names)) < len(names) or len(by_old) < len(new):
        raise Misuse(f"two columns would have one name: {', '.join(names)}")
    fields = pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
    return Project("rename", tuple(zip(names, schema.names, strict=True)), (), fields)
