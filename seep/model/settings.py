"""The knobs of a running flow; the simulator draws them from its seed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    epoch_ms: float = 50.0
    epoch_rows: int = 1_000_000
    """A source closes its epoch at this many rows, however little time has passed."""
    first_epoch_rows: int = 100_000
    """At most, in the first epoch of a source that has more; then as many as the flow takes in an epoch's time."""
    checkpoint_ms: float = 2_000.0
    increments: int = 1_000_000
    """Incremental checkpoints after a full one (stores fold long chains by themselves)."""
    frame_rows: int = 100_000
    """Rows in one frame; a longer epoch takes several."""
    credit_bytes: int = 32 << 20
    credit_epochs: int = 32
    """Epochs sent on a channel but not taken by its receiver."""
    buffer_bytes: int = 4 << 30
    """Output kept for replay beyond which a source cuts no new epoch, and an operator takes none."""
    spill_bytes: int = 512 << 20
    """Output kept for replay on one edge beyond which the oldest goes to disk."""
    copies_bytes: int = 64 << 20
    """Checkpoints of downstream partitions that one worker holds in memory (0: none)."""
    retry_ms: float = 300.0
    """A subscription or store call without an answer is tried again."""
    report_ms: float = 100.0
    suspect_ms: float = 5_000.0
    """A worker not heard of for this long is taken for dead (a closed connection says so at once)."""
    stuck_ms: float = 600_000.0
    """One that says it is busy, too, when it has been so with one epoch for this long."""
    spare_workers: int = 1
    """Warm workers beyond those in use."""
    release_ms: float = 10_000.0
    """One beyond these that has had nothing to do for so long is let go."""
    at_most_ms: float = 120_000.0
    """An uncommitted Replace older than this is forgotten."""
