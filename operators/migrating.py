"""The saved keys of a user's operator, turned by its own `migrate` into what another version of it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from operators.apply import Operator, states_of
from operators.cell_collections import Items, Members
from operators.cell_collections import Mapping as Entries
from operators.cells import Cell, Keeper, Value
from operators.packing import pack, unpack
from seep.errors import Misuse

VALUE = "value"
"""The column of a key's packed entry (`operators.keyed`)."""


def migrated(
    operator: Operator, table: pa.RecordBatch, kinds: Mapping[str, str], version: int, now_ms: int
) -> pa.RecordBatch:
    """``kinds``: of each state that was saved. What `migrate` gives back as it got it keeps its times to live; what
    it changes lives from ``now_ms`` on."""
    packed = [_entry(operator, unpack(value), kinds, version, now_ms) for value in table.column(VALUE).to_pylist()]
    at = table.schema.get_field_index(VALUE)
    return table.set_column(at, table.schema.field(at), pa.array(packed, pa.binary()))


def _entry(operator: Operator, entry: list[Any], kinds: Mapping[str, str], version: int, now_ms: int) -> bytes:
    values, cells, timers, ticked = entry
    given = {name: _held(kinds.get(name, ""), saved) for name, saved in cells.items() if saved}
    # A copy, so that one that is changed in place is seen to be changed.
    before = {name: _held(kinds.get(name, ""), saved) for name, saved in cells.items() if saved}
    try:
        found: Any = operator.migrate(given, version)
    except Exception as error:
        raise Misuse(f"migrate fails for the key {_shown(values)}: {type(error).__name__}: {error}") from error
    declared = states_of(operator)
    if not isinstance(found, dict) or not set(found) <= set(declared):
        names = ", ".join(declared)
        raise Misuse(f"migrate gave {found!r} for the key {_shown(values)}; give a dict of its states: {names}")
    kept: dict[str, list[Any]] = {}
    for name, state in declared.items():
        if name not in found:
            kept[name] = []
        elif name in before and found[name] == before[name] and kinds[name] == type(state).__name__:
            kept[name] = cells[name]
        else:
            keeper = Keeper()
            keeper.now_ms = now_ms
            cell = state.cell(keeper)
            try:
                _fill(cell, found[name])
            except (TypeError, ValueError, AttributeError) as error:
                raise Misuse(f"migrate gave {name}={found[name]!r} for the key {_shown(values)}: {error}") from error
            kept[name] = cell.dump()
    return pack([values, kept, timers, ticked])


def _held(kind: str, saved: list[Any]) -> Any:
    """What a cell of this kind gives its user."""
    if kind == "MapState":
        return {key: value for key, value, _ in saved}
    values = [value for value, _ in saved]
    if kind == "SetState":
        return set(values)
    return values if kind == "ListState" else values[0]


def _fill(cell: Cell, value: Any) -> None:
    match cell:
        case Value():
            cell.value = value
        case Entries():
            cell.update(value)
        case Items():
            cell.extend(value)
        case Members():
            for member in value:
                cell.add(member)


def _shown(values: list[Any]) -> str:
    return repr(values[0]) if len(values) == 1 else repr(tuple(values))
