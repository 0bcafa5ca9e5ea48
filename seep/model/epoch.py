"""Epochs: the logical time of a flow. One number orders everything; what travels with it is fixed at the source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from seep.model.ids import BEGINNING


class Moment(NamedTuple):
    """What an operator may know of time while it takes an epoch; all of it travels with the data."""

    epoch: int
    now_ms: int
    """Wall time at which the sources cut the epoch (the latest of them): the same at every replay."""
    watermark_before: int
    """Event time (µs) announced with the previous epoch: rows of this epoch are judged by it."""
    watermark: int
    """Event time (µs) announced with this epoch: timers and windows fire by it after the rows."""
    reached: int = BEGINNING
    """At the end of input, when the watermark is infinite: where the latest rows would have left it."""

    def announced(self, ended: bool) -> int:
        """What is said of the watermark: with the end of all input, how far the rows got."""
        return self.reached if ended else self.watermark


UNKNOWN = -1
"""In place of a digest: who announces the epoch no longer has what it was made of."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Everything up to `epoch` has been sent on this channel."""

    epoch: int
    now_ms: int
    watermark: int
    digest: int = 0
    """Of the sender's whole output of this epoch on the edge, before it was cut to the receiver's range."""
    ended: bool = False
    """No row will ever follow: the channel has announced every later epoch, with an infinite watermark; the one given
    says how far the rows got."""
    idle: bool = False
    """Nothing comes, and nobody knows when: its watermark holds nobody back."""


NOTHING = Progress(0, 0, BEGINNING)
"""Before the first epoch."""
