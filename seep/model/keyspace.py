"""The key space: which of the 4,096 buckets a key belongs to.

The stable hash is xxh64 with seed 0 over the canonical form of the key columns (`seep.model.keyform`); a key's bucket
is the hash's top 12 bits. It is our own compiled xxh64, held by published test vectors, because saved state outlives
the versions of any library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seep.errors import Misuse
from seep.model.hashing import Words, hash_rows
from seep.model.keyform import encode, key_problem

BUCKET_SHIFT = np.uint64(52)
"""64 bits of hash less the 12 of a bucket."""


def hash_columns(columns: Sequence[pa.Array]) -> Words:
    """The stable hash of each row over these columns (at least one).

    >>> [hex(value) for value in hash_columns([pa.array(["a", None])]).tolist()]
    ['0x7011d5b3a7e8cb67', '0x34c96acdcadb1bbb']
    """
    return hash_rows(*encode(columns, len(columns[0])))


def buckets_of(record: pa.RecordBatch, keys: Sequence[str]) -> npt.NDArray[np.uint16]:
    """The bucket of each row; no keys: one group over all, hence one bucket."""
    form = encode([record.column(name) for name in keys], record.num_rows)
    return to_buckets(hash_rows(*form))


def to_buckets(hashes: Words) -> npt.NDArray[np.uint16]:
    return (hashes >> BUCKET_SHIFT).astype(np.uint16)


def bucket_of_values(values: tuple[Any, ...], types: Sequence[pa.DataType]) -> int:
    """The bucket of a single key, such as one asked for from outside.

    >>> bucket_of_values((7,), [pa.int32()]) == bucket_of_values((7,), [pa.int64()])
    True
    """
    columns = [pa.array([value], kind) for value, kind in zip(values, types, strict=True)]
    return int(to_buckets(hash_rows(*encode(columns, 1)))[0])


def check_keys(schema: pa.Schema, keys: Sequence[str]) -> None:
    """Refuse key columns that are missing, given twice, or of a type without a safe equality."""
    for at, name in enumerate(keys):
        if not isinstance(name, str):
            raise Misuse(f"{name} is no column name; to key by an expression make it a column, by with_columns(..)")
        if name in keys[:at]:
            raise Misuse(f"the key column {name!r} is given twice")
        if schema.get_field_index(name) < 0:
            raise Misuse(f"no column {name!r} to key by; there are {', '.join(schema.names)}")
        problem = key_problem(schema.field(name).type)
        if problem is not None:
            raise Misuse(f"cannot key by {name!r} ({schema.field(name).type}): {problem}")
