"""What policies wish for, and what the governor makes of it, on metrics written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from seep.control.decisions import CHANGES_KEPT, LOOKS_KEPT, Decision
from seep.control.governor import Governor, Guards
from seep.control.observed import Observed, Seen
from seep.control.policies import Efficiency, Latency, Rate, Threshold, Wish, policy_of, walk
from seep.errors import Misuse
from seep.model.ids import EVERYTHING, FOREVER, Generation, PartitionId
from seep.partition.contract import Edge, Graph, Node
from seep.protocol.journal import LIVE, Entry, Journal, Replace


def graph(**policies: Any) -> Graph:
    nodes = [Node("in", "source", None), Node("work", "operator", None), Node("out", "sink", None)]
    nodes = [replace(node, policy=policies.get(node.name)) for node in nodes]
    edges = (Edge("in>work", "in", "work", 0), Edge("work>out", "work", "out", 0))
    return Graph({node.name: node for node in nodes}, edges)


def journal(replaces: tuple[Replace, ...] = (), **counts: int) -> Journal:
    entries = {}
    for name in ("in", "work", "out"):
        for i, part in enumerate(EVERYTHING.split(counts.get(name, 1))):
            who = PartitionId(name, i)
            entries[who] = Entry(who, part, 1, FOREVER, LIVE, Generation(1, i), "w")
    return Journal(version=1, entries=entries, replaces=replaces)


def flowing(
    arrival: float, rate: float, count: int, taken: float | None = None, at: float = 0.0, **more: Any
) -> Observed:
    """A source at which rows arrive, and an operator of which each partition can take `rate` of them in a second."""
    taken = min(arrival, rate * count) if taken is None else taken
    share = taken / count
    return Observed(
        at,
        {
            "in": Seen("in", "source", (taken,), (0.1,), {"work": taken}, arrival=arrival, **more),
            "work": Seen("work", "operator", (share,) * count, (share / rate,) * count, {"out": taken}),
            "out": Seen("out", "sink", (taken,), (0.1,)),
        },
    )


def count_of(wishes: Mapping[str, Wish | int]) -> int:
    wish = wishes["work"]
    return wish.count if isinstance(wish, Wish) else wish


# --- policies ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", range(1, 13))
def test_the_rate_policy_is_right_in_one_step(start: int) -> None:
    """Wherever it starts: 3,300 rows/s at 1,000 a partition, at work for three quarters of the time, are five."""
    assert count_of(Rate().decide(flowing(3_300, 1_000, start), ["work"])) == 5


@pytest.mark.parametrize("start", range(2, 13))
def test_what_each_does_for_whatever_comes_is_not_counted_as_work_for_rows(start: int) -> None:
    """A tenth of each partition's time goes to epochs: from many as from few, 3,600 rows/s are 5.54."""
    seen = flowing(3_600, 1_000, start, taken=min(3_600, 900 * start))
    work = seen.operators["work"]
    work = replace(work, useful=work.busy, busy=tuple(busy + 0.1 for busy in work.busy))
    wish = Rate().decide(replace(seen, operators={**seen.operators, "work": work}), ["work"])["work"]
    assert (round(work.fixed, 3), wish.count) == (0.1, 6)
    told = "one partition takes 1,000 in a second and needs 10% of its time beside that: 5.54 are needed"
    assert wish.why == f"3,600 rows/s come, {told}"


@pytest.mark.parametrize("now", [4, 5])
def test_a_number_stays_where_noise_decides(now: int) -> None:
    """Just four are needed: then four are as right as five."""
    for arrival in (2_950, 3_000, 3_050):
        assert count_of(Rate().decide(flowing(arrival, 1_000, now), ["work"])) == now


def test_what_waits_is_worked_off_in_half_a_minute() -> None:
    seen = flowing(3_000, 1_000, 4, lag_rows=60_000.0)
    assert count_of(Rate().decide(seen, ["work"])) == 6


def test_an_operator_that_takes_nothing_stays() -> None:
    assert count_of(Rate().decide(flowing(0, 1_000, 3), ["work"])) == 3


