"""What a policy must wish for, by loads whose answer is known beforehand."""

from __future__ import annotations

from dataclasses import replace

from seep.control.observed import Observed, Seen
from seep.control.policies import POINTS, Efficiency, Latency, Rate, Threshold, policy_of, walk
from seep.errors import Misuse
from seep.sim.directed.alone.metrics import but, counts, flowing
from seep.sim.directed.registry import demand, scenario


def _busy(*shares: float) -> Observed:
    return Observed(0.0, {"a": Seen("a", "operator", (100.0,) * len(shares), shares)})


def _threshold(*reports: tuple[float, ...]) -> list[int]:
    policy = Threshold()
    return [policy.decide(_busy(*shares), ["a"])["a"].count for shares in reports]


@scenario
def threshold_wishes_for_one_more_or_one_fewer() -> None:
    """More than 0.7 twice makes one more, however many there are; one fewer must stay below 0.49."""
    demand(_threshold((0.71,), (0.71,), (0.71,), (0.71,)) == [1, 2, 1, 2], "each two reports count anew")
    demand(_threshold((0.71,), (0.6,), (0.71,), (0.71,)) == [1, 1, 1, 2], "one that was not hot lies between")
    demand(_threshold((0.7,), (0.7,), (0.7,)) == [1, 1, 1], "0.7 is not above 0.7")
    demand(_threshold((0.1, 0.9, 0.1), (0.9, 0.1, 0.1)) == [3, 4], "the busiest counts, whichever it is")
    demand(_threshold((0.3, 0.3, 0.3), (0.33, 0.33, 0.33)) == [2, 3], "one fewer would be busy 0.45, or 0.495")
    demand(_threshold((0.2, 0.2), (0.2, 0.3), (0.01,)) == [1, 2, 1], "two that could be one; one stays one")
    demand(_threshold((0.49, 0.0), (0.48, 0.0)) == [2, 1], "just at 0.49 it stays")
    policy = Threshold()
    why = [policy.decide(_busy(*shares), ["a"])["a"].why for shares in ((0.9,), (0.9,), (0.1, 0.3), (0.4, 0.4))]
    demand(
        why == ["busy 90%", "busy 90% in 2 reports", "one fewer would be busy 40%", "busy 40%"], f"it says why: {why}"
    )
    both = replace(_busy(0.9), operators={"a": _busy(0.9).operators["a"], "b": _busy(0.2).operators["a"]})
    policy = Threshold()
    found = [counts(policy.decide(both, ["a", "b"])) for _ in range(2)]
    demand(found == [{"a": 1, "b": 1}, {"a": 2, "b": 1}], f"each has its own reports: {found}")


@scenario
def rate_is_right_in_one_step_from_any_number() -> None:
    """3,300 rows a second, 1,000 for each in a second of work, at work for three quarters of the time: 4.4."""
    for now in range(1, 13):
        wish = Rate().decide(flowing(3_300, 1_000, now), ["work"])["work"]
        demand(wish.count == 5, f"from {now}: {wish.count}")
        demand(wish.why == "3,300 rows/s come, one partition takes 1,000: 4.40 are needed", wish.why)
    for now in range(2, 13):
        # A tenth of each one's time goes to epochs: 3,600 / (0.75 - 0.1) / 1,000 = 5.54.
        seen = flowing(3_600, 1_000, now, taken=min(3_600, 900 * now))
        useful = seen.operators["work"].busy
        seen = but(seen, "work", useful=useful, busy=tuple(busy + 0.1 for busy in useful))
        wish = Rate().decide(seen, ["work"])["work"]
        demand(wish.count == 6 and wish.why.endswith(" needs 10% of its time beside that: 5.54 are needed"), f"{wish}")
    half = Rate(utilisation=0.16).decide(seen, ["work"])["work"]
    demand(half.why.endswith("needs 8% of its time beside that: 45.00 are needed"), f"at most half of it: {half}")
    hardly = but(seen, "work", busy=tuple(busy + 0.004 for busy in useful))
    demand("beside" not in Rate().decide(hardly, ["work"])["work"].why, "so little is not told")


@scenario
def rate_lets_a_number_stay_where_noise_decides() -> None:
    """Within a tenth of a partition of what is needed both neighbours are right."""
    for now, arrival, wanted in (
        (4, 3_060, 4),  # 4.08
        (4, 3_080, 5),  # 4.11
        (5, 2_940, 5),  # 3.92
        (5, 2_920, 4),  # 3.89
        (1, 830, 2),  # 1.11
        (1, 810, 1),  # 1.08
        (9, 10, 1),
    ):
        wish = Rate().decide(flowing(arrival, 1_000, now), ["work"])["work"]
        demand(wish.count == wanted, f"from {now} at {arrival}: {wish}")


