"""What becomes of the wishes of policies: each is tried by the guards, and kept with what it was made from.

A change goes through only if the numbers are whole and fresh, no other change of the operator is under way or has just
been made, its bounds allow it, and it can help. To shrink takes longer than to grow: only what has been too much for a
minute is given back, by the largest wish of that minute, and nothing while rows pile up. Every look is a Decision,
done or held back, with its reason: `seep explain` shows them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import index
from typing import Any

from seep.control.decisions import Decision, Ledger
from seep.control.lately import Lately
from seep.control.observed import Observed, Seen
from seep.control.policies import UTILISATION, Policy, Wish, policy_of, walk
from seep.model.ids import BUCKETS
from seep.partition.contract import Graph
from seep.protocol.journal import Journal

LITTLE_SECONDS = 0.5
"""Rows that wait for less have not piled up."""
DIRECTIONS = ("out", "in", "none")
HELD = (
    "metrics",
    "policy",
    "moving",
    "settling",
    "rising",
    "warming",
    "hot-key",
    "slots",
    "ineffective",
    "waiting",
    "backlog",
    "memory",
    "defect",
)
"""Why something is held back: the first words of `Decision.held`."""


@dataclass(frozen=True)
class Guards:
    shrink_seconds: float = 60.0
    """Only what was too much for so long is given back."""
    turn_seconds: float = 120.0
    """After it has grown, an operator does not shrink for so long; after it has shrunk, it does not grow while nothing
    piles up."""
    shrink_most: float = 0.5
    """At most this share at once."""
    backlog_seconds: float = 5.0
    """While rows wait for longer than this at a source, nothing shrinks."""
    settle_seconds: float = 5.0
    """After the partitions have changed, until the window of the metrics holds nothing from before it."""
    unlike: float = 0.5
    """Rows taken may be more by this share than rows sent; beyond that the numbers are not to be trusted."""
    gain_least: float = 0.1
    """A growth that gives less than this share of what was expected did not help, ..."""
    useless_seconds: float = 300.0
    """... and is not repeated for so long."""
    partition_bytes: float = math.inf
    """State that one partition may hold, at most."""


@dataclass
class Growth:
    """One that was made, until it can be judged."""

    before: int
    after: int
    rows: float
    wanted: float
    """Rows a second that should be taken afterwards."""

    def failed(self, rows: float, gain_least: float) -> bool:
        """By what is taken now: was something to be gained, and less than this share of it was?"""
        expected = self.wanted - self.rows
        return expected > gain_least * self.rows and rows - self.rows < gain_least * expected


@dataclass(frozen=True)
class Wanted:
    """What a policy said of one operator."""

    count: int
    """0: no number."""
    said: str
    why: str


class Nonsense(Exception):
    """A policy has not raised, but what it answers says nothing."""


class Governor:
    def __init__(self, graph: Graph, policies: Mapping[str, str | Policy], guards: Guards | None = None) -> None:
        self.graph = graph
        self.guards = guards or Guards()
        self._ledger = Ledger(policies)
        self.counts: dict[str, int] = {}
        """Decisions by direction, and those held back by reason."""
        self._groups = _grouped(policies)
        self._wishes: dict[str, deque[tuple[float, int]]] = {name: deque() for name in policies}
        self._asked: dict[int, float] = {}
        self._lately = Lately()
        self._turns: dict[str, tuple[float, str]] = {}
        """When each was changed last, and in which direction."""
        self._growths: dict[str, Growth] = {}
        self._useless: dict[str, tuple[float, str]] = {}
        self._shortage = ""
        self.asking: tuple[float, str, list[str]] | None = None
        """Since when which policy is asked, about whom: one of a user's own may never come back."""

    @property
    def operators(self) -> list[str]:
        return [name for _, names in self._groups for name in names]

    @property
    def decisions(self) -> list[Decision]:
        """Oldest first."""
        return self._ledger.all()

    def look(self, seen: Observed, journal: Journal, shortage: str = "") -> list[Decision]:
        """One look at the metrics: what is to be changed, and what is not and why. `shortage`: why nothing more can
        be started on a slot of its own."""
        self._shortage = shortage
        self.notice(seen, journal)
        unknown = seen.unknown or self._unlike(seen)
        if unknown:
            return self._keep([Decision(seen.at, "", 0, 0, "no decision", f"metrics: {unknown}")])
        seen = replace(seen, unsettled=frozenset(n for n in seen.operators if self._held_both(n, seen.at, journal)))
        made: list[Decision] = []
        for number, (policy, names) in enumerate(self._groups):
            try:
                wishes = self._wished(number, policy, names, seen)
            except (Exception, SystemExit) as error:
                # A user's code. The flow runs on as it is; who asks is told, and it is counted.
                what = _line(error) if isinstance(error, Nonsense) else f"raised {type(error).__name__}: {_line(error)}"
                raised = f"policy: {type(policy).__name__} {what}"
                sizes = {name: len(journal.live(name)) for name in names}
                made += [Decision(seen.at, name, now, now, "no decision", raised) for name, now in sizes.items()]
                continue
            made += [self._decide(name, wish, seen, journal) for name, wish in wishes.items()]
        return self._keep(made)

    def notice(self, seen: Observed, journal: Journal) -> None:
        """Who runs, now: what has changed since the last look has to settle."""
        self._lately.notice(seen, journal, list(self.graph.nodes))

    def fail(self, at: float, error: Exception) -> None:
        """There was no look at all; who asks is told."""
        held = f"defect: {type(error).__name__}: {_line(error)}"
        self._keep([Decision(at, "", 0, 0, "no decision", held)])

    def _wished(self, number: int, policy: Policy, names: list[str], seen: Observed) -> dict[str, Wanted]:
        """By operator. A policy may want to be asked less often than there are looks, and need not name all."""
        every = float(getattr(policy, "every_seconds", 0.0))
        if seen.at - self._asked.get(number, -math.inf) < every:
            return {}
        self._asked[number] = seen.at
        self.asking = (seen.at, type(policy).__name__, names)
        try:
            wishes = policy.decide(seen, names)
        finally:
            self.asking = None
        if not isinstance(wishes, Mapping):
            raise Nonsense(f"answers {wishes!r}, which names no operators: {{name: partitions}} is wanted")
        return {name: _wanted(wishes[name]) for name in names if name in wishes}

    def _keep(self, made: list[Decision]) -> list[Decision]:
        for decision in made:
            reason = decision.held.partition(":")[0] or decision.direction
            self.counts[reason] = self.counts.get(reason, 0) + 1
            self._ledger.add(decision)
        return made

    def _unlike(self, seen: Observed) -> str:
        """No more rows can have been taken than were sent; fewer only mean that some wait."""
        sent: dict[str, float] = {}
        for one in seen.operators.values():
            for target, rows in one.sent.items():
                sent[target] = sent.get(target, 0.0) + rows
        for name, rows in sent.items():
            taken = sum(seen.operators[name].rows)
            if taken > (1 + self.guards.unlike) * rows and rows > 0 and not self._settling(name, seen.at):
                return f"{name} took {taken:,.0f} rows/s of {rows:,.0f} that were sent to it"
        return ""

    def _settling(self, name: str, at: float) -> bool:
        return at - self._lately.changed(name) < self.guards.settle_seconds

    # --- one operator --------------------------------------------------------------------------------------------

    def _decide(self, name: str, wanted: Wanted, seen: Observed, journal: Journal) -> Decision:
        one, node = seen.operators[name], self.graph.nodes[name]
        now = len(journal.live(name))
        why = wanted.why
        told = _inputs(one, wanted.count, seen)
        if not 1 <= wanted.count <= BUCKETS:
            held = f"policy: it asks for {wanted.said} partitions, which is no number from 1 to {BUCKETS}"
            return Decision(seen.at, name, now, now, why, held, told)
        after = min(max(wanted.count, node.minimum), node.maximum)
        if after != wanted.count:
            why += f"; it may have {node.minimum} to {node.maximum}"
        if name not in seen.unsettled and not one.warming:
            self._remember(name, seen.at, after)
        self._judge(name, one, seen)
        held = ""
        if after > now:
            held = self._held_growing(name, one, seen, journal)
        elif after < now:
            # The largest wish may be one for more that was held back: who wants fewer now does not get more by it.
            largest = max((wish for _, wish in self._wishes[name]), default=after)
            after = min(now, max(largest, now - int(now * self.guards.shrink_most)))
            held = self._held_shrinking(name, one, seen, journal, after) if after < now else ""
        decision = Decision(seen.at, name, now, after, why, held, told)
        if decision.changes:
            self._note_change(decision, seen)
        return decision

    def _note_change(self, decision: Decision, seen: Observed) -> None:
        name = decision.operator
        self._lately.change(name, seen.at)
        self._turns[name] = (seen.at, decision.direction)
        self._wishes[name].clear()
        self._growths.pop(name, None)
        if decision.after > decision.before:
            one, coming = seen.operators[name], _coming(seen)[name]
            rows = sum(one.rows)
            reachable = one.rate * max(0.0, 1 - one.fixed) * decision.after
            self._growths[name] = Growth(decision.before, decision.after, rows, min(coming, reachable))

    def _remember(self, name: str, at: float, wish: int) -> None:
        """For when fewer are wished for. Not what was made of numbers that say little: cold partitions look as if more
        of them were needed, and that would count for a minute."""
        wishes = self._wishes[name]
        wishes.append((at, wish))
        while len(wishes) > 1 and wishes[1][0] <= at - self.guards.shrink_seconds:
            wishes.popleft()

    def _held_both(self, name: str, at: float, journal: Journal) -> str:
        if any(moved.operator in (name, "") for moved in journal.replaces):
            return "moving: a change is under way"
        if self._settling(name, at):
            return f"settling: changed {at - self._lately.changed(name):.0f} s ago"
        return ""

    def _turned(self, name: str, at: float, direction: str) -> bool:
        since, before = self._turns.get(name, (-math.inf, direction))
        return before != direction and at - since < self.guards.turn_seconds

    def _held_growing(self, name: str, one: Seen, seen: Observed, journal: Journal) -> str:
        at, lag = seen.at, max((s.lag_seconds for s in seen.operators.values()), default=0.0)
        held = self._held_both(name, at, journal)
        if not held and lag < self.guards.backlog_seconds and any(s.rising for s in seen.operators.values()):
            held = "rising: more rows come from second to second"
        if not held and one.warming:
            held = _warming(one)
        if not held and lag < LITTLE_SECONDS and self._turned(name, at, "out"):
            held = f"waiting: it has shrunk in the last {self.guards.turn_seconds:.0f} s, and nothing piles up"
        alone = one.hot_share * one.busiest
        if not held and alone > UTILISATION:
            held = f"hot-key: one key alone keeps a partition at work for {alone:.0%} of its time; no split helps that"
        growth = self._growths.get(name)
        if not held and growth is not None and growth.failed(sum(one.rows), self.guards.gain_least):
            held = f"settling: {growth.before} -> {growth.after} partitions have not shown yet that they help"
        if not held and self._shortage:
            held = f"slots: {self._shortage}"
        since, useless = self._useless.get(name, (-math.inf, ""))
        if not held and at - since < self.guards.useless_seconds:
            held = f"ineffective: {useless}"
        return held

    def _held_shrinking(self, name: str, one: Seen, seen: Observed, journal: Journal, after: int) -> str:
        held = self._held_both(name, seen.at, journal)
        wishes, lag = self._wishes[name], max((s.lag_seconds for s in seen.operators.values()), default=0.0)
        if not held and one.warming:
            held = _warming(one)
        if not held and seen.at - wishes[0][0] < self.guards.shrink_seconds:
            held = f"waiting: too many for {seen.at - wishes[0][0]:.0f} s only, {self.guards.shrink_seconds:.0f} count"
        if not held and self._turned(name, seen.at, "in"):
            held = f"waiting: it has grown in the last {self.guards.turn_seconds:.0f} s"
        if not held and lag > self.guards.backlog_seconds:
            held = f"backlog: rows wait for {lag:.1f} s"
        if not held and one.state_bytes / after > self.guards.partition_bytes:
            held = f"memory: {one.state_bytes / after / 1e6:,.0f} MB of state in each would be too much"
        return held

    def _judge(self, name: str, one: Seen, seen: Observed) -> None:
        """Did the latest growth help? To be asked once, when a whole window lies behind it."""
        growth, at = self._growths.get(name), seen.at
        since = at - self._lately.changed(name)
        if growth is None or name in seen.unsettled or since < 2 * self.guards.settle_seconds:
            return
        del self._growths[name]
        expected, gained = growth.wanted - growth.rows, sum(one.rows) - growth.rows
        if growth.failed(sum(one.rows), self.guards.gain_least):
            spread = one.busiest * one.partitions / sum(one.busy) if sum(one.busy) > 0 else 1.0
            reason = f"the busiest has {spread:.1f} times the mean" if spread > 1.5 else "something else holds it up"
            text = (
                f"{growth.before} -> {growth.after} partitions gave {gained:+,.0f} rows/s of {expected:,.0f}; {reason}"
            )
            self._useless[name] = (at, text)