def test_partitions_that_hold_each_other_up_are_reckoned_with() -> None:
    """Two do only 1.5 times what one does: to do three times that takes more than linear."""
    learned = Efficiency()
    for _ in range(3):
        learned.add(1, 1_000)
        learned.add(2, 750)
    assert 0.4 < learned.loss < 0.42
    assert learned.partitions(2, 2.0) == 2
    assert learned.partitions(2, 4.0) > 6
    assert learned.partitions(2, 100.0) <= 200, "half of it is left in the worst case"


def test_the_threshold_policy_wants_two_reports() -> None:
    policy, hot, cool = Threshold(), flowing(900, 1_000, 1), flowing(500, 1_000, 1)
    assert count_of(policy.decide(hot, ["work"])) == 1
    assert count_of(policy.decide(cool, ["work"])) == 1
    assert count_of(policy.decide(hot, ["work"])) == 1
    assert count_of(policy.decide(hot, ["work"])) == 2
    assert count_of(policy.decide(flowing(400, 1_000, 2), ["work"])) == 1


def test_late_results_make_the_busiest_larger() -> None:
    seen = flowing(700, 1_000, 1)
    late = Observed(0.0, {**seen.operators, "out": replace(seen.operators["out"], latency_seconds=0.5)})
    assert count_of(Latency(0.25).decide(seen, ["work"])) == 1
    assert count_of(Latency(0.25).decide(late, ["work"])) == 2


def test_the_walk_follows_the_shares() -> None:
    seen = flowing(100, 1_000, 1)
    doubled = {**seen.operators, "work": replace(seen.operators["work"], sent={"out": 250.0})}
    assert walk(Observed(0.0, doubled), {"in": 400.0}) == {"in": 400.0, "work": 400.0, "out": 1_000.0}


def test_names_of_policies() -> None:
    assert isinstance(policy_of("latency:250ms"), Latency)
    for wrong in ("speed", "latency:", "latency:soon", object()):
        with pytest.raises(Misuse):
            policy_of(wrong)  # type: ignore[arg-type]
    with pytest.raises(Misuse, match=r"^policy=Fixed: that is a class; give an object of it, such as Fixed\(\)$"):
        policy_of(Fixed)  # type: ignore[arg-type]

    class Shared:
        @classmethod
        def decide(cls, seen: Observed, operators: Sequence[str]) -> dict[str, int]:
            return {}

    assert policy_of(Shared) is Shared


# --- the governor ------------------------------------------------------------------------------------------------


class Fixed:
    """A policy that wishes for what it is told."""

    def __init__(self, *wishes: Any) -> None:
        self.wishes = list(wishes)

    def decide(self, seen: Observed, operators: Sequence[str]) -> dict[str, Any]:
        wish = self.wishes.pop(0) if len(self.wishes) > 1 else self.wishes[0]
        if isinstance(wish, BaseException):
            raise wish
        return dict.fromkeys(operators, wish)


LONG_AGO = -1_000.0


def settled(governor: Governor, count: int = 1) -> Governor:
    """One whose flow has run for long, with so many partitions."""
    governor.notice(flowing(600, 1_000, count, at=LONG_AGO), journal(work=count))
    return governor


def governed(*wishes: Any, guards: Guards | None = None, count: int = 1) -> Governor:
    return settled(Governor(graph(), {"work": Fixed(*wishes)}, guards), count)


def one(made: list[Decision]) -> Decision:
    (decision,) = made
    return decision


def test_a_wish_to_grow_is_carried_out_at_once() -> None:
    decision = one(governed(3).look(flowing(900, 1_000, 1), journal()))
    assert decision.changes
    assert (decision.before, decision.after, decision.direction) == (1, 3, "out")
    assert decision.inputs["busy"] == [0.9]


@pytest.mark.parametrize("wish", [-1, 0, 1_000_000, 2.5, True, None, "3", np.array([1, 2])])
def test_nonsense_changes_nothing(wish: Any) -> None:
    decision = one(governed(wish).look(flowing(900, 1_000, 1), journal()))
    assert not decision.changes
    assert decision.held.startswith("policy: it asks for")


