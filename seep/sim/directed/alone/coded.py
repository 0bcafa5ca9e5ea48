"""Which code runs in which epoch, which checkpoint is kept for a Replace, and what a desk does with calls."""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Any

from seep.errors import Misuse
from seep.model.ids import EVERYTHING, FOREVER, PartitionId
from seep.model.settings import Settings
from seep.partition.code import Coded
from seep.partition.contract import Node, Upgrade
from seep.partition.desk import Desk, failure_of
from seep.partition.pin import Pin, Pinned
from seep.partition.saver import Saver
from seep.protocol.effects import ReadLog, Send, StoreReply
from seep.protocol.journal import SHADOW, Code, Entry, Journal, Replace
from seep.protocol.messages import Hello
from seep.sim.directed.alone.desks import A0, MINE, checkpoint_of, desk_of, done, entry_of
from seep.sim.directed.registry import demand, scenario
from seep.state.checkpoint import Point


class Remembers:
    """Which code it is, and what was handed to it."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.held: list[Any] = []

    def snapshot(self, full: bool) -> list[Any]:
        demand(full, "a part of what is remembered is handed on")
        return [*self.held, self.code]

    def load(self, state: list[Any]) -> None:
        self.held = list(state)


class _Bench:
    def __init__(self, **codes: tuple[int, ...]) -> None:
        self.desk = Desk("w1", Settings())
        self.desk.upgrade = self.found
        self.journal(codes=codes)
        self.coded = Coded(self.desk, A0, Node("a", "operator", lambda: Remembers("first")))

    def found(self, name: str) -> Upgrade:
        def fit(state: list[Any], now_ms: int) -> list[Any]:
            if name == "bad":
                raise Misuse("it has no place for it")
            if name == "worse":
                raise KeyError("x")
            return [*state, now_ms]

        return Upgrade(Node("a", "operator", lambda: Remembers(name)), fit)

    def journal(self, *replaces: Replace, codes: dict[str, tuple[int, ...]] | None = None) -> None:
        """``codes``: of each operator, the first epochs of code that is named by them."""
        named = {name: tuple(Code(first, f"c{first}") for first in firsts) for name, firsts in (codes or {}).items()}
        self.desk.journal = Journal(1, 1, {}, replaces, codes=named)

    @property
    def runs(self) -> tuple[str, list[Any]]:
        logic: Any = self.coded.logic
        return logic.code, logic.held


def _asked(code: str = "c9", at: int = 0) -> Replace:
    return Replace(1, "a", (A0,), (), False, at, code=code)


@scenario
def each_epoch_is_taken_by_its_code() -> None:
    for epoch, code, passed in ((4, "first", 0), (5, "c5", 1), (8, "c5", 1), (9, "c9", 2)):
        bench = _Bench(a=(5, 9), b=(1,))
        bench.coded.begin(epoch)
        demand((bench.runs, bench.coded.passed) == ((code, []), passed), f"from {epoch}: {bench.runs}")
    bench = _Bench(a=(5, 9))
    bench.coded.begin(3)
    demand(not bench.coded.reach(4, 40) and bench.runs[0] == "first", "before its first epoch")
    demand(bench.coded.reach(5, 50) and bench.runs == ("c5", ["first", 50]), f"{bench.runs}")
    before: Any = bench.coded.before
    demand(before.code == "first" and not bench.coded.reach(5, 51), "it is another one")
    demand(not bench.coded.reach(8, 80) and bench.coded.reach(12, 120), "the next one")
    demand(bench.runs == ("c9", ["first", 50, "c5", 120]), f"{bench.runs}")
    both = _Bench(a=(5, 9))
    both.coded.begin(3)
    demand(both.coded.reach(9, 90) and both.runs == ("c9", ["first", 90, "c5", 90]), f"{both.runs}")
    lost = _Bench(a=(5,))
    lost.desk.upgrade = None
    try:
        lost.coded.reach(5, 50)
    except Misuse as error:
        demand("a has been upgraded to c5, which nobody can find here" in str(error), str(error))
    else:
        demand(False, "code that nobody has was found")


@scenario
def new_code_is_tried_before_it_is_taken() -> None:
    bench = _Bench()
    coded = bench.coded
    demand((coded.last_epoch(7), coded.begun(7, True), coded.pending) == (FOREVER, -1, None), "nobody has asked")
    bench.journal(with_fields(_asked(), code=""))
    demand(coded.pending is None and coded.last_epoch(7) == FOREVER, "a split is no upgrade")
    bench.journal(_asked())
    demand((coded.last_epoch(7), coded.begun(7, False)) == (7, 7), "something is begun while that is agreed on")
    at_8 = _asked(at=8)
    bench.journal(at_8)
    demand((coded.last_epoch(7), coded.begun(7, False), coded.begun(8, True)) == (8, 7, -1), "before it is tried")
    demand(coded.tries(at_8, 80) and not coded.tries(at_8, 81), "it is tried twice")
    demand((coded.begun(8, True), coded.begun(8, False), coded.refusal) == (8, -1, ""), "before it is saved")
    demand(bench.runs == ("first", []), "it is taken before its time")
    tried: Any = coded.trial
    bench.journal(codes={"a": (9,)})
    demand(coded.reach(9, 90) and coded.logic is tried.logic, "it is handed on again")
    demand(bench.runs == ("c9", ["first", 80]) and coded.trial is None, f"{bench.runs}")
    other = _Bench()
    other.coded.tries(_asked(at=7), 70)
    other.journal(codes={"a": (9,)})
    demand(other.coded.reach(9, 90) and other.runs == ("c9", ["first", 90]), "what was tried at another epoch")
    demand(other.coded.trial is None, "it is kept")
    again = _Bench()
    demand(again.coded.tries(_asked(at=7), 70) and again.coded.tries(_asked(at=8), 80), "at another epoch")
    demand(again.coded.tries(_asked("c7", 8), 80), "other code")
    again.coded.forget()
    demand(again.coded.trial is None and again.coded.refusal == "", "it is kept")
    for code, why in (("bad", "it has no place for it"), ("worse", "KeyError: 'x'")):
        refused = _Bench()
        asked = _asked(code, 8)
        refused.journal(asked)
        demand(refused.coded.tries(asked, 80) and not refused.coded.tries(asked, 80), "it is tried twice")
        demand(refused.coded.refusal == why and refused.coded.begun(8, True) == -1, refused.coded.refusal)
        demand(refused.runs == ("first", []), "the old one goes on")


# --- what is kept for a Replace ----------------------------------------------------------------------------------


def _pinned(*epochs: int, busy: int = 0) -> tuple[Desk, Saver, Pin]:
    """Of one that has saved these; `busy`: it is at work on one of this epoch."""
    desk = desk_of()
    saver = Saver(desk, entry_of(A0, "w1"), lambda saved: None)
    saver.durable = [Point(version, epoch, (version,)) for version, epoch in enumerate(epochs, 1)]
    if busy:
        saver.add(lambda version, parent: checkpoint_of(version, busy, parent), True)
    return desk, saver, Pin(desk, A0, saver)


def _replacing(desk: Desk, *replaces: Replace, **shadows: tuple[tuple[PartitionId, int], ...]) -> None:
    made = {}
    for name, base in shadows.items():
        who = PartitionId("a", int(name[1:]))
        made[who] = Entry(who, EVERYTHING, 1, FOREVER, SHADOW, MINE, "w2", base, 33)
    desk.journal = with_fields(desk.journal, replaces=replaces, entries={A0: entry_of(A0, "w1"), **made})


@scenario
def checkpoint_that_a_replace_wants_is_kept() -> None:

    split = Replace(4, "a", (A0,), (), False)
    merge = Replace(5, "a", (A0, PartitionId("a", 1)), (), False, 40)
    for epochs, busy, replace, kept, makes, told in (
        ((), 0, None, None, False, (0, -1)),
        ((10, 20), 0, split, Pinned(4, 2, 20), False, (2, 20)),
        ((), 0, split, None, True, (0, -1)),
        ((), 10, split, None, False, (0, -1)),
        ((10, 20), 0, merge, None, False, (0, -1)),
        ((10, 40), 0, merge, Pinned(5, 2, 40), False, (2, 40)),
        ((40, 50), 0, merge, Pinned(5, 1, 40), False, (1, 40)),
        ((10,), 40, merge, None, False, (0, 40)),
        ((10,), 41, merge, None, False, (0, -1)),
    ):
        desk, _, pin = _pinned(*epochs, busy=busy)
        _replacing(desk, *([replace] if replace else []))
        demand((pin.look(), pin.kept, pin.told()) == (makes, kept, told), f"{epochs}, {busy}, {replace}: {pin.kept}")
        later = pin.epoch_after(39), pin.epoch_after(40)
        demand(later == ((40 if replace is merge else FOREVER), FOREVER), f"{later}")
    desk, saver, pin = _pinned(10, 20)
    _replacing(desk, split)
    pin.look()
    saver.durable.append(Point(3, 30, (3,)))
    demand(not pin.look() and pin.kept == Pinned(4, 2, 20), "it is another one by now")
    _replacing(desk, with_fields(split, number=6))
    demand(not pin.look() and pin.kept == Pinned(6, 3, 30), "another one's")
    _replacing(desk, with_fields(split, number=6, at=20))
    demand(not pin.look() and pin.kept == Pinned(6, 2, 20), "at another epoch")
    _replacing(desk, with_fields(split, number=6, new=(PartitionId("a", 7),)), a7=((PartitionId("a", 1), 8), (A0, 1)))
    demand(not pin.look() and pin.kept == Pinned(6, 1, 33), "what its shadows start from")
    _replacing(desk)
    demand(not pin.look() and pin.kept is None, "it is over")
    _replacing(desk, with_fields(split, old=(PartitionId("a", 1),)))
    demand(not pin.look() and pin.kept is None, "somebody else's")


# --- the desk ----------------------------------------------------------------------------------------------------


@scenario
def calls_are_answered_once_and_made_again_later() -> None:
    desk, heard = desk_of(), list[tuple[str, Any]]()
    one, other = object(), object()
    desk.call(one, lambda token: ReadLog(token, A0), lambda reply: heard.append(("one", reply.value)))
    desk.call(other, lambda token: ReadLog(token, A0), lambda reply: heard.append(("other", reply.value)))
    first, second = done(desk, ReadLog)
    demand(first.token != second.token, "two calls have one token")
    demand(desk.asked_by(StoreReply(first.token)) is one and desk.asked_by(StoreReply(99)) is None, "who has asked")
    for _ in range(2):
        desk.answer(StoreReply(first.token, 7))
    demand(heard == [("one", 7)], f"{heard}")
    desk.forget(other)
    desk.answer(StoreReply(second.token, 8))
    demand(heard == [("one", 7)] and not desk.changed, "one that is gone hears it")
    for owner in (one, other):
        desk.call_again(owner, lambda token: ReadLog(token, A0), lambda reply: heard.append(("again", reply.value)))
    desk.forget(other)
    for now_ms, calls in ((99.0, 0), (100.0, 1), (500.0, 0)):
        desk.now_ms = now_ms
        desk.tick()
        asked = done(desk, ReadLog)
        demand(len(asked) == calls, f"at {now_ms}")
        demand(all(desk.asked_by(StoreReply(call.token)) is one for call in asked), "one that is gone asks again")
    desk.answer(StoreReply(3, error="lost"))
    demand(desk.lost and desk.changed and len(heard) == 1, "nobody is told")
    desk.count("x")
    desk.count("x", 4)
    demand(desk.counts == {"x": 5}, f"{desk.counts}")


@scenario
def messages_go_where_they_belong() -> None:
    desk = desk_of()
    for to in ("w1", "w2", ""):
        desk.send(to, Hello(to))
    demand(list(desk.local) == [Hello("w1")] and desk.effects == [Send("w2", Hello("w2"))], f"{desk.effects}")
    performed: list[Any] = []
    desk.hand_over()
    demand(len(desk.effects) == 1, "nobody performs it")
    desk.perform = performed.append
    desk.hand_over()
    demand(performed == [[Send("w2", Hello("w2"))]] and not desk.effects, f"{performed}")
    desk.hand_over()
    demand(len(performed) == 1, "nothing is performed")
    said = [failure_of(A0, Misuse(text)) for text in ("no", "a: no")]
    demand(said == ["Misuse: a: no", "Misuse: a: no"], f"{said}")
