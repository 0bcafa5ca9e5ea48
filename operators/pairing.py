"""The columns of a join: those of the left, then those of the right without its keys; a name that is taken gets the
suffix."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seep.errors import Misuse
from seep.model.keyspace import check_keys
from seep.model.schema import physical

SUFFIX = "_right"


@dataclass(frozen=True)
class Pairing:
    """How a left and a right row become one."""

    left: pa.Schema
    right: pa.Schema
    right_values: tuple[str, ...]
    """The columns of the right that are not its keys."""
    schema: pa.Schema

    def narrowed(self, wanted: Collection[str], left_keys: Sequence[str], right_keys: Sequence[str]) -> Pairing:
        """Of the columns that go out only these, under the same names, and the left's keys; of the rows that come in,
        what is needed for that.

        >>> side = pa.schema({"k": pa.int8(), "x": pa.int8()})
        >>> narrow = pair(side, ["k"], side, ["k"]).narrowed(["x_right"], ["k"], ["k"])
        >>> narrow.schema.names, narrow.left.names, narrow.right.names
        (['k', 'x_right'], ['k'], ['k', 'x'])
        """
        left = pa.schema([field for field in self.left if field.name in wanted or field.name in left_keys])
        new = dict(zip(self.right_values, list(self.schema)[len(self.left) :], strict=True))
        values = tuple(name for name in self.right_values if new[name].name in wanted)
        right = pa.schema([field for field in self.right if field.name in values or field.name in right_keys])
        return Pairing(left, right, values, pa.schema([*left, *(new[name] for name in values)]))


def pair(left: pa.Schema, left_keys: Sequence[str], right: pa.Schema, right_keys: Sequence[str]) -> Pairing:
    """Keys pair by position and have equal types.

    >>> orders = pa.schema({"customer": pa.string(), "name": pa.string()})
    >>> customers = pa.schema({"id": pa.string(), "name": pa.string()})
    >>> pair(orders, ["customer"], customers, ["id"]).schema.names
    ['customer', 'name', 'name_right']
    """
    left, right = physical(left), physical(right)
    check_keys(left, left_keys)
    check_keys(right, right_keys)
    kinds = [[schema.field(key).type for key in keys] for schema, keys in ((left, left_keys), (right, right_keys))]
    if kinds[0] != kinds[1]:
        shown = [
            ", ".join(f"{n}: {k}" for n, k in zip(*both, strict=True))
            for both in ((left_keys, kinds[0]), (right_keys, kinds[1]))
        ]
        raise Misuse(f"the keys differ: ({shown[0]}) and ({shown[1]}); they pair by position and need equal types")
    values = tuple(name for name in right.names if name not in right_keys)
    fields = list(left)
    taken = set(left.names)
    for name in values:
        new = name + SUFFIX if name in left.names else name
        if new in taken:
            raise Misuse(f"two columns would be called {new!r}; rename one before the join")
        taken.add(new)
        fields.append(right.field(name).with_name(new))
    return Pairing(left, right, values, pa.schema(fields))


def without_nulls(columns: Sequence[pa.Array], rows: int) -> npt.NDArray[np.bool_]:
    """Which rows have every key: a null never matches."""
    good = np.ones(rows, np.bool_)
    for column in columns:
        if column.null_count:
            good &= column.is_valid().to_numpy(zero_copy_only=False)
    return good
