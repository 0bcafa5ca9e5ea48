"""Stateless steps fused behind a source or an operator, and the routes at their ends.

The tails of a node are a tree: each step runs once for everything behind it. A route sets every row's target bucket
(`seep.flow.grouping`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from operators.books import TABLE, Books
from operators.combine import Combine, Combiner, worth_folding
from operators.index import KeyIndex
from operators.ledger import ROWS, SENT, STATE, STEP, Accounts, Entries, Entry, Ledger, balances, total
from operators.ledger import TABLE as ACCOUNT_TABLE
from operators.rehearsal import Rehearsal
from operators.retract import SIGN
from operators.search import warm_search
from operators.step import DEAD_LETTERS, Failure, Site, Step, dead_letters
from operators.tally import Tally
from seep.flow.grouping import Directed, Grouping
from seep.model.arrow import CHANGE, DELETE, ArrowBatch, ArrowState
from seep.model.care import CAREFREE, Care
from seep.model.epoch import Moment
from seep.model.ids import BEGINNING, FOREVER, KeyRange
from seep.model.keyspace import buckets_of
from seep.model.schema import physical

UNCLAIMED = 1_000
"""Dead letters kept for the host when no stream takes them; older ones are only counted."""

TAILS = "tails"
"""The state table of what came in, went out, and was counted by fused steps."""
BOOKS = TABLE
"""That of what came in and went out in each of the last epochs."""
IN = "in:"
"""Counter of the rows of a port ..."""
OUT = "out:"
"""... and of those put on an edge: state like the others, so that the audit is exact across splits and replays."""
IN_DIGEST, OUT_DIGEST = "in#", "out#"
"""And what these rows were: the sums of their digests."""
OFF = "off:"
"""And of an account that did not balance in an epoch: by how many rows."""
ACCOUNTS = ACCOUNT_TABLE
"""The state table of what became of the rows in the node."""
OWN = frozenset({TAILS, BOOKS, ACCOUNTS})
"""The state tables that are kept for the audit, beside those of the operator."""


@dataclass(frozen=True)
class Route:
    """The end of a tail: an edge, and how its rows find their target."""

    edge: str
    grouping: Grouping
    schema: pa.Schema
    combine: Combine | None = None
    """The rows are folded before they travel."""

    def turn(self, batch: ArrowBatch, epoch: int | None) -> ArrowBatch:
        targets = self.grouping.targets(batch, epoch or 0)
        record = batch.record
        if record.schema.names != self.schema.names:
            record = record.select(self.schema.names)
        return ArrowBatch(record, targets)


@dataclass(frozen=True)
class Tail:
    """A step and what follows each of its outputs."""

    name: str
    step: Step
    after: Mapping[str, tuple[Tail | Route, ...]]


_UNREAD = {"errors": "-errors", "late": "-late", "late_left": "-late", "late_right": "-late"}
"""What becomes of rows that no stream of the flow takes."""
Tails = Mapping[str, tuple[Tail | Route, ...]]
"""What follows each output of a node."""


@dataclass
class Runner:
    """Runs the tails of one node."""

    name: str
    tails: Tails
    unclaimed: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=UNCLAIMED))
    refused: Counter[str] = field(default_factory=Counter)
    """By operator: how many of those there were in all."""
    _combiners: dict[str, Combiner] = field(default_factory=dict)
    """By edge, made when its first rows come."""
    _folds: dict[str, tuple[int | None, bool]] = field(default_factory=dict)
    """By edge: the epoch, and whether its rows are folded."""

    def run(self, outputs: Mapping[str, ArrowBatch], site: Site) -> dict[str, ArrowBatch]:
        """By edge: the rows that have come to its end."""
        edges: dict[str, ArrowBatch] = {}
        self._follow(self.tails, outputs, site, edges, site.step)
        return edges

    def _follow(
        self, after: Tails, outputs: Mapping[str, ArrowBatch], site: Site, edges: dict[str, ArrowBatch], path: str
    ) -> None:
        for name, batch in outputs.items():
            if batch.rows == 0:
                continue
            followers = after.get(name, ())
            if name == "errors" and not followers:
                letters = batch.record.to_pylist()
                self.unclaimed.extend(letters)
                self.refused.update(letter["operator"] for letter in letters)
            if not followers:
                site.ledger.add(SENT, _UNREAD.get(name, "-unread"), batch.rows)
            site.ledger.add(SENT, "+copied", batch.rows * (len(followers) - 1) if followers else 0)
            for number, follower in enumerate(followers):
                if isinstance(follower, Route):
                    site.tally.add(OUT + follower.edge, batch.buckets)
                    sent = edges[follower.edge] = self._turn(follower, batch, site.epoch)
                    site.ledger.add(SENT, "-out", sent.weight)
                    site.tally.add_digest(OUT_DIGEST + follower.edge, int(batch.buckets[0]), sent.digest())
                else:
                    step = f"{path}{name}.{number}/"
                    self._follow(follower.after, self._step(follower, batch, site, step), site, edges, step)

    def _step(self, tail: Tail, batch: ArrowBatch, site: Site, step: str) -> dict[str, ArrowBatch]:
        site.operator, site.account, site.step = tail.name, STEP + tail.name, step
        site.ledger.move(SENT, "steps", site.account, batch.rows)
        outputs = tail.step.run(batch, site)
        site.ledger.move(site.account, "passed", SENT, sum(output.rows for output in outputs.values()))
        return outputs

    def _turn(self, route: Route, batch: ArrowBatch, epoch: int | None) -> ArrowBatch:
        if route.combine is None:
            return route.turn(batch, epoch)
        if self._folds.get(route.edge, (-1, False))[0] != epoch:
            # The first rows of an epoch decide for all of it (a source reads split after split, in their order).
            self._folds[route.edge] = (epoch, worth_folding(batch.record, route.combine.keys))
        if not self._folds[route.edge][1]:
            return route.turn(batch, epoch)
        if route.edge not in self._combiners:
            self._combiners[route.edge] = Combiner(route.combine)
        return self._combiners[route.edge].fold(batch.record)

    def take_unclaimed(self) -> list[dict[str, Any]]:
        """Dead letters that no stream takes, since the last call."""
        found = list(self.unclaimed)
        self.unclaimed.clear()
        return found


class FusedLogic:
    """An operator with its tails: what a partition runs (`seep.partition.contract.Logic`)."""

    def __init__(
        self,
        name: str,
        head: Any,
        tails: Tails,
        replicated: frozenset[int] = frozenset(),
        rehearsal: Rehearsal | None = None,
    ) -> None:
        self.head = head
        self.replicated = replicated
        self._rehearsal = rehearsal
        self.runner = Runner(name, tails)
        self.care: Care = CAREFREE
        self._tally = Tally()
        self._books = Books()
        self._accounts = Accounts()

    def take(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> dict[str, ArrowBatch]:
        ledger = Ledger()
        self._accounts.settle(batch.buckets for port, batch in inputs if port not in self.replicated)
        for port, batch in inputs:
            if port not in self.replicated and batch.rows:
                ledger.add(ROWS, "+in", batch.weight)
                self._tally.add(f"{IN}{port}", batch.buckets, batch.weights)
                self._tally.add_digest(f"{IN_DIGEST}{port}", int(batch.buckets[0]), batch.digest())
                self._books.note(f"{IN}{port}", moment.epoch, batch)
        if hasattr(self.head, "care"):
            self.head.care = self.care
        site = Site(self.runner.name, moment.epoch, self._tally, ledger=ledger, care=self.care)
        letters: list[ArrowBatch] = []
        if self.care.needed and self._rehearsal is not None:
            inputs, letters = self._rehearsal.sifted(inputs, site)
        outputs = self.head.take(moment, inputs)
        self._accounts.settle(batch.buckets for batch in outputs.values())
        for role, batch in outputs.items():
            account = self.head.carried.get(role)
            if account is None:
                ledger.add(SENT, "+made", batch.rows)
            else:
                ledger.move(account, "passed", SENT, batch.rows)
        errors = outputs.get("errors")
        if errors is not None and errors.record.schema != DEAD_LETTERS:
            # A window hands back rows without a usable time as they came.
            reasons = [Failure(at, "event time is null or out of range") for at in range(errors.rows)]
            outputs = {**outputs, "errors": dead_letters(errors, reasons, site)}
        if letters:
            ledger.move(ROWS, "passed", SENT, sum(batch.rows for batch in letters))
            known = [outputs["errors"]] if "errors" in outputs else []
            outputs = {**outputs, "errors": ArrowBatch.concat([*known, *letters]).by_bucket()}
        edges = self.runner.run(outputs, site)
        for edge, batch in edges.items():
            if batch.rows:
                self._books.note(OUT + edge, moment.epoch, batch)
        self._enter(total([ledger.take(), self.head.ledger.take()]), moment.epoch)
        self._books.forget(moment.epoch)
        return edges

    def _enter(self, entries: Entries, epoch: int) -> None:
        """The epoch's entries; what does not balance is remembered with it. What the state holds is looked at when it
        is audited."""
        self._accounts.add(entries)
        for account, rows in balances(entries).items():
            if rows and not account.startswith(STATE):
                self._books.note_off(OFF + account, epoch, self._accounts.home, rows)

    def snapshot(self, full: bool) -> ArrowState:
        own = {
            TAILS: self._tally.snapshot(full),
            BOOKS: self._books.snapshot(full),
            ACCOUNTS: self._accounts.snapshot(full),
        }
        return ArrowState({**self.head.snapshot(full).tables, **own})

    def mostly_changed(self) -> bool:
        found: bool = self.head.mostly_changed()
        return found

    def load(self, state: ArrowState) -> None:
        self._accounts.load(state)
        tables = {name: table for name, table in state.tables.items() if name != ACCOUNTS}
        for name, own in ((TAILS, self._tally), (BOOKS, self._books)):
            saved = tables.pop(name, None)
            if saved is not None:
                own.load(saved)
        self.head.load(ArrowState(tables))

    def holds(self, state: ArrowState) -> Mapping[Entry, int]:
        """What is pending in a saved state of this operator."""
        found: Mapping[Entry, int] = self.head.holds(state)
        return found

    def content(self) -> pa.RecordBatch:
        """What the operator remembers, for those who look: key columns by name, then values."""
        found: pa.RecordBatch = self.head.content()
        return found

    def statistics(self) -> dict[str, int]:
        found = dict(self.head.statistics())
        for name, count in self._tally.totals().items():
            if not name.startswith((IN_DIGEST, OUT_DIGEST)):
                found[name] = found.get(name, 0) + count
        return found

    def take_unclaimed(self) -> list[dict[str, Any]]:
        return self.runner.take_unclaimed()


@dataclass(frozen=True)
class LogicPlan:
    """Makes the operator of a node; picklable."""

    name: str
    head: Callable[[str, tuple[int, ...]], Any]
    ports: tuple[int, ...]
    tails: Tails
    combine: Combine | None = None
    """The senders fold the rows."""
    reason: str = ""
    """Why they do not, where they could be asked to."""
    groupings: tuple[Grouping, ...] = ()
    """How rows come in, by input."""
    unread: tuple[str, ...] = ()
    """Columns of the rows that do not travel."""
    replicated: frozenset[int] = frozenset()
    """Ports whose rows every partition gets."""

    def __call__(self) -> FusedLogic:
        return FusedLogic(self.name, self.head(self.name, self.ports), self.tails, self.replicated, self._rehearsal())

    def _rehearsal(self) -> Rehearsal | None:
        given = self.head.args[1] if isinstance(self.head, partial) else {}
        aggregates, schema = given.get("aggregates", {}), given.get("schema")
        return Rehearsal(schema, aggregates.values()) if aggregates and schema is not None else None

    def warm(self) -> None:
        """Load the compiled loops of a ready operator by two made-up rows, so that the first real ones do not wait.

        Users' code is never run for this, nor Polars, whose threads would make a fork of this process unsafe.
        """
        warm_search(KeyIndex([pa.string()], timed=False))
        given = self.head.args[1] if isinstance(self.head, partial) else {}
        if any(spec.foreign for spec in given.get("aggregates", {}).values()):
            return
        if "function" in given or any(isinstance(one, pl.Expr) for one in given.get("by", ())):
            return
        kind = self.head.args[0] if isinstance(self.head, partial) else None
        if isinstance(kind, type) and hasattr(kind, "ports"):
            if given.get("deleted") is None:
                _rehearse(self.head(self.name, self.ports))
            return
        if "left" in given and "right" in given:
            self._warm_join(given["left"], given["right"])
            return
        if "schema" not in given:
            return
        head, record = self.head(self.name, self.ports), _two_rows(physical(given["schema"]))
        batch = ArrowBatch(record, buckets_of(record, given.get("keys", ())))
        for grouping in self.groupings:
            if not isinstance(grouping, Directed):
                grouping.targets(batch, 1)
        forms = [batch] if self.combine is None else [batch, Combiner(self.combine).fold(record)]
        if given.get("deleted") is None:
            for epoch, watermark in ((1, BEGINNING), (2, FOREVER)):
                for form in forms:
                    found = head.take(Moment(epoch, 0, BEGINNING, watermark), [(0, form), (0, form)])
                    for output in found.values():
                        output.digest()
            head.load(head.snapshot(True))
            head.snapshot(False)
        for form in forms:
            form.part(KeyRange(0, 2048)).digest()

    def _warm_join(self, *sides: Any) -> None:
        head = self.head(self.name, tuple(range(len(sides))))
        records = [_two_rows(physical(side.schema)) for side in sides]
        inputs = [
            (port, ArrowBatch(record, buckets_of(record, side.keys)))
            for port, (side, record) in enumerate(zip(sides, records, strict=True))
        ]
        for epoch, watermark in ((1, BEGINNING), (2, BEGINNING), (3, FOREVER)):
            for output in head.take(Moment(epoch, 0, BEGINNING, watermark), inputs).values():
                output.digest()
            head.load(head.snapshot(True))
            head.snapshot(False)


def _rehearse(head: Any) -> None:
    """The same for an operator on Tables, which says what comes on its ports: rows come, go, and come again."""
    for epoch, watermark, goes in ((1, BEGINNING, False), (2, BEGINNING, True), (3, FOREVER, False)):
        inputs = []
        for port, (keys, schema) in enumerate(head.ports):
            record = _two_rows(schema)
            for name, value in ((CHANGE, DELETE), (SIGN, -1)):
                at = schema.get_field_index(name)
                if goes and at >= 0:
                    record = record.set_column(at, schema.field(at), pa.array([value] * 2, schema.field(at).type))
            inputs.append((port, ArrowBatch(record, buckets_of(record, keys))))
        for output in head.take(Moment(epoch, 0, BEGINNING, watermark), inputs).values():
            output.digest()
        head.load(head.snapshot(epoch == 1))


def _two_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_two_values(kind) for kind in schema.types], schema=schema)


def _two_values(kind: pa.DataType) -> pa.Array:
    """Not null where there is a way to make them: an event time never is."""
    for number in (pa.int64(), pa.int32()):
        try:
            return pa.array([1, 2], number).cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
    return pa.nulls(2, kind)


def constant(bucket: int, rows: int) -> Any:
    return np.full(rows, bucket, np.uint16)
