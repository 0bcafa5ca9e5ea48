"""Rows of a Table made of another one's: what becomes of a key whose new row an expression fails on.

It has no row in the Table that is made. So that Table is, at every epoch, what the expressions give of the rows that
the other one has now, and how the input was cut into epochs does not show. (Had the row before stayed instead, it would
matter whether that one ever was the last of an epoch.) The new row is a dead letter. Rows that leave are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from operators.rowwise import rows_in
from operators.stateless import Project, frame_of, mask_of
from operators.step import DEAD_LETTERS, Failure, Site, finish, halving, keep_rows
from seep.model.arrow import CHANGE, DELETE, ArrowBatch

Flags = npt.NDArray[np.bool_]
LEAVES = pl.col(CHANGE) == DELETE


class _Tried(NamedTuple):
    """What became of the rows that are there."""

    done: list[Any]
    """What the work gave, part by part."""
    good: Flags
    """Which of all rows are there and did not fail."""
    letters: dict[str, ArrowBatch]


def _tried(batch: ArrowBatch, there: Flags, work: Callable[[ArrowBatch], Any], on_error: str, site: Site) -> _Tried:
    done, failed = halving(keep_rows(batch, there), work, on_error, site)
    rows = np.flatnonzero(there)
    failures = [Failure(int(rows[failure.index]), failure.error) for failure in failed]
    good = there.copy()
    good[[failure.index for failure in failures]] = False
    # The row goes on, as one that leaves; its letter, or that it is skipped, comes in addition.
    site.ledger.add(site.account, "+failed", len(failures))
    # As users know the row: its columns, without ours.
    names = [name for name in batch.record.schema.names if name != CHANGE and not name.startswith("__")]
    shown = ArrowBatch(batch.record.select(names), batch.buckets)
    return _Tried(done, good, finish(shown, [], failures, on_error, site))


@dataclass(frozen=True)
class Derive:
    """The rows of the Table that is made; the last column says which keys have none."""

    name: str
    project: Project
    """Of the rows before: their columns, the last one left out."""
    keep: pl.Expr | Callable[[Any], Any] | None
    """Of the rows before: which stay."""
    gone: pl.Expr
    """Of the rows before: which keys have none already."""
    schema: pa.Schema
    on_error: str

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": self.schema, "errors": DEAD_LETTERS}

    def run(self, batch: ArrowBatch, site: Site) -> dict[str, ArrowBatch]:
        there = ~mask_of(batch.record, self.gone)
        tried = _tried(batch, there, self._made, self.on_error, site)
        # Where a row is not good its computed values are null: nobody sees them.
        place = pa.array(np.cumsum(tried.good) - 1, mask=~tried.good)
        kept = np.zeros(batch.rows, np.bool_)
        kept[tried.good] = np.concatenate([np.empty(0, np.bool_), *(mask for _, mask in tried.done)])
        arrays = []
        for (_, old), field in zip(self.project.columns, self.schema, strict=False):
            if old is not None:
                arrays.append(batch.record.column(old))
            else:
                parts = [record.column(field.name) for record, _ in tried.done]
                arrays.append(pa.concat_arrays([pa.array([], field.type), *parts]).take(place))
        record = pa.RecordBatch.from_arrays([*arrays, pa.array(~kept)], schema=self.schema)
        return {"out": ArrowBatch(record, batch.buckets), **tried.letters}

    def _made(self, part: ArrowBatch) -> tuple[pa.RecordBatch, Flags]:
        made = self.project.projected(part).record
        if self.keep is None:
            return made, np.ones(part.rows, np.bool_)
        if isinstance(self.keep, pl.Expr):
            return made, mask_of(part.record, self.keep)
        names = [name for name in part.record.schema.names if name != CHANGE and not name.startswith("__")]
        return made, np.array([bool(self.keep(row)) for row in rows_in(part.record.select(names))], np.bool_)


@dataclass(frozen=True)
class TryChanges:
    """A Table's changes; a row on which one of these expressions raises becomes a deletion of its key."""

    name: str
    expressions: tuple[pl.Expr, ...]
    schema: pa.Schema
    on_error: str

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": self.schema, "errors": DEAD_LETTERS}

    def run(self, batch: ArrowBatch, site: Site) -> dict[str, ArrowBatch]:
        there = ~mask_of(batch.record, LEAVES)
        tried = _tried(batch, there, self._attempt, self.on_error, site)
        failed = there & ~tried.good
        record = batch.record
        if failed.any():
            at = record.schema.get_field_index(CHANGE)
            words = pc.if_else(pa.array(failed), DELETE, record.column(at))
            record = record.set_column(at, record.schema.field(at), words)
        return {"out": ArrowBatch(record, batch.buckets), **tried.letters}

    def _attempt(self, part: ArrowBatch) -> None:
        frame_of(part.record).select(one.alias(str(at)) for at, one in enumerate(self.expressions))
