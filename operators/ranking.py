"""The order of rows inside groups, by whole columns: what `top` stands on.

Columns become integers that sort as their values do: nulls last whichever way it goes, NaN greater than every number,
-0.0 equal to 0.0, texts by their bytes, nested values by their representation. Rows equal in everything keep the
order they came in. The first sort looks only at the group and the ``by`` values; the remaining columns are looked at
for the few rows that can still be among the best.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from operators.aggregates import evaluate
from operators.expressions import one_value
from seep.errors import Misuse
from seep.model.keyform import FLOAT, column_of

Numbers = npt.NDArray[np.int64]

RANK = "rank"
"""The column that `top` adds."""
TIES = ("number", "rank")
WORST = np.int64(2**63 - 1)
"""No row has a greater number."""
_SIGN = np.int64(-(2**63))


class Best(NamedTuple):
    """The best rows of every group, group after group, the best first."""

    rows: Numbers
    groups: Numbers
    ranks: Numbers


class Ranking:
    """What is best: up to ``n`` rows of a group by these columns and expressions, ties by the remaining columns."""

    def __init__(
        self, schema: pa.Schema, by: Sequence[str | pl.Expr], n: int, descending: bool, ties: str, same: Sequence[str]
    ) -> None:
        """``same``: columns that are equal in all rows of a group."""
        self._by = tuple(by)
        self.n = n
        self._descending = descending
        self._shared = ties == "rank"
        used = {*same, *(one for one in by if isinstance(one, str))}
        self._rest = [name for name in schema.names if name not in used]

    def best(self, record: pa.RecordBatch, groups: Sequence[Numbers]) -> Best:
        """``groups``: numbers for each row; rows with the same ones are ranked together. The first number is given
        back, and groups come in ascending order."""
        by = [code for column in self._values(record, self._by) for code in sort_codes(column, self._descending)]
        order = np.lexsort([*reversed(by), *reversed(groups)])
        group_starts = _steps([column[order] for column in groups], len(order))
        run_starts = group_starts | _steps([column[order] for column in by], len(order))
        first, ranks = _firsts(group_starts), _firsts(run_starts)
        ranks += 1 - first
        kept = np.flatnonzero(ranks <= self.n)
        rows, ranks, runs = order[kept], ranks[kept], np.cumsum(run_starts, dtype=np.int64)[kept]
        rows = rows[self._settled(record, rows, runs)]
        if not self._shared:
            # Rows were kept by whole runs of equals: their places are still those in the group.
            numbers = kept - first[kept] + 1
            kept = np.flatnonzero(numbers <= self.n)
            rows, ranks = rows[kept], numbers[kept]
        return Best(rows, groups[0][rows], ranks)

    def coarse(self, record: pa.RecordBatch) -> Numbers:
        """A number for each row: one with a greater number is worse, whatever the rest of it is. (Of texts and decimals
        none is to be had cheaply: all are equal.)"""
        [column] = self._values(record, self._by[:1])
        if column_of(column).width != 1:
            return np.zeros(record.num_rows, np.int64)
        *nulls, codes = sort_codes(column, self._descending)
        return np.where(nulls[0], WORST, codes) if nulls else codes

    def _values(self, record: pa.RecordBatch, by: Sequence[str | pl.Expr]) -> list[pa.Array]:
        computed = evaluate(record, {str(at): one for at, one in enumerate(by) if isinstance(one, pl.Expr)})
        return [record.column(one) if isinstance(one, str) else computed[str(at)] for at, one in enumerate(by)]

    def _settled(self, record: pa.RecordBatch, rows: Numbers, runs: Numbers) -> Any:
        """The order by (run, remaining columns)."""
        if len(rows) < 2 or not self._rest or not bool((runs[1:] == runs[:-1]).any()):
            return slice(None)
        part = record.select(self._rest).take(pa.array(rows))
        codes = [code for column in part.columns for code in sort_codes(column, descending=False)]
        return np.lexsort([*reversed(codes), runs])


def sort_codes(array: pa.Array, descending: bool) -> list[Numbers]:
    """Integers that sort ascending as the values are wanted; where there are nulls, a first column puts them last.

    >>> [codes.tolist() for codes in sort_codes(pa.array([2, None, 1]), descending=True)]
    [[0, 1, 0], [-3, -1, -2]]
    """
    if pa.types.is_nested(array.type):
        # Whatever decides a tie must be what a reader sees.
        array = pa.array([None if value is None else repr(value) for value in array.to_pylist()], pa.string())
    shape = column_of(array)
    if shape.width == 0:
        return []
    plain: pa.Array = shape.array
    if shape.width != 1:
        codes = np.asarray(pc.rank(plain, tiebreaker="dense").to_numpy(), np.uint64).astype(np.int64)
    elif shape.tag == FLOAT:
        codes = _of_floats(plain.fill_null(0.0).to_numpy(zero_copy_only=False))
    else:
        codes = plain.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        if pa.types.is_uint64(plain.type):
            codes = codes ^ _SIGN
    if descending:
        codes = ~codes
    if array.null_count == 0:
        return [codes]
    return [array.is_null().to_numpy(zero_copy_only=False).astype(np.int64), codes]


def _of_floats(values: npt.NDArray[np.float64]) -> Numbers:
    bits = np.where(np.isnan(values), np.nan, values + 0.0).view(np.int64)
    return bits ^ ((bits >> 63) & np.int64(2**63 - 1))


def _steps(columns: Sequence[Numbers], rows: int) -> npt.NDArray[np.bool_]:
    """Where a row differs from the one before it; the first one does."""
    result = np.zeros(rows, np.bool_)
    result[:1] = True
    for column in columns:
        result[1:] |= column[1:] != column[:-1]
    return result


def _firsts(starts: npt.NDArray[np.bool_]) -> Numbers:
    """For each row, where its stretch begins."""
    begins = np.flatnonzero(starts)
    return np.repeat(begins, np.diff(np.append(begins, len(starts))))


def check_ranking(schema: pa.Schema, n: Any, by: Sequence[Any], descending: Any, ties: Any) -> None:
    """Refuse what cannot be ranked by."""
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise Misuse(f"n={n!r}; give a whole number of rows from 1 on")
    if ties not in TIES:
        raise Misuse(f"ties={ties!r}; choose one of {', '.join(TIES)}")
    if not isinstance(descending, bool):
        raise Misuse(f"descending={descending!r}; give True or False")
    if not by:
        raise Misuse("nothing to rank by; give by='sold', or a list of columns and expressions")
    for one in by:
        kind = _type_of(schema, one)
        if pa.types.is_nested(kind):
            raise Misuse(f"cannot rank by {one!r}: a {kind} has no order; choose one of its fields")


def _type_of(schema: pa.Schema, one: Any) -> pa.DataType:
    if isinstance(one, str):
        if schema.get_field_index(one) < 0:
            raise Misuse(f"unknown column {one!r} to rank by; there are {', '.join(schema.names)}")
        return schema.field(one).type
    if not isinstance(one, pl.Expr):
        raise Misuse(f"cannot rank by {one!r}; give a column name or a Polars expression")
    return one_value(schema, one)