def test_a_policy_that_raises_changes_nothing() -> None:
    governor = governed(ZeroDivisionError("by zero"), 2)
    assert "raised ZeroDivisionError: by zero" in one(governor.look(flowing(900, 1_000, 1), journal())).held
    assert governor.counts == {"policy": 1}
    assert one(governor.look(flowing(900, 1_000, 1), journal())).changes


@pytest.mark.parametrize("error", [ValueError("two\nlines"), SystemExit("two\nlines")])
def test_whatever_a_policy_raises_is_one_line(error: BaseException) -> None:
    held = one(governed(error, 2).look(flowing(900, 1_000, 1), journal())).held
    assert held == f"policy: Fixed raised {type(error).__name__}: two lines"
    assert "\n" not in one(governed(Wish(3, "two\nlines")).look(flowing(900, 1_000, 1), journal())).why


def test_numbers_of_numpy_are_numbers() -> None:
    decision = one(governed(np.int64(2)).look(flowing(900, 1_000, 1), journal()))
    assert (decision.changes, decision.after, type(decision.after)) == (True, 2, int)


class Hurried(Fixed):
    every_seconds = "5s"


def test_a_policy_that_cannot_be_asked_stops_no_other() -> None:
    """And each operator that it was to size says so."""
    shared = Hurried(3)
    governor = settled(Governor(graph(), {"in": shared, "work": Fixed(2), "out": shared}))
    made = {decision.operator: decision for decision in governor.look(flowing(900, 1_000, 1), journal())}
    assert made["work"].changes
    for name in ("in", "out"):
        assert made[name].held == "policy: Hurried raised ValueError: could not convert string to float: '5s'"
        assert (made[name].before, made[name].after) == (1, 1)


def test_a_policy_that_answers_with_nothing_of_the_kind_changes_nothing() -> None:
    governor = governed(2)
    governor._groups[0][0].decide = lambda seen, operators: None  # type: ignore[method-assign,return-value,assignment]
    told = "policy: Fixed answers None, which names no operators: {name: partitions} is wanted"
    assert one(governor.look(flowing(900, 1_000, 1), journal())).held == told


def test_without_a_free_slot_nothing_grows_and_something_may_shrink() -> None:
    short = "2 of 3 workers wanted are there, for 7 s; none is idle"
    decision = one(governed(3).look(flowing(900, 1_000, 1), journal(), short))
    assert (decision.held, decision.changes) == (f"slots: {short}", False)
    shrinking = governed(1, guards=Guards(shrink_seconds=0.0), count=2)
    assert one(shrinking.look(flowing(100, 1_000, 2), journal(work=2), short)).changes


def test_bounds_are_kept() -> None:
    assert one(governed(99).look(flowing(900, 1_000, 1), journal())).after == 16


def test_unknown_numbers_decide_nothing() -> None:
    governor = governed(3)
    decision = one(governor.look(Observed(0.0, {}, "work/0: 1 samples, 3 are needed"), journal()))
    assert decision.held == "metrics: work/0: 1 samples, 3 are needed"
    unlike = flowing(900, 1_000, 1)
    unlike = Observed(0.0, {**unlike.operators, "out": replace(unlike.operators["out"], rows=(1_500.0,))})
    assert "out took 1,500 rows/s of 900" in one(governor.look(unlike, journal())).held
    assert governor.counts == {"metrics": 2}


def test_one_change_at_a_time() -> None:
    moving = Replace(1, "work", (PartitionId("work", 0),), (), handover=False)
    assert one(governed(3).look(flowing(900, 1_000, 1), journal((moving,)))).held.startswith("moving")
    governor = governed(2, 3)
    assert one(governor.look(flowing(900, 1_000, 1, at=100.0), journal())).changes
    assert one(governor.look(flowing(900, 1_000, 2, at=108.0), journal(work=2))).held.startswith("settling")
    assert one(governor.look(flowing(900, 1_000, 2, at=112.0), journal(work=2))).held == "settling: changed 4 s ago"
    assert one(governor.look(flowing(900, 1_000, 2, at=113.0), journal(work=2))).changes


