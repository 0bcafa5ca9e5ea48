"""A stateless step: rows in, rows out, fused behind a source or an operator.

A step never sees a partition, only rows with their origin buckets, so it may run wherever the sender runs. What it
drops or refuses is counted by origin bucket: the counts are state and must partition and merge like it. User code
that raises is narrowed down by halving the batch: the good rows pay only when there is a bad one, and expressions,
functions on rows and functions on batches need no separate treatment.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.ledger import Ledger
from operators.tally import Tally
from seep.errors import Misuse
from seep.model.arrow import ArrowBatch, Buckets
from seep.model.care import CAREFREE, DIED, Care, Spot
from seep.model.ids import BEGINNING

DEAD_LETTERS = pa.schema(
    [
        ("row", pa.string()),
        ("error", pa.string()),
        ("operator", pa.string()),
        ("epoch", pa.int64()),
        ("position", pa.string()),
    ]
)
"""The columns of `.errors`. Position is "bucket:index" among the rows that came to the step from one origin bucket
(a source's: "split:index"); a source reads before its rows have an epoch, so its dead letters have none."""

T = TypeVar("T")

ON_ERROR = ("dead_letter", "fail", "skip")


@dataclass
class Site:
    """Where a step runs: what a dead letter says of it, and where it counts."""

    operator: str
    epoch: int | None
    tally: Tally
    event_time: int = BEGINNING
    """The greatest event time (µs) that passed."""
    care: Care = CAREFREE
    step: str = ""
    """Which of the node's steps it is: two may have one name. Of a source, the split comes first: two may have one
    bucket."""
    ledger: Ledger = field(default_factory=Ledger)
    account: str = ""
    """Of the step that runs."""

    def count(self, term: str, buckets: Buckets) -> None:
        """These rows go no further."""
        self.tally.add(term, buckets)
        self.ledger.add(self.account, f"-{term}", len(buckets))


class Step(Protocol):
    """One stateless verb."""

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        """The columns of each output; ``out`` is the main one."""

    def run(self, batch: ArrowBatch, site: Site) -> dict[str, ArrowBatch]:
        """Outputs that have rows; buckets are origins, in the order of the input."""


@dataclass(frozen=True)
class Failure:
    """One row that user code refused."""

    index: int
    error: str


def describe(error: BaseException) -> str:
    """In one line: Polars says some of its errors in many."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def halving(
    batch: ArrowBatch,
    work: Callable[[ArrowBatch], T],
    on_error: str,
    site: Site,
    positions: npt.NDArray[np.int64] | None = None,
) -> tuple[list[T], list[Failure]]:
    """Run `work` on the batch, or on those parts of it that do not raise, without the rows that killed a process.

    ``positions``: of the rows among those of their buckets, where the batch does not hold all of these."""
    name, done = site.operator, list[T]()
    failures: list[Failure] = []

    def attempt(low: int, high: int) -> None:
        part = batch if high - low == batch.rows else slice_of(batch, low, high)
        try:
            done.append(work(part))
        except Exception as error:  # user code may raise anything
            if on_error == "fail":
                raise Misuse(f"{name}: {describe(error)}; fix the function or use on_error='dead_letter'") from error
            if high - low == 1:
                failures.append(Failure(low, describe(error)))
                return
            middle = (low + high) // 2
            attempt(low, middle)
            attempt(middle, high)

    if not site.care.needed:
        if batch.rows:
            attempt(0, batch.rows)
        return done, failures
    low = 0
    for at, spot in enumerate(spots(batch.buckets, site.step, positions)):
        if spot in site.care.skips or site.care.one_by_one:
            if low < at:
                attempt(low, at)
            low = at + 1
        if spot in site.care.skips:
            failures.append(Failure(at, DIED))
        elif site.care.one_by_one:
            site.care.begin(spot, name, on_error == "fail")
            attempt(at, at + 1)
    if low < batch.rows:
        attempt(low, batch.rows)
    site.care.end()
    return done, failures


def spots(buckets: Buckets, step: str, positions: npt.NDArray[np.int64] | None = None) -> list[Spot]:
    """Where each row is, however the flow is partitioned.

    >>> [spot.position for spot in spots(np.array([5, 5, 9, 5]), "")]
    [0, 1, 0, 2]
    """
    numbers = positions_of(buckets) if positions is None else positions
    return [Spot(step, bucket, at) for bucket, at in zip(buckets.tolist(), numbers.tolist(), strict=True)]


def positions_of(buckets: Buckets) -> npt.NDArray[np.int64]:
    """Each row's place among those of its bucket."""
    order = np.argsort(buckets, kind="stable")
    ordered = buckets[order]
    positions = np.empty(len(buckets), np.int64)
    positions[order] = np.arange(len(buckets)) - np.searchsorted(ordered, ordered)
    return positions


def finish(
    batch: ArrowBatch, parts: Sequence[ArrowBatch], failures: Sequence[Failure], on_error: str, site: Site
) -> dict[str, ArrowBatch]:
    """The outputs of a step: the parts that worked, and the dead letters of the rows that did not."""
    outputs: dict[str, ArrowBatch] = {}
    filled = [part for part in parts if part.rows]
    if filled:
        outputs["out"] = ArrowBatch.concat(filled)
    if failures:
        indices = np.array([failure.index for failure in failures])
        if on_error == "dead_letter":
            site.tally.add("errors", batch.buckets[indices])
            outputs["errors"] = dead_letters(batch, failures, site)
        else:
            site.count("skipped", batch.buckets[indices])
    return outputs


def keep_where(
    batch: ArrowBatch, mask_of: Callable[[ArrowBatch], npt.NDArray[np.bool_]], on_error: str, site: Site
) -> dict[str, ArrowBatch]:
    """The outputs of a filter; what it drops is counted."""

    def work(part: ArrowBatch) -> tuple[ArrowBatch, Buckets]:
        mask = mask_of(part)
        return keep_rows(part, mask), part.buckets[~mask]

    pairs, failures = halving(batch, work, on_error, site)
    for _, dropped in pairs:
        site.count("filtered", dropped)
    return finish(batch, [kept for kept, _ in pairs], failures, on_error, site)


def dead_letters(batch: ArrowBatch, failures: Sequence[Failure], site: Site) -> ArrowBatch:
    indices = np.array([failure.index for failure in failures])
    buckets = batch.buckets[indices]
    first = np.searchsorted(batch.buckets, buckets) if _ascending(batch.buckets) else np.zeros(len(buckets), np.int64)
    rows = python_rows(batch.record.take(pa.array(indices)))
    columns = [
        [row_text(row) for row in rows],
        [failure.error for failure in failures],
        [site.operator] * len(failures),
        [site.epoch] * len(failures),
        [f"{bucket}:{index - start}" for bucket, index, start in zip(buckets, indices, first, strict=True)],
    ]
    arrays = [pa.array(column, type) for column, type in zip(columns, DEAD_LETTERS.types, strict=True)]
    return ArrowBatch(pa.RecordBatch.from_arrays(arrays, schema=DEAD_LETTERS), buckets)


def python_rows(record: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as dicts; a time that Python has no form for as the number that it is."""
    try:
        found: list[dict[str, Any]] = record.to_pylist()
        return found
    except OverflowError:
        columns = [[_python_value(value) for value in column] for column in record.columns]
        return [dict(zip(record.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _python_value(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except OverflowError:
        return value.value


def row_text(row: Mapping[str, Any]) -> str:
    """A row as JSON; what JSON has no form for is written as text.

    >>> row_text({"f": float("nan"), "l": [float("-inf")], "b": b"x"})
    '{"f": "nan", "l": ["-inf"], "b": "78"}'
    """
    try:
        return json.dumps(row, default=_text, allow_nan=False)
    except ValueError:  # a NaN or an infinity, which Python would write in a form of its own
        return json.dumps(_without_nan(row), default=_text)


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _without_nan(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else str(value)
        case Mapping():
            return {name: _without_nan(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_without_nan(inner) for inner in value]
    return value


def slice_of(batch: ArrowBatch, low: int, high: int) -> ArrowBatch:
    return ArrowBatch(batch.record.slice(low, high - low), batch.buckets[low:high])


def keep_rows(batch: ArrowBatch, mask: npt.NDArray[np.bool_]) -> ArrowBatch:
    if bool(mask.all()):
        return batch
    return ArrowBatch(batch.record.filter(pa.array(mask)), batch.buckets[mask])


def runs(buckets: Buckets) -> list[tuple[int, int]]:
    """The stretches ``[low, high)`` of equal buckets."""
    if len(buckets) == 0:
        return []
    edges = [0, *(np.flatnonzero(buckets[1:] != buckets[:-1]) + 1).tolist(), len(buckets)]
    return list(pairwise(edges))


def _ascending(buckets: Buckets) -> bool:
    return len(buckets) < 2 or bool((buckets[1:] >= buckets[:-1]).all())
