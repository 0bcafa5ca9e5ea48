"""What the controller can be asked for, and what it is told by its host."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScaleTo:
    """Run the operator as this many partitions."""

    operator: str
    count: int


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Give the operator's partitions key ranges of equal load, if that gains something."""

    operator: str


@dataclass(frozen=True, slots=True)
class Upgrade:
    """Have the operator's partitions run this code from some epoch on."""

    operator: str
    code: str


@dataclass(frozen=True, slots=True)
class FixEpoch:
    """Have every operator partition keep a checkpoint of one and the same epoch (a savepoint, a consistent read)."""


@dataclass(frozen=True, slots=True)
class ReleaseEpoch:
    """The checkpoints kept for that are no longer needed."""

    number: int


@dataclass(frozen=True, slots=True)
class StopFlow:
    """End the flow. With a failure's report as reason it ends as failed."""

    reason: str = "stop"


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """The worker's connection closed, or its process or task ended."""

    worker: str
    asked: bool = False
    """Somebody asked for it to be killed."""
    ended: bool = True
    """Its process is known to have ended; else only the connection to it is."""


Request = ScaleTo | Rebalance | Upgrade | FixEpoch | ReleaseEpoch | StopFlow
