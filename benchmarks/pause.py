"""How long one checkpoint holds up the loop: the copy of what changed, for several sizes of state and of change."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.arrivals import ArrivalSink
from benchmarks.load import FIRST, Load
from operators.combine import Combiner
from seep.flow.compile import compile_flow
from seep.model.epoch import Moment
from seep.model.ids import BEGINNING

STATE_KEYS = (100_000, 1_000_000)
DIRTY_KEYS = (1_000, 10_000, 100_000)
REPEATS = 5


def pauses_ms(state_keys: tuple[int, ...] = STATE_KEYS, dirty_keys: tuple[int, ...] = DIRTY_KEYS) -> dict[str, float]:
    """By state and change: "1000 of 100000 keys", and "all of .." for a full checkpoint (milliseconds, median)."""
    plan = compile_flow(Load(8, 0).flow("pause", None, ArrivalSink(Path("unused")), "2s", 1)).nodes[FIRST].make
    sender = Combiner(plan.combine)
    found: dict[str, float] = {}
    for keys in state_keys:
        logic = plan()
        _touch(sender, logic, np.arange(keys, dtype=np.int64), 1)
        found[f"full, {keys} keys"] = _timed(logic, True, lambda: None)
        for dirty in dirty_keys:
            if dirty <= keys:
                rng = np.random.default_rng(dirty)
                chosen = rng.permutation(keys)[:dirty].astype(np.int64)
                name = f"{dirty} of {keys} keys"
                found[name] = _timed(logic, False, lambda logic=logic, chosen=chosen: _touch(sender, logic, chosen, 2))
    return found


def _timed(logic: Any, full: bool, before: Any) -> float:
    spent = []
    for _ in range(REPEATS):
        before()
        began = time.perf_counter()
        logic.snapshot(full)
        spent.append((time.perf_counter() - began) * 1000)
    return round(median(spent), 3)


def _touch(sender: Combiner, logic: Any, keys: Any, epoch: int) -> None:
    batch = sender.fold(pa.record_batch({"key": keys, "value": keys % 1000, "number": keys}))
    logic.take(Moment(epoch, 0, BEGINNING, BEGINNING), [(0, batch)])
