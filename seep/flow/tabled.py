"""Tables as vertices: of a stream's latest rows, and made again from another Table's changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from operators.derived import LEAVES, Derive
from operators.expressions import never_raises
from operators.history import AT, HistoryTable
from operators.stateless import Project
from operators.table import GONE, LatestTable
from seep.errors import Misuse
from seep.flow.keyed import hint_of, key_of, ready
from seep.flow.logical import After, Input, Stage, Tap
from seep.flow.place import place
from seep.model.arrow import CHANGE
from seep.model.duration import positive_microseconds

if TYPE_CHECKING:
    from seep.flow.dataset import Dataset
    from seep.flow.stream import Stream
    from seep.flow.table import Table


Keep = pl.Expr | Callable[[Any], Any] | None
"""Which rows of a Table stay; None: all."""


def table(stream: Stream, deleted: pl.Expr | None, history: str | timedelta | None) -> Table:
    keys = key_of(stream, "table")
    if CHANGE in stream.schema.names:
        raise Misuse(f"the stream has a column {CHANGE!r}, which a Table needs itself; rename it")
    if history is not None:
        return by_event_time(stream, keys, deleted, positive_microseconds(history))
    inputs = (Input(stream.lineage, keys, stream.schema),)
    return latest(stream, inputs, stream.schema, keys, deleted, "table")


@dataclass(frozen=True)
class Versions:
    """Every version of a Table's rows, on their way to an as-of join."""

    source: Input
    history_us: int

    def projected(self, verb: str, step: Project, keys: tuple[str, ...]) -> Versions:
        """Of the Table behind this step, which is made for its changes."""
        hidden = [self.source.schema.field(name) for name in (AT, GONE)]
        columns = (
            *(pair for pair in step.columns if pair[0] != CHANGE),
            *((field.name, field.name) for field in hidden),
        )
        schema = pa.schema([*(field for field in step.schema if field.name != CHANGE), *hidden])
        return self._behind(Project(verb, columns, step.computed, schema, "fail"), keys)

    def derived(self, verb: str, step: Project, keep: Keep, keys: tuple[str, ...], on_error: str) -> Versions:
        """The same where only some rows are kept, or some may fail: such a version is one without a row. Of the dead
        letters, those of the changes are enough."""
        hidden = [self.source.schema.field(name) for name in (AT, GONE)]
        columns = (*step.columns, (AT, AT))
        project = Project(verb, columns, step.computed, pa.schema([*step.schema, hidden[0]]), "fail")
        quiet = "fail" if on_error == "fail" else "skip"
        schema = pa.schema([*step.schema, *hidden])
        return self._behind(Derive(verb, project, keep, pl.col(GONE), schema, quiet), keys)

    def _behind(self, step: Project | Derive, keys: tuple[str, ...] | None) -> Versions:
        stage = Stage(self.source.lineage, step, step.name, place())
        return Versions(Input(After(stage, "out"), keys, step.schema), self.history_us)


def by_event_time(stream: Stream, keys: tuple[str, ...], deleted: pl.Expr | None, history_us: int) -> Table:
    from seep.flow.table import Table

    timed, column = stream.timed()
    arguments: dict[str, Any] = {
        "keys": keys,
        "rows": stream.schema,
        "inputs": timed.schema,
        "time_column": column,
        "history_us": history_us,
        "deleted": deleted,
    }
    schemas = HistoryTable(**arguments).schemas
    inputs = (Input(timed.lineage, keys, timed.schema),)
    make = partial(ready, HistoryTable, arguments)
    vertex = stream._operator("table", make, schemas, inputs, hint_of("table", keys))
    made = Table(stream.flow, Tap(vertex, "out"), schemas["out"], keys)
    made.versions = Versions(Input(Tap(vertex, "versions"), keys, schemas["versions"]), history_us)
    return made


def latest(
    data: Dataset,
    inputs: tuple[Input, ...],
    schema: pa.Schema,
    keys: tuple[str, ...],
    deleted: pl.Expr | None,
    verb: str,
) -> Table:
    from seep.flow.table import Table

    arguments = {"keys": keys, "schema": schema, "deleted": deleted}
    out = LatestTable(**arguments).schema
    make = partial(ready, LatestTable, arguments)
    vertex = data._operator(verb, make, {"out": out}, inputs, hint_of(verb, keys))
    return Table(data.flow, Tap(vertex, "out"), out, keys)


def remade(table: Table, verb: str, step: Project, keep: Keep, on_error: str) -> Table:
    """A Table made of this one's changes: its rows projected, without those that are not kept, or on which an
    expression fails.

    A change says the new row only, so whether a row leaves the Table that is made, or a narrower row has changed at
    all, is known only by what that Table holds: that is state of its own.
    """
    keys = table.keys_behind(step)
    schema = step.schema.append(pa.field(GONE, pa.bool_()))
    stage = Stage(table.lineage, Derive(verb, step, keep, LEAVES, schema, on_error), verb, place())
    inner = latest(table, (Input(After(stage, "out"), keys, schema),), schema, keys, pl.col(GONE), verb)
    assert isinstance(inner.lineage, Tap)
    stage.owner, inner.lineage.vertex.guard = inner.lineage.vertex, stage
    made = without_mark(inner, verb)
    if table.versions is not None:
        calm = keep is None and all(never_raises(one, table.schema) for one in step.computed)
        versions = table.versions
        made.versions = (
            versions.projected(verb, step, keys) if calm else versions.derived(verb, step, keep, keys, on_error)
        )
    return made


def without_mark(table: Table, verb: str) -> Table:
    """The Table without the column that said which rows delete their key."""
    kept = tuple((name, name) for name in table.wire.names if name != GONE)
    fields = pa.schema([table.wire.field(name) for name, _ in kept])
    assert isinstance(table.lineage, Tap)
    drop = Stage(table.lineage, Project(verb, kept, (), fields), verb, place(), owner=table.lineage.vertex)
    return type(table)(table.flow, After(drop, "out"), fields, table.primary)