@scenario
def rate_works_off_what_waits() -> None:
    """60,000 rows that wait are 2,000 a second more for half a minute; each row at the source may be several here."""
    wish = Rate().decide(flowing(3_000, 1_000, 4, lag_rows=60_000.0), ["work"])["work"]
    told = "3,000 rows/s come and 60,000 wait, one partition takes 1,000: 6.00 are needed"
    demand((wish.count, wish.why) == (6, told), f"{wish}")
    demand(" and 1 wait," in Rate().decide(flowing(3_000, 1_000, 4, lag_rows=1.0), ["work"])["work"].why, "one waits")
    demand(" wait" not in Rate().decide(flowing(3_000, 1_000, 4, lag_rows=0.9), ["work"])["work"].why, "none waits")
    twice = but(flowing(3_000, 2_000, 4, taken=1_500.0), "in", sent={"work": 3_000.0})
    twice = but(twice, "work", rows=(750.0,) * 4, busy=(0.375,) * 4)
    wish = Rate().decide(twice, ["work", "out"])["work"]
    demand(wish.count == 4 and "6,000 rows/s come" in wish.why, f"two for each: {wish}")
    demand(
        Rate(catch_up_seconds=10.0).decide(flowing(750, 1_000, 1, lag_rows=20_000.0), ["work"])["work"].count == 3, ""
    )


@scenario
def rate_remembers_who_takes_nothing_now() -> None:
    policy = Rate()
    found = [policy.decide(seen, ["work"])["work"] for seen in (flowing(0, 1_000, 3), flowing(900, 1_000, 3))]
    demand([wish.count for wish in found] == [3, 2], f"{found}")
    demand(found[0].why == "it has taken no rows yet", f"{found}")
    demand(policy.decide(flowing(0, 1_000, 3), ["work"])["work"].count == 1, "it is known what one takes")
    slow = Rate().decide(flowing(0.9, 0.5, 5), ["work"])["work"]
    demand(slow.count == 3, f"one that takes a row in two seconds: {slow}")
    three = flowing(2_200, 1_000, 3, taken=0.0)
    demand(policy.decide(but(three, "in", rows=(1.0,), sent={"work": 1.0}), ["work"])["work"].count == 3, "2.93")


@scenario
def who_disturb_each_other_are_reckoned_with() -> None:
    """Two do 1.5 times what one does: n do n to the power of 0.585, but never less than half of n."""
    learned = Efficiency()
    demand(learned.loss == 0.0 and learned.partitions(2, 3.5) == 4, "nothing is known")
    demand(learned.partitions(5, 0.0) == 1, "there is one at least")
    for _ in range(3):
        learned.add(1, 1_000.0)
    demand(learned.loss == 0.0, "one number tells nothing")
    for _ in range(3):
        learned.add(2, 750.0)
    demand(abs(learned.loss - 0.415) < 0.001, f"{learned.loss}")
    found = [learned.partitions(2, needed) for needed in (1.0, 2.0, 2.1, 4.0, 100.0)]
    demand(found == [1, 2, 3, 7, 200], f"{found}")
    for first, second, loss in ((1_000.0, 400.0, 1.0), (1_000.0, 1_500.0, 0.0)):
        other = Efficiency()
        other.add(1, first)
        other.add(2, second)
        demand(other.loss == loss, f"{first} and {second} make {other.loss}")
    # Not on a line: by the least squares of the logarithms.
    for partitions, rate in ((1, 1_000.0), (2, 800.0), (4, 800.0)):
        learned.add(partitions, rate)
    for _ in range(POINTS):
        learned.add(3, 500.0)
    demand(learned.loss == 0.0, "what was long ago is forgotten")
    bent = Efficiency()
    for partitions, rate in ((1, 1_000.0), (2, 800.0), (4, 800.0)):
        bent.add(partitions, rate)
    demand(abs(bent.loss - 0.16096) < 0.0001, f"{bent.loss}")


@scenario
def rate_learns_from_warm_partitions_only() -> None:
    """Cold ones are slow: that is not because there are more of them."""
    for told, wanted in (("warm", 24), ("unsettled", 12), ("warming", 12)):
        policy, slow = Rate(), flowing(4_500, 500, 5)
        policy.decide(flowing(3_300, 1_000, 1), ["work"])
        if told == "unsettled":
            slow = replace(slow, unsettled=frozenset({"work"}))
        policy.decide(but(slow, "work", warming=told == "warming"), ["work"])
        found = policy.decide(replace(flowing(4_500, 500, 5), unsettled=frozenset({"work"})), ["work"])["work"].count
        demand(found == wanted, f"{told}: {found}")


