"""Changes of a Table: at most one for each key and epoch, none where nothing differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
