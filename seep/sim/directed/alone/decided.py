"""What the governor makes of wishes: done, or held back for the right reason; and what it keeps of its looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from seep.control.decisions import CHANGES_KEPT, LOOKS_KEPT, Decision, shown
from seep.control.governor import Governor, Guards
from seep.control.observed import Observed
from seep.control.policies import Wish
from seep.model.ids import BUCKETS, PartitionId
from seep.protocol.journal import Journal, Replace
from seep.sim.directed.alone.metrics import LINE, but, flowing, restarted, running
from seep.sim.directed.registry import demand, scenario

LONG_AGO = -1_000.0
MOVED = Replace(1, "work", (PartitionId("work", 0),), (), handover=False)


class Told:
    """Wishes for what it is told, the last of it for ever."""

    def __init__(self, *wishes: Any) -> None:
        self.wishes = list(wishes)
        self.asked: list[tuple[float, frozenset[str], tuple[str, ...]]] = []

    def decide(self, seen: Observed, operators: Sequence[str]) -> dict[str, Any]:
        self.asked.append((seen.at, seen.unsettled, tuple(operators)))
        wish = self.wishes.pop(0) if len(self.wishes) > 1 else self.wishes[0]
        if isinstance(wish, BaseException):
            raise wish
        return dict(wish) if isinstance(wish, dict) else dict.fromkeys(operators, wish)


class Seldom(Told):
    every_seconds = 5.0


class Hurried(Told):
    every_seconds = "5s"


def governed(*wishes: Any, count: int = 1, **guards: float) -> Governor:
    """Of a flow that has run for long, with so many partitions."""
    governor = Governor(LINE, {"work": Told(*wishes)}, Guards(**guards))
    governor.notice(flowing(600, 1_000, count, at=LONG_AGO), running(work=count))
    return governor


def look(governor: Governor, seen: Observed, journal: Journal | None = None, shortage: str = "") -> Decision:
    (made,) = governor.look(seen, journal or running(work=seen.operators["work"].partitions), shortage)
    return made


def _demand(made: Decision, after: int, held: str = "") -> None:
    """Done, or held back for the reason that begins like this."""
    same = made.held.startswith(held) if held else not made.held
    demand(made.after == after and same, f"{made.before} -> {made.after}, held: {made.held!r}; not {after}, {held!r}")


@scenario
def wish_is_done_at_once_within_bounds() -> None:
    grown = look(governed(3), flowing(900, 1_000, 1))
    demand((grown.before, grown.after, grown.changes, grown.direction) == (1, 3, True, "out"), f"{grown}")
    stays = look(governed(2), flowing(900, 1_000, 2))
    demand((stays.after, stays.changes, stays.held, stays.direction) == (2, False, "", "none"), f"{stays}")
    most = look(governed(99), flowing(900, 1_000, 1))
    demand((most.after, most.why) == (16, "wished for; it may have 1 to 16"), f"{most}")
    just = look(governed(Wish(16, "two\n lines")), flowing(900, 1_000, 1))
    demand((just.after, just.why) == (16, "two lines"), f"{just}")
    nodes = {**LINE.nodes, "work": replace(LINE.nodes["work"], minimum=3)}
    least = Governor(replace(LINE, nodes=nodes), {"work": Told(1)})
    least.notice(flowing(0, 1_000, 1, at=LONG_AGO), running())
    seen = flowing(900, 1_000, 1)
    least.notice(replace(seen, at=LONG_AGO), running())
    _demand(look(least, seen), 3)


@scenario
def nonsense_and_failures_of_policies_change_nothing() -> None:
    for wish in (-1, 0, BUCKETS + 1, 2.5, True, None, "3"):
        made = look(governed(wish), flowing(900, 1_000, 1))
        _demand(made, 1, f"policy: it asks for {wish!r} partitions")
    _demand(look(governed(BUCKETS), flowing(900, 1_000, 1)), 16)
    governor = governed(ZeroDivisionError("by\nzero"), 2)
    _demand(look(governor, flowing(900, 1_000, 1)), 1, "policy: Told raised ZeroDivisionError: by zero")
    _demand(look(governor, flowing(900, 1_000, 1)), 2)
    demand(governor.counts == {"policy": 1, "out": 1}, f"{governor.counts}")
    shared = Hurried(3)
    other = Governor(LINE, {"in": shared, "work": Told({"work": 2, "gone": 5}), "out": shared})
    other.notice(flowing(600, 1_000, 1, at=LONG_AGO), running(out=2))
    by_name = {one.operator: one for one in other.look(flowing(900, 1_000, 1), running(out=2))}
    _demand(by_name["work"], 2)
    for name, count in (("in", 1), ("out", 2)):
        _demand(by_name[name], count, "policy: Hurried raised ValueError")
        demand(by_name[name].before == count, "it has other partitions")
    other.fail(7.0, ValueError("a\nb"))
    last = other.decisions[-1]
    demand((last.at, last.operator, last.held) == (7.0, "", "defect: ValueError: a b"), f"{last}")
    demand((last.before, last.after) == (0, 0), f"{last}")


@scenario
def policies_are_asked_when_they_want_and_together() -> None:
    """Operators with the same one are sized together; one that is its own decides alone."""
    seldom, own = Seldom({"in": 1}), Told(1)
    governor = Governor(LINE, {"in": seldom, "work": own, "out": seldom})
    governor.notice(flowing(600, 1_000, 1, at=LONG_AGO), running())
    made = [governor.look(flowing(600, 1_000, 1, at=at), running()) for at in (0.0, 4.9, 5.0, 9.0, 10.0)]
    demand([len(one) for one in made] == [2, 1, 2, 1, 2], f"{made}")
    demand([at for at, *_ in seldom.asked] == [0.0, 5.0, 10.0], f"asked at {seldom.asked}")
    demand({names for *_, names in seldom.asked} == {("in", "out")}, f"asked for {seldom.asked}")
    demand(governor.operators == ["in", "out", "work"], f"{governor.operators}")
    by_name = Governor(LINE, {"in": "threshold", "work": "rate", "out": "threshold"})
    demand([names for _, names in by_name._groups] == [["in", "out"], ["work"]], "the same name is the same policy")
    apart = Governor(LINE, {"in": Told(1), "work": Told(1)})
    demand(len(apart._groups) == 2, "two of one's own are one")


@scenario
def doubtful_numbers_decide_nothing() -> None:
    governor = governed(3)
    _demand(look(governor, Observed(0.0, {}, "nobody answers"), running()), 0, "metrics: nobody answers")
    many = but(flowing(900, 1_000, 1), "out", rows=(700.0, 651.0))
    told = "metrics: out took 1,351 rows/s of 900 that were sent to it"
    _demand(look(governor, many), 0, told)
    demand(governor.counts == {"metrics": 2}, f"{governor.counts}")
    _demand(look(governed(3), but(flowing(900, 1_000, 1), "out", rows=(1_350.0,))), 3)
    _demand(look(governed(3), but(many, "work", sent={"out": 0.0})), 3)
    twice = but(many, "in", sent={"work": 900.0, "out": 10.0})
    _demand(look(governed(3), twice), 3)
    fresh = governed(3)
    _demand(look(fresh, many, restarted(running(), "out")), 3)
    demand(fresh.counts == {"out": 1}, "numbers of one that was restarted are believed to be wrong")


@scenario
def whatever_was_changed_settles() -> None:
    """The start, the first rows, a recovery, a change by hand or of our own: five seconds."""
    governor = Governor(LINE, {"work": Told(1, 1, 3)})
    governor.look(flowing(0, 1_000, 1, at=0.0), running())
    governor.look(flowing(0.4, 1_000, 1, at=50.0), running())
    held = look(governor, flowing(900, 1_000, 1, at=54.0))
    demand(held.held == "settling: changed 4 s ago", f"the first rows: {held.held!r}")
    _demand(look(governor, flowing(900, 1_000, 1, at=55.0)), 3)
    governor = governed(3)
    demand(governor.look(Observed(100.0, {}, "?"), restarted(running(), "work"))[0].operator == "", "of nobody")
    again = restarted(running(), "work")
    _demand(look(governor, flowing(900, 1_000, 1, at=104.9), again), 3, "settling: changed 5 s ago")
    _demand(look(governor, flowing(900, 1_000, 1, at=105.0), again), 3)
    governor = governed(2, 3)
    _demand(look(governor, flowing(900, 1_000, 1, at=100.0)), 2)
    _demand(look(governor, flowing(900, 1_000, 2, at=108.0)), 3, "settling: changed 0 s ago")
    _demand(look(governor, flowing(900, 1_000, 2, at=112.9)), 3, "settling: changed 5 s ago")
    _demand(look(governor, flowing(900, 1_000, 2, at=113.0)), 3)
    governor = governed(3)
    _demand(look(governor, flowing(900, 1_000, 1), running((MOVED,))), 3, "moving")
    twice = governed(2, 3)
    _demand(look(twice, flowing(900, 1_000, 1, at=100.0)), 2)
    _demand(look(twice, flowing(900, 1_000, 1, at=101.0)), 3, "settling: changed 1 s ago")
    _demand(look(twice, flowing(900, 1_000, 1, at=102.0)), 3, "settling: changed 2 s ago")
    demand([one.at for one in twice.decisions] == [100.0, 102.0], "what is held back again is kept again")
    savepoint = replace(MOVED, operator="")
    _demand(look(governor, flowing(900, 1_000, 1), running((savepoint,))), 3, "moving")
    _demand(look(governor, flowing(900, 1_000, 1), running((replace(MOVED, operator="in"),))), 3)
    policy = Told(1)
    known = Governor(LINE, {"work": policy})
    known.notice(flowing(600, 1_000, 1, at=LONG_AGO), running())
    known.look(flowing(600, 1_000, 1), restarted(running((MOVED,)), "in"))
    demand(policy.asked == [(0.0, frozenset({"in", "work"}), ("work",))], f"{policy.asked}")


@scenario
def growing_waits_for_what_is_about_to_be_known() -> None:
    seen = flowing(900, 1_000, 1)
    _demand(look(governed(3), flowing(900, 1_000, 1, rising=True, lag_seconds=4.9)), 3, "rising")
    _demand(look(governed(3), flowing(900, 1_000, 1, rising=True, lag_seconds=5.0)), 3)
    _demand(look(governed(3), but(seen, "work", warming=True)), 3, "warming: 1,000 rows a second")
    _demand(look(governed(3), but(seen, "in", warming=True)), 3)
    _demand(look(governed(3), seen, shortage="none is idle"), 3, "slots: none is idle")
    hot = but(flowing(1_000, 1_000, 2), "work", busy=(1.0, 0.1), hot_share=0.76)
    _demand(look(governed(4, count=2), hot), 4, "hot-key: one key alone keeps a partition at work for 76% of its time")
    _demand(look(governed(4, count=2), but(hot, "work", hot_share=0.75)), 4)
    _demand(look(governed(4, count=2), but(hot, "work", busy=(0.7, 0.7))), 4)


@scenario
def shrinking_waits_a_minute_and_takes_the_largest_wish() -> None:
    governor = governed(2, 5, *[2] * 200, count=6)
    made = [look(governor, flowing(1_000, 1_000, 6, at=float(at))) for at in range(63)]
    done = [(one.at, one.after, one.direction) for one in made if one.changes]
    demand(done[0] == (60.0, 5, "in"), f"{done}")
    demand(made[59].held == "waiting: too many for 59 s only, 60 count", f"{made[59].held!r}")
    for count, after in ((9, 5), (8, 4), (3, 2), (2, 1)):
        governor = governed(1, count=count)
        made = [look(governor, flowing(100, 1_000, count, at=float(at))) for at in (0, 30, 60)]
        demand((made[1].changes, made[2].after) == (False, after), f"from {count}: {made[2]}")
    # The largest of a minute, and not of those before it.
    governor = governed(5, 4, 2, count=6)
    found = [look(governor, flowing(1_000, 1_000, 6, at=at)).after for at in (0.0, 1.0, 59.0, 60.0, 61.0)]
    demand(found[:3] == [5, 5, 5] and found[3] == 5, f"{found}")
    governor = governed(5, 4, 3, 3, count=6, shrink_seconds=10.0)
    made = [look(governor, flowing(1_000, 1_000, 6, at=at)) for at in (0.0, 1.0, 2.0, 9.5)]
    demand([one.after for one in made] == [5] * 4 and not any(one.changes for one in made), f"{made}")
    _demand(look(governor, flowing(1_000, 1_000, 6, at=11.0)), 4)


@scenario
def shrinking_is_not_done_while_it_would_hurt() -> None:
    late = [flowing(1_000, 1_000, 4, at=float(at), lag_seconds=5.1) for at in (0, 60)]
    governor = governed(2, count=4)
    _demand([look(governor, seen) for seen in late][-1], 2, "backlog: rows wait for 5.1 s")
    in_time = [flowing(1_000, 1_000, 4, at=float(at), lag_seconds=5.0) for at in (0, 60)]
    governor = governed(2, count=4)
    _demand([look(governor, seen) for seen in in_time][-1], 2)
    seen = but(flowing(100, 1_000, 2), "work", state_bytes=30e6)
    large = governed(1, count=2, partition_bytes=29e6, shrink_seconds=0.0)
    _demand(look(large, seen), 1, "memory: 30 MB of state in each would be too much")
    _demand(look(governed(1, count=2, partition_bytes=30e6, shrink_seconds=0.0), seen), 1)
    warming = but(flowing(900, 1_000, 2), "work", warming=True)
    cold = governed(1, count=2, shrink_seconds=0.0)
    _demand(look(cold, warming), 1, "warming: 1,000 rows")
    _demand(look(governed(1, count=2, shrink_seconds=0.0), flowing(100, 1_000, 2), shortage="none is idle"), 1)
    moving = governed(1, count=2, shrink_seconds=0.0)
    _demand(look(moving, flowing(100, 1_000, 2), running((MOVED,), work=2)), 1, "moving")


@scenario
def wish_for_fewer_is_never_answered_with_more() -> None:
    governor = governed(4, 6, 3, count=5, shrink_seconds=10.0)
    _demand(look(governor, flowing(1_000, 1_000, 5, at=10.0)), 4, "waiting")
    _demand(look(governor, flowing(1_000, 1_000, 5, at=12.0), shortage="no"), 6, "slots")
    stays = look(governor, flowing(1_000, 1_000, 5, at=21.0))
    demand((stays.after, stays.changes, stays.held) == (5, False, ""), f"{stays}")


@scenario
def what_cold_partitions_made_one_wish_for_is_forgotten() -> None:
    """They looked as if five were needed: who gives back does it by what is known since."""
    governor = Governor(LINE, {"work": Told(*[5] * 5, 3)}, Guards(shrink_seconds=10.0))
    made = [look(governor, flowing(1_000, 1_000, 6, at=float(at))) for at in range(16)]
    demand([(one.at, one.after) for one in made if one.changes] == [(15.0, 3)], f"{made}")
    governor = governed(5, 3, count=6, shrink_seconds=10.0)
    looks = [but(flowing(1_000, 1_000, 6, at=float(at)), "work", warming=at == 0) for at in range(12)]
    made = [look(governor, seen) for seen in looks]
    demand([(one.at, one.after) for one in made if one.changes] == [(11.0, 3)], f"{made}")


@scenario
def there_and_back_takes_two_minutes() -> None:
    governor = governed(2, *[1] * 20, 3, shrink_seconds=10.0)
    _demand(look(governor, flowing(900, 1_000, 1, at=0.0)), 2)
    _demand(look(governor, flowing(100, 1_000, 2, at=1.0)), 1, "settling")
    _demand(look(governor, flowing(100, 1_000, 2, at=10.0)), 1, "waiting: too many for 0 s only, 10 count")
    _demand(look(governor, flowing(100, 1_000, 2, at=119.0)), 1, "waiting: it has grown in the last 120 s")
    _demand(look(governor, flowing(100, 1_000, 2, at=120.0)), 1)
    governor._groups[0][0].wishes = [3]  # type: ignore[attr-defined]
    _demand(look(governor, flowing(900, 1_000, 1, at=121.0)), 3, "settling")
    calm = look(governor, flowing(900, 1_000, 1, at=130.0, lag_seconds=0.4))
    _demand(calm, 3, "waiting: it has shrunk in the last 120 s, and nothing piles up")
    _demand(look(governor, flowing(900, 1_000, 1, at=131.0, lag_seconds=0.5)), 3)
    grown = governed(2, 3)
    _demand(look(grown, flowing(900, 1_000, 1, at=0.0)), 2)
    _demand(look(grown, flowing(1_900, 1_000, 2, at=6.0)), 2 + 1, "settling")
    _demand(look(grown, flowing(1_900, 1_000, 2, at=12.0)), 3)


@scenario
def growth_that_did_not_help_is_not_repeated() -> None:
    """Not before it is judged, and not for five minutes after that."""
    governor = governed(2, *[2] * 2, 4)
    _demand(look(governor, flowing(5_000, 1_000, 1, at=0.0)), 2)
    for at in (1.0, 7.0):
        look(governor, flowing(5_000, 1_000, 2, taken=1_000.0, at=at))
    still = look(governor, flowing(5_000, 1_000, 2, taken=1_000.0, at=8.0))
    _demand(still, 4, "settling: 1 -> 2 partitions have not shown yet that they help")
    late = flowing(5_000, 1_000, 2, taken=1_050.0, at=11.0)
    told = "ineffective: 1 -> 2 partitions gave +50 rows/s of 1,000; "
    _demand(look(governor, late), 4, f"{told}something else holds it up")
    _demand(look(governor, replace(late, at=310.0)), 4, "ineffective")
    _demand(look(governor, replace(late, at=311.0)), 4)
    for taken, spread, wanted in (
        (1_099.0, (0.9, 0.1), f"{told.replace('+50', '+99')}the busiest has 1.8 times the mean"),
        (1_100.0, (0.9, 0.1), ""),
        (1_099.0, (0.9, 0.3), f"{told.replace('+50', '+99')}something else holds it up"),
        (900.0, (0.0, 0.0), f"{told.replace('+50', '-100')}something else holds it up"),
    ):
        governor = governed(2, 4)
        _demand(look(governor, flowing(5_000, 1_000, 1, at=0.0)), 2)
        look(governor, flowing(5_000, 1_000, 2, taken=1_500.0, at=1.0))
        seen = but(flowing(5_000, 1_000, 2, taken=taken, at=11.0), "work", busy=spread)
        _demand(look(governor, seen), 4, wanted)


@scenario
def growth_is_judged_by_what_there_was_to_gain() -> None:
    """What comes, or what so many can take; where hardly more was expected nothing is said."""
    for arrival, fixed, wanted in (
        (1_100.0, 0.0, ""),
        (1_101.0, 0.0, "of 101;"),
        (9_000.0, 0.0, "of 1,000;"),
        (9_000.0, 0.1, "of 800;"),
    ):
        governor = governed(2, 4)
        first = flowing(arrival, 1_000, 1, taken=1_000.0)
        if fixed:
            first = but(first, "work", busy=(1.0 + fixed,), useful=(1.0,))
        _demand(look(governor, first), 2)
        look(governor, flowing(arrival, 1_000, 2, taken=1_000.0, at=1.0))
        made = look(governor, flowing(arrival, 1_000, 2, taken=1_000.0, at=11.0))
        demand(wanted in made.held if wanted else not made.held, f"{arrival}, {fixed}: {made.held!r}")


@scenario
def decisions_are_kept_and_shown() -> None:
    """A look like the one before takes its place; no number of looks pushes a change out."""
    governor = governed(1)
    for at in range(50):
        look(governor, flowing(600, 1_000, 1, at=float(at)))
    demand([one.at for one in governor.decisions] == [49.0], f"{governor.decisions}")
    demand(governor.counts == {"none": 50}, f"{governor.counts}")
    look(governor, flowing(600, 1_000, 1, at=50.0), running((MOVED,)))
    governor = Governor(LINE, {"in": Told(*[2, None] * 300), "work": Told(2, 1)})
    governor.notice(flowing(600, 1_000, 1, at=LONG_AGO), running())
    for at in range(500):
        governor.look(flowing(600, 1_000, 1, at=float(at)), running())
    kept = governor.decisions
    demand([(one.at, one.after) for one in kept if one.operator == "work"] == [(0.0, 2), (499.0, 1)], "of work")
    demand(len([one for one in kept if one.operator == "in"]) <= CHANGES_KEPT + LOOKS_KEPT, "of in")
    demand([one.at for one in kept] == sorted(one.at for one in kept), "not in their order")
    seen = but(flowing(600, 1_000, 2, lag_rows=3.4, lag_seconds=1.23456, at=1.23456), "out", latency_seconds=0.98765)
    seen = but(seen, "work", busy=(0.33333, 0.4), useful=(0.3, 0.3), state_bytes=7.9, hot_share=0.55555)
    (entry,) = shown([look(governed(Wish(1, "so"), count=2), seen)])
    inputs = entry.pop("inputs")
    first = {"at": 1.235, "operator": "work", "before": 2, "after": 1, "done": False, "why": "so"}
    demand(entry == {**first, "held": "waiting: too many for 0 s only, 60 count"}, f"{entry}")
    told = {
        "wish": 1,
        "arriving_rows_per_second": 600.0,
        "lag_rows": 3,
        "lag_seconds": 1.235,
        "sent_per_row": {"out": 1.0},
        "hot_share": 0.556,
        "latency_seconds": 0.988,
        "rows_per_second": [300.0, 300.0],
        "busy": [0.333, 0.4],
        "rows_per_busy_second": 1_000.0,
        "fixed": 0.067,
        "state_bytes": 7,
    }
    demand(inputs == told, f"{inputs}")
    odd = look(governed(2, count=2), flowing(601.26, 1_000.26, 2)).inputs
    rates = odd["rows_per_second"], odd["arriving_rows_per_second"], odd["rows_per_busy_second"]
    demand(rates == ([300.6, 300.6], 601.3, 1_000.3), f"{odd}")
    apart = governed(1, 2, 1, 1, shrink_seconds=0.0)
    for second, journal in ((0.0, running()), (1.0, running((MOVED,))), (2.0, running()), (3.0, running())):
        look(apart, flowing(600, 1_000, 1, at=second), journal)
    demand([(one.at, one.held[:6]) for one in apart.decisions] == [(0.0, ""), (1.0, "moving"), (3.0, "")], "not alike")
