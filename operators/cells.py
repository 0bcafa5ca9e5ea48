"""Cells: what one key remembers, one cell for each declared state.

Every change of a cell leaves an undo note, so a function that raises half-way leaves its key as it was; copying the
state before each row would cost its size. Only values that can be saved get in (`operators.packing`), so the row
that brings another is the one that fails, not a later checkpoint. Replace values, do not change them in place: a
change that no cell saw is neither saved nor undone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, MutableMapping, MutableSequence, MutableSet
from typing import Any, Generic, TypeVar, overload

from operators.packing import plain

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

NEVER = 2**62
"""The expiry (ms) of what does not expire."""


class Keeper:
    """What the cells of one key share: undo notes, the time, whether anything changed."""

    __slots__ = ("changed", "now_ms", "undo")

    def __init__(self) -> None:
        self.undo: list[Callable[[], Any]] = []
        self.changed = False
        self.now_ms = 0

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
        return self._default if self._held is None else self._held[0]

    @value.setter
    def value(self, value: T) -> None:
        self._hold((plain(value), self._expiry()))

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


class Items(Cell, MutableSequence[T]):
    """Like a list; each element expires on its own."""

    __slots__ = ("_items",)

    def __init__(self, keeper: Keeper, ttl_ms: int) -> None:
        super().__init__(keeper, ttl_ms)
        self._items: list[tuple[T, int]] = []

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> T | list[T]:
        if isinstance(at, slice):
            return [value for value, _ in self._items[at]]
        return self._items[at][0]

    def __iter__(self) -> Iterator[T]:
        return (value for value, _ in self._items)

    def __setitem__(self, at: Any, value: Any) -> None:
        if isinstance(at, slice):
            self._copy_first()
            self._items[at] = [(plain(one), self._expiry()) for one in value]
            return
        before = self._items[at]
        self._items[at] = (plain(value), self._expiry())
        self._keeper.note(lambda: self._items.__setitem__(at, before))

    def __delitem__(self, at: Any) -> None:
        self._copy_first()
        del self._items[at]

    def insert(self, index: int, value: T) -> None:
        if index >= len(self._items):
            self._items.append((plain(value), self._expiry()))
            self._keeper.note(self._items.pop)
            return
        self._copy_first()
        self._items.insert(index, (plain(value), self._expiry()))

    def clear(self) -> None:
        self._copy_first()
        self._items.clear()

    def __eq__(self, other: object) -> bool:
        return list(self) == (list(other) if isinstance(other, Items) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))

    def _copy_first(self) -> None:
        """Before changes that move elements: the undo is a copy. Appending, the usual change, needs none."""
        before = list(self._items)
        self._keeper.note(lambda: self._items.__setitem__(slice(None), before))

    def dump(self) -> list[Any]:
        return self._items

    def restore(self, saved: list[Any]) -> None:
        self._items = [(value, expiry) for value, expiry in saved]


class Mapping(Cell, MutableMapping[K, V]):
    """Like a dict; each entry expires on its own."""

    __slots__ = ("_entries", "_next")

    def __init__(self, keeper: Keeper, ttl_ms: int) -> None:
        super().__init__(keeper, ttl_ms)
        self._entries: dict[K, tuple[V, int, int]] = {}
        """Key -> (value, expiry, when it was inserted)."""
        self._next = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __getitem__(self, key: K) -> V:
        return self._entries[key][0]

    def __setitem__(self, key: K, value: V) -> None:
        before = self._entries.get(key)
        number = self._next if before is None else before[2]
        self._entries[plain(key)] = (plain(value), self._expiry(), number)
        if before is None:
            self._next += 1
            self._keeper.note(lambda: self._entries.pop(key))
        else:
            self._keeper.note(lambda: self._entries.__setitem__(key, before))

    def __delitem__(self, key: K) -> None:
        before = self._entries.pop(key)
        self._keeper.note(lambda: self._put_back(key, before))

    def _put_back(self, key: K, before: tuple[V, int, int]) -> None:
        # An operator may iterate, so the order of entries is part of the state.
        self._entries[key] = before
        self._entries = dict(sorted(self._entries.items(), key=lambda entry: entry[1][2]))

    def __repr__(self) -> str:
        return repr({key: entry[0] for key, entry in self._entries.items()})

    def dump(self) -> list[Any]:
        return [(key, value, expiry) for key, (value, expiry, _) in self._entries.items()]

    def restore(self, saved: list[Any]) -> None:
        self._entries = {key: (value, expiry, at) for at, (key, value, expiry) in enumerate(saved)}
        self._next = len(saved)


class Members(Cell, MutableSet[T]):
    """Like a set that remembers the order of first insertion; each member expires on its own."""

    __slots__ = ("_map",)

    def __init__(self, keeper: Keeper, ttl_ms: int) -> None:
        super().__init__(keeper, ttl_ms)
        self._map: Mapping[T, None] = Mapping(keeper, ttl_ms)

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> set[Any]:
        # What `a & b` gives is a plain set: it belongs to no key.
        return set(it)

    def __len__(self) -> int:
        return len(self._map)

    def __iter__(self) -> Iterator[T]:
        return iter(self._map)

    def __contains__(self, value: object) -> bool:
        return value in self._map

    def add(self, value: T) -> None:
        self._map[value] = None

    def discard(self, value: T) -> None:
        if value in self._map:
            del self._map[value]

    def __repr__(self) -> str:
        return repr(set(self))

    def dump(self) -> list[Any]:
        return [(value, expiry) for value, _, expiry in self._map.dump()]

    def restore(self, saved: list[Any]) -> None:
        self._map.restore([(value, None, expiry) for value, expiry in saved])
