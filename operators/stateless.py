"""Vectorised stateless steps: Polars expressions on columns, row by row only.

Columns that an expression merely copies keep their Arrow arrays untouched; only what is computed goes through Polars,
and comes back in seep's plain types. The checks made while a flow is built are in `operators.expressions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from operators.rowwise import rows_in
from operators.step import (
    DEAD_LETTERS,
    Failure,
    Site,
    dead_letters,
    finish,
    halving,
    keep_rows,
    keep_where,
    positions_of,
    runs,
    slice_of,
)
from seep.model.arrow import ArrowBatch
from seep.model.schema import normalise, physical, refuse_counted_times

EARLIEST_US = -62_104_060_800_000_000
LATEST_US = 253_370_764_799_999_999
"""Event times outside the years 2 to 9998 are out of range: Python has the years 1 to 9999, and the windows of a row
begin before it and end after it."""

UNITS_US = {"s": 1_000_000, "ms": 1_000, "us": 1}


def frame_of(record: pa.RecordBatch) -> pl.DataFrame:
    return pl.DataFrame(record)


def columns_read(expression: pl.Expr) -> set[str]:
    """The columns that an expression reads, each once.

    `list.filter` and the like name what is inside of a list as a column without a name.

    >>> columns_read(pl.col("l").list.filter(pl.element() > 1).list.len() + pl.col("x")) == {"l", "x"}
    True
    """
    return set(expression.meta.root_names()) - {""}


def evaluated(frame: pl.DataFrame, expressions: Iterable[pl.Expr]) -> pl.DataFrame:
    """The frame with these columns besides, each row as it would be among others.

    Polars divides a column by a number by way of the reciprocal, but a column of one row really: the last bit would
    tell how rows were cut into batches. So one row is computed as two.

    >>> tenth = (pl.col("x") / 10).alias("y")
    >>> one, many = (evaluated(pl.DataFrame({"x": [24.0] * rows}), [tenth])["y"][0] for rows in (1, 9))
    >>> one == many
    True
    """
    if frame.height != 1:
        return frame.with_columns(expressions)
    computed = list(expressions)
    twice = pl.DataFrame(pa.concat_tables([frame.to_arrow()] * 2).combine_chunks())
    try:
        return twice.with_columns(computed).head(1)
    except pl.exceptions.PolarsError:
        frame.with_columns(computed)  # says how many rows it was
        raise


def record_from(frame: pl.DataFrame, schema: pa.Schema) -> pa.RecordBatch:
    """A Polars frame as one RecordBatch of exactly this schema."""
    table = frame.to_arrow().select(schema.names).combine_chunks()
    if table.num_rows == 0:
        return pa.RecordBatch.from_pylist([], schema=schema)
    record = normalise(table.to_batches()[0])
    return record if record.schema == schema else record.cast(schema)


@dataclass(frozen=True)
class Project:
    """`select`, `with_columns`, `drop` and `rename`: some columns copied, some computed."""

    name: str
    columns: tuple[tuple[str, str | None], ...]
    """(new name, the column it is a copy of; None: computed)."""
    computed: tuple[pl.Expr, ...]
    schema: pa.Schema
    on_error: str = "dead_letter"

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": self.schema, "errors": DEAD_LETTERS}

    @property
    def copies(self) -> dict[str, str]:
        """Each copied column's new names, by the old name of the column: the last one, or the same name if kept."""
        found: dict[str, str] = {}
        for new, old in self.columns:
            if old is not None and (old not in found or new == old):
                found[old] = new
        return found

    def run(self, batch: ArrowBatch, site: Site) -> dict[str, ArrowBatch]:
        parts, failures = halving(batch, self.projected, self.on_error, site)
        return finish(batch, parts, failures, self.on_error, site)

    def projected(self, batch: ArrowBatch) -> ArrowBatch:
        """Every row, or whatever the first bad one raises."""
        record = batch.record
        fresh = record
        if self.computed:
            names = [new for new, old in self.columns if old is None]
            fields = pa.schema([self.schema.field(name) for name in names])
            fresh = record_from(evaluated(frame_of(record), self.computed).select(names), fields)
        arrays = [
            fresh.column(new) if old is None else record.column(record.schema.get_field_index(old))
            for new, old in self.columns
        ]
        return ArrowBatch(pa.RecordBatch.from_arrays(arrays, schema=self.schema), batch.buckets)