@scenario
def latency_makes_the_busiest_larger_or_keeps_it() -> None:
    """Too late: a quarter more of the busiest, none of another one fewer; half of the goal: none fewer."""
    seen = flowing(1_500, 1_000, 5)
    two = replace(
        seen, operators={**seen.operators, "idle": Seen("idle", "operator", (10.0,) * 4, (0.1,) * 4, {"out": 0.0})}
    )
    for seconds, wanted in (
        (0.5, (7, 4)),
        (0.26, (7, 4)),
        (0.25, (5, 4)),
        (0.13, (5, 4)),
        (0.125, (3, 1)),
        (0.0, (3, 1)),
    ):
        late = but(two, "out", latency_seconds=seconds)
        wishes = Latency(0.25).decide(late, ["idle", "work"])
        demand((wishes["work"].count, wishes["idle"].count) == wanted, f"after {seconds} s: {wishes}")
        told = (
            f"results take {seconds * 1000:.0f} ms, 250 are wanted; 1,500 rows/s come, one partition takes 1,000: 2.00"
        )
        demand(wishes["work"].why == f"{told} are needed", wishes["work"].why)
    elsewhere = but(but(two, "work", latency_seconds=9.0), "in", latency_seconds=9.0)
    demand(
        counts(Latency(0.25).decide(elsewhere, ["idle", "work"])) == {"idle": 1, "work": 3}, "only sinks have results"
    )
    grown = but(flowing(3_000, 1_000, 1), "out", latency_seconds=9.0)
    demand(counts(Latency(0.25).decide(grown, ["work"])) == {"work": 4}, "rates may ask for more")
    aside = but(but(two, "out", latency_seconds=9.0), "work", sent={"idle": 1.0})
    demand(counts(Latency(0.25).decide(aside, ["idle", "work"])) == {"idle": 4, "work": 7}, "by way of another")
    aside = but(aside, "work", sent={})
    demand(counts(Latency(0.25).decide(aside, ["idle", "work"])) == {"idle": 5, "work": 3}, "not on their way")


@scenario
def latency_that_more_partitions_do_not_change_ends_their_growth() -> None:
    """Judged when there are twice as many and they are warm; after five minutes, or with another load, tried again."""

    def found(policy: Latency, at: float, now: int, late: float, load: float = 600.0, warm: bool = True) -> int:
        seen = but(flowing(load, 1_000, now, at=at), "out", latency_seconds=late)
        seen = replace(seen, unsettled=frozenset() if warm else frozenset({"work"}))
        return counts(policy.decide(seen, ["work"]))["work"]

    for later, late, load, wanted in (
        (299.0, 0.5, 600.0, 1),
        (301.0, 0.5, 600.0, 5),
        (1.0, 0.25, 600.0, 4),
        (1.0, 0.4, 600.0, 5),
        (1.0, 1.0, 600.0, 1),
        (1.0, 0.5, 749.0, 2),
        (1.0, 0.5, 751.0, 5),
        (1.0, 0.5, 449.0, 5),
    ):
        policy = Latency(0.25)
        told = [found(policy, at, now, 0.5) for at, now in ((0.0, 2), (1.0, 2), (9.0, 3))]
        demand(told == [3, 3, 4], f"{told}")
        demand(found(policy, 10.0, 4, 0.5, warm=False) == 5, "cold ones say nothing")
        demand(found(policy, 11.0, 4, 0.5) == 1, "they gained nothing")
        last = found(policy, 11.0 + later, 4, late, load)
        demand(last == wanted, f"{later} s later, {late} s late, {load} rows/s: {last}, not {wanted}")


@scenario
def what_comes_follows_the_shares() -> None:
    """By all ways; who has taken nothing passes nothing on."""
    operators = {
        "in": Seen("in", "source", (100.0, 100.0), (0.1, 0.1), {"a": 50.0, "b": 400.0}),
        "a": Seen("a", "operator", (40.0,), (0.1,), {"out": 20.0}),
        "b": Seen("b", "operator", (0.0,), (0.0,), {"out": 7.0}),
        "c": Seen("c", "operator", (5.0, 5.0), (0.1,), {"out": 10.0}),
        "out": Seen("out", "sink", (20.0,), (0.1,)),
    }
    found = walk(Observed(0.0, operators), {"in": 400.0, "c": 3.0})
    demand(found == {"in": 400.0, "a": 100.0, "b": 800.0, "c": 3.0, "out": 53.0}, f"{found}")


@scenario
def policies_have_names() -> None:
    kinds = [type(policy_of(name)) for name in ("threshold", "rate", "latency:250ms")]
    demand(kinds == [Threshold, Rate, Latency], f"{kinds}")
    latency = policy_of("latency:250ms")
    demand(isinstance(latency, Latency) and latency.goal_seconds == 0.25, "another goal")
    own = Threshold()
    demand(policy_of(own) is own, "a policy of one's own is another one")
    for wrong in ("speed", "latency:", "latency", "rate:1s", "latency:soon", object()):
        try:
            policy_of(wrong)  # type: ignore[arg-type]
        except Misuse:
            continue
        demand(False, f"{wrong} is a policy")
