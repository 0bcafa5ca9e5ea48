"""Users' own aggregates: four small methods over one Python value, or the same four over whole columns.

State is data that can be saved (`operators.packing`), never an object. A row that `add` raises on could not be taken
out of its group again, so rows are tried first, on copies of the states (`trial`); what came of that is kept (`commit`)
when no row was refused, else the others are tried again without it. What `merge` and `result` raise is no row's fault:
it ends the flow, naming the aggregate.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa

from operators.accumulators import Accumulator, Refused
from operators.aggregates import Spec
from operators.index import Slots
from operators.packing import copied, pack, plain, unpack
from seep.errors import Misuse, SeepError
from seep.model.fitting import column_of
from seep.model.schema import physical_type, type_of

T = TypeVar("T")


def having(slots: Slots, array: pa.Array) -> Slots:
    """The rows that have an entry and a value."""
    kept = slots >= 0
    if array.null_count:
        kept &= array.is_valid().to_numpy(zero_copy_only=False)
    return np.flatnonzero(kept)


_USERS = "runs code of yours, which only the operator runs"


class _Own(Spec):
    """What both forms share: the values they read, and the type they give."""

    methods: ClassVar[tuple[str, ...]] = ("add", "result")
    result: Any

    def __init__(self, column: str | pl.Expr) -> None:
        super().__init__(type(self).__name__, column)

    @property
    def foreign(self) -> bool:
        return True

    @property
    def own(self) -> bool:
        return True

    def _checked(self, schema: pa.Schema) -> tuple[pa.DataType, pa.DataType]:
        """Is everything there? The types of the values and of the result."""
        if not isinstance(getattr(self, "column", None), str | pl.Expr):
            raise Misuse(f"{self.aggregate} has no column; call super().__init__(column) in its __init__")
        for name in self.methods:
            if getattr(type(self), name) in (getattr(Aggregate, name, None), getattr(BatchAggregate, name, None)):
                raise Misuse(f"{self} has no {name}; an aggregate needs {', '.join(self.methods)}")
        kind = self.input_type(schema)
        assert kind is not None
        try:
            hint = typing.get_type_hints(self.result).get("return")
        except NameError as problem:
            raise Misuse(f"{self}: {problem}; the types of its methods must be visible in its module") from problem
        declared = getattr(type(self), "output", hint)
        if declared is None:
            raise Misuse(f"{self} does not say what it gives; annotate it: def result(self, state) -> float")
        return kind, physical_type(type_of(declared, "result")[0])


class Aggregate(_Own):
    """An aggregate of your own: one value for each key, which may be anything that a state may hold.

    `merge` may be left out; then the aggregate is refused where parts have to be put together, as in sessions.

    >>> class Longest(Aggregate):
    ...     def zero(self) -> str:
    ...         return ""
    ...     def add(self, state: str, value: str) -> str:
    ...         return max(state, value, key=len)
    ...     def merge(self, state: str, other: str) -> str:
    ...         return max(state, other, key=len)
    ...     def result(self, state: str) -> str:
    ...         return state
    >>> str(Longest("word"))
    "Longest('word')"
    """

    methods: ClassVar[tuple[str, ...]] = ("zero", "add", "result")

    def zero(self) -> Any:
        """The state before the first value."""

    def add(self, state: Any, value: Any) -> Any:
        """The state with one more value; nulls never come here."""

    def merge(self, state: Any, other: Any) -> Any:
        """The state of both together; neither is `zero`, and ``other`` holds the later rows."""

    def result(self, state: Any) -> Any:
        """What to give out; null is given out when no value has come. Its annotation is the type of the column."""

    def accumulator(self, schema: pa.Schema, time_column: str | None = None) -> Accumulator:
        return Own(self, *self._checked(schema))


class BatchAggregate(_Own):
    """An aggregate of your own on whole columns: faster than `Aggregate`, which is called for each value.

    ``zero`` names the columns of the state and what each begins with (a float, int or bool). The methods get them as
    numpy arrays, one element for each group, to change in place.

    >>> class Energy(BatchAggregate):
    ...     zero = {"sum": 0.0}
    ...     def add(self, state, groups, values):
    ...         np.add.at(state["sum"], groups, values.to_numpy() ** 2)
    ...     def merge(self, state, groups, other):
    ...         np.add.at(state["sum"], groups, other["sum"])
    ...     def result(self, state) -> float:
    ...         return state["sum"]
    >>> str(Energy("volts"))
    "Energy('volts')"
    """

    zero: ClassVar[Mapping[str, float | int | bool]] = {}

    def add(self, state: dict[str, Any], groups: Slots, values: pa.Array) -> None:
        """Add values, none of them null; ``groups`` says for each to which element of the state it belongs."""

    def merge(self, state: dict[str, Any], groups: Slots, other: dict[str, Any]) -> None:
        """Add states; ``groups`` says for each to which element it belongs. Several may belong to one."""

    def result(self, state: dict[str, Any]) -> Any:
        """One result for each element: a numpy or Arrow array. Its annotation is the type of one."""

    def accumulator(self, schema: pa.Schema, time_column: str | None = None) -> Accumulator:
        if not self.zero or any(type(value) not in (float, int, bool) for value in self.zero.values()):
            raise Misuse(f'{self} needs the columns of its state, such as zero = {{"sum": 0.0, "weight": 0}}')
        return OwnColumns(self, *self._checked(schema))


class _Runs(Accumulator):
    """Runs a user's methods."""

    apart: ClassVar[str] = _USERS
    fallible: ClassVar[bool] = True

    def __init__(self, own: Any, kind: pa.DataType, output: pa.DataType, base: type) -> None:
        super().__init__(kind, output)
        self.own = own
        self.mergeable = type(own).merge is not base.__dict__["merge"]

    def add(self, slots: Slots, array: pa.Array) -> None:
        tried, refused = self.trial(slots, array)
        for error in refused.values():
            raise Misuse(f"{error}; fix it")
        self.commit(tried)

    def _refusal(self, problem: Exception) -> str:
        """What is said of a row that it raised on; errors of ours are not the row's."""
        if isinstance(problem, SeepError):
            raise problem
        return f"{self.own} fails: {type(problem).__name__}: {problem}"

    def _run(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except Exception as problem:  # users' code may raise anything
            raise Misuse(f"{self._refusal(problem)}; fix it") from problem

    def _array(self, values: Any) -> pa.Array:
        array = values if isinstance(values, pa.Array) else pa.array(values)
        return array if array.type == self.output else array.cast(self.output)


class _Tried(NamedTuple):
    """What the rows of an epoch would make of the states."""

    slots: Slots
    """Of the rows that were added."""
    states: Any


class Own(_Runs):
    """One Python value for each slot."""

    bulky: ClassVar[bool] = True

    def __init__(self, own: Aggregate, kind: pa.DataType, output: pa.DataType) -> None:
        super().__init__(own, kind, output, Aggregate)
        self._states: Any = np.empty(0, object)

    def grow(self, capacity: int) -> None:
        super().grow(capacity)
        states = np.empty(capacity, object)
        states[: len(self._states)] = self._states
        self._states = states

    def clear(self, slots: Slots) -> None:
        super().clear(slots)
        self._states[slots] = None

    def trial(self, slots: Slots, array: pa.Array) -> tuple[_Tried, Refused]:
        rows = having(slots, array)
        homes, values = slots[rows], array.take(pa.array(rows)).to_pylist()
        states = self._held(homes)
        try:
            for slot, value in zip(homes.tolist(), values, strict=True):
                states[slot] = self.own.add(states[slot] if slot in states else self.own.zero(), value)
        except Exception:  # users' code may raise anything
            return self._trial_by_row(rows, homes, values)
        return _Tried(homes, states), {}

    def _trial_by_row(self, rows: Slots, homes: Slots, values: list[Any]) -> tuple[_Tried, Refused]:
        """Each on a copy of its state, which it may have changed before it raised."""
        states, refused = self._held(homes), Refused()
        for row, slot, value in zip(rows.tolist(), homes.tolist(), values, strict=True):
            try:
                before = copied(states[slot]) if slot in states else self.own.zero()
                states[slot] = self.own.add(before, value)
            except Exception as problem:  # users' code may raise anything
                refused[row] = self._refusal(problem)
        return _Tried(homes[~np.isin(rows, list(refused))], states), refused

    def commit(self, tried: _Tried) -> None:
        self._run(lambda: self._hold(tried.states))
        np.add.at(self.columns["seen"], tried.slots, 1)

    def _held(self, slots: Slots) -> dict[int, Any]:
        """By slot, where a value has come: copies, in a plain dict (an array of objects is slow to index)."""
        known = np.unique(slots[self.columns["seen"][slots] > 0])
        return dict(zip(known.tolist(), map(copied, self._states[known].tolist()), strict=True))

    def _hold(self, states: dict[int, Any]) -> None:
        for slot, state in states.items():
            self._states[slot] = plain(state)  # refused here, not at the next checkpoint

    def merge(self, slots: Slots, saved: Mapping[str, pa.Array]) -> None:
        kept = np.flatnonzero((slots >= 0) & (saved["seen"].to_numpy() > 0))
        parts = [unpack(state) for state in saved["state"].take(pa.array(kept)).to_pylist()]

        def work() -> None:
            states = self._held(slots[kept])
            for slot, part in zip(slots[kept].tolist(), parts, strict=True):
                # A part is the state of at least one value, and so is what it is merged with: `zero` may be None.
                states[slot] = self.own.merge(states[slot], part) if slot in states else part
            self._hold(states)

        self._run(work)
        np.add.at(self.columns["seen"], slots[kept], saved["seen"].to_numpy()[kept])

    def result(self, slots: Slots) -> pa.Array:
        seen = self.columns["seen"][slots].tolist()

        def work() -> list[Any]:
            pairs = zip(self._states[slots].tolist(), seen, strict=True)
            return [self.own.result(state) if count else None for state, count in pairs]

        return column_of(self._run(work), pa.field(str(self.own), self.output), self.output)

    def save(self, slots: Slots) -> dict[str, pa.Array]:
        states = self._run(lambda: [pack(state) for state in self._states[slots].tolist()])
        return {**super().save(slots), "state": pa.array(states, pa.binary())}

    def restore(self, slots: Slots, saved: Mapping[str, pa.Array]) -> None:
        super().restore(slots, {"seen": saved["seen"]})
        for slot, state in zip(slots.tolist(), saved["state"].to_pylist(), strict=True):
            self._states[slot] = unpack(state)


class OwnColumns(_Runs):
    """Columns of numbers by slot."""

    def __init__(self, own: BatchAggregate, kind: pa.DataType, output: pa.DataType) -> None:
        super().__init__(own, kind, output, BatchAggregate)
        for name, value in own.zero.items():
            self.columns[f"own.{name}"] = np.zeros(0, np.array(value).dtype)

    def clear(self, slots: Slots) -> None:
        super().clear(slots)
        for name, value in self.own.zero.items():
            self.columns[f"own.{name}"][slots] = value

    def trial(self, slots: Slots, array: pa.Array) -> tuple[_Tried, Refused]:
        rows = having(slots, array)
        homes, values = slots[rows], array.take(pa.array(rows))
        touched, groups = np.unique(homes, return_inverse=True)
        state = self._state(touched)
        if len(rows) == 0:
            return _Tried(homes, (touched, state)), {}
        try:
            self.own.add(state, groups, values)
        except Exception:  # users' code may raise anything
            return self._trial_by_group(rows, homes, values)
        return _Tried(homes, (touched, state)), {}

    def _trial_by_group(self, rows: Slots, homes: Slots, values: pa.Array) -> tuple[_Tried, Refused]:
        """One group after the other, halving where it raises: which other groups are here must not show."""
        touched = np.unique(homes)
        states, refused = self._state(touched), Refused()
        for at, slot in enumerate(touched.tolist()):
            mine = np.flatnonzero(homes == slot)
            state = self._halving({n: column[at : at + 1] for n, column in states.items()}, mine, rows, values, refused)
            for name, column in state.items():
                states[name][at] = column[0]
        return _Tried(homes[~np.isin(rows, list(refused))], (touched, states)), refused

    def _halving(
        self, state: dict[str, Any], mine: Slots, rows: Slots, values: pa.Array, refused: Refused
    ) -> dict[str, Any]:
        after = {name: column.copy() for name, column in state.items()}
        try:
            self.own.add(after, np.zeros(len(mine), np.int64), values.take(pa.array(mine)))
        except Exception as problem:  # users' code may raise anything
            if len(mine) == 1:
                refused[int(rows[mine[0]])] = self._refusal(problem)
                return state
            half = len(mine) // 2
            middle = self._halving(state, mine[:half], rows, values, refused)
            return self._halving(middle, mine[half:], rows, values, refused)
        return after

    def commit(self, tried: _Tried) -> None:
        touched, state = tried.states
        for name, column in state.items():
            self.columns[f"own.{name}"][touched] = column
        np.add.at(self.columns["seen"], tried.slots, 1)

    def _groups(self, slots: Slots, work: Callable[[dict[str, Any], Slots], None]) -> None:
        if len(slots) == 0:
            return
        touched, groups = np.unique(slots, return_inverse=True)
        state = self._state(touched)
        self._run(lambda: work(state, groups))
        for name, column in state.items():
            self.columns[f"own.{name}"][touched] = column

    def _state(self, slots: Slots) -> dict[str, Any]:
        return {name: self.columns[f"own.{name}"][slots] for name in self.own.zero}

    def merge(self, slots: Slots, saved: Mapping[str, pa.Array]) -> None:
        kept = np.flatnonzero((slots >= 0) & (saved["seen"].to_numpy() > 0))
        other = {n: saved[f"own.{n}"].to_numpy(zero_copy_only=False)[kept] for n in self.own.zero}
        self._groups(slots[kept], lambda state, groups: self.own.merge(state, groups, other))
        np.add.at(self.columns["seen"], slots[kept], saved["seen"].to_numpy()[kept])

    def result(self, slots: Slots) -> pa.Array:
        seen = self.columns["seen"][slots]
        chosen = np.flatnonzero(seen)
        values = self._run(lambda: self._array(self.own.result(self._state(slots[chosen]))))
        if len(values) != len(chosen):
            raise Misuse(f"{self.own} gives {len(values)} results for {len(chosen)} groups; give one for each")
        return values.take(pa.array(np.cumsum(seen > 0) - 1, mask=seen == 0))
