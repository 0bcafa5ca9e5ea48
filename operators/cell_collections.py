"""Cells that are like a list, a dict and a set; what they give out as a whole (`copy`, `+`, `|`) is plain and belongs
to no key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, MutableSequence, MutableSet
from collections.abc import Mapping as Entries
from itertools import chain
from typing import Any, TypeVar, overload

from operators.cells import Cell, Keeper
from operators.packing import copied, plain

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


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
            return [self._lend(index) for index in range(len(self._items))[at]]
        return self._lend(range(len(self._items))[at])

    def _lend(self, index: int) -> T:
        value, expiry = self._items[index]
        return self._keeper.lend(value, lambda before: self._items.__setitem__(index, (before, expiry)))

    def __iter__(self) -> Iterator[T]:
        index = 0
        while index < len(self._items):
            yield self._lend(index)
            index += 1

    def __setitem__(self, at: Any, value: Any) -> None:
        if isinstance(at, slice):
            new = [(copied(one), self._expiry()) for one in value]
            self._copy_first()
            self._items[at] = new
            return
        before = self._items[at]
        self._items[at] = (copied(value), self._expiry())
        self._keeper.note(lambda: self._items.__setitem__(at, before))

    def __delitem__(self, at: Any) -> None:
        self._copy_first()
        del self._items[at]

    def insert(self, index: int, value: T) -> None:
        if index >= len(self._items):
            self._items.append((copied(value), self._expiry()))
            self._keeper.note(self._items.pop)
            return
        self._copy_first()
        self._items.insert(index, (copied(value), self._expiry()))

    def clear(self) -> None:
        self._copy_first()
        self._items.clear()

    def sort(self, *, key: Callable[[T], Any] | None = None, reverse: bool = False) -> None:
        """As a list does; each element keeps its expiry."""
        self._copy_first()
        self._items.sort(key=lambda item: item[0] if key is None else key(item[0]), reverse=reverse)  # type: ignore[arg-type,return-value]

    def reverse(self) -> None:
        self._copy_first()
        self._items.reverse()

    def copy(self) -> list[T]:
        """A plain list: it belongs to no key."""
        return list(self)

    def __add__(self, other: Iterable[T]) -> list[T]:
        return list(self) + list(other)

    def __radd__(self, other: Iterable[T]) -> list[T]:
        return list(other) + list(self)

    def __eq__(self, other: object) -> bool:
        return self.look() == (other.look() if isinstance(other, Items) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.look())

    def _copy_first(self) -> None:
        """Before changes that move elements: the undo is a copy. Appending, the usual change, needs none."""
        before = list(self._items)
        self._keeper.note(lambda: self._items.__setitem__(slice(None), before))

    def look(self) -> list[T]:
        return [value for value, _ in self._items]

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
        value, expiry, number = self._entries[key]
        return self._keeper.lend(value, lambda before: self._entries.__setitem__(key, (before, expiry, number)))

    def __setitem__(self, key: K, value: V) -> None:
        before = self._entries.get(key)
        number = self._next if before is None else before[2]
        self._entries[plain(key)] = (copied(value), self._expiry(), number)
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

    def setdefault(self, key: K, default: V = None) -> V:  # type: ignore[assignment]
        if key not in self._entries:
            self[key] = default
        return self[key]  # the one that is kept, not the one given

    def copy(self) -> dict[K, V]:
        """A plain dict: it belongs to no key."""
        return dict(self)

    def __or__(self, other: Entries[K, V]) -> dict[K, V]:
        return dict(self) | dict(other)

    def __ror__(self, other: Entries[K, V]) -> dict[K, V]:
        return dict(other) | dict(self)

    def __ior__(self, other: Entries[K, V]) -> Mapping[K, V]:
        self.update(other)
        return self

    def __repr__(self) -> str:
        return repr(dict(self.look()))

    def look(self) -> list[tuple[K, V]]:
        return [(key, value) for key, (value, _, _) in self._entries.items()]

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

    def update(self, *others: Iterable[T]) -> None:
        for value in chain(*others):
            self.add(value)

    def difference_update(self, *others: Iterable[T]) -> None:
        for value in chain(*others):
            self.discard(value)

    def intersection_update(self, *others: Iterable[T]) -> None:
        self.difference_update(self.difference(self.intersection(*others)))

    def copy(self) -> set[T]:
        """A plain set: it belongs to no key."""
        return set(self)

    def union(self, *others: Iterable[T]) -> set[T]:
        return set(self).union(*others)

    def intersection(self, *others: Iterable[T]) -> set[T]:
        return set(self).intersection(*others)

    def difference(self, *others: Iterable[T]) -> set[T]:
        return set(self).difference(*others)

    def symmetric_difference(self, other: Iterable[T]) -> set[T]:
        return set(self).symmetric_difference(other)

    def issubset(self, other: Iterable[T]) -> bool:
        return set(self).issubset(other)

    def issuperset(self, other: Iterable[T]) -> bool:
        return set(self).issuperset(other)

    def __repr__(self) -> str:
        return repr(set(self))

    def look(self) -> list[T]:
        return list(self._map)

    def dump(self) -> list[Any]:
        return [(value, expiry) for value, _, expiry in self._map.dump()]

    def restore(self, saved: list[Any]) -> None:
        self._map.restore([(value, None, expiry) for value, expiry in saved])
