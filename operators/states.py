"""The states a user's operator declares: one of each for every key, managed, partitioned and checkpointed by seep.

A declaration is a class attribute; inside `on_row` the same name gives the *cell* of the current key
(`operators.cells`, `operators.cell_collections`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta
from typing import Any, Generic, TypeVar, overload

from operators.cell_collections import Items, Mapping, Members
from operators.cells import NEVER, Cell, Counter, Keeper, Value
from operators.packing import KEEPS, changeable, holds
from seep.errors import Misuse
from seep.model.duration import positive_microseconds

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
C = TypeVar("C", bound=Cell)


def ttl_of(ttl: str | timedelta | None) -> int:
    """A time to live in ms, rounded up: nothing expires before its time.

    >>> ttl_of("1500us"), ttl_of(None) == NEVER
    (2, True)
    """
    return NEVER if ttl is None else -(-positive_microseconds(ttl) // 1000)


class Declared(ABC, Generic[C]):
    """A state declared as a class attribute of an Operator."""

    def __init__(self, ttl: str | timedelta | None = None, *kinds: Any) -> None:
        for kind in kinds:
            if not holds(kind):
                name = kind.__name__ if isinstance(kind, type) else kind
                raise Misuse(f"{type(self).__name__}: a state cannot keep {name}; {KEEPS}")
        self.ttl_ms = ttl_of(ttl)
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Declared[C]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> C: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        cells = instance.__dict__.get("_cells")
        if cells is None:
            raise AttributeError(f"state {self.name!r} belongs to a key: use it inside on_row, on_timer, on_tick, ...")
        return cells[self.name]

    def __set__(self, instance: object, value: object) -> None:
        # What `self.seen |= {..}` has changed in place comes back here.
        if value is not self.__get__(instance, type(instance)):
            raise AttributeError(f"state {self.name!r} cannot be replaced; change its content (such as .value)")

    @abstractmethod
    def cell(self, keeper: Keeper) -> C:
        """The empty cell of a new key."""


class ValueState(Declared[Value[T]], Generic[T]):
    """One value for each key, `None` or the default until it is set.

    A list, dict or set may be changed in place; its time to live counts from when it was set. Each call that reads it
    costs a copy, so what grows large belongs in a ListState, MapState or SetState.

    >>> import seep
    >>> class Length(seep.Operator):
    ...     total = seep.ValueState(int, default=0)
    ...     def on_row(self, row, ctx):
    ...         self.total.value += len(row.page)
    ...         ctx.emit({"n": self.total.value})
    >>> flow = seep.Flow("visits")
    >>> visits = flow.source("visits", seep.MemorySource([{"user": "ann", "page": p} for p in "aba"]))
    >>> visits.key_by("user").apply(Length(), out={"n": int}).collect("out")
    >>> [row["n"] for row in seep.run(flow)["out"].to_pylist()]
    [1, 2, 3]
    """

    def __init__(self, kind: type[T], default: T | None = None, ttl: str | timedelta | None = None) -> None:
        super().__init__(ttl, kind)
        if changeable(default):
            raise Misuse(f"ValueState: the default {default!r} would be shared; use ListState, MapState or SetState")
        self.kind = kind
        self.default = default

    def cell(self, keeper: Keeper) -> Value[T]:
        return Value(keeper, self.ttl_ms, self.default)  # type: ignore[arg-type]


class CounterState(Declared[Counter]):
    """A number for each key, which begins at 0.

    >>> import seep
    >>> class Hits(seep.Operator):
    ...     hits = seep.CounterState()
    ...     def on_row(self, row, ctx):
    ...         self.hits.add(1)
    ...         ctx.emit({"n": self.hits.value})
    >>> flow = seep.Flow("visits")
    >>> visits = flow.source("visits", seep.MemorySource([{"user": "ann", "page": p} for p in "aba"]))
    >>> visits.key_by("user").apply(Hits(), out={"n": int}).collect("out")
    >>> [row["n"] for row in seep.run(flow)["out"].to_pylist()]
    [1, 2, 3]
    """

    def cell(self, keeper: Keeper) -> Counter:
        return Counter(keeper, self.ttl_ms, 0)


class ListState(Declared[Items[T]], Generic[T]):
    """A list for each key, empty at first.

    >>> import seep
    >>> class Path(seep.Operator):
    ...     pages = seep.ListState(str)
    ...     def on_row(self, row, ctx):
    ...         self.pages.append(row.page)
    ...         ctx.emit({"n": "".join(self.pages)})
    >>> flow = seep.Flow("visits")
    >>> visits = flow.source("visits", seep.MemorySource([{"user": "ann", "page": p} for p in "aba"]))
    >>> visits.key_by("user").apply(Path(), out={"n": str}).collect("out")
    >>> [row["n"] for row in seep.run(flow)["out"].to_pylist()]
    ['a', 'ab', 'aba']
    """

    def __init__(self, kind: type[T], ttl: str | timedelta | None = None) -> None:
        super().__init__(ttl, kind)
        self.kind = kind

    def cell(self, keeper: Keeper) -> Items[T]:
        return Items(keeper, self.ttl_ms)


class MapState(Declared[Mapping[K, V]], Generic[K, V]):
    """A dict for each key, empty at first; with ``ttl="1h"`` an entry is forgotten an hour after it was written.

    >>> import seep
    >>> class OfPage(seep.Operator):
    ...     seen = seep.MapState(str, int, ttl="1h")
    ...     def on_row(self, row, ctx):
    ...         self.seen[row.page] = self.seen.get(row.page, 0) + 1
    ...         ctx.emit({"n": self.seen[row.page]})
    >>> flow = seep.Flow("visits")
    >>> visits = flow.source("visits", seep.MemorySource([{"user": "ann", "page": p} for p in "aba"]))
    >>> visits.key_by("user").apply(OfPage(), out={"n": int}).collect("out")
    >>> [row["n"] for row in seep.run(flow)["out"].to_pylist()]
    [1, 1, 2]
    """

    def __init__(self, key: type[K], value: type[V], ttl: str | timedelta | None = None) -> None:
        super().__init__(ttl, key, value)
        self.key = key
        self.value = value

    def cell(self, keeper: Keeper) -> Mapping[K, V]:
        return Mapping(keeper, self.ttl_ms)


class SetState(Declared[Members[T]], Generic[T]):
    """A set for each key, empty at first.

    >>> import seep
    >>> class Pages(seep.Operator):
    ...     seen = seep.SetState(str)
    ...     def on_row(self, row, ctx):
    ...         self.seen.add(row.page)
    ...         ctx.emit({"n": len(self.seen)})
    >>> flow = seep.Flow("visits")
    >>> visits = flow.source("visits", seep.MemorySource([{"user": "ann", "page": p} for p in "aba"]))
    >>> visits.key_by("user").apply(Pages(), out={"n": int}).collect("out")
    >>> [row["n"] for row in seep.run(flow)["out"].to_pylist()]
    [1, 2, 2]
    """

    def __init__(self, kind: type[T], ttl: str | timedelta | None = None) -> None:
        super().__init__(ttl, kind)
        self.kind = kind

    def cell(self, keeper: Keeper) -> Members[T]:
        return Members(keeper, self.ttl_ms)
