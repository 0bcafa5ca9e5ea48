"""What differs between two savepoints: operators, the keys of each and what they hold, where the sources stood.

Entries are compared by the digests of their values, so states of any size are compared at the speed of columns; which
columns of an entry differ is looked up for the few that are shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from seep.flow.entries import keys_of, values_of
from seep.flow.fused import OWN
from seep.flow.layout import Layout
from seep.model.arrow import BUCKET, KEY, ArrowState, row_digests
from seep.running.placing import united
from seep.running.savepoint import Savepoint

EXAMPLES = 3
"""Of each kind, for each operator."""
COUNTED = OWN | {"counters"}
"""The audit's books: they differ whenever anything has happened."""
KINDS = ("added", "removed", "changed")


@dataclass
class KeyDifference:
    """Of one operator."""

    counts: dict[str, int] = field(default_factory=lambda: {**dict.fromkeys(KINDS, 0), "same": 0})
    examples: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    columns: dict[str, list[str]] = field(default_factory=lambda: {"added": [], "removed": []})

    @property
    def same(self) -> bool:
        return not any(self.counts[kind] for kind in KINDS) and not any(self.columns.values())

    def as_dict(self) -> dict[str, Any]:
        return {"keys": self.counts, "columns": self.columns, "examples": self.examples}


def difference_of(one: Savepoint, other: Savepoint) -> dict[str, Any]:
    """From one to the other. ``same``: nothing but the epochs differs."""
    before, after = (saved.manifest["operators"] for saved in (one, other))
    operators = {name: _operator(name, one, other) for name in before if name in after}
    added = [name for name in after if name not in before]
    removed = [name for name in before if name not in after]
    changed = {name: found.as_dict() for name, found in operators.items() if not found.same}
    sources = _sources(one.manifest["sources"], other.manifest["sources"])
    return {
        "same": not (added or removed or changed or any(sources.values())),
        "epochs": [one.manifest["epoch"], other.manifest["epoch"]],
        "operators": {"added": added, "removed": removed, "changed": changed},
        "sources": sources,
    }


def _sources(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    for name in before:
        if name in after:
            named = all("names" in saved[name] for saved in (before, after))
            stood = [_stood(saved[name], named) for saved in (before, after)]
            moved = {s: [one.get(s) for one in stood] for s in {**stood[0], **stood[1]}}
            moved = {split: [was, now] for split, (was, now) in moved.items() if was != now}
            if moved:
                changed[name] = dict(sorted(moved.items()))
    added = [name for name in after if name not in before]
    return {"added": added, "removed": [name for name in before if name not in after], "changed": changed}


def _stood(source: Mapping[str, Any], named: bool) -> dict[str, Any]:
    """Where each split did: by its number, unless that may be the number of another the next time."""
    names = source["names"] if named else []
    by_name = len(set(names)) == len(names) > 0
    return {names[int(split)] if by_name else split: known[1] for split, known in source["splits"].items()}


def _operator(name: str, one: Savepoint, other: Savepoint) -> KeyDifference:
    layouts = [Layout.of_plain(saved.manifest["operators"][name]["layout"]) for saved in (one, other)]
    states = [
        united([c.state for c in saved.checkpoints(name) if isinstance(c.state, ArrowState)]) for saved in (one, other)
    ]
    found = KeyDifference()
    for table in {**states[0].tables, **states[1].tables}:
        if table not in COUNTED:
            given = [state.tables.get(table) for state in states]
            there = next(record for record in given if record is not None)
            records = [there.slice(0, 0) if record is None else record for record in given]
            _table(found, table, layouts, records)
    return found


def _table(found: KeyDifference, table: str, layouts: list[Layout], records: list[pa.RecordBatch]) -> None:
    before, after = records
    shared = [name for name in before.schema.names if name in after.schema.names and name != BUCKET]
    found.columns["added"] += [name for name in after.schema.names if name not in before.schema.names]
    found.columns["removed"] += [name for name in before.schema.names if name not in after.schema.names]
    keys = pa.concat_arrays([before.column(KEY), after.column(KEY)]).dictionary_encode().indices.to_numpy()
    old, new = keys[: before.num_rows], keys[before.num_rows :]
    place = np.full(int(keys.max(initial=-1)) + 1, -1, np.int64)
    place[old] = np.arange(len(old))
    was = place[new]
    """Of each entry of the second: where it stood in the first."""
    digests = [row_digests(record.select(shared)) for record in records]
    known = was >= 0
    differs = np.zeros(len(new), np.bool_)
    differs[known] = digests[0][was[known]] != digests[1][known]
    gone = np.ones(len(old), np.bool_)
    gone[was[known]] = False
    rows = {"added": np.flatnonzero(~known), "removed": np.flatnonzero(gone), "changed": np.flatnonzero(differs)}
    for kind, at in rows.items():
        found.counts[kind] += len(at)
        chosen = at[: max(0, EXAMPLES - len(found.examples[kind]))]
        side = 0 if kind == "removed" else 1
        shown = records[side].take(pa.array(chosen, pa.int64()))
        for key, values, row in zip(
            keys_of(layouts[side], table, shown), values_of(layouts[side], table, shown), chosen, strict=True
        ):
            entry: dict[str, Any] = {"key": key, "value": values}
            if kind == "changed":
                earlier = values_of(layouts[0], table, before.slice(int(was[row]), 1))[0]
                names = [name for name in values if name in earlier and earlier[name] != values[name]]
                entry["value"] = {name: [earlier[name], values[name]] for name in names}
            found.examples[kind].append(entry)
    found.counts["same"] += int(known.sum()) - int(differs.sum())
