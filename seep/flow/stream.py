"""Streams: append-only rows, and the verbs on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

import polars as pl
import pyarrow as pa

from operators.aggregates import Spec
from operators.apply import Operator
from operators.batch_operator import BatchOperator
from operators.expressions import condition, one_value, project
from operators.rowwise import FlatMapRows, KeepRows, MapRows
from operators.stateless import AddTime, EventTime, Keep, MapBatch, Project, Split
from operators.step import DEAD_LETTERS
from seep.errors import Misuse
from seep.flow import grouped, joined, keyed, ranked, table_joins, tabled, windowed
from seep.flow.broadcasting import Broadcast
from seep.flow.dataset import TIME, Dataset, dropping, expressions_of, known_on_error, renaming
from seep.flow.grouping import Local, Shuffle, ToOne
from seep.flow.guarded import guarded
from seep.flow.hints import item_schema, row_schema
from seep.flow.logical import After, Lineage, Merge, Stage, Tap, has_union
from seep.flow.parts import Splits
from seep.flow.place import at_place
from seep.flow.timed import event_time_of, time_settings
from seep.flow.windows import Every, Tumbling, Window
from seep.model.keyspace import check_keys
from seep.model.schema import TIMESTAMP, physical, schema_of

if TYPE_CHECKING:
    from seep.flow.table import Table

Names = tuple[str, str]


class Stream(Dataset):
    """Rows that stay as they are; each verb gives another Stream, or a Table.

    >>> import seep
    >>> flow = seep.Flow("sales")
    >>> sales = flow.source("sales", seep.MemorySource([{"n": 2, "price": 3}, {"n": 0, "price": 5}]))
    >>> sales.filter(pl.col("n") > 0).select(paid=pl.col("n") * pl.col("price")).collect("paid")
    >>> seep.run(flow)["paid"].to_pylist()
    [{'paid': 6}]
    """

    # --- vectorised ------------------------------------------------------------------------------------------------

    def select(self, *expressions: Any, on_error: str = "dead_letter", **named: Any) -> Stream:
        """Only these columns: names, Polars expressions, or ``new=expression``."""
        with at_place("select"):
            known_on_error(on_error)
            step = project("select", self.schema, expressions_of(expressions, named), keep=False, on_error=on_error)
            return self._projected(self._stage("select", step), step)

    def with_columns(self, *expressions: Any, on_error: str = "dead_letter", **named: Any) -> Stream:
        """All columns, and these besides; one of the same name takes the old one's place."""
        with at_place("with_columns"):
            known_on_error(on_error)
            given = expressions_of(expressions, named)
            step = project("with_columns", self.schema, given, keep=True, on_error=on_error)
            return self._projected(self._stage("with_columns", step), step)

    def filter(self, keep: pl.Expr | Callable[[Any], Any], on_error: str = "dead_letter") -> Stream:
        """Only the rows for which the expression, or the function of a row, holds."""
        with at_place("filter"):
            known_on_error(on_error)
            checked = self._condition(keep)
            if isinstance(checked, pl.Expr):
                step: Keep | KeepRows = Keep("filter", checked, self.schema, on_error)
            else:
                step = KeepRows("filter", checked, self.schema, on_error)
            return Stream(self.flow, self._stage("filter", step), self.schema, self.keys, self.time)

    def _condition(self, given: Any) -> pl.Expr | Callable[[Any], Any]:
        if isinstance(given, pl.Expr):
            return condition(self.schema, given)
        if not callable(given):
            raise Misuse(f"{given!r} is neither a Polars expression nor a function")
        function: Callable[[Any], Any] = given
        return function

    def drop(self, *columns: str) -> Stream:
        """All columns but these."""
        with at_place("drop"):
            step = dropping(self.schema, columns)
            return self._projected(self._stage("drop", step), step)

    def rename(self, **new: str) -> Stream:
        """The same columns, some of them under other names: ``rename(new="old")``."""
        with at_place("rename"):
            step = renaming(self.schema, new)
            return self._projected(self._stage("rename", step), step)

    def _projected(self, lineage: Lineage, step: Project) -> Stream:
        return Stream(self.flow, lineage, step.schema, *self._following(step))

    # --- functions -------------------------------------------------------------------------------------------------

    def map(self, fn: Callable[[Any], Any], schema: Any = None, on_error: str = "dead_letter") -> Stream:
        """``fn(row)`` gives the new row; None drops it. The schema comes from the return annotation or `schema`."""
        with at_place("map"):
            known_on_error(on_error)
            return self._mapped("map", MapRows("map", fn, row_schema(fn, schema), on_error))

    def flat_map(self, fn: Callable[[Any], Iterable[Any]], schema: Any = None, on_error: str = "dead_letter") -> Stream:
        """``fn(row)`` gives any number of rows, as a list or a generator."""
        with at_place("flat_map"):
            known_on_error(on_error)
            return self._mapped("flat_map", FlatMapRows("flat_map", fn, item_schema(fn, schema), on_error))

    def map_batch(
        self, fn: Callable[[pa.RecordBatch], pa.RecordBatch], schema: Any = None, on_error: str = "dead_letter"
    ) -> Stream:
        """``fn(record_batch)`` gives a record batch; it must treat each row on its own."""
        with at_place("map_batch"):
            known_on_error(on_error)
            declared = self.schema if schema is None else schema_of(schema)
            return self._mapped("map_batch", MapBatch("map_batch", fn, declared, on_error))

    def _mapped(self, verb: str, step: MapRows | FlatMapRows | MapBatch) -> Stream:
        if not callable(step.function):
            raise Misuse(f"{step.function!r} is no function; give one from a row or, to map_batch, a record batch")
        # A function may have changed any key, so the stream is unkeyed.
        schema = physical(step.schema)
        return Stream(self.flow, self._stage(verb, step), schema, None, keyed.kept_time(self, schema))

    # --- shape -----------------------------------------------------------------------------------------------------

    def union(self, *others: Stream) -> Stream:
        """All rows of these streams, which have the same columns by name and type."""
        with at_place("union"):
            time = self.time
            for other in others:
                if not isinstance(other, Stream):
                    raise Misuse(f"{other!r} is no Stream; of a Table take .changes()")
                self._same_flow(other)
                if {(f.name, f.type) for f in other.schema} != {(f.name, f.type) for f in self.schema}:
                    raise Misuse(f"the columns differ: {self!r} and {other!r}")
                time = time if other.time == time else None
            parts = tuple(stream.lineage for stream in (self, *others))
            return Stream(self.flow, Merge(parts), self.schema, None, time)

    def split(self, on_error: str = "dead_letter", **conditions: pl.Expr | Callable[[Any], Any]) -> Splits:
        """``split(a=.., b=..)`` gives ``.a``, ``.b`` and ``.rest``; the first condition (an expression, or a function
        of a row) that holds wins."""
        with at_place("split"):
            known_on_error(on_error)
            if not conditions or {"rest", "errors", "out"} & set(conditions):
                raise Misuse("name at least one part, none of them 'rest', 'errors' or 'out'")
            checked = tuple((name, self._condition(given)) for name, given in conditions.items())
            stage = self._stage("split", Split("split", checked, self.schema, on_error)).stage
            return Splits(
                {
                    name: Stream(self.flow, After(stage, name), self.schema, self.keys, self.time)
                    for name in [*conditions, "rest"]
                }
            )

    def key_by(self, *columns: str) -> Stream:
        """Rows with equal values in these columns go together; no columns: one group over all."""
        with at_place("key_by"):
            check_keys(self.schema, columns)
            made = Stream(self.flow, self.lineage, self.schema, columns, self.time)
            made.regrouped = True
            return made

    def shuffle(self) -> Stream:
        """Rows are spread evenly; what follows runs where they are sent, and has no key."""
        with at_place("shuffle"):
            return self._sent(grouped.grouped(self, "shuffle", Shuffle()))

    def to_one(self) -> Stream:
        """All rows go to one place."""
        with at_place("to_one"):
            return self._sent(grouped.grouped(self, "to_one", ToOne()))

    def local(self) -> Stream:
        """Rows stay in their bucket; what follows runs in a node of its own, which can be scaled."""
        with at_place("local"):
            return self._sent(grouped.grouped(self, "local", Local()))

    def route(self, fn: Callable[[Any], Any], on_error: str = "dead_letter") -> Stream:
        """``fn(row)`` gives a key value; rows with equal values go to one place."""
        with at_place("route"):
            known_on_error(on_error)
            tap, stage = grouped.routed(self, fn, on_error)
            return Routed(self, tap, stage)

    def two_choices(self) -> Stream:
        """Each key has two places, and a row goes to the one with less to do: for aggregates over skewed keys."""
        with at_place("two_choices"):
            return self._sent(grouped.halved(self), self.keys)

    def broadcast(self) -> Broadcast:
        """A further input whose rows every partition gets: in `apply`, ``ctx.broadcast(port)`` is its latest row of
        each key, as of this epoch; `join_table` joins with it without sending the stream anywhere."""
        with at_place("broadcast"):
            if self.keys is None:
                raise Misuse("broadcast keeps the latest row of each key; call key_by(..) before it")
            return Broadcast(self, self.keys)

    def _sent(self, tap: Tap, keys: tuple[str, ...] | None = None) -> Stream:
        return Stream(self.flow, tap, self.schema, keys, self.time)

    def event_time(
        self, column: str | tuple[str, str], lateness: str | timedelta = "0s", idle: str | timedelta | None = None
    ) -> Stream:
        """Event time is this column (``("ts", "ms")`` for an integer), decided inside the source."""
        with at_place("event_time"):
            chain = self.lineage
            while isinstance(chain, After):
                chain = chain.stage.parent
            if self.keys is not None or has_union(self.lineage) or not isinstance(chain, Tap):
                raise Misuse("set event time before key_by and union, inside the source")
            vertex = chain.vertex
            if vertex.kind != "source":
                raise Misuse(f"set event time before {vertex.verb}, inside the source")
            if "time" in vertex.settings:
                raise Misuse("the source has an event time already; it can have only one")
            time = event_time_of(self.schema, column)
            vertex.settings |= time_settings(time, lateness, idle)
            step = EventTime("event_time", time.column, time.unit, self.schema)
            return Stream(self.flow, self._stage("event_time", step), self.schema, None, time)

    # --- keyed -----------------------------------------------------------------------------------------------------

    @overload
    def aggregate(self, emit: Literal["update"] = "update", on_error: str = ..., **aggregates: Spec) -> Table: ...
    @overload
    def aggregate(self, emit: Literal["close"], on_error: str = ..., **aggregates: Spec) -> Stream: ...
    @overload
    def aggregate(self, emit: str, on_error: str = ..., **aggregates: Spec) -> Any: ...
    def aggregate(self, emit: str = "update", on_error: str = "dead_letter", **aggregates: Spec) -> Any:
        """Running aggregates by key: a Table; ``emit="close"``: a Stream, once, at the end of input."""
        with at_place("aggregate"):
            computed = keyed.check_aggregates(self.schema, aggregates)
            build = partial(windowed.aggregate, emit=emit, aggregates=aggregates, on_error=on_error)
            return guarded(self, "aggregate", computed, on_error, build)

    @overload
    def window(
        self, window: Window, *, emit: Literal["close"] = "close", names: Names = ..., on_error: str = ..., **of: Spec
    ) -> Stream: ...
    @overload
    def window(
        self, window: Window, *, emit: Literal["update"] | Every, names: Names = ..., on_error: str = ..., **of: Spec
    ) -> Table: ...
    @overload
    def window(
        self, window: Window, *, emit: str | Every, names: Names = ..., on_error: str = ..., **of: Spec
    ) -> Any: ...
    def window(
        self,
        window: Window,
        *,
        emit: str | Every = "close",
        names: Names = ("window_start", "window_end"),
        on_error: str = "dead_letter",
        **aggregates: Spec,
    ) -> Any:
        """Aggregates by key and window: a Stream of closed windows; ``emit="update"`` or ``every("1s")``: a Table of
        all of them, which changes with every epoch, or at most each second."""
        with at_place("window"):
            computed = keyed.check_aggregates(self.schema, aggregates)
            build = partial(
                windowed.window, window=window, emit=emit, names=names, aggregates=aggregates, on_error=on_error
            )
            return guarded(self, "window", computed, on_error, build)

    def join(
        self,
        other: Stream,
        within: joined.Within | None = None,
        how: str = "inner",
        suffix: str = "_right",
        *,
        window: Tumbling | None = None,
    ) -> Stream:
        """Pairs of rows with equal keys that are near in time: ``within="30s"`` of each other, in the range
        ``within=("-5s", "30s")`` of right minus left, or in the same ``window=tumbling("10s")``."""
        with at_place("join"):
            if not isinstance(other, Stream):
                raise Misuse(f"{other!r} is no Stream; of a Table take .changes()")
            self._same_flow(other)
            return joined.join(self, other, within, window, how, suffix)

    def table(
        self,
        deleted: pl.Expr | None = None,
        history: str | timedelta | None = None,
        on_error: str = "dead_letter",
    ) -> Table:
        """The latest row of each key; a row for which `deleted` holds deletes its key. With a ``history`` the latest by
        event time, and earlier versions are known so far behind the watermark: `join_table(as_of=True)` needs them."""
        with at_place("table"):
            if deleted is not None:
                condition(self.schema, deleted)
            build = partial(tabled.table, deleted=deleted, history=history)
            return guarded(self, "table", () if deleted is None else (deleted,), on_error, build)

    def join_table(self, table: Table | Broadcast, how: str = "inner", as_of: bool = False) -> Stream:
        """Each row with the row that the Table has for its key; ``how="left"`` keeps rows that find none.
        ``as_of``: with the row that it had at the time of this one, which waits until the watermark has passed it.
        With a `broadcast()` the stream stays where it is, and needs no key if it has the other's key columns."""
        with at_place("join_table"):
            self._same_flow(table_joins.table_of(table, "join_table", (Broadcast,)))
            return (table_joins.join_as_of if as_of else table_joins.join_table)(self, table, how)

    def top(self, n: int, by: Any, descending: bool = True, ties: str = "number", on_error: str = "dead_letter") -> Any:
        """The best rows of each key, with their `rank` from 1: of each closed window, a Stream; else a Table."""
        with at_place("top"):
            given = tuple(by) if isinstance(by, list | tuple) else (by,)
            expressions = [one for one in given if isinstance(one, pl.Expr)]
            for one in expressions:
                one_value(self.schema, one)
            build = partial(ranked.top, n=n, by=given, descending=descending, ties=ties)
            return guarded(self, "top", expressions, on_error, build)

    def dedupe(self, *columns: str, ttl: str | timedelta | None = None) -> Stream:
        """The first row for each combination of these columns (none: of the key); after `ttl` it is forgotten."""
        with at_place("dedupe"):
            return ranked.dedupe(self, columns, ttl)

    def reduce(self, fn: Callable[[Any, Any], Any], on_error: str = "dead_letter") -> Table:
        """``fn(folded, row)`` gives the new folded row of the key, beginning with its first: a Table."""
        with at_place("reduce"):
            known_on_error(on_error)
            return ranked.reduce(self, fn, on_error)

    def apply(
        self,
        operator: Operator | BatchOperator | type[Operator] | type[BatchOperator],
        *others: Stream | Broadcast,
        out: Any,
        every: str | timedelta | None = None,
        outs: dict[str, Any] | None = None,
        on_error: str = "dead_letter",
    ) -> Applied:
        """Run an operator of your own: an `Operator`, keyed with state or unkeyed without, or a `BatchOperator`, keyed.

        ``out`` is the schema of what it emits, ``outs`` that of further outputs, `others` are further inputs."""
        with at_place("apply"):
            known_on_error(on_error)
            for other in others:
                if not isinstance(other, Stream | Broadcast):
                    raise Misuse(f"{other!r} is no Stream; of a Table take .changes()")
                self._same_flow(other)
            return keyed.apply(self, operator, others, out, every, outs, on_error)

    def _same_flow(self, other: Dataset | Broadcast) -> None:
        if other.flow is not self.flow:
            raise Misuse(f"the streams belong to two flows, {self.flow.name!r} and {other.flow.name!r}")

    def timed(self) -> tuple[Stream, str]:
        """This stream with its event time as a plain timestamp column, and that column's name."""
        if self.time is None:
            raise Misuse("the stream has no event time (or its column was dropped); give the source time=")
        time = self.time
        if not time.others and time.offset_us == 0 and self.schema.field(time.column).type == TIMESTAMP:
            return self, time.column
        schema = self.schema.append(pa.field(TIME, TIMESTAMP))
        others = tuple((part.column, part.unit, part.offset_us) for part in time.others)
        step = AddTime("time", time.column, time.unit, time.offset_us, schema, others)
        return Stream(self.flow, self._stage("time", step), schema, self.keys, time), TIME


class Routed(Stream):
    """What `route` gives: its dead letters are those of the function."""

    def __init__(self, stream: Stream, tap: Tap, stage: Stage) -> None:
        super().__init__(stream.flow, tap, stream.schema, None, stream.time)
        self._function = stage

    @property
    def errors(self) -> Stream:
        """The rows for which the function raised, or gave no key value."""
        return Stream(self.flow, After(self._function, "errors"), DEAD_LETTERS)


class Applied(Stream):
    """What `apply` gives: its main output; the others by name."""

    def out(self, name: str) -> Stream:
        """One of the further outputs, which were declared with ``outs=``."""
        with at_place("out"):
            return self._side(name, None)
