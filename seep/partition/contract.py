"""What an operator, a source and a sink are to the machine that runs them.

An operator never learns how it is run: it sees one epoch at a time, in canonical order, and answers with rows.
Everything it remembers comes out of `snapshot` and goes in through `load`, cut by key range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from seep.model.batch import Batch, State
from seep.model.care import Care
from seep.model.epoch import Moment
from seep.model.ids import BEGINNING, BUCKETS, FOREVER, PartitionId

if TYPE_CHECKING:  # the machine and its simulator do without columns
    import pyarrow as pa

    from seep.model.arrow import ArrowBatch, ArrowState


class Logic(Protocol):
    """A stateful or stateless operator of the flow, with the stateless steps fused behind it."""

    care: Care
    """Set before an epoch is taken: rows that are left out, and whether to look for one."""

    def take(self, moment: Moment, inputs: Sequence[tuple[int, Batch]]) -> Mapping[str, Batch]:
        """Handle one whole epoch.

        ``inputs`` holds (port, batch) in the order of port, then of the origin's key range. A key's rows are in
        their final order; rows of different keys are not, so anything that could show it must be ordered by
        (bucket, ...) before it is emitted. Answers one batch for each *edge* that has rows, by `Edge.name`.
        """

    def snapshot(self, full: bool) -> State:
        """All state, or what changed since the last snapshot. Cheap: proportional to what it returns."""

    def mostly_changed(self) -> bool:
        """Would an increment hold about as much as a full snapshot? Then the full one is made: it is restored alone."""

    def load(self, state: State) -> None:
        """Apply a snapshot (entries replace or delete by key). Called oldest first on a fresh operator."""

    def statistics(self) -> Mapping[str, int]:
        """Counters since the beginning of the flow that belong to the state (`late`, `filtered`, `errors`), and
        gauges (`keys`, `state_bytes`)."""


class Head(Protocol):
    """The keyed part of a Logic, before the steps fused behind it: outputs by role (``out``, ``late``, ``errors``;
    absent = no rows), their buckets those of the keys the rows came from, ascending."""

    @property
    def schemas(self) -> Mapping[str, pa.Schema]: ...

    def take(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> dict[str, ArrowBatch]: ...

    def snapshot(self, full: bool) -> ArrowState: ...

    def mostly_changed(self) -> bool: ...

    def load(self, state: ArrowState) -> None: ...

    def statistics(self) -> dict[str, int]: ...

    def content(self) -> pa.RecordBatch:
        """What it remembers, in the words of its user: key columns by name, then values; in canonical order."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a source read of one split."""

    outputs: Mapping[str, Batch]
    """By `Edge.name`; the source's fused steps have run."""
    position: Any
    """Where the next read goes on. A value of int, str, list, dict (it is written to the epoch log)."""
    rows: int
    event_time: int = BEGINNING
    """The greatest event time of the rows (µs)."""
    ended: bool = False
    statistics: Mapping[str, int] | None = None


class Intake(Protocol):
    """A source: splits that can be read again from any logged position.

    One that knows where its splits begin has a method ``begins(split) -> position``; without it they begin at None. One
    whose splits may become more has ``grows`` (True: more may come) and ``appeared(now_ms) -> {split: position}``:
    those it did not begin with, as far as they are known here by now, and where each begins. A split keeps its number
    for ever, and everybody gives it the same.

    One that may have rows which it has not heard of yet has ``caught_up(split, position) -> bool``: after a read that
    gave nothing, is it certain that nothing was there? Only then is a split silent, and may become idle.
    """

    epoch: int
    """Set before a read: the epoch that its rows go into (dead letters name it)."""
    care: Care
    """Set before a read, too: rows that are left out, and whether to look for one."""

    @property
    def splits(self) -> int:
        """How many it begins with: 0, 1, ..."""

    @property
    def lateness_us(self) -> int: ...

    @property
    def idle_ms(self) -> int | None: ...

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Reading | None:
        """Rows after `position` (None = the start). ``until`` set: exactly up to there, the same rows as before.
        Never blocks; None when there is nothing now."""


