"""A load through a flow in virtual time, watched and scaled as a real one is.

Rows are amounts here, not values: each operator takes what its partitions can, holds a queue of bounded length, and
passes a share on; what finds no room waits at the source. Everything else is the real thing: each second the numbers
are written down under the names that workers export, `observe` makes rates of them, the governor asks the policy, and
what it decides is done a moment later. A result takes as long as rows wait at the source and before each operator, by
the amounts there, and the epoch that they are cut into. Keys are many and even: there is no hot one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from seep.control.decisions import Decision
from seep.control.governor import Governor, Guards
from seep.control.observed import (
    ARRIVED,
    BUSY,
    HOT_SHARE,
    LAG_ROWS,
    LAG_SECONDS,
    LATENCY,
    ROWS_IN,
    ROWS_OUT,
    STATE_BYTES,
    TAKING,
    USEFUL,
    Observed,
    Samples,
    Series,
    observe,
)
from seep.control.policies import UTILISATION, Policy
from seep.model.ids import EVERYTHING, FOREVER, Generation, PartitionId
from seep.partition.contract import Edge, Graph, Node
from seep.partition.histogram import Histogram
from seep.protocol.journal import LIVE, Entry, Journal
from seep.sim.traces import Trace

STEPS = 10
"""In a second: what is done in one is an epoch."""
SPREAD = 0.3
"""Of the rows that a partition gets in an epoch, around their mean."""
WINDOW_SECONDS, FRESH_SECONDS = 4.0, 3.0
QUEUE_SECONDS = 0.25
"""What waits between two operators, at most: so many seconds of one partition's work."""
EPOCH_SECONDS = 0.05
AHEAD_SECONDS = 60
REVERSED_SECONDS = 120
SOURCE, SINK = "source", "sink"


@dataclass(frozen=True)
class Stage:
    name: str
    rows_per_second: float
    """That one partition can take in a second of work for them."""
    sends: float = 1.0
    """Rows for each row taken."""
    row_bytes: float = 0.0
    """That its state grows by for each row taken, ..."""
    state_bytes: float = 0.0
    """... up to this: then it knows all keys."""
    fixed: float = 0.0
    """Share of its time that each partition is at work for whatever comes."""
    epoch_seconds: float = 0.0
    """That each epoch costs a partition inside the operator, however many rows it has."""

    @property
    def idling(self) -> float:
        """Share of its time that a partition needs without rows."""
        return self.fixed + self.epoch_seconds * STEPS


STAGES = (Stage("split", 2_000.0), Stage("count", 1_500.0, row_bytes=100.0, state_bytes=100e6))


@dataclass(frozen=True)
class Plan:
    trace: Trace
    policy: str | Policy = "rate"
    stages: Sequence[Stage] = STAGES
    start: int = 1
    most: int = 64
    change_seconds: float = 1.0
    """From a decision to its effect."""
    goal_seconds: float = 2.0
    """Rows should not wait for longer at the source."""
    noise: float = 0.0
    """Of what a partition can take, from second to second."""
    seed: int = 42
    guards: Guards = field(default_factory=lambda: Guards(settle_seconds=WINDOW_SECONDS + 1.0))


@dataclass(frozen=True)
class Report:
    instance_seconds: float
    oracle_instance_seconds: float
    missed_share: float
    """Of the time, in which rows waited for longer than the goal."""
    moves: int
    reversals: int
    """Changes of an operator the other way within two minutes of one."""
    longest_lag_seconds: float
    decisions: tuple[Decision, ...]
    partitions: dict[str, list[int]]
    """By operator, for each second."""
    lag_seconds: list[float]
    latency_seconds: list[float]
    """What the slowest result of each second took."""
    problems: int
    """Looks at which the policy raised, or wished for nonsense."""
    problem: str
    """The latest of these."""

    @property
    def cost_ratio(self) -> float:
        return self.instance_seconds / self.oracle_instance_seconds


class Taking:
    """Sums over the epochs that one partition took: in half of them its rows were `SPREAD` more than the mean, in half
    of them as many fewer."""

    def __init__(self) -> None:
        self.epochs = 0
        self.seconds = self.rows_squared = self.row_seconds = self.seconds_squared = 0.0

    def add(self, rows: float, rows_per_second: float, epoch_seconds: float) -> None:
        squared = rows * rows * (1 + SPREAD**2)
        seconds = rows / rows_per_second
        self.epochs += 1
        self.seconds += seconds + epoch_seconds
        self.rows_squared += squared
        self.row_seconds += squared / rows_per_second + rows * epoch_seconds
        self.seconds_squared += squared / rows_per_second**2 + epoch_seconds * (2 * seconds + epoch_seconds)

    def told(self) -> Iterable[tuple[str, float]]:
        """All but the rows, which are told for themselves."""
        sums = (self.epochs, self.seconds, self.rows_squared, self.row_seconds, self.seconds_squared)
        return zip((family for family in TAKING if family != ROWS_IN), sums, strict=True)


