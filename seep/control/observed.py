"""What the metrics say about a flow: rates over a window by operator, or why nothing can be said.

The samples are raw (when, how much), by series, as a Prometheus server keeps them or as the controller has scraped
them itself: what is made of them is the same. A partition whose samples are few or old makes the whole flow unknown: a
decision on half of the numbers is worse than none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from seep.control.epochcost import Taken, epoch_seconds
from seep.partition.contract import Graph
from seep.protocol.journal import Journal

ROWS_IN, ROWS_OUT, BUSY = "seep_rows_in_total", "seep_rows_out_total", "seep_busy_seconds_total"
ARRIVED, LAG_ROWS, LAG_SECONDS = "seep_source_arrived_rows_total", "seep_source_lag_rows", "seep_source_lag_seconds"
USEFUL = "seep_useful_seconds_total"
EPOCHS = "seep_taking_epochs_total"
TAKING = (
    EPOCHS,
    ROWS_IN,
    "seep_taking_seconds_total",
    "seep_taking_rows_squared_total",
    "seep_taking_row_seconds_total",
    "seep_taking_seconds_squared_total",
)
"""The sums over epochs that `Taken` has, in its order."""
STATE_BYTES, HOT_SHARE, LATENCY = "seep_state_bytes", "seep_hot_key_share", "seep_latency_seconds_bucket"
NEEDED = (ROWS_OUT, BUSY, USEFUL, *TAKING, ARRIVED, LAG_ROWS, LAG_SECONDS, STATE_BYTES, HOT_SHARE, LATENCY)
"""The families that decisions are made from."""

JUMP, AGREE = 1.3, 0.15
"""So many times the mean of the window is a jump; two rates that differ by less agree."""
FIXED_AT_MOST = 0.1
"""Share of a partition's time: an operator that only passes rows on is not taken for one that has nothing to do."""
BY_EPOCH_AT_MOST, BY_EPOCH_MOST = 0.25, 0.5
"""Of a partition's time, and of its time inside the operator: what does not seem to depend on rows at all is sized by
them all the same."""
WARMING = 1.5
"""So many times what it took before, in the last moment, and a partition is still getting faster."""
LEAST_SAMPLES = 3
"""Of each series in a window; fewer say nothing about a rate."""
TOLD = {"source": (BUSY, ROWS_IN, ROWS_OUT), "operator": (BUSY, ROWS_IN, ROWS_OUT), "sink": (BUSY, ROWS_IN, LATENCY)}
"""What each partition tells, whatever it is doing: where it is missing something was left out on the way."""


class Series(NamedTuple):
    name: str
    operator: str
    partition: str
    detail: str = ""
    """The edge, or the upper bound of a histogram's bucket."""
    worker: str = ""


Samples = Mapping[Series, Sequence[tuple[float, float]]]
"""(seconds, value) of each series, oldest first."""


@dataclass(frozen=True)
class Seen:
    """An operator (source, sink) over the window; rates are by the second."""

    operator: str
    kind: str
    rows: tuple[float, ...]
    """Taken by each partition, in the order of their numbers."""
    busy: tuple[float, ...]
    """Share of its time that each was at work."""
    sent: Mapping[str, float] = field(default_factory=dict)
    """Rows put on the edges to each operator that reads them."""
    arrival: float = 0.0
    """Of a source: rows that came, whether or not they were read (where it cannot say, those that were); after a jump,
    those of the last moment."""
    rising: bool = False
    """There is a jump, and nobody knows yet where it ends."""
    warming: bool = False
    """In the last moment it took far more rows in a second of work than before."""
    lag_rows: float = 0.0
    lag_seconds: float = 0.0
    state_bytes: float = 0.0
    hot_share: float = 0.0
    """Of a partition's rows, how many fall on one key, at most."""
    latency_seconds: float = 0.0
    """Of a sink: from arrival to here, the slowest hundredth."""
    useful: tuple[float, ...] = ()
    """Share of its time that each was inside the operator, with rows. The rest of the work is partly there whether many
    come or few: epochs begin and end in every partition. Empty: nothing is known of that."""
    by_epoch: float = 0.0
    """Share of its time that each spends inside the operator on epochs as such, however many rows they have."""

    @property
    def partitions(self) -> int:
        return len(self.rows)

    @property
    def rate(self) -> float:
        """Rows that one partition can take in a second of work for them; 0: nothing is known."""
        work = sum(self.busy) - self.fixed * len(self.busy)
        return sum(self.rows) / work if work > 0 else 0.0

    @property
    def fixed(self) -> float:
        """Share of its time that each partition is at work for whatever comes: what is done beside the operator itself,
        some of it for rows, too (they are routed), so that only so much of it is believed to be fixed; and inside of it
        what epochs cost as such."""
        if not self.useful:
            return 0.0
        beside = max(0.0, sum(self.busy) - sum(self.useful)) / len(self.busy)
        inside = min(self.by_epoch, BY_EPOCH_MOST * sum(self.useful) / len(self.useful))
        return min(FIXED_AT_MOST, beside) + min(BY_EPOCH_AT_MOST, inside)

    @property
    def busiest(self) -> float:
        return max(self.busy, default=0.0)


