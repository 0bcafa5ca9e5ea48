"""`seep simulate`: what scaling policies would have done with a load, side by side, in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from seep.cli.output import Json, check_writable, show
from seep.errors import Misuse

SHARES = {"p50": 0.5, "p99": 0.99, "max": 1.0}


def simulate(
    policy: Annotated[
        list[str], typer.Option("--policy", help="rate, threshold, latency:250ms, or module:Class; several: compared")
    ],
    trace: Annotated[str, typer.Option("--trace", help="day, curve, step, or a CSV: seconds,rows_per_second")] = "day",
    noise: Annotated[float, typer.Option("--noise", min=0.0, max=1.0, help="of load and speed, such as 0.1")] = 0.0,
    goal: Annotated[str, typer.Option("--goal", help="rows should not wait for longer")] = "2s",
    seed: Annotated[int, typer.Option("--seed")] = 42,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="draw load, partitions and lag of all policies")
    ] = None,
    json: Json = False,
) -> None:
    """What scaling policies would have done with a load.

    What each would have cost, how long rows would have waited, how often it would have moved.

    Example: seep simulate --policy rate --policy my_module:Mine --trace recorded.csv --plot policies.png
    """
    from seep.model.duration import positive_microseconds
    from seep.running.named import policy_named
    from seep.sim.loads import Plan
    from seep.sim.loads import simulate as run
    from seep.sim.traces import trace_of

    if plot is not None:
        from benchmarks.picture import check_drawable

        check_writable("--plot", plot)
        check_drawable(plot)
    rates = trace_of(trace, seed, noise)
    goal_seconds = positive_microseconds(goal) / 1e6
    policies = {named: policy_named(named) for named in policy}
    found, reports = [], {}
    for named, one in policies.items():
        report = reports[named] = run(Plan(rates, one, noise=noise, seed=seed, goal_seconds=goal_seconds))
        found.append(
            {
                "policy": named,
                "trace": trace,
                "seconds": len(rates),
                "instance_seconds": round(report.instance_seconds),
                "cost_ratio": round(report.cost_ratio, 3),
                "missed_share": round(report.missed_share, 4),
                "longest_lag_seconds": round(report.longest_lag_seconds, 2),
                "latency_ms": _spread(report.latency_seconds),
                "moves": report.moves,
                "reversals": report.reversals,
                "problems": report.problems,
                "problem": report.problem,
                "decisions": [
                    {"at": d.at, "operator": d.operator, "before": d.before, "after": d.after, "why": d.why}
                    for d in report.decisions
                    if d.changes
                ],
            }
        )
    show(found, json, _lines)
    if plot is not None:
        from benchmarks.picture import policies as draw

        draw(plot, f"{trace}, {len(rates):,} seconds", rates, reports)
    wrong = {named: report for named, report in reports.items() if report.problems}
    if wrong:
        told = (f"{named} at {report.problems:,} looks, {report.problem}" for named, report in wrong.items())
        raise Misuse(f"what a policy does wrong changes nothing: {'; '.join(told)}; mend it")


def _spread(seconds: list[float]) -> dict[str, float]:
    """Of the slowest result of each second."""
    ordered = sorted(seconds)
    return {name: round(1000 * ordered[int(share * (len(ordered) - 1))], 1) for name, share in SHARES.items()}


def _lines(answer: dict[str, Any]) -> list[str]:
    return [
        f"{answer['policy']} on {answer['trace']} ({answer['seconds']} s)",
        f"  instance-seconds     {answer['instance_seconds']:,}"
        f" ({answer['cost_ratio']:.2f} times those of one who knows the next minute)",
        f"  goal missed          {answer['missed_share']:.2%} of the time,"
        f" longest wait {answer['longest_lag_seconds']:.1f} s",
        f"  results took         {', '.join(f'{name} {ms:,.0f} ms' for name, ms in answer['latency_ms'].items())}",
        f"  moves                {answer['moves']}, of them back within two minutes: {answer['reversals']}",
    ]