def _grouped(policies: Mapping[str, str | Policy]) -> list[tuple[Policy, list[str]]]:
    """Operators with the same policy are sized together."""
    groups: list[tuple[str | Policy, list[str]]] = []
    for name, policy in policies.items():
        for known, names in groups:
            if known is policy or (isinstance(policy, str) and known == policy):
                names.append(name)
                break
        else:
            groups.append((policy, [name]))
    return [(policy_of(policy), names) for policy, names in groups]


def _wanted(said: Wish | Any) -> Wanted:
    count, why = (said.count, _line(said.why)) if isinstance(said, Wish) else (said, "wished for")
    try:
        # Also the numbers of numpy, in which policies reckon; a truth value is one by mistake.
        number = 0 if isinstance(count, bool) else index(count)
    except TypeError:
        number = 0
    return Wanted(number, _line(repr(count)), why)


def _line(text: object) -> str:
    """A user's words, in one line."""
    return " ".join(str(text).split())


def _warming(one: Seen) -> str:
    return f"warming: {one.rate:,.0f} rows a second of its work are not what it takes by now"


def _coming(seen: Observed) -> dict[str, float]:
    return walk(seen, {name: one.arrival for name, one in seen.operators.items() if one.kind == "source"})


def _inputs(one: Seen, wanted: int, seen: Observed) -> dict[str, Any]:
    """What a policy could see of an operator, and of the sources that feed the flow."""
    sources = [each for each in seen.operators.values() if each.kind == "source"]
    taken = sum(one.rows)
    return {
        "wish": wanted,
        "arriving_rows_per_second": round(sum(source.arrival for source in sources), 1),
        "lag_rows": round(sum(source.lag_rows for source in sources)),
        "lag_seconds": round(max((source.lag_seconds for source in sources), default=0.0), 3),
        "sent_per_row": {target: round(rows / taken, 3) for target, rows in one.sent.items() if taken > 0},
        "hot_share": round(one.hot_share, 3),
        "latency_seconds": round(max((each.latency_seconds for each in seen.operators.values()), default=0.0), 3),
        "rows_per_second": [round(rows, 1) for rows in one.rows],
        "busy": [round(busy, 3) for busy in one.busy],
        "rows_per_busy_second": round(one.rate, 1),
        "fixed": round(one.fixed, 3),
        "state_bytes": int(one.state_bytes),
    }
