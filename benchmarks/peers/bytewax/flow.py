"""The workloads on Bytewax: two worker threads in one process, recovery snapshots every 5 s.

Run in an environment of its own with `bytewax` and `pyarrow`. Arguments are name=value; results go to an Arrow file,
the last line printed is JSON. Event time stands still between rows, so that it depends on the rows alone.
"""

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import bytewax.operators as op
import bytewax.operators.windowing as win
import numpy as np
import pyarrow as pa
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main

ARGS = dict(argument.split("=", 1) for argument in sys.argv[1:])
LAP_ROWS, LAP_US, BASE_US, SPLIT_ROWS, SPLITS = (
    int(ARGS[name]) for name in ("lap_rows", "lap_us", "base_us", "split_rows", "splits")
)
TIMED = not ARGS["workload"].endswith("count")
BASE = datetime.fromtimestamp(BASE_US // 1_000_000, UTC)
CHUNK = 1_000
AHEAD_ROWS = 5 * CHUNK
"""Sources are not kept in step by a common watermark, so they keep in step themselves; and each key has a clock of its
own, which waits for what may still be under way."""
UNDER_WAY_US = 4 * AHEAD_ROWS * LAP_US // LAP_ROWS
GIVEN = [0] * SPLITS
COUNTS: dict[str, int] = {}
WINDOWS: list[tuple[str, int, int, int, int]] = []


class Clock:
    """Decides when the warm-up and the measuring are over."""

    began = warm = cpu = rows = over = None


def ended(position: int) -> bool:
    if Clock.began is None:
        Clock.began = time.monotonic()
    if SPLIT_ROWS >= 0:
        return position >= SPLIT_ROWS
    passed = (time.monotonic() - Clock.began) * 1000
    if Clock.warm is None and passed >= int(ARGS["warm_ms"]):
        Clock.warm, Clock.cpu, Clock.rows = time.monotonic(), time.process_time(), sum(GIVEN)
    if Clock.over is None and passed >= int(ARGS["warm_ms"]) + int(ARGS["measured_ms"]):
        Clock.over = (time.monotonic() - Clock.warm, time.process_time() - Clock.cpu, sum(GIVEN) - Clock.rows)
    return Clock.over is not None


class Part(StatefulSourcePartition):
    def __init__(self, split: int, position: int | None) -> None:
        home = Path(ARGS["data"]) / str(split)
        text = ARGS["text"]
        offsets = np.fromfile(home / f"{text}.offsets", np.int32).tolist()
        data = (home / f"{text}.bytes").read_bytes().decode()
        self.texts = [data[offsets[row] : offsets[row + 1]] for row in range(LAP_ROWS)]
        if TIMED:
            self.times = np.fromfile(home / "at.values", np.int64).tolist()
            self.amounts = np.fromfile(home / "amount.values", np.int64).tolist()
        self.split, self.position = split, position or 0

    def next_batch(self) -> list:
        if ended(self.position):
            raise StopIteration
        if self.position > min(GIVEN) + AHEAD_ROWS:
            return []
        lap, inside = divmod(self.position, LAP_ROWS)
        upto = min(LAP_ROWS, inside + CHUNK)
        if SPLIT_ROWS >= 0:
            upto = min(upto, inside + SPLIT_ROWS - self.position)
        self.position += upto - inside
        GIVEN[self.split] = self.position
        if not TIMED:
            return [(text, 1) for text in self.texts[inside:upto]]
        later = lap * LAP_US
        return [
            (self.texts[row], (BASE + timedelta(microseconds=self.times[row] + later), self.amounts[row]))
            for row in range(inside, upto)
        ]

    def snapshot(self) -> int:
        return self.position


class Looped(FixedPartitionedSource):
    def list_parts(self) -> list[str]:
        return [str(split) for split in range(SPLITS)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Part:
        return Part(int(for_part), resume_state)


class Kept(StatelessSinkPartition):
    def write_batch(self, items: list) -> None:
        if TIMED:
            WINDOWS.extend((key, BASE_US + 1_000_000 * number, *sums) for key, (number, sums) in items)
        else:
            COUNTS.update(items)


class Keep(DynamicSink):
    def build(self, step_id: str, worker_index: int, worker_count: int) -> Kept:
        return Kept()


def fold(sums: tuple[int, int, int], row: tuple[datetime, int]) -> tuple[int, int, int]:
    return sums[0] + 1, sums[1] + row[1], max(sums[2], row[1])


def merge(one: tuple[int, int, int], other: tuple[int, int, int]) -> tuple[int, int, int]:
    return one[0] + other[0], one[1] + other[1], max(one[2], other[2])


def count(known: int | None, more: int) -> tuple[int, int]:
    total = (known or 0) + more
    return total, total


def build() -> Dataflow:
    flow = Dataflow("bench")
    rows = op.input("rows", flow, Looped())
    if ARGS["workload"] == "word-count":
        rows = op.flat_map("split", rows, lambda row: [(word, 1) for word in row[0].split(" ")])
    if TIMED:
        lateness = timedelta(microseconds=int(ARGS["lateness_us"]) + UNDER_WAY_US)
        clock = win.EventClock(lambda row: row[0], lateness, now_getter=lambda: BASE)
        windower = win.TumblingWindower(length=timedelta(seconds=1), align_to=BASE)
        results = win.fold_window(
            "seconds", rows, clock, windower, lambda: (0, 0, -(2**63)), fold, merge, ordered=False
        ).down
    else:
        results = op.stateful_map("count", rows, count)
    op.output("out", results, Keep())
    return flow


def main() -> None:
    saved = Path(ARGS["home"]) / "bytewax"
    saved.mkdir(exist_ok=True)
    init_db_dir(saved, 1)
    cluster_main(
        build(),
        [],
        0,
        epoch_interval=timedelta(milliseconds=int(ARGS["checkpoint_ms"])),
        recovery_config=RecoveryConfig(str(saved)),
        worker_count_per_proc=int(ARGS["parallelism"]),
    )
    seconds, cpu, rows = Clock.over or (time.monotonic() - Clock.began, time.process_time(), sum(GIVEN))
    if TIMED:
        names = ("store", "window_start", "items", "revenue", "largest")
        columns = list(zip(*WINDOWS, strict=True))
    else:
        names, columns = (ARGS["key"], "n"), [list(COUNTS), list(COUNTS.values())]
    table = pa.table(dict(zip(names, map(pa.array, columns), strict=True)))
    path = saved / "results.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    print(json.dumps({"rows": rows, "seconds": seconds, "cpu_seconds": cpu, "given": GIVEN, "results": str(path)}))


if __name__ == "__main__":
    main()
