"""Entries of saved state in words that people read: what the key of one is, what it holds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from operators.groups import TABLE as GROUPS
from operators.identities import identity_rows
from operators.migrating import VALUE
from operators.packing import unpack
from seep.flow.fitting import KEYS
from seep.flow.layout import KIND, Layout
from seep.model.arrow import BUCKET, KEY, REPLICATED
from seep.model.keyform import decode

_OTHERS = frozenset({"closed", "members"})
"""Tables whose entries are not found by the operator's key."""
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)


def keys_of(layout: Layout, table: str, records: pa.RecordBatch) -> list[dict[str, Any]]:
    """Of each entry: the key columns; of a window also when it begins."""
    if table.startswith(REPLICATED) or table in _OTHERS:
        return [{"entry": key.hex()} for key in records.column(KEY).to_pylist()]
    windows = table == GROUPS and any(name in layout.settings for name in ("size_us", "gap_us"))
    form, times = identity_rows(records.column(KEY), timed=windows)
    columns = {
        name: array.to_pylist()
        for name, array in zip(layout.keys.names, decode(form.words, form.offsets[:-1], layout.keys.types), strict=True)
    }
    if times is not None:
        columns["at"] = [_moment(at) for at in times.tolist()]
    return [{name: column[at] for name, column in columns.items()} for at in range(records.num_rows)]


def _moment(at_us: int) -> Any:
    try:
        return _FIRST + timedelta(microseconds=at_us)
    except OverflowError:
        return at_us


def values_of(layout: Layout, table: str, records: pa.RecordBatch) -> list[dict[str, Any]]:
    """Of each entry: what it holds, by column; of a user's Operator by state."""
    names = [name for name in records.schema.names if name not in (BUCKET, KEY)]
    rows: list[dict[str, Any]] = records.select(names).to_pylist()
    if table != KEYS or VALUE not in names:
        return rows
    kinds = {field.name: field.metadata[KIND].decode() for field in layout.states}
    found = []
    for row in rows:
        _, cells, timers, _ = unpack(row[VALUE])
        states = {name: _held(kinds.get(name, ""), saved) for name, saved in cells.items()}
        found.append({**states, **({"timers": [at for at, _ in timers]} if timers else {})})
    return found


def _held(kind: str, saved: list[Any]) -> Any:
    values = [entry[0] for entry in saved]
    if kind == "MapState":
        return {key: value for key, value, _ in saved}
    return values if kind in ("ListState", "SetState") else next(iter(values), None)