def again(known: Journal, operator: str) -> Journal:
    """Its first partition was lost and runs elsewhere."""
    who = PartitionId(operator, 0)
    lost = known.entries[who]
    return replace(known, entries={**known.entries, who: replace(lost, generation=Generation(1, 99))})


def test_whatever_changed_the_partitions_they_settle() -> None:
    """The start, the first rows, a recovery, somebody's hand; a load that jumps changes none of them."""
    governor = Governor(graph(), {"work": Fixed(1, 1, 3)})
    governor.look(flowing(0, 1_000, 1, at=0.0), journal())
    governor.look(flowing(10, 1_000, 1, at=50.0), journal())
    assert one(governor.look(flowing(900, 1_000, 1, at=54.0), journal())).held == "settling: changed 4 s ago"
    governor = governed(1, 3)
    assert not one(governor.look(flowing(100, 1_000, 1, at=99.0), journal())).changes
    assert one(governor.look(flowing(900, 1_000, 1, at=100.0), journal())).changes, "at once: it has run for long"
    governor = governed(3)
    governor.look(Observed(100.0, {}, "nobody answers"), again(journal(), "work"))
    assert one(governor.look(flowing(900, 1_000, 1, at=104.0), again(journal(), "work"))).held.startswith("settling")
    assert one(governor.look(flowing(900, 1_000, 1, at=105.0), again(journal(), "work"))).changes
    governor = governed(3)
    governor.look(flowing(900, 1_000, 2, at=100.0), journal(work=2))
    assert one(governor.look(flowing(900, 1_000, 2, at=104.0), journal(work=2))).held.startswith("settling")


def test_what_cold_partitions_made_one_wish_for_is_forgotten() -> None:
    """They looked as if five were needed: who gives back does it by what is known since."""
    governor = Governor(graph(), {"work": Fixed(*[5] * 5, 3)}, Guards(shrink_seconds=10.0))
    made = [one(governor.look(flowing(1_000, 1_000, 6, at=float(at)), journal(work=6))) for at in range(16)]
    assert [(decision.at, decision.after) for decision in made if decision.changes] == [(15.0, 3)]


def test_cold_partitions_teach_nothing_about_more_of_them() -> None:
    """Neither do those that get faster from second to second."""
    policy, cold = Rate(), flowing(3_300, 500, 5)
    policy.decide(flowing(3_300, 1_000, 1), ["work"])
    policy.decide(replace(cold, unsettled=frozenset({"work"})), ["work"])
    warming = {**cold.operators, "work": replace(cold.operators["work"], warming=True)}
    policy.decide(replace(cold, operators=warming), ["work"])
    assert policy._efficiency["work"].loss == 0.0
    policy.decide(cold, ["work"])
    assert policy._efficiency["work"].loss > 0.4


def test_shrinking_waits_a_minute_and_takes_the_largest_wish() -> None:
    governor = governed(2, 5, *[2] * 200, count=6)
    made = [one(governor.look(flowing(1_000, 1_000, 6, at=float(at)), journal(work=6))) for at in range(130)]
    done = [decision for decision in made if decision.changes]
    assert (done[0].at, done[0].after) == (60.0, 5)
    assert made[30].held.startswith("waiting")
    governor = governed(1, count=9)
    made = [one(governor.look(flowing(100, 1_000, 9, at=float(at)), journal(work=9))) for at in range(61)]
    assert made[-1].after == 5, "at most half at once"


def test_a_wish_for_fewer_is_never_answered_with_more() -> None:
    """A wish for more was held back, and is the largest of the minute when one for fewer comes."""
    governor = governed(4, 6, 3, guards=Guards(shrink_seconds=10.0), count=5)
    assert one(governor.look(flowing(1_000, 1_000, 5, at=10.0), journal(work=5))).held.startswith("waiting")
    assert one(governor.look(flowing(1_000, 1_000, 5, at=12.0), journal(work=5), "no slot")).held.startswith("slots")
    assert not one(governor.look(flowing(1_000, 1_000, 5, at=21.0), journal(work=5))).changes


