"""A user's operator on whole columns: one call for each epoch and input, with all of the partition's rows.

How a flow is partitioned must not show, so `on_batch` treats each key on its own. It can rely on getting all rows of a
key and epoch in one call, in their final order, keys by bucket. What it emits is put in order: by key where the output
has the key columns, so that only the order of a key's own rows is the user's; else each row stands for the input row at
its place. A call that raises is undone and made again for fewer keys, until the key that made it fail is found: its
rows of this epoch become dead letters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from operators.context import moment_of
from operators.index import KeyIndex, Slots
from operators.ledger import EMITTED, ROWS, Accounted
from operators.step import DEAD_LETTERS, Failure, Site, dead_letters, describe, spots
from operators.table_state import KeyedRows, Owned, TableState, fitted
from operators.tally import Tally
from seep.errors import Misuse
from seep.model.arrow import ArrowBatch, ArrowState, Buckets
from seep.model.care import CAREFREE, DIED, Care
from seep.model.epoch import Moment
from seep.model.ids import BEGINNING, BUCKETS
from seep.model.keyspace import buckets_of
from seep.model.schema import physical

COUNTERS = "counters"
_ROWS = "rows."


class BatchOperator:
    """Subclass it for an operator of your own on whole columns: declare `TableState`s, write `on_batch`.

    >>> import pyarrow.compute as pc
    >>> class Totals(BatchOperator):
    ...     totals = TableState({"total": int})
    ...     def on_batch(self, batch, ctx):
    ...         table = pa.Table.from_batches([batch]).group_by("store").aggregate([("amount", "sum")])
    ...         new = table.combine_chunks().to_batches()[0]
    ...         total = pc.add(new["amount_sum"], pc.fill_null(self.totals.get(new)["total"], 0))
    ...         rows = pa.record_batch({"store": new["store"], "total": total})
    ...         self.totals.put(rows)
    ...         ctx.emit(rows)
    """

    def on_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> None:
        """All rows of an epoch have come, by bucket of their key, the rows of a key in their order."""


def tables_of(operator: BatchOperator) -> dict[str, TableState]:
    """The declared states, by name."""
    found: dict[str, TableState] = {}
    for kind in reversed(type(operator).__mro__):
        found.update({name: value for name, value in vars(kind).items() if isinstance(value, TableState)})
    return found


class BatchContext:
    """The `ctx` of a columnar operator."""

    def __init__(self, emit: Callable[[Any, str], None]) -> None:
        self._emit = emit
        self._now_ms = 0
        self._watermark_us = BEGINNING
        self.epoch = 0
        self.port = 0
        """Which input the rows came in by: 0 is the stream `apply` was called on."""

    @property
    def now(self) -> datetime | None:
        """When the sources cut this epoch."""
        return moment_of(self._now_ms * 1000)

    @property
    def watermark(self) -> datetime | None:
        """No row earlier than this is expected; None: nothing is known yet."""
        return moment_of(self._watermark_us)

    def emit(self, batch: pa.RecordBatch, to: str = "out") -> None:
        """Send rows on; ``to`` names a side output declared with ``outs=``."""
        self._emit(batch, to)


@dataclass
class BatchApply(Accounted):
    """Runs a user's columnar operator."""

    operator: BatchOperator
    name: str
    keys: tuple[str, ...]
    inputs: tuple[pa.Schema, ...]
    outputs: Mapping[str, pa.Schema]
    on_error: str = "dead_letter"
    ports: tuple[int, ...] = ()
    """Physical port -> the input it belongs to (a union brings several ports to one input). Empty: as they are."""
    care: Care = CAREFREE
    _tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        first = physical(self.inputs[0])
        self._key_schema = pa.schema([first.field(key) for key in self.keys])
        self._tables = {
            name: KeyedRows(name, self._key_schema, state.values(self._key_schema), state.ttl_ms)
            for name, state in tables_of(self.operator).items()
        }
        self._outputs = {name: physical(schema) for name, schema in self.outputs.items()}
        self.carried = {**dict.fromkeys(self.outputs, EMITTED), "errors": ROWS}
        self._context = BatchContext(self._take_emitted)
        self._emitted: dict[str, list[ArrowBatch]] = {name: [] for name in self.outputs}
        self._batch = ArrowBatch(pa.RecordBatch.from_pylist([], schema=first), np.empty(0, np.uint16))
        self._owned: Owned = np.zeros(BUCKETS, np.bool_)

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {**self._outputs, "errors": DEAD_LETTERS}

    def take(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> dict[str, ArrowBatch]:
        context = self._context
        context.epoch, context._now_ms, context._watermark_us = moment.epoch, moment.now_ms, moment.watermark_before
        for table in self._tables.values():
            table.expire(moment.now_ms)
        by_input: dict[int, list[ArrowBatch]] = {}
        for port, batch in inputs:
            if batch.rows:
                by_input.setdefault(self.ports[port] if self.ports else port, []).append(batch)
        letters: list[ArrowBatch] = []
        for port in sorted(by_input):
            context.port = port
            batch = ArrowBatch.concat(by_input[port]).by_bucket()
            failures = self._call(batch)
            if failures:
                letters.append(self._refuse(batch, failures, moment))
        for table in self._tables.values():
            table.end()
        found = {name: self._ordered(ArrowBatch.concat(parts)) for name, parts in self._emitted.items() if parts}
        for parts in self._emitted.values():
            self.ledger.add(EMITTED, "+emitted", sum(part.rows for part in parts))
        self._emitted = {name: [] for name in self.outputs}
        if letters and self.on_error == "dead_letter":
            found["errors"] = ArrowBatch.concat(letters).by_bucket()
        return {name: batch for name, batch in found.items() if batch.rows}

    # --- user code -----------------------------------------------------------------------------------------------

    def _call(self, batch: ArrowBatch) -> list[Failure]:
        """Hand the rows over; if that fails, those of ever fewer keys."""
        if self.care.needed:
            return self._call_with_care(batch)
        error = self._try(batch)
        return [] if error is None else self._narrow(batch, error)

    def _call_with_care(self, batch: ArrowBatch) -> list[Failure]:
        """Without the keys that killed the process; each is tried alone first while one is looked for. A key stands
        where its first row does."""
        numbers, where = self._numbers(batch), spots(batch.buckets, f"in{self._context.port}")
        left = np.ones(batch.rows, np.bool_)
        for number, first in enumerate(np.unique(numbers, return_index=True)[1].tolist(), start=1):
            if where[first] in self.care.skips:
                left &= numbers != number
            elif self.care.one_by_one:
                self.care.begin(where[first], self.name, self.on_error == "fail")
                self._try(batch.chosen(numbers == number), undone=True)
        self.care.end()
        rows = np.flatnonzero(left)
        kept = batch.chosen(left)
        error = self._try(kept) if kept.rows else None
        found = [] if error is None else self._narrow(kept, error)
        failures = [Failure(int(rows[one.index]), one.error) for one in found]
        failures += [Failure(int(row), DIED) for row in np.flatnonzero(~left)]
        return sorted(failures, key=lambda failure: failure.index)

    def _numbers(self, batch: ArrowBatch) -> Slots:
        """Each row's key, numbered as they first come, from 1 on: so does a fresh index."""
        columns = [batch.record.column(key) for key in self.keys]
        return KeyIndex(self._key_schema.types, timed=False).find(columns, batch.rows).slots

    def _narrow(self, batch: ArrowBatch, error: str) -> list[Failure]:
        numbers = self._numbers(batch)
        failures: list[Failure] = []

        def narrow(low: int, high: int, error: str) -> None:
            if high - low == 1:
                failures.extend(Failure(int(row), error) for row in np.flatnonzero(numbers == low))
                return
            middle = (low + high) // 2
            for first, last in ((low, middle), (middle, high)):
                found = self._try(batch.chosen((numbers >= first) & (numbers < last)))
                if found is not None:
                    narrow(first, last, found)

        narrow(1, int(numbers.max()) + 1, error)
        return sorted(failures, key=lambda failure: failure.index)

    def _try(self, batch: ArrowBatch, undone: bool = False) -> str | None:
        """One call; undone when it raises, or in any case."""
        self._batch = batch
        self._owned = np.zeros(BUCKETS, np.bool_)
        self._owned[batch.buckets] = True
        for table in self._tables.values():
            table.begin(self._owned)
        marks = {name: len(parts) for name, parts in self._emitted.items()}
        self.operator.__dict__["_tables"] = self._tables
        try:
            self.operator.on_batch(batch.record, self._context)
            if undone:
                self._undo(marks)
        except Exception as error:  # user code may raise anything
            self._undo(marks)
            if self.on_error == "fail":
                raise Misuse(f"{self.name}: {describe(error)}; fix it or use on_error='dead_letter'") from error
            return describe(error)
        finally:
            self.operator.__dict__.pop("_tables", None)
        if not undone:
            self.ledger.add(ROWS, "-handled", batch.rows)
        return None

    def _undo(self, marks: Mapping[str, int]) -> None:
        for table in self._tables.values():
            table.undo()
        for name, length in marks.items():
            del self._emitted[name][length:]

    def _take_emitted(self, record: Any, to: str) -> None:
        if to not in self._outputs:
            raise KeyError(f"no output {to!r}; declared are {', '.join(self._outputs)}")
        rows = fitted(record, self._outputs[to], "emit")
        self._emitted[to].append(ArrowBatch(rows, self._buckets(rows)))

    def _buckets(self, rows: pa.RecordBatch) -> Buckets:
        """Where the rows belong in the order of the output."""
        if has_keys(rows.schema, self._key_schema):
            buckets = buckets_of(rows, self.keys)
            if not self._owned[buckets].all():
                raise Misuse("emit: a row has a key that is not in this batch; keep the key columns as they came")
            return buckets
        if rows.num_rows != self._batch.rows:
            keys = ", ".join(self.keys)
            raise Misuse(
                f"emit: {rows.num_rows} rows for {self._batch.rows}; give one for each row, or the key columns {keys}"
            )
        return self._batch.buckets

    def _ordered(self, batch: ArrowBatch) -> ArrowBatch:
        """By bucket; where the key columns are there, by key, so that the order of a user's groups does not show."""
        if batch.rows < 2 or not has_keys(batch.record.schema, self._key_schema):
            return batch.by_bucket()
        index = KeyIndex(self._key_schema.types, timed=False)
        found = index.find([batch.record.column(key) for key in self.keys], batch.rows)
        places = np.empty(index.capacity, np.int64)
        places[index.ordered(found.touched)] = np.arange(len(found.touched))
        return batch.chosen(np.argsort(places[found.slots], kind="stable"))

    def _refuse(self, batch: ArrowBatch, failures: list[Failure], moment: Moment) -> ArrowBatch:
        letters = dead_letters(batch, failures, Site(self.name, moment.epoch, self._tally))
        self._tally.add("errors" if self.on_error == "dead_letter" else "skipped", letters.buckets)
        self.ledger.add(ROWS, "-skipped", letters.rows if self.on_error == "skip" else 0)
        return letters

    # --- state ---------------------------------------------------------------------------------------------------

    def content(self) -> pa.RecordBatch:
        """What is kept for every key: its key columns, then the columns of each state (named ``state.column`` if
        there are several states)."""
        if len(self._tables) == 1:
            return next(iter(self._tables.values())).all()
        index = KeyIndex(self._key_schema.types, timed=False)
        for table in self._tables.values():
            rows = table.all()
            index.find([rows.column(key) for key in self.keys], rows.num_rows)
        slots = index.ordered(index.all())
        keys = pa.RecordBatch.from_arrays(index.keys(slots), schema=self._key_schema)
        columns = dict(zip(self.keys, keys.columns, strict=True))
        for name, table in self._tables.items():
            table.begin(np.ones(BUCKETS, np.bool_))
            rows = table.get(keys)
            columns |= {f"{name}.{column}": rows.column(column) for column in rows.schema.names[len(self.keys) :]}
        return pa.RecordBatch.from_pydict(columns)

    def snapshot(self, full: bool) -> ArrowState:
        tables = {_ROWS + name: table.snapshot(full) for name, table in self._tables.items()}
        return ArrowState({**tables, COUNTERS: self._tally.snapshot(full)})

    def mostly_changed(self) -> bool:
        return all(table.mostly_changed() for table in self._tables.values())

    def load(self, state: ArrowState) -> None:
        for name, table in self._tables.items():
            if _ROWS + name in state.tables:
                table.load(state.tables[_ROWS + name])
        if COUNTERS in state.tables:
            self._tally.load(state.tables[COUNTERS])

    def statistics(self) -> dict[str, int]:
        size = sum(table.size_bytes for table in self._tables.values())
        keys = max((len(table) for table in self._tables.values()), default=0)
        return {"keys": keys, "state_bytes": size, **self._tally.totals()}


def has_keys(schema: pa.Schema, keys: pa.Schema) -> bool:
    """Are the key columns among these, in the same types?"""
    return all(field.name in schema.names and schema.field(field.name).type == field.type for field in keys)
