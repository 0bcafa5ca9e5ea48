"""An operator in pieces: split, merged and restarted at will between epochs, looking like one from outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from seep.model.arrow import ArrowBatch, ArrowState, compact
from seep.model.epoch import Moment
from seep.model.ids import EVERYTHING, KeyRange
from seep.partition.contract import Head

cuts = st.lists(st.integers(1, 4095), min_size=1, max_size=3, unique=True)
ACTIONS = ("go on", "go on", "increment", "full", "restart", "restart compacted", "spread")


class Pieces:
    """Partitions of one operator. ``take`` is that of a head; ``shake`` does something between two epochs."""

    def __init__(self, make: Callable[[], Head], broadcast: frozenset[int] = frozenset()) -> None:
        """``broadcast``: the ports whose rows every partition gets."""
        self._make = make
        self._broadcast = broadcast
        self._ranges = [EVERYTHING]
        self._heads = [make()]
        self._chains: list[list[ArrowState]] = [[]]

    def take(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> dict[str, ArrowBatch]:
        found = [
            head.take(moment, [(p, batch if p in self._broadcast else batch.part(key_range)) for p, batch in inputs])
            for head, key_range in zip(self._heads, self._ranges, strict=True)
        ]
        outputs = {}
        for role in sorted({role for output in found for role in output}):
            whole = ArrowBatch.concat([output[role] for output in found if role in output])
            assert (np.diff(whole.buckets.astype(int)) >= 0).all(), f"{role} is not ordered by bucket"
            # Rows without a usable time are handed back as they came.
            assert role == "errors" or whole.record.schema == self._heads[0].schemas[role]
            outputs[role] = whole
        return outputs

    def shake(self, data: st.DataObject) -> None:
        action = data.draw(st.sampled_from(ACTIONS))
        if action in ("increment", "full"):
            self._save(action == "full")
        elif action != "go on":
            self._save(False)
            if action.endswith("compacted"):
                self._chains = [[compact(chain)] for chain in self._chains]
            if action == "spread":
                edges = [0, *sorted(data.draw(cuts)), 4096] if len(self._ranges) == 1 else [0, 4096]
                self._ranges = [KeyRange(a, b) for a, b in pairwise(edges)]
            self._heads = [self._made(key_range) for key_range in self._ranges]
            self._chains = [[] for _ in self._ranges]

    def _save(self, full: bool) -> None:
        for head, chain in zip(self._heads, self._chains, strict=True):
            state = head.snapshot(full or not chain)
            if full:
                chain.clear()
            chain.append(state)

    def _made(self, key_range: KeyRange) -> Head:
        head = self._make()
        for chain in self._chains:
            for state in chain:
                head.load(state.part(key_range))
        return head


def text(outputs: dict[str, ArrowBatch]) -> dict[str, tuple[list[str], list[int]]]:
    """Rows as text, so that NaN equals NaN."""
    return {role: ([repr(r) for r in b.record.to_pylist()], b.buckets.tolist()) for role, b in outputs.items()}