def test_nothing_shrinks_while_rows_pile_up() -> None:
    governor = governed(1, count=4)
    looks = [flowing(1_000, 1_000, 4, at=float(at), lag_seconds=9.0) for at in range(62)]
    assert one([governor.look(seen, journal(work=4)) for seen in looks][-1]).held.startswith("backlog")


def test_state_that_would_not_fit_holds_a_shrink() -> None:
    governor = governed(1, guards=Guards(partition_bytes=10e6, shrink_seconds=0.0), count=2)
    seen = flowing(100, 1_000, 2)
    large = {**seen.operators, "work": replace(seen.operators["work"], state_bytes=30e6)}
    assert one(governor.look(Observed(0.0, large), journal(work=2))).held.startswith("memory")


def test_a_hot_key_is_named_and_not_split() -> None:
    seen = flowing(1_000, 1_000, 2)
    hot = {**seen.operators, "work": replace(seen.operators["work"], busy=(1.0, 0.1), hot_share=0.9)}
    assert "one key alone" in one(governed(4, count=2).look(Observed(0.0, hot), journal(work=2))).held


def test_growth_that_did_not_help_is_not_repeated() -> None:
    governor = governed(2, *[2] * 12, 4)
    assert one(governor.look(flowing(5_000, 1_000, 1, at=0.0), journal())).changes
    for at in range(1, 12):
        governor.look(flowing(5_000, 1_000, 2, taken=1_000.0, at=float(at)), journal(work=2))
    decision = [governor.look(flowing(5_000, 1_000, 2, taken=1_000.0, at=13.0), journal(work=2)) for _ in range(3)][-1]
    assert one(decision).held.startswith("ineffective: 1 -> 2 partitions gave +0 rows/s of 1,000")


def test_looks_that_change_nothing_are_kept_once() -> None:
    governor = governed(1)
    for at in range(50):
        governor.look(flowing(600, 1_000, 1, at=float(at)), journal())
    assert [decision.at for decision in governor.decisions] == [49.0]
    assert governor.counts == {"none": 50}


def test_changes_are_kept_apart_from_looks() -> None:
    """However much is said of another operator, and however often it is said."""
    governor = Governor(graph(), {"in": Fixed(*[2, None] * 2_000), "work": Fixed(2, 1)})
    for at in range(3_000):
        governor.look(flowing(600, 1_000, 1, at=float(at)), journal())
    kept = governor.decisions
    assert [(decision.at, decision.after) for decision in kept if decision.operator == "work"] == [
        (0.0, 2),
        (2999.0, 1),
    ]
    assert len([decision for decision in kept if decision.operator == "in"]) == CHANGES_KEPT + LOOKS_KEPT
    assert [decision.at for decision in kept] == sorted(decision.at for decision in kept)


def test_who_is_warming_up_neither_grows_nor_shrinks() -> None:
    seen = flowing(900, 1_000, 1)
    cold = {**seen.operators, "work": replace(seen.operators["work"], warming=True)}
    assert one(governed(3).look(Observed(0.0, cold), journal())).held.startswith("warming: 1,000 rows")
    seen = flowing(900, 1_000, 2)
    cold = {**seen.operators, "work": replace(seen.operators["work"], warming=True)}
    shrinking = governed(1, guards=Guards(shrink_seconds=0.0), count=2)
    assert one(shrinking.look(Observed(0.0, cold), journal(work=2))).held.startswith("warming: 1,000 rows")


def test_who_knows_not_where_it_ends_waits() -> None:
    assert one(governed(3).look(flowing(900, 1_000, 1, rising=True), journal())).held.startswith("rising")
    assert one(governed(3).look(flowing(900, 1_000, 1, rising=True, lag_seconds=9.0), journal())).changes
