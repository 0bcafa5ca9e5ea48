"""A source as a partition runs it: the connector, event time, and the steps fused behind it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from operators.ledger import ROWS, SENT, named
from operators.step import DEAD_LETTERS, Site
from operators.tally import Tally
from seep.connectors.contract import Rows, Source
from seep.errors import Misuse
from seep.flow.fused import Runner, Tails, constant
from seep.model.arrow import ArrowBatch
from seep.model.care import CAREFREE, Care, Spot
from seep.model.schema import normalise, physical
from seep.partition.contract import Reading, split_bucket


@dataclass(frozen=True)
class IntakePlan:
    """Makes the intake of a node; picklable. Tests put another connector in its place."""

    name: str
    connector: Source
    lateness_us: int
    idle_ms: int | None
    tails: Tails

    def __call__(self) -> SourceIntake:
        return SourceIntake(self)

    def warm(self) -> None:
        """Load the compiled loops of the connector, so that its first rows do not wait."""
        load = getattr(self.connector, "warm", None)
        if load is not None:
            load()

    def prepared(self) -> IntakePlan:
        """As the job keeps it: with what the connector has to look up once."""
        ready = getattr(self.connector, "prepared", None)
        return self if ready is None else replace(self, connector=ready())

    def kept_in(self, home: Path) -> IntakePlan:
        """With a directory of its own, if the connector keeps something itself."""
        keeping = getattr(self.connector, "kept_in", None)
        return self if keeping is None else replace(self, connector=keeping(home))


class SourceIntake:
    """`seep.partition.contract.Intake`. A split's rows have its first bucket for origin."""

    def __init__(self, plan: IntakePlan) -> None:
        self.plan = plan
        self.epoch = 0
        self.care: Care = CAREFREE
        self.runner = Runner(plan.name, plan.tails)
        self._schema = physical(plan.connector.schema)
        self._careful = hasattr(plan.connector, "care")
        self.forget = getattr(plan.connector, "forget", None)
        self.drained = getattr(plan.connector, "drained", None)
        self.close = getattr(plan.connector, "close", None)
        self.begins = getattr(plan.connector, "begins", None)
        self.caught_up = getattr(plan.connector, "caught_up", None)
        self.grows = bool(getattr(plan.connector, "grows", False))
        self.appeared = plan.connector.appeared if self.grows else None  # type: ignore[attr-defined]

    @property
    def splits(self) -> int:
        return self.plan.connector.splits

    @property
    def lateness_us(self) -> int:
        return self.plan.lateness_us

    @property
    def idle_ms(self) -> int | None:
        return self.plan.idle_ms

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Reading | None:
        origin = split_bucket(split, self.splits)
        where = partial("source {!r}: read of split {} at {!r:.100}".format, self.plan.name, split, position)
        if self._careful:
            self.plan.connector.care = self.care  # type: ignore[attr-defined]
        with self.care.whole(Spot(f"{split}:read", origin, 0), where):
            found = self.plan.connector.read(split, position, until, limit_rows, now_ms)
        if found is None:
            return None
        site = Site(self.plan.name, self.epoch, Tally(), care=self.care, step=f"{split}:")
        record = found.record if found.record.schema == self._schema else self._fitted(found.record)
        outputs = {"out": ArrowBatch(record, constant(origin, record.num_rows))}
        if found.refused:
            outputs["errors"] = self._refused(found, split, origin)
            site.tally.add("errors", outputs["errors"].buckets)
        rows = found.record.num_rows + len(found.refused)
        site.ledger.add(ROWS, "+read", rows)
        site.ledger.move(ROWS, "passed", SENT, sum(output.rows for output in outputs.values()))
        edges: dict[str, Any] = dict(self.runner.run(outputs, site))
        counted = {**site.tally.totals(), **named(site.ledger.take())}
        return Reading(edges, found.position, rows, site.event_time, found.ended, counted)

    def _fitted(self, record: pa.RecordBatch) -> pa.RecordBatch:
        """A batch whose columns stand otherwise than the source said: in its order and types, if no value is lost."""
        record = normalise(record)
        for name in sorted({*record.schema.names} ^ {*self._schema.names}):
            what = "has no" if name in self._schema.names else "has a new"
            said = ", ".join(self._schema.names)
            raise Misuse(f"source {self.plan.name!r}: a batch {what} column {name!r}; the source said {said}")
        columns = []
        for field in self._schema:
            column = record.column(field.name)
            try:
                columns.append(column.cast(field.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
                found = f"in a batch {field.name!r} is a {column.type}"
                raise Misuse(f"source {self.plan.name!r}: {found}; the source said {field.type}") from problem
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def behind(self, split: int, position: Any, now_ms: int) -> int | None:
        """Rows after `position` that could be read now; None when the connector cannot say."""
        ask = getattr(self.plan.connector, "behind", None)
        rows: int | None = ask(split, position, now_ms) if ask is not None else None
        return rows

    def _refused(self, found: Rows, split: int, origin: int) -> ArrowBatch:
        count = len(found.refused)
        columns = [
            [one.text for one in found.refused],
            [one.reason for one in found.refused],
            [self.plan.name] * count,
            [self.epoch] * count,
            [f"{split}:{found.position if one.position is None else one.position}" for one in found.refused],
        ]
        arrays = [pa.array(column, kind) for column, kind in zip(columns, DEAD_LETTERS.types, strict=True)]
        return ArrowBatch(pa.RecordBatch.from_arrays(arrays, schema=DEAD_LETTERS), constant(origin, count))

    def take_unclaimed(self) -> list[dict[str, Any]]:
        return self.runner.take_unclaimed()
