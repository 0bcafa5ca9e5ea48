"""What the policies make of a load that triples for two minutes and falls back, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from seep.control.decisions import Decision
from seep.control.governor import Governor
from seep.control.observed import BUSY, ROWS_IN, Observed, Seen, Series, observe
from seep.control.policies import Threshold
from seep.sim.directed.registry import demand, scenario
from seep.sim.loads import FRESH_SECONDS, Plan, Report, Watched, simulate
from seep.sim.traces import step

BEFORE, STEPPED, BACK = 110, 235, 479
"""Seconds at which each policy that is quick enough has come to rest."""


class Always:
    """Wishes for the same number, whatever it sees."""

    def __init__(self, count: int) -> None:
        self.count = count

    def decide(self, seen: Observed, operators: Sequence[str]) -> dict[str, int]:
        return dict.fromkeys(operators, self.count)


def _sizes(policy: str) -> tuple[Report, list[tuple[int, int]]]:
    """And the partitions of both stages, each time that it had come to rest."""
    report = simulate(Plan(step(), policy=policy))
    demand(report.problems == 0, f"{policy}: {report.problem}")
    demand(report.reversals == 0, f"{policy}: {report.reversals} changes were taken back")
    return report, [(report.partitions["split"][at], report.partitions["count"][at]) for at in (BEFORE, STEPPED, BACK)]


def _grown(report: Report) -> list[Decision]:
    return [decision for decision in report.decisions if decision.changes and decision.after > decision.before]


@scenario
def rates_size_all_in_one_decision() -> None:
    """5,000 rows a second need 3.3 and 4.4 partitions, and what has waited until the first numbers could be believed
    some more; three times as many, and what waits meanwhile, 11 and 14."""
    report, sizes = _sizes("rate")
    demand(sizes == [(4, 6), (11, 14), (4, 5)], f"{sizes}")
    grown = [(decision.at, decision.operator) for decision in _grown(report)]
    demand([name for _, name in grown] == ["split", "count"] * 2, f"grown at {grown}")
    demand(all(grown[place][0] == grown[place + 1][0] for place in (0, 2)), f"not in one decision: {grown}")
    longest = max(report.lag_seconds[BEFORE:])
    demand(longest < 4.0, f"rows waited for {longest:.1f} s after the load had tripled")
    kept = next(decision.inputs for decision in reversed(report.decisions) if decision.operator == "split")
    known = (kept["wish"], kept["sent_per_row"], kept["rows_per_busy_second"], kept["arriving_rows_per_second"])
    demand(known == (4, {"count": 1.0}, 2_000.0, 5_000.0), f"decided on {kept}")


@scenario
def late_results_make_the_busiest_larger() -> None:
    report, sizes = _sizes("latency:250ms")
    demand(sizes == [(5, 8), (11, 18), (4, 5)], f"{sizes}")
    asked = [decision.why for decision in _grown(report)]
    demand(all("250 are wanted" in why for why in asked), f"{asked}")


@scenario
def threshold_adds_one_after_two_reports() -> None:
    report, sizes = _sizes("threshold")
    demand(sizes == [(6, 6), (14, 15), (11, 12)], f"{sizes}")
    made = [decision for decision in report.decisions if decision.changes]
    demand(all(abs(decision.after - decision.before) == 1 for decision in made), "more than one at once")
    grown = [decision.at for decision in _grown(report) if decision.operator == "split"]
    near = [b - a for a, b in pairwise(grown) if b - a < 60]
    demand(near == [10.0] * len(near), f"grown at {grown}: two reports are 10 s")


@scenario
def each_operator_is_sized_by_its_own_policy() -> None:
    watched = Watched(Plan(step()))
    watched.governor = Governor(watched.graph, {"split": "rate", "count": "threshold"}, watched.plan.guards)
    report = watched.run()
    first, second = (report.partitions[name][BEFORE] for name in ("split", "count"))
    demand((first, second) == (5, 6), f"{first} by rates, {second} by the threshold")


@scenario
def cold_partitions_are_known_as_such() -> None:
    """At first a second of work takes one row, later five hundred: that is no rate to size anything by."""
    watched = Watched(Plan([100.0] * 10))
    watched.run()
    at = watched.samples[Series(BUSY, "split", "0")][-1][0]
    times = [at - 4 + second for second in range(5)]
    cold = {ROWS_IN: (0.0, 1.0, 2.0, 102.0, 202.0), BUSY: (0.0, 1.0, 2.0, 2.2, 2.4)}
    samples = {
        **watched.samples,
        **{Series(f, "split", "0"): list(zip(times, v, strict=True)) for f, v in cold.items()},
    }
    seen = observe(watched.graph, watched._journal(), samples, at, FRESH_SECONDS)
    demand([seen.operators[name].warming for name in ("split", "count")] == [True, False], f"{seen}")


@scenario
def threshold_forgets_a_report_that_was_not_hot() -> None:
    """Only two after each other count, and each two anew."""
    policy, wishes = Threshold(), []
    for rows in (900.0, 500.0, 900.0, 900.0, 900.0, 900.0):
        seen = Observed(0.0, {"a": Seen("a", "operator", (rows,), (rows / 1_000,), {})})
        wishes.append(policy.decide(seen, ["a"])["a"].count)
    demand(wishes == [1, 1, 1, 2, 1, 2], f"wished for {wishes}")


@scenario
def who_came_back_has_to_settle() -> None:
    """A recovery is a change like any other: as many partitions, but the window holds what was before it."""
    watched = Watched(Plan([1_000.0] * 30))
    watched.run()
    watched.live["split"] = watched._fresh("split", len(watched.live["split"]))
    seen = replace(watched._seen(31.0), unknown="")
    watched.governor.look(seen, watched._journal())
    demand(watched.governor._held_both("split", 32.0, watched._journal()).startswith("settling"), "it need not settle")
    later = 31.0 + watched.plan.guards.settle_seconds
    demand(not watched.governor._held_both("split", later, watched._journal()), "it never comes to rest")


@scenario
def without_a_slot_nothing_grows() -> None:
    watched = Watched(Plan([100.0] * 30))
    watched.run()
    more = Governor(watched.graph, {"split": Always(5)}, watched.plan.guards)
    seen, journal = watched._seen(30.0), watched._journal()
    more.notice(replace(seen, at=0.0), journal)
    (held,) = more.look(seen, journal, "none is idle")
    demand(held.held == "slots: none is idle" and not held.changes, f"{held}")
    (grown,) = more.look(seen, journal)
    demand(grown.changes and grown.after == 5, f"{grown}")
