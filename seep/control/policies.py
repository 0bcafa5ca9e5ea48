"""How many partitions an operator should have: what a policy wishes for. The governor decides what becomes of it.

A policy sees the metrics of the whole flow (`Observed`) and names a number for each operator it is responsible for. A
user's own class works the same: it has a method ``decide(seen, operators)`` and answers with numbers by operator.

- ``threshold``: SEEP's. An operator whose busiest partition is at work for more than 70 % of the time, in two reports
  one after the other, gets one partition more.
- ``rate``: DS2's. What one partition can take in a second of work is measured; how many rows come to each operator is
  walked through the graph from the rate at which they *arrive* at the sources. All operators are sized in one decision.
- ``latency:250ms``: like ``rate``, but results that take longer than that make the busiest operator larger.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import getattr_static, isfunction
from typing import Protocol

from seep.control.observed import Observed
from seep.errors import Misuse
from seep.model.duration import positive_microseconds

UTILISATION = 0.75
"""Of its time a partition should be at work: the rest is for what comes unevenly."""
CATCH_UP_SECONDS = 30.0
"""In which what has piled up should be worked off."""
POINTS = 32
BAND = 0.1
"""Of a partition: a number stays while what is needed is no more than this above it, or below the next smaller one."""
TOLD = 0.005
"""Of its time: what each does beside the rows, if it is less, is not told."""
AGAIN_SECONDS = 300.0
"""After more partitions have not made results any earlier, so long they are not tried again, ..."""
OTHER_LOAD = 0.25
"""... unless the operator takes more or fewer rows by this share."""
LEAST_EFFICIENCY = 0.5
"""However badly more partitions have helped: one of them is taken to do at least this share of what one did."""


@dataclass(frozen=True)
class Wish:
    count: int
    why: str


class Policy(Protocol):
    def decide(self, seen: Observed, operators: Sequence[str]) -> Mapping[str, Wish | int]:
        """How many partitions each of these operators should have. One that is left out stays as it is."""


class Threshold:
    every_seconds = 5.0
    """Between two reports."""

    def __init__(self, above: float = 0.7, reports: int = 2) -> None:
        self.above, self.reports = above, reports
        self._hot: dict[str, int] = {}

    def decide(self, seen: Observed, operators: Sequence[str]) -> dict[str, Wish]:
        wishes: dict[str, Wish] = {}
        for name in operators:
            one = seen.operators[name]
            hot = self._hot.get(name, 0) + 1 if one.busiest > self.above else 0
            self._hot[name] = hot % self.reports
            if hot >= self.reports:
                wishes[name] = Wish(one.partitions + 1, f"busy {one.busiest:.0%} in {self.reports} reports")
            elif one.partitions > 1 and sum(one.busy) / (one.partitions - 1) < self.above * self.above:
                less = sum(one.busy) / (one.partitions - 1)
                wishes[name] = Wish(one.partitions - 1, f"one fewer would be busy {less:.0%}")
            else:
                wishes[name] = Wish(one.partitions, f"busy {one.busiest:.0%}")
        return wishes


class Rate:
    def __init__(self, utilisation: float = UTILISATION, catch_up_seconds: float = CATCH_UP_SECONDS) -> None:
        self.utilisation, self.catch_up_seconds = utilisation, catch_up_seconds
        self._efficiency: defaultdict[str, Efficiency] = defaultdict(Efficiency)
        self._rates: dict[str, float] = {}
        """The latest rate of one partition: an operator that takes no rows shows none."""

    def decide(self, seen: Observed, operators: Sequence[str]) -> dict[str, Wish]:
        coming = walk(seen, {name: one.arrival for name, one in seen.operators.items() if one.kind == "source"})
        waiting = walk(seen, {name: one.lag_rows for name, one in seen.operators.items() if one.kind == "source"})
        wishes: dict[str, Wish] = {}
        for name in operators:
            one = seen.operators[name]
            if one.rate > 0:
                self._rates[name] = one.rate
                # Cold partitions are slow: that would look as if more of them held each other up.
                if name not in seen.unsettled and not one.warming:
                    self._efficiency[name].add(one.partitions, one.rate)
            rate = self._rates.get(name, 0.0)
            if rate <= 0:
                wishes[name] = Wish(one.partitions, "it has taken no rows yet")
                continue
            # What each partition does for whatever comes is not less when there are fewer: it is left out of both.
            fixed = min(one.fixed, self.utilisation / 2)
            rows = coming[name] / (self.utilisation - fixed) + waiting[name] / self.catch_up_seconds
            why = _reckoning(coming[name], waiting[name], rate, fixed, rows / rate)
            wishes[name] = Wish(self._count(name, one.partitions, rows / rate), why)
        return wishes

    def _count(self, name: str, now: int, needed: float) -> int:
        count = self._efficiency[name].partitions
        if count(now, needed - BAND) > now:
            return count(now, needed)
        return min(now, count(now, needed + BAND))


@dataclass(frozen=True)
class Trial:
    """An operator grows because results are late, until it can be said whether that helps."""

    partitions: int
    rows: float
    """Taken in a second, ..."""
    late: float
    """... and the time that results took, before it grew."""
    failed: float = math.inf
    """When it was found that more partitions do not help."""


class Latency:
    """Sized by rates; results later than the goal make the busiest operator on their way larger. One that has become
    twice as large, with results as late as before, is not what makes them late: it goes back to what its rows need."""

    def __init__(self, goal_seconds: float) -> None:
        self.goal_seconds = goal_seconds
        self._rate = Rate()
        self._trials: dict[str, Trial] = {}

    def decide(self, seen: Observed, operators: Sequence[str]) -> dict[str, Wish]:
        wishes = self._rate.decide(seen, operators)
        late = {name: latency_behind(seen, name) for name in operators}
        useless = {name: self._judge(name, late[name], seen) for name in operators}
        may_help = [name for name in operators if late[name] > self.goal_seconds and not useless[name]]
        busiest = max(may_help, key=lambda name: seen.operators[name].busiest, default="")
        for name in operators:
            one, wish = seen.operators[name], wishes[name]
            now, more, kept = one.partitions, 0, 0
            if name == busiest:
                more = now + math.ceil(now / 4)
                self._trials.setdefault(name, Trial(now, sum(one.rows), late[name]))
            if late[name] > self.goal_seconds / 2 and not useless[name]:
                kept = now
            took = f"{late[name] * 1000:.0f} ms" if late[name] < math.inf else "longer than is counted"
            told = f"results take {took}, {self.goal_seconds * 1000:.0f} are wanted{useless[name]}; {wish.why}"
            wishes[name] = Wish(max(wish.count, more, kept), told)
        return wishes

    def _judge(self, name: str, late: float, seen: Observed) -> str:
        """Why it is not made larger though results are late; empty: that may help."""
        trial, one = self._trials.get(name), seen.operators[name]
        if trial is None:
            return ""
        other_load = abs(sum(one.rows) - trial.rows) > OTHER_LOAD * trial.rows
        if late < trial.late or other_load or seen.at - trial.failed > AGAIN_SECONDS:
            del self._trials[name]
            return ""
        # By half: latency is counted in steps of two.
        if trial.failed == math.inf and one.partitions >= 2 * trial.partitions and name not in seen.unsettled:
            self._trials[name] = trial = replace(trial, failed=seen.at)
        return f", and twice as many partitions as {trial.partitions} gained nothing" if trial.failed < math.inf else ""


def latency_behind(seen: Observed, name: str) -> float:
    """At the slowest of the sinks that an operator's rows go to."""
    met, left, found = set[str](), [name], 0.0
    while left:
        one = seen.operators[left.pop()]
        if one.operator not in met:
            met.add(one.operator)
            left += one.sent
            found = max(found, one.latency_seconds if one.kind == "sink" else 0.0)
    return found


