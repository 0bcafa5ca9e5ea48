"""States: changes in place, what is like a list, dict and set, and what was emitted before a change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seep
from operators.apply import Operator
from operators.cell_collections import Items, Mapping, Members
from operators.cells import NEVER, Keeper, Value
from operators.context import Context
from operators.packing import pack, unpack
from operators.states import ListState, MapState, SetState, ValueState
from seep.errors import Misuse
from seep.testing import Driver
from tests.unit.test_apply import batch, head, moment, rows


class InPlace(seep.Operator):
    """Each row changes something in place that only this operator holds."""

    value = seep.ValueState(list)
    lists = seep.MapState(str, list)
    deep = seep.ListState(dict)
    pair = seep.ValueState(tuple)

    def on_row(self, row: Any, ctx: Any) -> None:
        self.value.value = self.value.value or []
        self.value.value.append(row.v)
        self.lists.setdefault("all", []).append(row.v)
        if not self.deep:
            self.deep.append({"of": {"seen": set()}})
            self.pair.value = ("all", [])
        for element in self.deep:
            element["of"]["seen"].add(row.v)
        self.pair.value[1].append(row.v)
        if row.v < 0:
            raise ValueError("below zero")
        ctx.emit({"v": row.v, "all": self.value.value})
        assert self.value.value == self.lists["all"] == sorted(self.deep[0]["of"]["seen"]) == self.pair.value[1]


@settings(max_examples=8, deadline=None)
@given(plan=st.lists(st.sampled_from(["row", "row", "bad", "checkpoint", "kill"]), min_size=3, max_size=7))
def test_changes_in_place_survive_kills_and_are_undone(plan: list[str]) -> None:
    flow = seep.Flow("places")
    source = flow.source("src", seep.MemorySource([{"k": "a", "v": 1}]))
    out = {"v": int, "all": list[int]}
    source.key_by("k").apply(InPlace(), out=out).named("op").collect("out")
    driver, fed = Driver(flow), []
    for number, step in enumerate([*plan, "checkpoint", "kill", "row"], 1):
        if step == "row":
            fed.append(number)
            driver.feed("src", [{"k": "a", "v": number}])
        elif step == "bad":
            driver.feed("src", [{"k": "a", "v": -1}])
        elif step == "checkpoint":
            driver.checkpoint()
        else:
            driver.kill("op", 0)
    assert [row["all"] for row in driver.output("out")] == [fed[: n + 1] for n in range(len(fed))]
    assert len(driver.errors("op")) == plan.count("bad")


def test_what_was_emitted_does_not_change_with_the_state() -> None:
    @dataclass
    class Out:
        v: int
        all: list[int]

    class Emits(seep.Operator):
        value = seep.ValueState(list)

        def on_row(self, row: Any, ctx: Any) -> None:
            self.value.value = self.value.value or []
            self.value.value.append(row.v)
            ctx.emit({"v": row.v, "all": self.value.value})
            ctx.emit((row.v, self.value.value))
            ctx.emit(Out(row.v, self.value.value))

    flow = seep.Flow("emits")
    source = flow.source("src", seep.MemorySource([{"k": "a", "v": 1}, {"k": "a", "v": 2}]))
    source.key_by("k").apply(Emits(), out=Out).named("op").collect("out")
    assert [row["all"] for row in seep.run(flow, on="inline")["out"].to_pylist()] == 3 * [[1]] + 3 * [[1, 2]]


def test_what_is_put_in_place_must_be_savable_too() -> None:
    class Puts(Operator):
        value = ValueState(list)

        def on_row(self, row: Any, ctx: Context) -> None:
            self.value.value = self.value.value or [1]
            self.value.value.append(object() if row.value == 2 else row.value)
            ctx.emit({"key": "all", "value": len(self.value.value)})

    operator = head(Puts())
    outputs = operator.take(moment(1), [(0, batch(("a", 1), ("a", 2), ("a", 3)))])
    assert rows(outputs) == [("all", 2), ("all", 3)]
    assert "state cannot keep a object" in outputs["errors"].record.to_pylist()[0]["error"]


def test_a_value_of_one_state_is_not_that_of_another() -> None:
    keeper = Keeper()
    one, other = Value[Any](keeper, NEVER, None), Value[Any](keeper, NEVER, None)
    one.value = given_list = [1]
    other.value = one.value
    one.value.append(2)
    given_list.append(3)
    assert (one.value, other.value) == ([1, 2], [1])


def test_a_default_that_would_be_shared_is_refused() -> None:
    with pytest.raises(Misuse, match="would be shared"):
        ValueState(tuple, default=("a", []))


# --- like a list, a dict, a set -----------------------------------------------------------------------------------

numbers = st.lists(st.integers(0, 5), max_size=4)
LIST_STEPS: list[Any] = [
    lambda held, given: held.extend(given),
    lambda held, given: held.sort(),
    lambda held, given: held.sort(key=lambda value: -value, reverse=True),
    lambda held, given: held.reverse(),
    lambda held, given: held.__iadd__(given),
    lambda held, given: held + given,
    lambda held, given: given + held,
    lambda held, given: held.copy(),
    lambda held, given: held[1:],
    lambda held, given: held.__setitem__(slice(1, 2), given),
    lambda held, given: held.pop() if held else None,
    lambda held, given: held[-1] if held else None,
    lambda held, given: held.index(3) if 3 in held else held.count(2),
]
SET_STEPS: list[Any] = [
    lambda held, given: held.update(given, [7]),
    lambda held, given: held.union(given),
    lambda held, given: held.issubset(given),
    lambda held, given: held.issuperset(given),
    lambda held, given: held.intersection(given),
    lambda held, given: held.difference(given, [1]),
    lambda held, given: held.symmetric_difference(given),
    lambda held, given: held.intersection_update(given),
    lambda held, given: held.difference_update(given),
    lambda held, given: held.__ior__(set(given)),
    lambda held, given: held.__isub__(set(given)),
    lambda held, given: held | set(given),
    lambda held, given: held.copy(),
]
MAP_STEPS: list[Any] = [
    lambda held, given: held.update({value: value for value in given}),
    lambda held, given: held.__ior__({value: -value for value in given}),
    lambda held, given: held | dict.fromkeys(given, 9),
    lambda held, given: dict.fromkeys(given, 9) | held,
    lambda held, given: held.copy(),
    lambda held, given: held.setdefault(3, 8),
    lambda held, given: held.pop(2, None),
    lambda held, given: held.get(4),
]


def plainly(value: Any) -> Any:
    return value.copy() if isinstance(value, Items | Mapping | Members) else value


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_collections_do_what_pythons_do_and_undo_it(data: st.DataObject) -> None:
    kind, steps = data.draw(st.sampled_from([(list, LIST_STEPS), (set, SET_STEPS), (dict, MAP_STEPS)]))
    keeper, wanted = Keeper(), kind()
    declared: Any = {list: ListState(int), set: SetState(int), dict: MapState(int, int)}[kind]
    cell = declared.cell(keeper)
    history: list[Any] = []
    for step in data.draw(st.lists(st.sampled_from(steps), max_size=8)):
        given_values = data.draw(numbers)
        saved = pack(cell.dump())
        keeper.begin(0)
        assert plainly(step(cell, given_values)) == plainly(step(wanted, given_values))
        assert cell == wanted
        if data.draw(st.booleans()):
            keeper.roll_back()
            assert pack(cell.dump()) == saved
            wanted = history[-1].copy() if history else kind()
            assert cell == wanted
        history.append(wanted.copy())
        restored = declared.cell(Keeper())
        restored.restore(unpack(pack(cell.dump())))
        assert restored == wanted


def test_a_state_may_be_changed_by_an_operator_of_python() -> None:
    class Changes(Operator):
        seen = SetState(int)
        history = ListState(int)
        by_name = MapState(str, int)

        def on_row(self, row: Any, ctx: Context) -> None:
            self.seen |= {row.value}
            self.history += [row.value]
            self.by_name |= {"last": row.value}
            if row.value == 3:
                self.seen = {1}
            ctx.emit({"key": ctx.key, "value": len(self.seen) + len(self.history) + self.by_name["last"]})

    outputs = head(Changes()).take(moment(1), [(0, batch(("a", 1), ("a", 3), ("a", 2)))])
    assert rows(outputs) == [("a", 3), ("a", 6)]
    assert "cannot be replaced" in outputs["errors"].record.to_pylist()[0]["error"]


class _Colour(Enum):
    RED = 1


@pytest.mark.parametrize("kind", [_Colour, complex, list[_Colour], _Colour | None, seep.Flow])
def test_a_state_of_what_cannot_be_saved_is_refused_where_it_is_declared(kind: Any) -> None:
    for declare in (seep.ValueState, seep.ListState, seep.SetState, partial(seep.MapState, str)):
        with pytest.raises(seep.Misuse, match="a state cannot keep"):
            declare(kind)