class Model:
    """The amounts."""

    def __init__(self, plan: Plan) -> None:
        self.stages = plan.stages
        self.noise, self.random = plan.noise, Random(f"model {plan.seed}")
        self.counts = {stage.name: plan.start for stage in plan.stages}
        self.lag = self.arrived = self.read = 0.0
        self.queues = {stage.name: 0.0 for stage in plan.stages}
        self.taken = dict.fromkeys([*self.queues, SINK], 0.0)
        self.busy: dict[str, float] = dict.fromkeys(self.queues, 0.0)
        """Seconds of work by one of an operator's partitions: they share evenly."""
        self.useful: dict[str, float] = dict.fromkeys(self.queues, 0.0)
        """Of these, those inside the operator."""
        self.taking = {name: Taking() for name in self.queues}
        self.waits: dict[str, float] = dict.fromkeys(self.queues, 0.0)
        """How long the last row that came before an operator has to wait for it."""
        self.arrivals: deque[float] = deque(maxlen=10)
        self.latency = Histogram()
        self.slowest = 0.0
        """Of the results of this second."""

    @property
    def lag_seconds(self) -> float:
        """How long the first row at the source has waited."""
        return self.lag / max(1.0, sum(self.arrivals) / max(1, len(self.arrivals)))

    def second(self, rate: float) -> None:
        self.arrivals.append(rate)
        self.slowest = 0.0
        speed = {s.name: s.rows_per_second * (1 + self.random.gauss(0.0, self.noise)) for s in self.stages}
        for _ in range(STEPS):
            before = self.taken[SINK]
            self._step(rate / STEPS, speed)
            if self.taken[SINK] > before:
                took = self.lag_seconds + sum(self.waits.values()) + EPOCH_SECONDS
                self.slowest = max(self.slowest, took)
                self.latency.add(took * 1000)

    def _step(self, arriving: float, speed: dict[str, float]) -> None:
        self.arrived += arriving
        self.lag += arriving
        for index in reversed(range(len(self.stages))):
            stage = self.stages[index]
            count, each = self.counts[stage.name], max(1.0, speed[stage.name])
            able = min(self.queues[stage.name], count * each * (1 - stage.idling) / STEPS)
            if index + 1 < len(self.stages) and stage.sends > 0:
                able = min(able, self._room(index + 1) / stage.sends)
            self.queues[stage.name] -= able
            # What is left now, and not what comes within this step: a step is no delay.
            self.waits[stage.name] = self.queues[stage.name] / (count * each * (1 - stage.idling))
            self.taken[stage.name] += able
            inside = able / each / count + (stage.epoch_seconds if able > 0 else 0.0)
            self.useful[stage.name] += inside
            self.busy[stage.name] += inside + stage.fixed / STEPS
            if able > 0:
                self.taking[stage.name].add(able / count, each, stage.epoch_seconds)
            if index + 1 < len(self.stages):
                self.queues[self.stages[index + 1].name] += able * stage.sends
            else:
                self.taken[SINK] += able * stage.sends
        first = min(self.lag, self._room(0))
        self.lag -= first
        self.read += first
        self.queues[self.stages[0].name] += first

    def _room(self, index: int) -> float:
        stage = self.stages[index]
        most = stage.rows_per_second * self.counts[stage.name] * (QUEUE_SECONDS + 1 / STEPS)
        return max(0.0, most - self.queues[stage.name])


