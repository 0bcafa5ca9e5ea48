"""A user's function folds the rows of each key into one: a Table of the folded rows.

The first row of a key stands for itself. What the function gives is brought into the types of the columns after each
row, so that neither the cuts of epochs nor restarts show. A row that it refuses becomes a dead letter and what was
folded so far stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from operators.changes import INSERTED, UPDATED, change_column, change_schema, differ
from operators.index import KeyIndex
from operators.ledger import RESULTS, ROWS, Accounted
from operators.row_store import RowStore
from operators.rowwise import Row, record_of_results, row_class, rows_in
from operators.step import DEAD_LETTERS, Failure, Site, dead_letters, describe, spots
from operators.tally import Tally
from seep.errors import Misuse
from seep.model.arrow import ArrowBatch, ArrowState
from seep.model.care import CAREFREE, DIED, Care
from seep.model.epoch import Moment
from seep.model.keyspace import check_keys
from seep.model.schema import TIMESTAMP, physical

TABLE = "folded"
COUNTERS = "counters"
_ZONE = pa.scalar(0, TIMESTAMP).as_py().tzinfo
"""The time zone of timestamps that are read from a column."""


class Reduce(Accounted):
    """``function(folded, row)`` gives the folded row: a row, dict, tuple or dataclass with all columns."""

    carried: Mapping[str, str] = {"errors": ROWS, "out": RESULTS}

    def __init__(
        self,
        keys: Sequence[str],
        schema: pa.Schema,
        function: Callable[[Any, Any], Any],
        on_error: str = "dead_letter",
        name: str = "reduce",
    ) -> None:
        check_keys(schema, keys)
        self._rows_schema = physical(schema)
        self._keys = list(keys)
        self._function = function
        self._on_error = on_error
        self._name = name
        self._index = KeyIndex([self._rows_schema.field(key).type for key in keys], timed=False)
        self._store = RowStore(self._index, self._rows_schema)
        self._tally = Tally()
        self.care: Care = CAREFREE
        names = self._rows_schema.names
        self._row = row_class(tuple(names))
        self._key_places = [names.index(key) for key in keys]
        self._fits = [_fits(kind) for kind in self._rows_schema.types]
        self.schema = change_schema(self._rows_schema)

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": self.schema, "errors": DEAD_LETTERS}

    def take(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> dict[str, ArrowBatch]:
        batches = [batch for _, batch in inputs if batch.rows]
        if not batches:
            return {}
        batch = ArrowBatch.concat(batches).by_bucket()
        found = self._index.find([batch.record.column(key) for key in self._keys], batch.rows, changed=False)
        self._store.prepare(found.fresh)
        slots = self._index.ordered(found.touched)
        new = np.isin(slots, found.fresh)
        old = self._store.read(slots[~new])
        folded: dict[int, Row] = dict(zip(slots[~new].tolist(), rows_in(old), strict=True))
        failures = self._fold(folded, found.slots.tolist(), batch)
        outputs: dict[str, ArrowBatch] = {}
        after = record_of_results([folded[slot] for slot in slots.tolist()], self._rows_schema)
        changed = new.copy()
        known = np.flatnonzero(~new)
        changed[known] = differ(old.columns, after.take(pa.array(known)).columns, len(known))
        self.ledger.add(RESULTS, "+results", int(np.count_nonzero(changed)))
        if changed.any():
            rows, chosen = after.filter(pa.array(changed)), slots[changed]
            self._index.mark(chosen)
            self._store.write(chosen, rows)
            self._store.tidy()
            kinds = change_column(np.where(new[changed], INSERTED, UPDATED))
            record = pa.RecordBatch.from_arrays([*rows.columns, kinds], schema=self.schema)
            outputs["out"] = ArrowBatch(record, self._index.buckets[chosen])
        if failures:
            refused = batch.buckets[[failure.index for failure in failures]]
            self._tally.add("errors" if self._on_error == "dead_letter" else "skipped", refused)
            self.ledger.add(ROWS, "-skipped", len(refused) if self._on_error == "skip" else 0)
            if self._on_error == "dead_letter":
                outputs["errors"] = dead_letters(batch, failures, Site(self._name, moment.epoch, self._tally))
        return outputs

    def _fold(self, folded: dict[int, Row], slots: list[int], batch: ArrowBatch) -> list[Failure]:
        function, failures, rows, care = self._function, list[Failure](), 0, self.care
        where = spots(batch.buckets, "in") if care.needed else []
        for at, (slot, row) in enumerate(zip(slots, rows_in(batch.record), strict=True)):
            so_far = folded.get(slot)
            if so_far is None:
                folded[slot] = row
                rows += 1
                continue
            if where and where[at] in care.skips:
                failures.append(Failure(at, DIED))
                continue
            if where:
                care.begin(where[at], self._name, self._on_error == "fail")
            try:
                folded[slot] = self._checked(function(so_far, row), row)
                rows += 1
            except Exception as error:  # user code may raise anything
                if self._on_error == "fail":
                    message = f"{self._name}: {describe(error)}; fix the function or use on_error='dead_letter'"
                    raise Misuse(message) from error
                failures.append(Failure(at, describe(error)))
        care.end()
        self.ledger.add(ROWS, "-folded", rows)
        return failures

    def _checked(self, given: Any, row: Row) -> Row:
        """What the function gave as a row of these columns, of the same key."""
        result = self._values(given)
        if result is None or not all(
            value is None or fits(value) for fits, value in zip(self._fits, result, strict=True)
        ):
            if given is None:
                raise Misuse("reduce: the function gave None; it must give the folded row")
            result = next(rows_in(record_of_results([given], self._rows_schema)))
        for place in self._key_places:
            if result[place] != row[place]:
                raise Misuse(f"reduce: the function changed the key from {row[place]!r} to {result[place]!r}")
        return result if type(result) is self._row else self._row(result)

    def _values(self, given: Any) -> tuple[Any, ...] | None:
        """The values in the order of the columns, if that is easily seen."""
        columns = self._row.columns
        if isinstance(given, Row):
            return given if type(given).columns == columns else None
        if isinstance(given, dict) and len(given) == len(columns) and all(name in given for name in columns):
            return tuple(given[name] for name in columns)
        return None

    def content(self) -> pa.RecordBatch:
        """The folded row of every key."""
        return self._store.read(self._index.ordered(self._index.all()))

    def snapshot(self, full: bool) -> ArrowState:
        return ArrowState({TABLE: self._store.snapshot(full), COUNTERS: self._tally.snapshot(full)})

    def mostly_changed(self) -> bool:
        return self._index.mostly_changed()

    def load(self, state: ArrowState) -> None:
        if TABLE in state.tables:
            self._store.load(state.tables[TABLE])
        if COUNTERS in state.tables:
            self._tally.load(state.tables[COUNTERS])

    def statistics(self) -> dict[str, int]:
        size = int(self._index.size_bytes + self._store.size_bytes)
        return {"keys": len(self._index), "state_bytes": size, "errors": 0, **self._tally.totals()}


def _fits(kind: pa.DataType) -> Callable[[Any], bool]:
    """Is a value what reading it back from a column of this type would give? When unsure, no: then it is tried."""
    if pa.types.is_integer(kind):
        signed = pa.types.is_signed_integer(kind)
        low, high = (-(1 << kind.bit_width - 1), 1 << kind.bit_width - 1) if signed else (0, 1 << kind.bit_width)
        return lambda value: type(value) is int and low <= value < high
    if pa.types.is_string(kind):
        # What has no UTF-8 form raises.
        return lambda value: type(value) is str and (value.isascii() or bool(value.encode()))
    if kind == TIMESTAMP:
        return lambda value: type(value) is datetime and value.tzinfo is _ZONE
    exact = {pa.float64(): float, pa.bool_(): bool, pa.binary(): bytes, pa.date32(): date}.get(kind)
    return lambda value: type(value) is exact
