"""A user's operator: code that runs per key, with managed state, timers and ticks.

Nothing is called per partition, so parallelism never shows. One epoch goes: forget what has expired, take in what is
broadcast, rows in canonical order, due timers by time, ticks, `on_epoch` for every key that rows or timers touched,
timers that these have made due. A call that raises leaves its key, its timers and the output as they were before it,
and becomes a dead letter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from operators.context import Context, Entry, moment_of
from operators.keyed import KeyedEntries
from operators.ledger import EMITTED, LETTERS, ROWS, Accounted
from operators.replica import Replica
from operators.rowwise import record_of_results, rows_in
from operators.states import Declared
from operators.step import DEAD_LETTERS, Failure, Site, dead_letters, describe, halving, row_text, spots
from operators.tally import Tally
from seep.errors import Misuse
from seep.model.arrow import REPLICATED, ArrowBatch, ArrowState
from seep.model.care import CAREFREE, DIED, DIED_IN_CALL, Care, Spot
from seep.model.epoch import Moment
from seep.model.ids import BEGINNING, FOREVER
from seep.model.keyform import encode
from seep.model.schema import physical

MAX_REPEATS = 10_000
"""Timers of a key that fire in one epoch without getting any later: beyond this it is a loop."""


class Operator:
    """Subclass it for an operator of your own: declare its states as class attributes, write `on_row`, and what else
    is needed of `on_timer`, `on_tick` and `on_epoch`.

    >>> from operators.states import ValueState
    >>> class Total(Operator):
    ...     total = ValueState(int, default=0)
    ...     def on_row(self, row, ctx):
    ...         self.total.value += row.amount
    ...         ctx.emit({"store": ctx.key, "total": self.total.value})
    """

    state_version: int = 1
    """Of what the states hold. Who changes what it means raises it, and writes `migrate`."""

    def migrate(self, states: dict[str, Any], version: int) -> dict[str, Any]:
        """A savepoint of other states, or of another `state_version`, is restored: what one key held, by the name of
        the state, becomes what it holds from now on."""
        return states

    def on_row(self, row: Any, ctx: Context) -> None:
        """A row has come."""

    def on_timer(self, at: datetime, ctx: Context) -> None:
        """A timer of this key is due; a key's timers fire in the order of time, also those that timers set.

        At the end of input the watermark first gets to where the rows got, then `ctx.watermark` is the end of time:
        what is still set fires, and what that sets for later does not. Timers by the epoch's time that are not due by
        then never fire.
        """

    def on_tick(self, ctx: Context) -> None:
        """``apply(..., every="1s")``: once for each key with state."""

    def on_epoch(self, epoch: int, ctx: Context) -> None:
        """This epoch is complete: once for each key touched in it."""


def states_of(operator: Operator) -> dict[str, Declared[Any]]:
    """The declared states, by name."""
    found: dict[str, Declared[Any]] = {}
    for kind in reversed(type(operator).__mro__):
        found.update({name: value for name, value in vars(kind).items() if isinstance(value, Declared)})
    return found


def overrides(operator: Operator, method: str) -> bool:
    return getattr(type(operator), method) is not getattr(Operator, method)


@dataclass
class Apply(Accounted):
    """Runs a user's operator. ``keys``: the key columns of each input; None: unkeyed, hence stateless."""

    operator: Operator
    name: str
    keys: tuple[tuple[str, ...], ...] | None
    inputs: tuple[pa.Schema, ...]
    outputs: Mapping[str, pa.Schema]
    every_ms: int | None = None
    on_error: str = "dead_letter"
    ports: tuple[int, ...] = ()
    """Physical port -> the input it belongs to (a union brings several ports to one input). Empty: as they are."""
    broadcast: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """The inputs that every partition gets whole, with their key columns."""
    care: Care = CAREFREE
    _tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self._replicas = {port: Replica(keys, self.inputs[port]) for port, keys in self.broadcast.items()}
        self._context = Context(self.name, list(self.outputs), self._replicas)
        self._entries = KeyedEntries(states_of(self.operator), self.keys[0] if self.keys is not None else ())
        self.carried = {**dict.fromkeys(self.outputs, EMITTED), "errors": LETTERS}
        self._letters: list[tuple[int, str, str, str]] = []
        self._calls: Counter[tuple[str, int]] = Counter()
        """Of timers, ticks and on_epoch in this epoch, by kind and bucket, while somebody looks."""
        self._has_timers = overrides(self.operator, "on_timer")
        self._has_epochs = overrides(self.operator, "on_epoch")

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {**{name: physical(schema) for name, schema in self.outputs.items()}, "errors": DEAD_LETTERS}

    def take(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> dict[str, ArrowBatch]:
        context, entries = self._context, self._entries
        context.epoch, context._now_ms = moment.epoch, moment.now_ms
        context._watermark_us = moment.watermark_before
        entries.begin(moment.now_ms, moment.now_ms // self.every_ms if self.every_ms else 0)
        given = dict(self._by_input(inputs))
        for port, replica in self._replicas.items():
            if port in given:
                replica.take(given.pop(port))
        for port, batch in given.items():
            self._rows(port, batch)
        context._watermark_us = moment.watermark
        if self.keys is not None:
            self._fire(moment)
            if self.every_ms is not None:
                for entry in entries.before_tick():
                    self._call(entry, lambda: self.operator.on_tick(context), "on_tick", moment.now_ms)
            if self._has_epochs:
                for entry in entries.touched():
                    self._call(entry, lambda: self.operator.on_epoch(moment.epoch, context), "on_epoch", moment.epoch)
            # Ticks and on_epoch may have set timers that are due already.
            self._fire(moment)
            self.care.end()
            self._calls.clear()
            entries.end()
        context._entry = None
        context._randoms.clear()
        return self._collect(moment)

    def _by_input(self, inputs: Sequence[tuple[int, ArrowBatch]]) -> Iterator[tuple[int, ArrowBatch]]:
        grouped: dict[int, list[ArrowBatch]] = {}
        for port, batch in inputs:
            grouped.setdefault(self.ports[port] if self.ports else port, []).append(batch)
        for port in sorted(grouped):
            yield port, ArrowBatch.concat(grouped[port]).by_bucket()

    def _rows(self, port: int, batch: ArrowBatch) -> None:
        self._context.port = port
        operator, context, care, handled = self.operator, self._context, self.care, 0
        where = spots(batch.buckets, f"in{port}") if care.needed else []
        for (index, row), entry in zip(enumerate(rows_in(batch.record)), self._entries_of(port, batch), strict=True):
            if where and where[index] in care.skips:
                self._tally.add("errors" if self.on_error == "dead_letter" else "skipped", batch.buckets[[index]])
                if self.on_error == "dead_letter":
                    self._refuse(batch, index, DIED)
                else:
                    self.ledger.add(ROWS, "-skipped", 1)
                continue
            if where:
                care.begin(where[index], self.name, self.on_error == "fail")
            error = self._try(entry, lambda row=row: operator.on_row(row, context))  # type: ignore[misc]
            if error is None:
                handled += 1
            elif error:
                self._refuse(batch, index, error)
            else:
                self.ledger.add(ROWS, "-skipped", 1)
        care.end()
        self.ledger.add(ROWS, "-handled", handled)

    def _entries_of(self, port: int, batch: ArrowBatch) -> Iterator[Entry]:
        buckets = batch.buckets.tolist()
        if self.keys is None:
            for bucket in buckets:
                yield Entry(b"%d" % bucket, bucket, (), None)
            return
        columns = [batch.record.column(name) for name in self.keys[port]]
        offsets, words = encode(columns, batch.rows)
        data, edges = words.tobytes(), (offsets * 8).tolist()
        for index, bucket in enumerate(buckets):
            identity = data[edges[index] : edges[index + 1]]
            yield self._entries.of(identity, bucket, lambda at=index: tuple(c[at].as_py() for c in columns))  # type: ignore[misc]

    def _fire(self, moment: Moment) -> None:
        """Due timers; those that they set take their place among them, so a key's timers fire in the order of time,
        however many epochs the input was cut into.

        At the end of input everything is due, and a timer that always sets the next one would never end. So the time up
        to which the rows got passes first, as it would have in more epochs; then what is still set fires.
        """
        if moment.watermark >= FOREVER:
            self._fire_until(moment.reached, moment.now_ms * 1000, last=False)
        self._fire_until(moment.watermark, moment.now_ms * 1000, last=moment.watermark >= FOREVER)

    def _fire_until(self, watermark_us: int, now_us: int, last: bool) -> None:
        """``last``: a timer set for later than the one that sets it is forgotten."""
        context, entries = self._context, self._entries
        context._watermark_us = watermark_us
        repeats: dict[tuple[bytes, bool], tuple[int, int]] = {}
        while True:
            entries.await_timers(context._new_timers)
            context._new_timers = []
            due = entries.next_due(watermark_us, now_us)
            if due is None:
                return
            entry, (time_us, by_event) = due
            at = moment_of(time_us)
            if self._has_timers and at is not None:
                self._call(entry, lambda at=at: self.operator.on_timer(at, context), "on_timer", str(at))  # type: ignore[misc]
            if last and by_event:
                entry.timers.difference_update([t for t, _ in context._new_timers if t[1] and t[0] > time_us])
            latest, count = repeats.get((entry.identity, by_event), (BEGINNING, 0))
            if count >= MAX_REPEATS:
                raise Misuse(f"{self.name}: on_timer sets timers that are already due, without end")
            repeats[entry.identity, by_event] = (max(latest, time_us), count + 1 if time_us <= latest else 0)

    def _call(self, entry: Entry, work: Callable[[], None], kind: str, at: Any) -> None:
        error = self._failed(entry, DIED_IN_CALL) if self._is_left_out(entry, kind) else self._try(entry, work)
        if error:
            self.ledger.add(LETTERS, "+failed calls", 1)
            row = row_text({kind: at, "key": entry.key})
            self._letters.append((entry.bucket, row, error, f"{entry.bucket}:{entry.identity.hex()}"))

    def _is_left_out(self, entry: Entry, kind: str) -> bool:
        """Did this call end the process as often as it takes? Calls for the keys of one bucket come in one order,
        however the flow is partitioned."""
        if not self.care.needed:
            return False
        spot = Spot(kind, entry.bucket, self._calls[kind, entry.bucket])
        self._calls[kind, entry.bucket] += 1
        if spot in self.care.skips:
            return True
        self.care.begin(spot, f"{self.name}.{kind}", self.on_error == "fail")
        return False

    def _failed(self, entry: Entry, error: str) -> str:
        """What it failed with; empty: to be skipped."""
        self._tally.add("errors" if self.on_error == "dead_letter" else "skipped", np.array([entry.bucket]))
        return error if self.on_error == "dead_letter" else ""

    def _try(self, entry: Entry, work: Callable[[], None]) -> str | None:
        """Run user code for a key; undo everything it did when it raises. What it raised; empty: to be skipped."""
        context = self._context
        context._entry = entry
        self.operator.__dict__["_cells"] = entry.cells
        entry.keeper.begin(context._now_ms)
        marks = [(emitted, len(emitted[0])) for emitted in context._emitted.values()]
        try:
            work()
            entry.keeper.check()
        except Exception as error:  # user code may raise anything
            entry.keeper.roll_back()
            for (rows, buckets), length in marks:
                del rows[length:], buckets[length:]
            if self.on_error == "fail":
                raise Misuse(f"{self.name}: {describe(error)}; fix it or use on_error='dead_letter'") from error
            return self._failed(entry, describe(error))
        finally:
            self.operator.__dict__.pop("_cells", None)
        return None

    def _refuse(self, batch: ArrowBatch, index: int, error: str) -> None:
        site = Site(self.name, self._context.epoch, self._tally)
        letter = dead_letters(batch, [Failure(index, error)], site).record.to_pylist()[0]
        self._letters.append((int(batch.buckets[index]), letter["row"], error, letter["position"]))
        self.ledger.move(ROWS, "refused", LETTERS, 1)

    def _collect(self, moment: Moment) -> dict[str, ArrowBatch]:
        found: dict[str, ArrowBatch] = {}
        for name, (rows, buckets) in self._context._emitted.items():
            if rows:
                self.ledger.add(EMITTED, "+emitted", len(rows))
                found[name] = self._records(rows, buckets, self.outputs[name])
        self._context._emitted = {name: ([], []) for name in self.outputs}
        if self._letters:
            columns = list(zip(*self._letters, strict=True))
            count = len(self._letters)
            values = [columns[1], columns[2], [self.name] * count, [moment.epoch] * count, columns[3]]
            arrays = [pa.array(column, kind) for column, kind in zip(values, DEAD_LETTERS.types, strict=True)]
            record = pa.RecordBatch.from_arrays(arrays, schema=DEAD_LETTERS)
            found["errors"] = ArrowBatch(record, np.array(columns[0], np.uint16)).by_bucket()
            self._letters = []
        return {name: batch for name, batch in found.items() if batch.rows}

    def _records(self, rows: list[Any], buckets: list[int], schema: pa.Schema) -> ArrowBatch:
        """Emitted rows as columns. A row that does not fit becomes a dead letter; its state change stands."""
        numbers = ArrowBatch(
            pa.RecordBatch.from_arrays([pa.array(range(len(rows)), pa.int64())], names=["at"]),
            np.array(buckets, np.uint16),
        )

        def work(part: ArrowBatch) -> ArrowBatch:
            chosen = [rows[at] for at in part.record.column(0).to_pylist()]
            return ArrowBatch(record_of_results(chosen, schema), part.buckets)

        done, failures = halving(numbers, work, self.on_error, Site(self.name, None, self._tally))
        for failure in failures:
            self._tally.add("errors" if self.on_error == "dead_letter" else "skipped", numbers.buckets[[failure.index]])
            if self.on_error == "dead_letter":
                bucket = buckets[failure.index]
                row = row_text({"emitted": repr(rows[failure.index])})
                self._letters.append((bucket, row, failure.error, f"{bucket}:emit"))
                self.ledger.move(EMITTED, "refused", LETTERS, 1)
            else:
                self.ledger.add(EMITTED, "-skipped", 1)
        if not done:
            return ArrowBatch(record_of_results([], schema), np.empty(0, np.uint16))
        return ArrowBatch.concat(done).by_bucket()

    def content(self) -> pa.RecordBatch:
        """What every key remembers: its key columns, then a column for each declared state."""
        if self.keys is None:
            return pa.RecordBatch.from_pylist([], schema=pa.schema([]))
        return self._entries.content(pa.schema([physical(self.inputs[0]).field(name) for name in self.keys[0]]))

    def snapshot(self, full: bool) -> ArrowState:
        replicas = {f"{REPLICATED}{port}": replica.snapshot(full) for port, replica in self._replicas.items()}
        return ArrowState({"keys": self._entries.snapshot(full), "counters": self._tally.snapshot(full), **replicas})

    def mostly_changed(self) -> bool:
        return self._entries.mostly_changed()

    def load(self, state: ArrowState) -> None:
        self._entries.load(state.tables["keys"])
        self._tally.load(state.tables["counters"])
        for port, replica in self._replicas.items():
            if f"{REPLICATED}{port}" in state.tables:
                replica.load(state.tables[f"{REPLICATED}{port}"])

    def statistics(self) -> dict[str, int]:
        return {**self._entries.statistics(), **self._tally.totals()}
