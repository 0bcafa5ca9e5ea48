"""What a source and a sink are to the compiler: splits that can be read again, and records that can be shown twice.

A connector knows nothing of event time, key ranges or fused steps; `seep.flow.intake` and `seep.flow.outlet` put those
around it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa


class Refused(NamedTuple):
    """What lay in a split but could not be read as a row."""

    text: str
    reason: str
    position: Any = None
    """Where, if it is known better than by the whole read."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What was read of a split."""

    record: pa.RecordBatch
    position: Any
    """Where the next read goes on: a value of int, str, list, dict."""
    ended: bool
    refused: tuple[Refused, ...] = ()


class Source(Protocol):
    """Splits of rows. Which rows lie between two positions never changes."""

    @property
    def schema(self) -> pa.Schema:
        """In physical form."""

    @property
    def splits(self) -> int: ...

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Rows | None:
        """Rows after `position` (None: the start), at most `limit_rows`; or, with `until`, exactly those up to it.
        Never blocks; None when there is nothing now.

        A source that knows how far behind it is has a method more: ``behind(split, position, now_ms) -> int | None``,
        the rows after `position` that could be read now (an estimate will do). One whose input never ends by itself
        has an attribute ``endless = True``. One that has to look something up first has a method
        ``prepared() -> Source``, called once where a job starts; what it gives back is kept with the job.
        """


Publish = Callable[[int, pa.RecordBatch | None, bool], int]
"""(epoch, rows, ended) -> the epoch up to which the committed log is no longer needed (-1: keep it all)."""


class Sink(Protocol):
    """Where committed rows are made visible. Publishing may happen twice for the same epoch."""

    @property
    def kind(self) -> str: ...

    def open(self, name: str) -> Publish:
        """Called in the worker, once for each partition of the sink. Rows come with their origin bucket as the last
        column (`seep.model.arrow.BUCKET`), ascending."""
