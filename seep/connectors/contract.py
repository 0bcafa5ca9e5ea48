"""What a source and a sink are to the compiler: splits that can be read again, and records that can be shown twice.

A connector knows nothing of event time, key ranges or fused steps; `seep.flow.intake` and `seep.flow.outlet` put those
around it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from seep.model.care import Care, carefree


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
        ``prepared() -> Source``, called once where a job starts; what it gives back is kept with the job. One with
        compiled loops of its own has ``warm()``, called where workers start: it loads them.

        One that asks somebody else for its rows has ``caught_up(split, position) -> bool``, as
        `seep.partition.contract.Intake` has it: what is only not heard of yet must not count as silence.

        One that runs a user's code for single pieces of its input has an attribute ``care``, a
        `seep.model.care.Care`, set before each call: a piece that it notes, and that kills, is found and left out.

        One whose splits may become more has ``grows = True`` and ``appeared(now_ms) -> {split: position}``, as
        `seep.partition.contract.Intake` has it; one that knows where they begin has ``begins(split) -> position``.
        ``taken_up({split: position}) -> {split: (split in the savepoint or None, position)}``: those of a savepoint by
        the numbers that they have now. One whose splits only have other numbers when others stand beside them says what
        each is: ``split_names``, in the order of their numbers.

        One that keeps itself what it was sent has ``kept_in(directory) -> Source``, called after that with a directory
        of the job; ``forget(split, position)``: nothing before that is asked for again; ``drained(split, position) ->
        bool``: it takes no more, and says whether all that it took was read; ``close()``: somebody else reads now.
        """


AT_MOST_ONCE = "at-most-once"
"""`Opening.guarantee` of a sink that is given each epoch once, whatever comes of it: it need not keep marks, and should
not try again what may have arrived."""


class Committed(NamedTuple):
    """An epoch of one partition of a sink, as its committed log has it."""

    epoch: int
    record: pa.RecordBatch | None
    """Its rows, with their origin bucket as the last column (`seep.model.arrow.BUCKET`), ascending."""
    ended: bool
    """Nothing follows: what is held back must become visible."""


Publish = Callable[[Sequence[Committed]], int]
"""Some epochs in order -> the epoch up to which the committed log is no longer needed (-1: keep it all). Does the I/O.
Raises OSError for what may work later: it is called again (at most once: it is not). A `SeepError` stops the flow with
its message."""


def unheard(epoch: int, refused: Refused) -> None:
    """Where nobody keeps dead letters."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What a partition of a sink is told before it publishes."""

    name: str
    """Of the sink."""
    number: int = 0
    """Of the partition; never used again for another one."""
    guarantee: str = "exactly-once"
    table_keys: tuple[str, ...] | None = None
    """Of a Table, whose rows are changes: each says which in the column `seep.model.arrow.CHANGE`."""
    forgotten: bool = False
    """Epochs with rows were published and have been forgotten, by this partition or one started before it."""
    care: Callable[[int], Care] = carefree
    """By epoch: how a user's own code is run."""
    refuse: Callable[[int, Refused], None] = unheard
    """By epoch: a row that cannot be written, and never will be. Called once the rest of the epoch is visible."""


class Sink(Protocol):
    """Where committed rows are made visible. Publishing may happen twice for the same epoch.

    A sink that can tell what it cannot write has a method ``check(schema, table_keys) -> None``, called when the flow
    is built (``table_keys`` is None for a Stream); ``prepared() -> Sink`` is as with sources.
    """

    @property
    def kind(self) -> str: ...

    def open(self, opening: Opening) -> Publish:
        """Called in the worker, once for each partition of the sink. Never blocks."""