class Watched:
    """The model under a governor."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.model = Model(plan)
        self.graph = _graph(plan)
        self.governor = Governor(self.graph, {s.name: plan.policy for s in plan.stages}, plan.guards)
        self.numbers = dict.fromkeys(self.graph.nodes, 0)
        self.live = {name: self._fresh(name, self.model.counts.get(name, 1)) for name in self.graph.nodes}
        self.samples: dict[Series, deque[tuple[float, float]]] = {}
        self.base: dict[Series, float] = {}
        self.due: list[tuple[float, str, int]] = []

    def run(self) -> Report:
        plan, model = self.plan, self.model
        partitions: dict[str, list[int]] = {stage.name: [] for stage in plan.stages}
        lags: list[float] = []
        latencies: list[float] = []
        used, problems = 0.0, 0
        changes: list[Decision] = []
        for second, rate in enumerate(plan.trace):
            at = float(second)
            for when, name, count in [d for d in self.due if d[0] <= at]:
                self.due.remove((when, name, count))
                self._change(name, count)
            model.second(rate)
            lags.append(model.lag_seconds)
            latencies.append(model.slowest)
            for stage in plan.stages:
                partitions[stage.name].append(model.counts[stage.name])
            # What is on its way runs beside what it replaces.
            used += sum(model.counts.values()) + sum(max(0, n - model.counts[name]) for _, name, n in self.due)
            self._measure(at + 1, model.lag_seconds)
            made = self.governor.look(self._seen(at + 1), self._journal())
            problems += any(decision.held.startswith("policy: ") for decision in made)
            for decision in made:
                if decision.changes:
                    changes.append(decision)
                    self.due.append((at + 1 + plan.change_seconds, decision.operator, decision.after))
        return Report(
            used,
            oracle(plan),
            sum(lag > plan.goal_seconds for lag in lags) / max(1, len(lags)),
            len(changes),
            _reversals(changes),
            max(lags, default=0.0),
            tuple(self.governor.decisions),
            partitions,
            lags,
            latencies,
            problems,
            next((d.held for d in reversed(self.governor.decisions) if d.held.startswith("policy: ")), ""),
        )

    def _change(self, name: str, count: int) -> None:
        kept = self.live[name][: min(count, len(self.live[name])) - 1] if count > 1 else []
        self.live[name] = [*kept, *self._fresh(name, count - len(kept))]
        self.model.counts[name] = count

    def _fresh(self, name: str, count: int) -> list[int]:
        first = self.numbers[name]
        self.numbers[name] += count
        return list(range(first, first + count))

    def _journal(self) -> Journal:
        entries = {}
        for name, numbers in self.live.items():
            for number, part in zip(numbers, EVERYTHING.split(len(numbers)), strict=True):
                who = PartitionId(name, number)
                entries[who] = Entry(who, part, 1, FOREVER, LIVE, Generation(1, number), "w")
        return Journal(version=1, entries=entries)

    def _measure(self, at: float, lag_seconds: float) -> None:
        model = self.model
        self._put(at, SOURCE, ARRIVED, model.arrived)
        self._put(at, SOURCE, LAG_ROWS, model.lag, gauge=True)
        self._put(at, SOURCE, LAG_SECONDS, lag_seconds, gauge=True)
        self._put(at, SOURCE, ROWS_IN, model.read)
        self._put(at, SOURCE, BUSY, 0.0)
        self._put(at, SINK, ROWS_IN, model.taken[SINK])
        self._put(at, SINK, BUSY, 0.0)
        for bound, count in model.latency.buckets():
            self._put(at, SINK, LATENCY, count, edge=bound)
        sent = model.read
        for index, stage in enumerate(self.plan.stages):
            before = SOURCE if index == 0 else self.plan.stages[index - 1].name
            self._put(at, before, ROWS_OUT, sent, edge=f"{before}>{stage.name}")
            self._put(at, stage.name, ROWS_IN, model.taken[stage.name])
            self._put(at, stage.name, BUSY, model.busy[stage.name], whole=True)
            self._put(at, stage.name, USEFUL, model.useful[stage.name], whole=True)
            for family, value in model.taking[stage.name].told():
                self._put(at, stage.name, family, value, whole=True)
            kept = min(stage.state_bytes, stage.row_bytes * model.taken[stage.name])
            self._put(at, stage.name, STATE_BYTES, kept, gauge=True)
            self._put(at, stage.name, HOT_SHARE, 0.0, gauge=True)
            sent = model.taken[stage.name] * stage.sends
        last = self.plan.stages[-1].name
        self._put(at, last, ROWS_OUT, sent, edge=f"{last}>{SINK}")

    def _put(
        self, at: float, name: str, family: str, value: float, edge: str = "", gauge: bool = False, whole: bool = False
    ) -> None:
        """Each partition has an even share of what grew since the last look; `whole`: each has all of it."""
        total = Series(family, name, "", edge)
        grown = value - self.base.get(total, 0.0)
        self.base[total] = value
        for number in self.live[name]:
            series = Series(family, name, str(number), edge)
            points = self.samples.setdefault(series, deque())
            share = 1 if whole else len(self.live[name])
            points.append((at, value / share if gauge else (points[-1][1] if points else 0.0) + grown / share))
            while points[0][0] < at - WINDOW_SECONDS:
                points.popleft()

    def _seen(self, at: float) -> Observed:
        samples: Samples = self.samples
        return observe(self.graph, self._journal(), samples, at, FRESH_SECONDS)


def simulate(plan: Plan) -> Report:
    return Watched(plan).run()


def oracle(plan: Plan) -> float:
    """Instance-seconds of one that knows the next minute, has the same target for utilisation, and gives back only what
    it has not needed for as long."""
    total, share, hold = 0.0, 1.0, int(plan.guards.shrink_seconds)
    for stage in plan.stages:
        each = stage.rows_per_second * (UTILISATION - stage.idling)
        needs = [max(1, -int(-rate * share // each)) for rate in plan.trace]
        needs = [min(need, plan.most) for need in needs]
        total += sum(max(needs[max(0, at - hold) : at + AHEAD_SECONDS + 1]) for at in range(len(needs)))
        share *= stage.sends
    return total


def _reversals(changes: Sequence[Decision]) -> int:
    latest: dict[str, Decision] = {}
    found = 0
    for change in changes:
        before = latest.get(change.operator)
        if before and before.direction != change.direction and change.at - before.at < REVERSED_SECONDS:
            found += 1
        latest[change.operator] = change
    return found


def _graph(plan: Plan) -> Graph:
    names = [SOURCE, *(stage.name for stage in plan.stages), SINK]
    kinds = {SOURCE: "source", SINK: "sink"}
    nodes = {name: Node(name, kinds.get(name, "operator"), None, maximum=plan.most) for name in names}
    edges = tuple(Edge(f"{a}>{b}", a, b, 0) for a, b in pairwise(names))
    return Graph(nodes, edges)
