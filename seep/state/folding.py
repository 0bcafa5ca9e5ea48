"""A chain of increments as one full checkpoint: done in the background, from saved values, never by the partition.

So a partition pays only for what changed, however long it runs, and a restore reads a short chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as with_fields

from seep.model.arrow import ArrowState, compact
from seep.state.checkpoint import Buffered, Checkpoint


def fold(chain: Sequence[Checkpoint]) -> Checkpoint:
    """The newest of the chain (full one first), standing on its own."""
    newest = chain[-1]
    states = [c.state for c in chain if isinstance(c.state, ArrowState)]
    buffers: dict[str, tuple[Buffered, ...]] = {}
    for name, trimmed in newest.trimmed.items():
        kept: list[Buffered] = []
        for checkpoint in chain:
            for entry in checkpoint.buffers.get(name, ()):
                if entry.progress.epoch > (kept[-1].progress.epoch if kept else trimmed.epoch):
                    kept.append(entry)
        buffers[name] = tuple(kept)
    return with_fields(newest, parent=0, state=compact(states) if states else None, buffers=buffers)
