"""`large-state`: ten million keys in one operator; what a key costs in memory, and how long a checkpoint holds it up.

`bytes_per_key` is the growth of the process's resident memory for each key, beyond the bytes of key and values
themselves; what the senders remember while they fold rows is not the operator's, and is let go with each of them. The
pause is the copy of what changed: one key in a hundred, since the checkpoint before.
"""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import seep
from benchmarks.arrivals import ArrivalSink
from benchmarks.outcome import Options, Outcome, Tell, spread
from operators.combine import Combiner
from seep.flow.compile import compile_flow
from seep.model.epoch import Moment
from seep.model.ids import BEGINNING

KEYS = 10_000_000
BATCH_KEYS = 500_000
DIRTY_SHARE = 0.01
PAUSES = 20
KEY_BYTES = 8
VALUE_BYTES = 16
"""A count and a total."""
BYTES_PER_KEY = 121
"""About, of what is held of a key: for how many keys a size is."""


def run(options: Options, tell: Tell) -> Outcome:
    keys = options.keys or options.state_bytes // BYTES_PER_KEY or KEYS
    plan = compile_flow(_flow()).nodes["sums"].make
    logic = plan()
    rng = np.random.default_rng(options.seed)
    # Code and buffers are there before anything is weighed.
    _take(Combiner(plan.combine), logic, np.arange(-1_000, 0), 1)
    numbers = rng.permutation(keys).astype(np.int64)
    before = _resident_bytes()
    right = True
    for at in range(0, keys, BATCH_KEYS):
        tell(f"{at:,} keys", 0.8 * at / keys)
        right = _take(Combiner(plan.combine), logic, numbers[at : at + BATCH_KEYS], 1) and right
    grown = _resident_bytes() - before
    tell("checkpoints", 0.8)
    began = time.perf_counter()
    logic.snapshot(True)
    full_ms = (time.perf_counter() - began) * 1000
    gc.collect()
    touched, pauses = np.full(keys, 1, np.int64), []
    for number in range(PAUSES):
        tell(f"pause {number + 1}", 0.8 + 0.2 * number / PAUSES)
        dirty = rng.choice(keys, max(1, int(keys * DIRTY_SHARE)), replace=False).astype(np.int64)
        touched[dirty] += 1
        right = _take(Combiner(plan.combine), logic, dirty, touched[dirty]) and right
        began = time.perf_counter()
        logic.snapshot(False)
        pauses.append((time.perf_counter() - began) * 1000)
    return Outcome(
        "large-state",
        {"keys": keys, "dirty_share": DIRTY_SHARE, "key_bytes": KEY_BYTES, "value_bytes": VALUE_BYTES},
        right,
        {
            "bytes_per_key": round(grown / keys - KEY_BYTES - VALUE_BYTES, 1),
            "state_bytes": logic.statistics()["state_bytes"],
            "resident_bytes": grown,
            "pause_ms": spread(pauses),
            "full_pause_ms": round(full_ms, 2),
        },
        {"pause_ms": pauses},
    )


def _flow() -> seep.Flow:
    flow = seep.Flow("large-state")
    rows = flow.source("rows", seep.MemorySource(pa.table({"key": pa.array([], pa.int64())})))
    sums = rows.key_by("key").aggregate(n=seep.count(), total=seep.total("key")).named("sums")
    sums.changes().drop("change").sink("out", ArrivalSink(Path("unused")))
    return flow


def _take(sender: Combiner, logic: Any, keys: Any, times: Any) -> bool:
    """Each of these keys once more, as so many times in all: does the operator say so?"""
    batch = sender.fold(pa.record_batch({"key": np.asarray(keys, np.int64)}))
    [made] = logic.take(Moment(1, 0, BEGINNING, BEGINNING), [(0, batch)]).values()
    record = made.record
    order = np.argsort(record.column("key").to_numpy())
    wanted = np.argsort(keys)
    counts = np.broadcast_to(times, len(keys))[wanted]
    return bool(
        np.array_equal(record.column("key").to_numpy()[order], np.asarray(keys)[wanted])
        and np.array_equal(record.column("n").to_numpy()[order], counts)
        and np.array_equal(record.column("total").to_numpy()[order], np.asarray(keys)[wanted] * counts)
    )


def _resident_bytes() -> int:
    gc.collect()
    pa.default_memory_pool().release_unused()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
