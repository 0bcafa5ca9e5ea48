"""What identifies an entry in a snapshot, read back: the words of its key, and its time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seep.model.keyform import Rows


def identity_rows(keys: pa.Array, timed: bool) -> tuple[Rows, npt.NDArray[np.int64] | None]:
    """Undo `KeyIndex.identities`."""
    _, starts, data = keys.buffers()
    if len(keys) == 0:
        return Rows(np.zeros(1, np.int64), np.empty(0, np.uint64)), np.empty(0, np.int64) if timed else None
    bounds = np.frombuffer(starts, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    joined = np.array(np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]).view(np.uint64)
    sizes = np.diff(bounds) // 8
    ends = np.cumsum(sizes)
    if not timed:
        return Rows(np.concatenate([[0], ends]).astype(np.int64), joined), None
    times = joined[ends - 1].view(np.int64)
    kept = np.ones(len(joined), np.bool_)
    kept[ends - 1] = False
    offsets = np.concatenate([[0], np.cumsum(sizes - 1)]).astype(np.int64)
    return Rows(offsets, joined[kept]), times
