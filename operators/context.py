"""What a user's operator sees of the world: the key, the epoch, time, timers, a seeded random, a way to emit.

Everything here is a function of the input and its epoch, so that a replay gives the same answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import is_dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from operators.cells import NEVER, Cell, Keeper
from operators.packing import SIMPLE
from seep.model.ids import BEGINNING, FOREVER

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Timer = tuple[int, bool]
"""(time in µs, by event time?)"""


class Entry:
    """Everything kept for one key."""

    __slots__ = ("bucket", "cells", "expires_ms", "identity", "keeper", "key", "ticked", "timers", "values")

    def __init__(self, identity: bytes, bucket: int, values: tuple[Any, ...], key: Any) -> None:
        self.identity = identity
        """The canonical bytes of the key."""
        self.bucket = bucket
        self.values = values
        self.key = key
        self.keeper = Keeper()
        self.cells: dict[str, Cell] = {}
        self.timers: set[Timer] = set()
        self.ticked = 0
        """The number of the last tick this key has had, or of the one before it came."""
        self.expires_ms = NEVER

    def empty(self) -> bool:
        return not self.timers and not any(cell.dump() for cell in self.cells.values())


class Context:
    """The `ctx` of a user's operator."""

    def __init__(
        self, operator: str, outputs: Sequence[str], broadcasts: Mapping[int, Mapping[Any, Any]] | None = None
    ) -> None:
        self._operator = operator
        self._broadcasts = broadcasts or {}
        self._entry: Entry | None = None
        self._randoms: dict[bytes, Random] = {}
        self._watermark_us = BEGINNING
        self._now_ms = 0
        self._emitted: dict[str, tuple[list[Any], list[int]]] = {name: ([], []) for name in outputs}
        self._new_timers: list[tuple[Timer, Entry]] = []
        self.epoch = 0
        self.port = 0
        """Which input the row came in by: 0 is the stream `apply` was called on."""

    @property
    def key(self) -> Any:
        """The current key: a scalar for one column, a named tuple for several."""
        return self._current.key

    @property
    def now(self) -> datetime:
        """When the sources cut this epoch."""
        return moment_of(self._now_ms * 1000) or _EPOCH

    @property
    def watermark(self) -> datetime | None:
        """No row earlier than this is expected; None: nothing is known yet."""
        return moment_of(self._watermark_us)

    @property
    def random(self) -> Random:
        """Seeded by operator, key and epoch: the same numbers at every replay."""
        entry = self._current
        if entry.identity not in self._randoms:
            self._randoms[entry.identity] = Random(f"{self._operator}|{self.epoch}|".encode() + entry.identity)
        return self._randoms[entry.identity]

    def broadcast(self, port: int = 1) -> Mapping[Any, Any]:
        """Of a broadcast input, by its key: the latest row, as of this epoch."""
        if port not in self._broadcasts:
            raise KeyError(
                f"input {port} is not broadcast; these are: {', '.join(map(str, self._broadcasts)) or 'none'}"
            )
        return self._broadcasts[port]

    def emit(self, row: Any, to: str = "out") -> None:
        """Send a row on; ``to`` names a side output declared with ``outs=``."""
        if to not in self._emitted:
            raise KeyError(f"no output {to!r}; declared are {', '.join(self._emitted)}")
        rows, buckets = self._emitted[to]
        rows.append(as_of_now(row))
        buckets.append(self._current.bucket)

    def set_timer(self, at: datetime, event_time: bool = True) -> None:
        """Call `on_timer(at)` for this key when the watermark (or the epoch's time) reaches `at`: if it has already, at
        the end of this epoch."""
        entry, timer = self._current, (microseconds_of(at), event_time)
        if timer not in entry.timers:
            entry.timers.add(timer)
            entry.keeper.note(lambda: entry.timers.discard(timer))
            self._new_timers.append((timer, entry))

    def cancel_timer(self, at: datetime, event_time: bool = True) -> None:
        entry, timer = self._current, (microseconds_of(at), event_time)
        if timer in entry.timers:
            entry.timers.discard(timer)
            entry.keeper.note(lambda: entry.timers.add(timer))

    @property
    def _current(self) -> Entry:
        if self._entry is None:
            raise RuntimeError("the context belongs to a key: use it only inside on_row, on_timer, on_tick, on_epoch")
        return self._entry


def as_of_now(row: Any) -> Any:
    """The row as it is now: it becomes columns at the end of the epoch, and what it holds may change until then.

    >>> held = [1]
    >>> row = as_of_now({"all": held})
    >>> held.append(2)
    >>> row
    {'all': [1]}
    """
    if type(row) is dict:
        return {name: value if type(value) in SIMPLE else deepcopy(value) for name, value in row.items()}
    if isinstance(row, tuple | list):
        return row if type(row) is not list and SIMPLE.issuperset(map(type, row)) else deepcopy(row)
    if is_dataclass(row):
        fixed = hasattr(row, "__dict__") and SIMPLE.issuperset(map(type, vars(row).values()))
        return copy(row) if fixed else deepcopy(row)
    return row


def moment_of(time_us: int) -> datetime | None:
    if time_us <= BEGINNING:
        return None
    if time_us >= FOREVER:
        return _LATEST
    return _EPOCH + time_us * _MICROSECOND


def microseconds_of(at: datetime) -> int:
    if not isinstance(at, datetime):
        raise TypeError(f"a timer needs a datetime, not {at!r}")
    aware = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    return (aware - _EPOCH) // _MICROSECOND