@dataclass(frozen=True)
class Observed:
    at: float
    """Seconds."""
    operators: Mapping[str, Seen]
    """In topological order."""
    unknown: str = ""
    """Why nothing can be said; then there are no operators."""
    unsettled: frozenset[str] = frozenset()
    """Operators that are being changed, or were just now: what is seen of them is not what they will be like."""


def observe(graph: Graph, journal: Journal, samples: Samples, at: float, fresh_seconds: float) -> Observed:
    """What was seen of everything that is alive; samples of the dead are left out."""
    live = [entry for node in graph.nodes for entry in journal.live(node)]
    by_place = _by_place(samples, {(e.partition.operator, str(e.partition.number)): e.worker for e in live})
    seen: dict[str, Seen] = {}
    for node in graph.nodes.values():
        pieces = []
        targets = {edge.name: edge.target for edge in graph.outputs(node.name)}
        told = [family for family in TOLD[node.kind] if targets or family != ROWS_OUT]
        for partition in (entry.partition for entry in journal.live(node.name)):
            piece = by_place[node.name, str(partition.number)]
            missing = _missing(piece, told, at, fresh_seconds)
            if missing:
                return Observed(at, {}, f"{journal.shown(partition)}: {missing}")
            pieces.append(piece)
        if not pieces:
            return Observed(at, {}, f"{node.name} has no live partition")
        seen[node.name] = _seen(node.name, node.kind, pieces, targets)
    return Observed(at, seen)


Piece = dict[tuple[str, str], Sequence[tuple[float, float]]]
"""The samples of one partition by (family, detail)."""


def _by_place(samples: Samples, workers: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], Piece]:
    """Of each place what the worker tells that runs it. Others may have run it before; and a server may know another
    flow of this name, of another host: its partitions are called the same."""
    found: dict[tuple[str, str], Piece] = {place: {} for place in workers}
    for series, points in samples.items():
        place = (series.operator, series.partition)
        if points and place in workers and series.worker in ("", workers[place]):
            found[place][series.name, series.detail] = list(points)
    return found


def _missing(piece: Piece, told: Iterable[str], at: float, fresh_seconds: float) -> str:
    """Why nothing can be said of a partition; empty: it has told all of `told`, lately, in numbers."""
    for family in told:
        points = min(_of(piece, family), key=len, default=())
        if len(points) < LEAST_SAMPLES:
            which = "" if family == BUSY else f" of {family}"
            return f"{len(points)} samples{which}, {LEAST_SAMPLES} are needed"
        age = at - points[-1][0]
        if age > fresh_seconds:
            return f"its latest sample is {age:.1f} s old"
    wrong = ((name, value) for (name, _), points in piece.items() for _, value in points if not math.isfinite(value))
    return next((f"{name} is {value}" for name, value in wrong), "")