@dataclass(frozen=True)
class Keep:
    """`filter` by an expression; a null keeps nothing."""

    name: str
    predicate: pl.Expr
    schema: pa.Schema
    on_error: str = "dead_letter"

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": self.schema, "errors": DEAD_LETTERS}

    def run(self, batch: ArrowBatch, site: Site) -> dict[str, ArrowBatch]:
        return keep_where(batch, lambda part: mask_of(part.record, self.predicate), self.on_error, site)


@dataclass(frozen=True)
class Try:
    """Refuses rows on which one of these expressions raises; the others pass as they are."""

    name: str
    expressions: tuple[pl.Expr, ...]
    schema: pa.Schema
    on_error: str

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": self.schema, "errors": DEAD_LETTERS}

    def run(self, batch: ArrowBatch, site: Site) -> dict[str, ArrowBatch]:
        parts, failures = halving(batch, self._tried, self.on_error, site)
        return finish(batch, parts, failures, self.on_error, site)

    def _tried(self, batch: ArrowBatch) -> ArrowBatch:
        frame_of(batch.record).select(one.alias(str(at)) for at, one in enumerate(self.expressions))
        return batch


def mask_of(record: pa.RecordBatch, predicate: pl.Expr) -> npt.NDArray[np.bool_]:
    series = evaluated(frame_of(record), [predicate.alias("__mask")]).get_column("__mask")
    return series.fill_null(False).to_numpy().astype(np.bool_)


@dataclass(frozen=True)
class Split:
    """`split(a=.., b=..)`: each row goes to the first output whose condition holds, else to ``rest``."""

    name: str
    conditions: tuple[tuple[str, pl.Expr | Callable[[Any], Any]], ...]
    """A function is asked about the rows that are left for it."""
    schema: pa.Schema
    on_error: str = "dead_letter"

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        names = [*(name for name, _ in self.conditions), "rest"]
        return {**dict.fromkeys(names, self.schema), "errors": DEAD_LETTERS}

    def run(self, batch: ArrowBatch, site: Site) -> dict[str, ArrowBatch]:
        def work(part: ArrowBatch) -> dict[str, ArrowBatch]:
            free = np.ones(part.rows, np.bool_)
            found: dict[str, ArrowBatch] = {}
            for name, condition in self.conditions:
                mask = free.copy()
                if isinstance(condition, pl.Expr):
                    mask &= mask_of(part.record, condition)
                else:
                    left = part.record.filter(pa.array(free))
                    mask[free] = [bool(condition(row)) for row in rows_in(left)]
                free &= ~mask
                if mask.any():
                    found[name] = keep_rows(part, mask)
            if free.any():
                found["rest"] = keep_rows(part, free)
            return found

        parts, failures = halving(batch, work, self.on_error, site)
        outputs = finish(batch, [], failures, self.on_error, site)
        for name in self.schemas:
            pieces = [part[name] for part in parts if name in part]
            if pieces:
                outputs[name] = ArrowBatch.concat(pieces)
        return outputs


@dataclass(frozen=True)
class MapBatch:
    """`map_batch`: a function on a RecordBatch. It is called for the rows of one origin bucket at a time, so that
    every row that comes out has an origin, however many there are."""

    name: str
    function: Callable[[pa.RecordBatch], pa.RecordBatch]
    schema: pa.Schema
    on_error: str = "dead_letter"

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": physical(self.schema), "errors": DEAD_LETTERS}

    def run(self, batch: ArrowBatch, site: Site) -> dict[str, ArrowBatch]:
        parts: list[ArrowBatch] = []
        failures: list[Failure] = []
        positions = positions_of(batch.buckets) if site.care.needed else None
        for low, high in runs(batch.buckets):
            part = slice_of(batch, low, high)
            places = None if positions is None else positions[low:high]
            done, failed = halving(part, self._apply, self.on_error, site, places)
            parts += [made for made, _ in done]
            for _, more in done:
                site.ledger.add(site.account, "+added" if more > 0 else "-dropped", abs(more))
            failures += [Failure(low + failure.index, failure.error) for failure in failed]
        return finish(batch, parts, failures, self.on_error, site)

    def _apply(self, part: ArrowBatch) -> tuple[ArrowBatch, int]:
        """What the function gives, and how many rows more that is."""
        record = self.function(part.record)
        if not isinstance(record, pa.RecordBatch):
            raise TypeError(f"map_batch must return a pyarrow.RecordBatch, not {type(record).__name__}")
        more, schema = record.num_rows - part.rows, physical(self.schema)
        record = normalise(record).select(schema.names)
        refuse_counted_times(record.schema, schema)
        record = record.cast(schema)
        return ArrowBatch(record, np.full(record.num_rows, part.buckets[0], np.uint16)), more


