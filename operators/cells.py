"""Cells: what one key remembers, one cell for each declared state.

Every change of a cell leaves an undo note, so a function that raises half-way leaves its key as it was; copying the
state before each row would cost its size. Only values that can be saved get in (`operators.packing`), so the row
that brings another is the one that fails, not a later checkpoint.

A value that can change in place (a list, dict or set) is copied when it comes in, and *lent* when it is read: the key
counts as changed from then on, and the undo note is a copy. So such a change is saved and undone like any other; the
price is a copy at the first look of each call, so large ones belong into a state of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from operators.packing import changeable, copied, plain

T = TypeVar("T")

NEVER = 2**62
"""The expiry (ms) of what does not expire."""


class Keeper:
    """What the cells of one key share: undo notes, the time, whether anything changed."""

    __slots__ = ("_lent", "changed", "now_ms", "undo")

    def __init__(self) -> None:
        self.undo: list[Callable[[], Any]] = []
        self.changed = False
        self.now_ms = 0
        self._lent: dict[int, Any] = {}
        """By identity: what the current call may have changed in place."""

    def begin(self, now_ms: int) -> None:
        """A call begins."""
        self.forget()
        self.now_ms = now_ms

    def forget(self) -> None:
        """Nothing of what was done is undone any more."""
        self.undo.clear()
        self._lent.clear()

    def lend(self, value: T, put_back: Callable[[T], Any]) -> T:
        """Hand out a value that a cell holds; ``put_back`` puts a copy in its place."""
        if changeable(value) and id(value) not in self._lent:
            before = copied(value)
            self._lent[id(value)] = value
            self.note(lambda: put_back(before))
        return value

    def check(self) -> None:
        """A call ends: can what it was lent still be saved?"""
        for value in self._lent.values():
            plain(value)

    def note(self, undo: Callable[[], Any]) -> None:
        self.undo.append(undo)
        self.changed = True

    def roll_back(self) -> None:
        while self.undo:
            self.undo.pop()()


class Cell(ABC):
    """One state of one key."""

    __slots__ = ("_keeper", "_ttl_ms")

    def __init__(self, keeper: Keeper, ttl_ms: int) -> None:
        self._keeper = keeper
        self._ttl_ms = ttl_ms

    def _expiry(self) -> int:
        return self._keeper.now_ms + self._ttl_ms if self._ttl_ms < NEVER else NEVER

    @abstractmethod
    def look(self) -> Any:
        """What it holds as plain data, for those who only look."""

    @abstractmethod
    def dump(self) -> list[Any]:
        """The saved form: entries that end in their expiry (ms), in an order that is part of the state."""

    @abstractmethod
    def restore(self, saved: list[Any]) -> None:
        """Take over a saved form."""

    def soonest(self) -> int:
        """When the first part expires (ms)."""
        if self._ttl_ms >= NEVER:
            return NEVER
        return min((entry[-1] for entry in self.dump()), default=NEVER)

    def expire(self, now_ms: int) -> None:
        """Forget what has expired."""
        saved = self.dump()
        kept = [entry for entry in saved if entry[-1] > now_ms]
        if len(kept) < len(saved):
            self.restore(kept)
            self._keeper.changed = True


class Value(Cell, Generic[T]):
    """One value: ``.value``, ``.clear()``."""

    __slots__ = ("_default", "_held")

    def __init__(self, keeper: Keeper, ttl_ms: int, default: T) -> None:
        super().__init__(keeper, ttl_ms)
        self._default = default
        self._held: tuple[T, int] | None = None

    @property
    def value(self) -> T:
        if self._held is None:
            return self._default
        held, expiry = self._held
        return self._keeper.lend(held, lambda before: setattr(self, "_held", (before, expiry)))

    @value.setter
    def value(self, value: T) -> None:
        self._hold((copied(value), self._expiry()))

    def look(self) -> Any:
        return self._default if self._held is None else self._held[0]

    def clear(self) -> None:
        self._hold(None)

    def _hold(self, held: tuple[T, int] | None) -> None:
        before = self._held
        self._held = held
        self._keeper.note(lambda: setattr(self, "_held", before))

    def dump(self) -> list[Any]:
        return [] if self._held is None else [self._held]

    def restore(self, saved: list[Any]) -> None:
        self._held = (saved[0][0], saved[0][1]) if saved else None


class Counter(Value[int]):
    """A number: ``.add(n)``, ``.value``."""

    __slots__ = ()

    def add(self, number: int = 1) -> None:
        self.value = self.value + number