def _seen(name: str, kind: str, pieces: Sequence[Piece], targets: Mapping[str, str]) -> Seen:
    # A partition inside a long epoch tells what it knew before, at the time at which it is asked: what it did in a
    # longer time then seems done in a shorter one. It cannot have been at work for more than all of the time.
    times = [max(1.0, sum(_rates(piece, BUSY))) for piece in pieces]
    sent: dict[str, float] = {}
    for piece, longer in zip(pieces, times, strict=True):
        for (family, edge), points in piece.items():
            if family == ROWS_OUT and edge in targets:
                sent[targets[edge]] = sent.get(targets[edge], 0.0) + _rate(points) / longer
    arrival, rising = _arrival([points for piece in pieces for points in _coming(piece)] if kind == "source" else [])
    return Seen(
        name,
        kind,
        _shares(pieces, times, ROWS_IN),
        _shares(pieces, times, BUSY),
        sent,
        arrival=arrival,
        rising=rising,
        warming=_by_work(pieces, slice(-2, None)) > WARMING * _by_work(pieces, slice(-1)) > 0,
        lag_rows=sum(_latest(pieces, LAG_ROWS)),
        lag_seconds=max(_latest(pieces, LAG_SECONDS), default=0.0),
        state_bytes=sum(_latest(pieces, STATE_BYTES)),
        hot_share=max(_latest(pieces, HOT_SHARE), default=0.0),
        latency_seconds=_slowest_hundredth(pieces),
        useful=_shares(pieces, times, USEFUL) if any((USEFUL, "") in piece for piece in pieces) else (),
        by_epoch=_by_epoch(pieces, times),
    )


def _coming(piece: Piece) -> Iterable[Sequence[tuple[float, float]]]:
    """What has come to a partition of a source. Where it cannot say (a user's own, or one that does not know yet), what
    was read: that nothing comes would be worse, and by what is read an operator grows, if in more than one step."""
    return [points for points in _of(piece, ARRIVED) if len(points) > 1] or list(_of(piece, ROWS_IN))


def _arrival(counters: Sequence[Sequence[tuple[float, float]]]) -> tuple[float, bool]:
    """Rows a second, and whether they are about to be more. A window that a jump lies in says too little of what comes:
    once two moments one after the other agree, they count alone."""
    mean = sum(map(_rate, counters))
    last = sum(_rate(points[-2:]) for points in counters)
    before = sum(_rate(points[-3:-1]) for points in counters)
    if last <= JUMP * mean:
        return mean, False
    return (last, False) if abs(last - before) <= AGREE * last else (mean, True)


def _by_work(pieces: Sequence[Piece], part: slice) -> float:
    """Rows by the second of work for them, by a part of the samples."""
    rows = sum(_risen(points[part]) for piece in pieces for (name, _), points in piece.items() if name == ROWS_IN)
    work = sum(_risen(piece.get((USEFUL, ""), piece[BUSY, ""])[part]) for piece in pieces)
    return rows / work if work > 0 else 0.0


def _shares(pieces: Sequence[Piece], times: Sequence[float], family: str) -> tuple[float, ...]:
    """By the second, of each; `times`: so many of the seconds that they say have passed."""
    return tuple(sum(_rates(piece, family)) / longer for piece, longer in zip(pieces, times, strict=True))


def _by_epoch(pieces: Sequence[Piece], times: Sequence[float]) -> float:
    """Share of a partition's time that goes to epochs inside the operator, whatever rows they have."""
    taken = [Taken(*(sum(_risen(points) for points in _of(piece, name)) for name in TAKING)) for piece in pieces]
    return epoch_seconds(taken) * sum(_shares(pieces, times, EPOCHS)) / len(pieces)


def _rates(piece: Piece, family: str) -> Iterable[float]:
    return map(_rate, _of(piece, family))


def _of(piece: Piece, family: str) -> Iterable[Sequence[tuple[float, float]]]:
    return (points for (name, _), points in piece.items() if name == family)


def _rate(points: Sequence[tuple[float, float]]) -> float:
    """By the second between the first and the last sample. A counter that fell was started anew."""
    seconds = points[-1][0] - points[0][0] if points else 0.0
    return _risen(points) / seconds if seconds > 0 else 0.0


def _risen(points: Sequence[tuple[float, float]]) -> float:
    return sum(max(0.0, later[1] - earlier[1]) for earlier, later in pairwise(points))


def _latest(pieces: Sequence[Piece], family: str) -> list[float]:
    return [points[-1][1] for piece in pieces for (name, _), points in piece.items() if name == family]


def _slowest_hundredth(pieces: Sequence[Piece]) -> float:
    """The bound that all but one in a hundred of what was counted in the window stayed below; 0: nothing was."""
    below: dict[float, float] = {}
    for piece in pieces:
        for (name, bound), points in piece.items():
            if name == LATENCY:
                below[float(bound)] = below.get(float(bound), 0.0) + max(0.0, points[-1][1] - points[0][1])
    counted = max(below.values(), default=0.0)
    bounds = sorted(bound for bound, count in below.items() if count >= 0.99 * counted)
    return bounds[0] if counted > 0 else 0.0