@dataclass(frozen=True)
class EventTime:
    """Binds event time to a column: rows whose time is null or out of range become dead letters."""

    name: str
    column: str
    unit: str
    schema: pa.Schema

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": self.schema, "errors": DEAD_LETTERS}

    def run(self, batch: ArrowBatch, site: Site) -> dict[str, ArrowBatch]:
        column = batch.record.column(self.column)
        if batch.rows == 0 or _all_good(column, self.unit):
            return self._passed(batch, site)
        good = times_good(column, self.unit)
        failures = [
            Failure(int(index), f"event time {self.column!r} is null or out of range")
            for index in np.flatnonzero(~good)
        ]
        outputs = {"errors": dead_letters(batch, failures, site)}
        site.tally.add("errors", batch.buckets[~good])
        return outputs | self._passed(keep_rows(batch, good), site)

    def _passed(self, batch: ArrowBatch, site: Site) -> dict[str, ArrowBatch]:
        if batch.rows == 0:
            return {}
        latest = int(times_us(batch.record.column(self.column), self.unit).max())
        site.event_time = max(site.event_time, latest)
        return {"out": batch}


def times_us(column: pa.Array, unit: str) -> npt.NDArray[np.int64]:
    """Event times in µs; only for columns that `times_good` has passed. ``unit``: of an integer column (a timestamp
    is in µs already)."""
    if pa.types.is_timestamp(column.type):
        return np.asarray(column.cast(pa.int64()).to_numpy())
    return np.asarray(column.cast(pa.int64()).to_numpy() * UNITS_US[unit])


def _all_good(column: pa.Array, unit: str) -> bool:
    """Are they all (there is at least one), as nearly always?"""
    if column.null_count:
        return False
    values = column.cast(pa.int64()).to_numpy()
    scale = 1 if pa.types.is_timestamp(column.type) else UNITS_US[unit]
    return bool(values.min() >= EARLIEST_US // scale and values.max() <= LATEST_US // scale)


def times_good(column: pa.Array, unit: str) -> npt.NDArray[np.bool_]:
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    scale = 1 if pa.types.is_timestamp(column.type) else UNITS_US[unit]
    values = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
    return np.asarray(valid & (values >= EARLIEST_US // scale) & (values <= LATEST_US // scale))


@dataclass(frozen=True)
class AddTime:
    """Adds event time as a plain timestamp column, for operators that read it, when the bound column is not one."""

    name: str
    column: str
    unit: str
    offset_us: int
    schema: pa.Schema
    """Of the output; its last field is the added column."""
    others: tuple[tuple[str, str, int], ...] = ()
    """The latest of these (column, unit, offset) too, where they are not null."""

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": self.schema}

    def run(self, batch: ArrowBatch, site: Site) -> dict[str, ArrowBatch]:
        parts = ((self.column, self.unit, self.offset_us), *self.others)
        found = [_shifted(batch.record.column(column), unit, offset) for column, unit, offset in parts]
        times = found[0] if len(found) == 1 else pc.max_element_wise(*found)
        # Columns that nobody reads may be missing.
        added = self.schema.field(len(self.schema) - 1)
        return {"out": ArrowBatch(batch.record.append_column(added, times.cast(added.type)), batch.buckets)}


def _shifted(column: pa.Array, unit: str, offset_us: int) -> pa.Array:
    scale = 1 if pa.types.is_timestamp(column.type) else UNITS_US[unit]
    return pc.add(pc.multiply(column.cast(pa.int64()), scale), offset_us)
