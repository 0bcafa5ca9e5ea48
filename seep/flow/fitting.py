"""Saved state made to fit another version of its operator, or refused with the column that does not fit.

What fits by itself: the same; a wider type, of which every value of the old one is a value; an added column, which is
null, or an added aggregate or state, which begins empty; a column that is no longer read. What was saved and has no
place any more goes only when it is named as dropped. A user's Operator may turn its states into others itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from operators.apply import Operator
from operators.migrating import migrated
from seep.errors import Misuse
from seep.flow.layout import KIND, Layout, layout_of, made_of
from seep.model.arrow import REPLICATED, ArrowState
from seep.partition.contract import Node

KEYS = "keys"
"""The state table of a user's Operator."""
COUNTERS = "counters"
_ROWS = "rows."
"""What the state tables of a user's BatchOperator begin with."""
_PREFIXES = ("value.", "left.", "right.", "old.", "new.")


@dataclass(frozen=True)
class Fitting:
    """Of one operator: what was saved, what is there now."""

    name: str
    saved_as: str
    """Its name when it was saved."""
    saved: Layout
    now: Layout
    dropped: frozenset[str]
    """Columns, aggregates and states that may go."""
    operator: Operator | None = None
    """The user's, when it has a `migrate` of its own."""

    @property
    def migrates(self) -> bool:
        changed = self.saved.states != self.now.states or self.saved.version != self.now.version
        return self.operator is not None and changed

    # --- refusing ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Before anything is started. Raises Misuse."""
        saved, now = self.saved, self.now
        if not set(saved.tables) - {COUNTERS}:
            return
        self._check_kind()
        self._check_keys()
        self._check_aggregates()
        self._check_states()
        for name, schema in now.tables.items():
            if name in saved.tables:
                self._check_columns(name, saved.tables[name], schema)
            elif not name.startswith((_ROWS, REPLICATED)) and name != COUNTERS:
                raise self._misfit(f"keeps {name!r} now, which was not saved")
        for name in set(saved.tables) - set(now.tables) - {COUNTERS}:
            self._need_drop(name.removeprefix(_ROWS))

    def _check_kind(self) -> None:
        saved, now = self.saved, self.now
        if saved.verb != now.verb:
            raise self._misfit(f"was a {saved.verb} when it was saved and is a {now.verb} now")
        for name in sorted({*saved.settings, *now.settings}):
            before, after = saved.settings.get(name), now.settings.get(name)
            if before != after:
                raise self._misfit(f"had {name}={before!r} when it was saved and has {after!r} now")

    def _check_keys(self) -> None:
        before, after = self.saved.keys, self.now.keys
        if before.names != after.names:
            was, now = (", ".join(one.names) or "no column" for one in (before, after))
            raise self._misfit(f"was keyed by {was} when it was saved and is by {now} now")
        for old, new in zip(before, after, strict=True):
            # Integers of every width are the same key; a decimal's scale is part of it.
            if old.type != new.type and not (pa.types.is_integer(old.type) and is_wider(old.type, new.type)):
                raise self._misfit(f"its key {old.name!r} was a {old.type} and is a {new.type} now")

    def _check_aggregates(self) -> None:
        for old in self.saved.aggregates:
            if old.name not in self.now.aggregates.names:
                self._need_drop(old.name)
                continue
            new = self.now.aggregates.field(old.name)
            before, after = (one.metadata[KIND].decode() for one in (old, new))
            if before != after:
                raise self._misfit(f"its column {old.name!r} was a {before} and is a {after} now")
            same = any(check(old.type) and check(new.type) for check in (pa.types.is_integer, pa.types.is_floating))
            if old.type != new.type and not (same and is_wider(old.type, new.type)):
                raise self._misfit(f"its column {old.name!r} was a {before} of {old.type} and is one of {new.type} now")
        for name in self.now.aggregates.names:
            if name not in self.saved.aggregates.names and "primary" in self.now.settings:
                # Rows that are taken back later were never added.
                raise self._misfit(f"its column {name!r} is new, and an aggregate of a Table needs the rows before")

    def _check_states(self) -> None:
        if self.migrates:
            return
        for old in self.saved.states:
            if old.name not in self.now.states.names:
                self._need_drop(old.name)
                continue
            new = self.now.states.field(old.name)
            if (old.metadata[KIND], old.type) != (new.metadata[KIND], new.type):
                was, now = (f"{one.metadata[KIND].decode()} of {one.type}" for one in (old, new))
                raise self._misfit(f"its state {old.name!r} was a {was} and is a {now} now; write a migrate()")
        if self.saved.version != self.now.version:
            was, now = (str(one.version) for one in (self.saved, self.now))
            raise self._misfit(f"its state_version was {was} and is {now} now; write a migrate()")

    def _check_columns(self, table: str, saved: pa.Schema, now: pa.Schema) -> None:
        for field in now:
            name = self._column(field.name)
            if field.name in saved.names:
                before = saved.field(field.name).type
                if not is_wider(before, field.type):
                    raise self._misfit(f"its column {name!r} was a {before} and is a {field.type} now")
            elif table.startswith(_ROWS) or self._is_new_aggregate(name):
                continue
            elif name in self.saved.columns.names:
                raise self._misfit(f"was saved without the column {name!r}, which nobody read then; do not read it now")
            elif name not in self.now.columns.names:
                raise self._misfit(f"was saved without {name!r}")
        for gone in set(saved.names) - set(now.names):
            name = self._column(gone)
            unread = name in self.now.columns.names and not table.startswith(_ROWS)
            if not unread and name not in self.saved.aggregates.names:
                self._need_drop(name)

    def _is_new_aggregate(self, name: str) -> bool:
        return name in self.now.aggregates.names and name not in self.saved.aggregates.names

    def _column(self, name: str) -> str:
        """What the user calls a column of a state table."""
        known: set[str] = {*self.saved.aggregates.names, *self.now.aggregates.names}
        owners = [one for one in known if name.startswith(f"{one}.")]
        if owners:
            return max(owners, key=len)
        return next((name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix)), name)

    def _need_drop(self, name: str) -> None:
        if name not in self.dropped:
            raise self._misfit(f"has no place for {name!r}, which was saved; to lose it, drop '{self.saved_as}.{name}'")

    def _misfit(self, what: str) -> Misuse:
        return Misuse(f"operator {self.name!r} {what}")

    # --- fitting -------------------------------------------------------------------------------------------------

    def fit(self, state: ArrowState, now_ms: int) -> ArrowState:
        """The saved state as the operator takes it now."""
        tables = dict(state.tables)
        for name, schema in self.now.tables.items():
            if name in tables:
                tables[name] = self._fitted(tables[name], schema)
            else:
                tables[name] = pa.RecordBatch.from_pylist([], schema=schema)
        for name in set(self.saved.tables) - set(self.now.tables):
            tables.pop(name, None)
        if self.migrates and self.operator is not None:
            kinds = {field.name: field.metadata[KIND].decode() for field in self.saved.states}
            try:
                tables[KEYS] = migrated(self.operator, tables[KEYS], kinds, self.saved.version, now_ms)
            except Misuse as problem:
                raise self._misfit(f"cannot be restored: {problem}") from problem
        return ArrowState(tables)

    def _fitted(self, table: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        columns = dict(self._columns(table, schema))
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _columns(self, table: pa.RecordBatch, schema: pa.Schema) -> Iterator[tuple[str, pa.Array]]:
        for field in schema:
            if field.name in table.schema.names:
                column = table.column(field.name)
                yield field.name, column if column.type == field.type else column.cast(field.type)
            elif field.name.startswith(_PREFIXES) or not self._is_new_aggregate(self._column(field.name)):
                yield field.name, pa.nulls(table.num_rows, field.type)
            # A new aggregate begins empty when it finds nothing.


def fitting_of(node: Node, saved_as: str, saved: Layout, dropped: frozenset[str]) -> Fitting:
    """Of an operator of the app that is started."""
    subject, _ = made_of(node.make.head)
    migrates = isinstance(subject, Operator) and type(subject).migrate is not Operator.migrate
    return Fitting(node.name, saved_as, saved, layout_of(node), dropped, subject if migrates else None)


def is_wider(old: pa.DataType, new: pa.DataType) -> bool:
    """Is every value of the old type one of the new?

    >>> is_wider(pa.int32(), pa.int64()), is_wider(pa.int32(), pa.float64()), is_wider(pa.int64(), pa.float64())
    (True, True, False)
    """
    kinds = pa.types
    if old == new or kinds.is_null(old):
        return True
    if kinds.is_integer(old) and kinds.is_integer(new):
        spare = kinds.is_signed_integer(new) and not kinds.is_signed_integer(old)
        lost = kinds.is_signed_integer(old) and not kinds.is_signed_integer(new)
        return bool(not lost and new.bit_width >= old.bit_width + spare)
    if kinds.is_float64(new):
        return bool(kinds.is_floating(old) or (kinds.is_integer(old) and old.bit_width <= 32))
    if kinds.is_decimal128(old) and kinds.is_decimal128(new):
        return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    if kinds.is_list(old) and kinds.is_list(new):
        return is_wider(old.value_type, new.value_type)
    if kinds.is_struct(old) and kinds.is_struct(new):
        pairs = [(old.field(at), new.field(at)) for at in range(min(old.num_fields, new.num_fields))]
        same = old.num_fields == new.num_fields and all(one.name == other.name for one, other in pairs)
        return same and all(is_wider(one.type, other.type) for one, other in pairs)
    return False
