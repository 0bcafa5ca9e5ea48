"""Rows that users' own aggregates refuse: they become dead letters, and no group knows of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from operators.accumulators import Refused
from operators.ledger import ROWS, Ledger
from operators.step import Failure, Site, finish
from operators.tally import Tally
from seep.errors import Misuse
from seep.model.arrow import ArrowBatch
from seep.model.epoch import Moment

COUNTERS = "counters"
"""The state table of what was counted."""


@dataclass
class Refusals:
    """Of one operator."""

    name: str
    on_error: str
    tally: Tally = field(default_factory=Tally)
    ledger: Ledger = field(default_factory=Ledger)
    """Whose rows they are."""

    def say(self, moment: Moment, batch: ArrowBatch, refused: Refused, outputs: dict[str, ArrowBatch]) -> None:
        """These rows of the batch go out as dead letters, unless the user wants otherwise."""
        if not refused:
            return
        if self.on_error == "fail":
            error = refused[min(refused)]
            raise Misuse(f"{self.name}: {error}; fix it or use on_error='dead_letter'")
        # In canonical order, so that their positions are final.
        order = np.argsort(batch.buckets, kind="stable")
        failures = [Failure(at, refused[row]) for at, row in enumerate(order.tolist()) if row in refused]
        site = Site(self.name, moment.epoch, self.tally, ledger=self.ledger, account=ROWS)
        names = [name for name in batch.record.schema.names if not name.startswith("__")]
        shown = ArrowBatch(batch.record.select(names), batch.buckets).chosen(order)
        found = finish(shown, [], failures, self.on_error, site)
        if "errors" in found:
            earlier = [outputs["errors"]] if "errors" in outputs else []
            outputs["errors"] = ArrowBatch.concat([*earlier, found["errors"]]).by_bucket()
