"""The order of values of any type as integers, for sorting by several columns at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from operators.lists import Words
from seep.model.keyform import column_of


def ranks(array: pa.Array) -> Words:
    """Equal values have equal ranks; NaN is greater than every number, and null is greater than all.

    >>> ranks(pa.array([2.5, None, float("nan"), 0.0, -0.0])).tolist()
    [1, 5, 2, 0, 0]
    """
    valid = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
    values = array if len(valid) == len(array) else array.take(pa.array(valid))
    if pa.types.is_string(array.type) or pa.types.is_binary(array.type) or pa.types.is_decimal(array.type):
        found = pc.rank(values, tiebreaker="dense").to_numpy().astype(np.int64)
    elif pa.types.is_floating(array.type) or pa.types.is_uint64(array.type):
        _, found = np.unique(values.to_numpy(zero_copy_only=False), return_inverse=True)
    else:
        shape = column_of(values)
        plain = shape.array if pa.types.is_int64(shape.array.type) else shape.array.view(pa.int64())
        _, found = np.unique(plain.to_numpy(zero_copy_only=False), return_inverse=True)
    result = np.full(len(array), len(array), np.int64)
    result[valid] = found
    return result