class Outlet(Protocol):
    """A sink partition. What it encodes is appended, fenced, to the sink's committed log; that append *is* the
    commit. Making it visible elsewhere (files, a screen) happens afterwards and may happen twice."""

    repeats: bool
    """False: it must not happen twice (at most once). What is found committed at the start may have been visible
    before, and what could not be published may be, too: neither is tried again."""

    care: Callable[[int], Care]
    """How the user's code that publishes an epoch is run; set before `begin`."""

    def encode(self, moment: Moment, inputs: Sequence[tuple[int, Batch]]) -> bytes | None:
        """The record of this epoch (None: no rows). The same bytes at every replay."""

    def begin(self, partition: PartitionId, rows: int, record: bytes | None) -> None:
        """Called once the log is read: the first record in it, and how many rows were committed up to and with it.
        A record that has fewer was not the first ever."""

    def publish(self, commits: Sequence[tuple[int, bytes | None, bool]]) -> int:
        """Some (epoch, record, ended), after their commit, in epoch order, again after a restart for what the log
        still holds. Does the I/O. Answers the epoch up to which the log is no longer needed (-1: keep it all)."""


@dataclass(frozen=True, slots=True)
class Edge:
    """One stream between two physical nodes. The sender routes: it sets each row's target bucket."""

    name: str
    source: str
    target: str
    port: int
    broadcast: bool = False
    """Every partition of the target gets every row; its buckets only say in what order."""
    holds_us: int = 0
    """Rows may come on it whose event time lies so much behind the sender's watermark; the receiver's stays behind it
    by as much, so that none of them is late."""
    timeless: bool = False
    """Its rows are only looked up: what comes out has the times of other inputs, and waits for none of these."""

    def watermark(self, announced: int) -> int:
        """What the sender's watermark is to the receiver."""
        return announced if announced >= FOREVER else max(BEGINNING, announced - self.holds_us)


@dataclass(frozen=True)
class Node:
    """A physical node: a source, operator or sink with the stateless steps fused into it."""

    name: str
    kind: str
    """``source``, ``operator`` or ``sink``."""
    make: Any
    """() -> Intake | Logic | Outlet, called in the worker."""
    start: int = 1
    minimum: int = 1
    maximum: int = 16
    settings: Mapping[str, Any] | None = None
    loads: bool = False
    """A bounded source that fills a Table: sources of later turns read no row before it has ended."""
    turn: int = 0
    """Of a source: after how many rounds of loading it may read; 0: it waits for nobody."""
    policy: Any = None
    """By which the controller changes the number of its partitions; None: only when asked to."""


@dataclass(frozen=True)
class Upgrade:
    """Other code of an operator."""

    node: Node
    fit: Any
    """(State, now_ms) -> State: all that the code before it remembered, as this one takes it. Gives the same again when
    it is asked again: a recovery may have to."""


@dataclass(frozen=True)
class Graph:
    """The plan a job runs: nodes and edges in topological order."""

    nodes: Mapping[str, Node]
    edges: tuple[Edge, ...]

    def inputs(self, node: str) -> tuple[Edge, ...]:
        return tuple(e for e in self.edges if e.target == node)

    def outputs(self, node: str) -> tuple[Edge, ...]:
        return tuple(e for e in self.edges if e.source == node)

    def behind(self, node: str) -> set[str]:
        """All that something of this node comes to."""
        found: set[str] = set()
        for edge in self.edges:  # their order is that of the nodes
            if edge.source == node or edge.source in found:
                found.add(edge.target)
        return found


def split_bucket(split: int, first: int) -> int:
    """The origin bucket of a split, for ever; `first`: how many splits the source began with.

    Those lie evenly over the key space, so sources tile it like every operator. One that appeared later lies where the
    bits of its number point when they are read backwards: each next one in a gap that the ones before have left,
    however many they become. Two splits may have one bucket; then one partition reads both, by their numbers.

    >>> [split_bucket(split, 2) for split in range(6)]
    [0, 2048, 1024, 3072, 512, 2560]
    """
    return BUCKETS * split // first if split < first else int(f"{split % BUCKETS:012b}"[::-1], 2)
