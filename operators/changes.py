"""Changes of a Table: at most one for each key and epoch, none where nothing differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.kernels.rows import differing_rows
from seep.model.arrow import CHANGE, DELETE, INSERT, UPDATE
from seep.model.keyform import encode

NONE, INSERTED, UPDATED, DELETED = range(4)
_WORDS = pa.array(["", INSERT, UPDATE, DELETE])


def differ(before: Sequence[pa.Array], after: Sequence[pa.Array], rows: int) -> npt.NDArray[np.bool_]:
    """Which rows differ in some column. Null equals null and NaN equals NaN: a change is what a reader could see."""
    result: npt.NDArray[np.bool_] = differing_rows(*encode(before, rows), *encode(after, rows))
    return result


def change_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of a change stream over rows of this one."""
    return pa.schema([*schema, pa.field(CHANGE, pa.string())])


def change_column(kinds: Any) -> pa.Array:
    """The column `change` from an array of INSERTED, UPDATED, DELETED."""
    return _WORDS.take(pa.array(kinds))


class Changes(NamedTuple):
    """The changes between what was and what is."""

    rows: npt.NDArray[np.int64]
    """Which of the rows have changed, ascending."""
    columns: list[pa.Array]
    """Their values, of a deleted row the old ones; the last column is `change`."""


def changed_rows(
    was: npt.NDArray[np.bool_], before: Sequence[pa.Array], is_there: npt.NDArray[np.bool_], after: Sequence[pa.Array]
) -> Changes:
    """``was`` and ``is_there``: which rows existed before, and exist now; where not, the columns mean nothing."""
    differs = was != is_there
    both = np.flatnonzero(was & is_there)
    if len(both):
        chosen = pa.array(both)
        differs[both] = differ([a.take(chosen) for a in before], [a.take(chosen) for a in after], len(both))
    rows = np.flatnonzero(differs)
    kinds = np.where(is_there[rows], np.where(was[rows], UPDATED, INSERTED), DELETED)
    source = pa.array(np.where(is_there[rows], rows + len(was), rows))
    columns = [pa.concat_arrays([old, new]).take(source) for old, new in zip(before, after, strict=True)]
    return Changes(rows, [*columns, change_column(kinds)])
