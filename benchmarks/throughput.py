"""A workload as fast as it goes, with a real shuffle between processes; beside it, the same on other engines.

The source never ends; after a warm-up, rows are counted from the first to the last epoch that arrives at the sink while
the clock runs, with checkpoints every 5 s. Then the flow is drained, and every row it gave is compared with an oracle.
"""

from __future__ import annotations

from typing import Any

from benchmarks.drive import scratch
from benchmarks.measured import Measured, Plan
from benchmarks.outcome import Options, Outcome, Tell, spread
from benchmarks.peers import compare
from benchmarks.workload import WORKERS, Workload
from seep.errors import Misuse
from seep.model.duration import microseconds

WARM_SECONDS = 10.0
SECONDS = 30.0


def run(workload: Workload, options: Options, tell: Tell) -> Outcome:
    plan = plan_of(options)
    if options.keys is not None:
        if workload.keyed is None:
            raise Misuse(f"{workload.name} has no number of keys to choose")
        workload = workload.keyed(options.keys)
    share = 1 / (1 + len(options.peers))
    with scratch() as home:
        tell(f"{workload.name}: as fast as it goes", 0.0)
        measured = Measured(workload, plan, home)
        tell(f"{workload.name}: comparing with the oracle", share * 0.9)
        verified = measured.verify()
        latencies = measured.latencies_ms()
        peers = compare(workload, plan, options.peers, home, tell)
    figures: dict[str, Any] = {
        "rows_per_second": round(measured.rows_per_second),
        "cpu_seconds_per_10m_rows": round(measured.cpu_seconds_per_10m_rows, 3),
        "latency_ms": spread(latencies),
        "rows_measured": measured.rows,
        "seconds": round(measured.seconds, 3),
        "checkpoints": measured.checkpoints,
        "peak_memory_bytes": measured.peak_memory_bytes,
        "rows_in": sum(map(sum, measured.given.values())),
        "rows_out": measured.result.rows,
    }
    if peers:
        figures["peers"] = peers
    return Outcome(workload.name, settings_of(workload, plan), verified, figures, {"latency_ms": latencies})


def plan_of(options: Options) -> Plan:
    seconds = options.seconds or SECONDS
    return Plan(
        seed=options.seed,
        rows=options.rows,
        warm_seconds=min(WARM_SECONDS, seconds / 3),
        seconds=seconds,
        rate=options.rate,
        epoch=options.epoch or Plan.epoch,
        checkpoint=options.checkpoint or Plan.checkpoint,
        workers=options.workers or WORKERS,
        on=options.on,
    )


def settings_of(workload: Workload, plan: Plan) -> dict[str, Any]:
    return {
        "on": plan.on,
        "workers": plan.workers,
        "sources": len(workload.blocks),
        **workload.settings,
        **({"rows": plan.rows} if plan.rows else {"warm_seconds": plan.warm_seconds, "seconds": plan.seconds}),
        **({"rate_rows_per_second": plan.rate} if plan.rate else {}),
        "epoch_ms": microseconds(plan.epoch) / 1000,
        "checkpoint_ms": microseconds(plan.checkpoint) / 1000,
        "seed": plan.seed,
    }