class Efficiency:
    """What one partition takes, by how many there were: a power of their number, fitted to what was seen."""

    def __init__(self) -> None:
        self._points: deque[tuple[int, float]] = deque(maxlen=POINTS)

    def add(self, partitions: int, rate: float) -> None:
        self._points.append((partitions, rate))

    @property
    def loss(self) -> float:
        """The exponent: 0 when the partitions do not disturb each other, 1 when more of them do no more."""
        if len({partitions for partitions, _ in self._points}) < 2:
            return 0.0
        xs = [math.log(partitions) for partitions, _ in self._points]
        ys = [math.log(rate) for _, rate in self._points]
        x, y = sum(xs) / len(xs), sum(ys) / len(ys)
        slope = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)
        return min(1.0, max(0.0, -slope))

    def partitions(self, now: int, as_of_now: float) -> int:
        """How many there must be to do what so many would that were as fast as one is now."""
        loss = self.loss
        count = max(1, math.ceil(as_of_now - 1e-6))
        while count > now and count * max(LEAST_EFFICIENCY, (count / now) ** -loss) < as_of_now - 1e-6:
            count += 1
        return count


def walk(seen: Observed, at_sources: Mapping[str, float]) -> dict[str, float]:
    """How much of what is at the sources comes to each operator: by the share that each puts on its edges."""
    found: dict[str, float] = dict.fromkeys(seen.operators, 0.0)
    found.update(at_sources)
    for name, one in seen.operators.items():
        taken = sum(one.rows)
        for target, sent in one.sent.items():
            found[target] += found[name] * sent / taken if taken > 0 else 0.0
    return found


def _reckoning(coming: float, waiting: float, rate: float, fixed: float, needed: float) -> str:
    behind = f" and {waiting:,.0f} wait" if waiting >= 1 else ""
    beside = f" in a second and needs {fixed:.0%} of its time beside that" if fixed >= TOLD else ""
    return f"{coming:,.0f} rows/s come{behind}, one partition takes {rate:,.0f}{beside}: {needed:.2f} are needed"


def policy_of(named: str | Policy) -> Policy:
    """By its name, or a user's own."""
    if isinstance(named, type) and isfunction(getattr_static(named, "decide", None)):
        raise Misuse(f"policy={named.__name__}: that is a class; give an object of it, such as {named.__name__}()")
    if not isinstance(named, str):
        if not callable(getattr(named, "decide", None)):
            raise Misuse(f"policy={named!r}: a policy of your own needs a method decide(seen, operators)")
        return named
    if named == "threshold":
        return Threshold()
    if named == "rate":
        return Rate()
    kind, _, goal = named.partition(":")
    if kind == "latency" and goal:
        return Latency(positive_microseconds(goal) / 1e6)
    raise Misuse(f"policy={named!r}; there are 'rate', 'threshold', 'latency:250ms' and objects of your own")
