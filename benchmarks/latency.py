"""`latency`: windows and a running count under an open load of 500,000 rows a second, in epochs of 10 ms.

Of a window: from the release of the row that moved the watermark over its end to its arrival at the sink. Of the
running count: from the release of a row to the arrival of the count with it. Rows are released by the clock whatever
the flow does, so a flow that falls behind shows it.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.drive import scratch
from benchmarks.measured import Measured
from benchmarks.outcome import Options, Outcome, Tell, spread
from benchmarks.throughput import plan_of, settings_of
from benchmarks.workloads.counts import KEYED_COUNT
from benchmarks.workloads.windows import DISORDER_US, KEYED_WINDOW, SECOND_US

RATE = 500_000
EPOCH = "10ms"


def run(options: Options, tell: Tell) -> Outcome:
    plan = plan_of(replace(options, rows=None, rate=options.rate or RATE, epoch=options.epoch or EPOCH))
    with scratch() as home:
        tell(f"{plan.rate:,.0f} rows a second", 0.0)
        measured = Measured(KEYED_WINDOW, plan, home)
        tell("a running count", 0.5)
        counted = Measured(KEYED_COUNT, plan, home / "counted")
        tell("comparing with the oracle", 0.9)
        verified = measured.verify() and counted.verify()
    latencies, updates = measured.released_latencies_ms(SECOND_US, DISORDER_US), counted.row_latencies_ms()
    return Outcome(
        "latency",
        {**settings_of(KEYED_WINDOW, plan), "rate_rows_per_second": plan.rate},
        verified,
        {
            "latency_ms": spread(latencies),
            "update_latency_ms": spread(updates),
            "rows_per_second": round(measured.rows_per_second),
            "cpu_seconds_per_10m_rows": round(measured.cpu_seconds_per_10m_rows, 3),
            "checkpoints": measured.checkpoints,
            "rows_out": measured.result.rows,
        },
        {"latency_ms": latencies, "update_latency_ms": updates},
    )
