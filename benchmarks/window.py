"""`keyed-window`: tumbling one-second windows over string keys, as fast as it goes, with a real shuffle.

The clock runs from the first read of a source to the arrival of the last result. Latency is measured in a second,
shorter run at half that rate: from the release of the row whose time lets a window close to the window's arrival.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

import seep
from benchmarks.arrivals import Arrival, ArrivalSink, Tail, epochs_of, file_of, read_file
from benchmarks.drive import scratch
from benchmarks.looped import LoopedSales
from benchmarks.machine import cpu_seconds
from benchmarks.outcome import Options, Outcome, Tell, spread
from seep.errors import Retry
from seep.model.arrow import BUCKET
from seep.running import Job

ROWS = 10_000_000
KEYS = 1_000
ROWS_PER_EVENT_SECOND = 100_000
DISORDER_US = 2_000_000
WORKERS = 2
PACED_SECONDS = 10.0
PATIENCE_SECONDS = 600.0


def run(options: Options, tell: Tell) -> Outcome:
    rows = options.rows or ROWS
    with scratch() as home:
        tell("as fast as it goes", 0.1)
        fast = _Run(home / "fast", rows, None, options)
        per_second = rows / fast.seconds
        tell("comparing with Polars", 0.5)
        verified = fast.verify()
        rate = per_second / 2
        tell(f"latency at {rate:,.0f} rows a second", 0.6)
        paced = _Run(home / "paced", min(rows, int(rate * PACED_SECONDS)), rate, options)
        verified = paced.verify() and verified
        latencies = paced.latencies_ms()
    return Outcome(
        "keyed-window",
        {
            "on": options.on,
            "workers": WORKERS,
            "rows": rows,
            "keys": KEYS,
            "window_ms": 1000,
            "disorder_ms": DISORDER_US // 1000,
            "epoch_ms": 50,
            "checkpoint_ms": 5000,
            "seed": options.seed,
        },
        verified,
        {
            "rows_per_second": round(per_second),
            "seconds": round(fast.seconds, 3),
            "cpu_seconds_per_10m_rows": round(fast.cpu_seconds * 10_000_000 / rows, 3),
            "latency_ms": spread(latencies),
            "latency_rate_rows_per_second": round(rate),
            "rows_out": fast.rows_out,
        },
        {"latency_ms": latencies},
    )


class _Run:
    """One flow from its first row to its last."""

    def __init__(self, path: Path, rows: int, rate: float | None, options: Options) -> None:
        path.mkdir()
        span_us = max(1, rows * 1_000_000 // ROWS_PER_EVENT_SECOND)
        self.path = path
        self.source = LoopedSales(rows, span_us, DISORDER_US, KEYS, options.seed, path, rate)
        self.cpu_seconds = 0.0
        self.rows_out = 0
        job = seep.start(self._flow(), on=options.on, workers=WORKERS)
        try:
            self._watch(job)
        finally:
            job.close()
        self.arrivals: list[Arrival] = sorted(Tail(path / "arrivals").news())
        self.started_ns = [int((path / str(split)).read_text()) for split in range(self.source.splits)]
        self.seconds = (self.arrivals[-1].at_ns - min(self.started_ns)) / 1e9

    def _flow(self) -> seep.Flow:
        flow = seep.Flow("keyed-window", epoch="50ms", checkpoint="5s")
        sales = flow.source("sales", self.source, time="at", lateness="2s").scale(start=WORKERS)
        sales.key_by("store").window(
            seep.tumbling("1s"), items=seep.count(), revenue=seep.total("amount"), largest=seep.maximum("amount")
        ).named("seconds").scale(start=WORKERS).sink("out", ArrivalSink(self.path / "arrivals"))
        return flow

    def _watch(self, job: Job) -> None:
        """Until it has ended, or rather a moment before: processor time is asked of living processes."""
        used: dict[int, float] = {}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not job.host.ended.wait(0.02):
            if time.monotonic() > deadline:
                raise Retry(f"keyed-window has not ended within {PATIENCE_SECONDS:.0f} s")
            for card in job.directory.registered().values():
                used[card["process"]] = max(used.get(card["process"], 0.0), cpu_seconds(card["process"]))
        job.wait()
        self.cpu_seconds = sum(used.values())

    def verify(self) -> bool:
        """The same windows as Polars makes of the same rows, none missing, none twice."""
        made = [self.source.record(split, 0, self.source.split_rows) for split in range(self.source.splits)]
        frame = pl.from_arrow(pa.Table.from_batches(made))
        assert isinstance(frame, pl.DataFrame)
        expected = frame.group_by("store", pl.col("at").dt.truncate("1s").alias("window_start")).agg(
            pl.len().cast(pl.Int64).alias("items"),
            pl.col("amount").sum().alias("revenue"),
            pl.col("amount").max().alias("largest"),
        )
        files = [read_file(file).drop_columns([BUCKET]) for _, _, file in epochs_of(self.path / "arrivals")]
        found = pl.from_arrow(pa.Table.from_batches(files))
        assert isinstance(found, pl.DataFrame)
        self.rows_out = len(found)
        by = ["store", "window_start"]
        return found.select(expected.columns).sort(by).equals(expected.sort(by))

    def latencies_ms(self) -> list[float]:
        """Of each window's first arrival."""
        assert self.source.rate is not None
        per_split = self.source.rate / self.source.splits
        reached = []
        for split in range(self.source.splits):
            times = self.source.record(split, 0, self.source.split_rows).column("at").cast(pa.int64()).to_numpy()
            reached.append(np.maximum.accumulate(times))
        latencies, known = [], set()
        for arrival in self.arrivals:
            if arrival.low < 0:
                continue
            record = read_file(file_of(self.path / "arrivals", arrival.epoch, arrival.low))
            for end_us in np.unique(record.column("window_end").cast(pa.int64()).to_numpy()):
                places = [np.searchsorted(seen, end_us + DISORDER_US) for seen in reached]
                closed_by_time = all(place < len(seen) for place, seen in zip(places, reached, strict=True))
                if (end_us, arrival.low) in known or not closed_by_time:
                    continue
                known.add((end_us, arrival.low))
                released = max(
                    began + place / per_split * 1e9 for began, place in zip(self.started_ns, places, strict=True)
                )
                latencies.append((arrival.at_ns - released) / 1e6)
        return latencies
