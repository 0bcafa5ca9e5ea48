"""The states of a user's operator as columns, for those who look at them: one column for each declared state.

A value has the type its declaration says. What has no column type, or does not keep to its declaration, is shown as
text: looking at state must never fail because of what is in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from operators.cells import Cell
from operators.states import CounterState, Declared, ListState, MapState, SetState, ValueState
from seep.errors import Misuse
from seep.model.schema import type_of


def state_column(declared: Declared[Any], cells: Sequence[Cell]) -> pa.Array:
    """What these keys hold of one state.

    >>> from operators.cells import Keeper
    >>> state = SetState(int)
    >>> cell = state.cell(Keeper())
    >>> cell.add(3)
    >>> state_column(state, [cell]).to_pylist()
    [[3]]
    """
    values = [cell.look() for cell in cells]
    try:
        return pa.array(values, _type(declared))
    except (Misuse, pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def state_type(declared: Declared[Any]) -> pa.DataType:
    """What its cells hold, as a column type; text for what has none.

    >>> state_type(MapState(str, int))
    MapType(map<string, int64>)
    """
    try:
        return _type(declared)
    except Misuse:
        return pa.string()


def _type(declared: Declared[Any]) -> pa.DataType:
    match declared:
        case CounterState():
            return pa.int64()
        case ValueState():
            return type_of(declared.kind)[0]
        case ListState() | SetState():
            return pa.list_(type_of(declared.kind)[0])
        case MapState():
            return pa.map_(type_of(declared.key)[0], type_of(declared.value)[0])
        case _:
            raise Misuse(f"no column type for {declared!r}")
