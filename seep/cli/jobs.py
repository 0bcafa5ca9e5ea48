"""Verbs on running jobs: ps, explain, scale, rebalance, kill, savepoint, audit, stop."""

from __future__ import annotations

import signal
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote, unquote

import typer

from seep.cli import client
from seep.cli.output import Json, show, with_progress
from seep.errors import Misuse, Retry
from seep.runtime.home import job_path

SHOWN = 20
"""Decisions and steps, the latest."""

Flow = Annotated[str, typer.Argument(metavar="FLOW", help="the flow's name")]


def ps(
    flow: Annotated[str | None, typer.Argument(metavar="FLOW", help="only this flow")] = None, json: Json = False
) -> None:
    """What runs: flows, their operators and partitions.

    Example: seep ps sales
    """
    if flow:
        show([client.ask(flow, "GET", "status")], json, _status_lines)
        return
    found = []
    for home in client.homes():
        with suppress(Misuse):  # it has ended since we looked
            try:
                found.append(client.ask_job(home, "GET", "status"))
            except Retry:
                found.append({"flow": unquote(home.name), "outcome": "silent", "operators": {}, "workers": []})
    show(found, json, _status_lines)


def explain(
    flow: Flow,
    operator: Annotated[str | None, typer.Argument(metavar="OPERATOR", help="only this operator")] = None,
    json: Json = False,
) -> None:
    """Who is slow, who holds event time back, what was decided, why.

    Example: seep explain sales store-minute
    """
    route = f"explain?operator={quote(operator)}" if operator else "explain"
    show([client.ask(flow, "GET", route)], json, _explained_lines)


def scale(
    flow: Flow,
    target: Annotated[str, typer.Argument(metavar="OPERATOR=N", help="an operator, and how many partitions")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="change nothing, say what would be replaced")] = False,
    json: Json = False,
) -> None:
    """Run an operator as N partitions, while it runs.

    Example: seep scale sales store-minute=3
    """
    operator, _, count = target.rpartition("=")
    if not operator or not count.isdecimal():
        raise Misuse(f"{target!r} is not OPERATOR=N, such as store-minute=3")
    answer = client.ask(flow, "POST", "scale", {"operator": operator, "count": int(count), "dry_run": dry_run})
    show([answer], json, _scale_lines)


def _scale_lines(answer: dict[str, Any]) -> list[str]:
    name, count = answer["operator"], answer["count"]
    if not answer.get("dry_run"):
        return [f"{name}: {count} {'partition' if count == 1 else 'partitions'} now"]
    old = [f"  {partition}, buckets {buckets}" for partition, buckets in answer["old"].items()]
    if not old:
        return [f"{name}: {answer['now']} partitions as it is; nothing would change"]
    new = f"  by {len(answer['new'])} with the buckets {', '.join(answer['new'])}"
    return [f"{name}: {answer['now']} -> {count} partitions (nothing was changed); it would replace", *old, new]


def rebalance(
    flow: Flow,
    operator: Annotated[str, typer.Argument(metavar="OPERATOR", help="whose partitions")],
    json: Json = False,
) -> None:
    """Give an operator's partitions key ranges of equal load.

    It goes on running, with as many partitions as before.

    Example: seep rebalance sales store-minute
    """
    answer = client.ask(flow, "POST", "rebalance", {"operator": operator})
    show([answer], json, lambda a: [f"{a['operator']}: {'' if a['rebalanced'] else 'not '}rebalanced, {a['why']}"])


def kill(
    flow: Flow,
    target: Annotated[str, typer.Argument(metavar="OPERATOR/PARTITION", help="as `seep ps` shows it")],
    json: Json = False,
) -> None:
    """Kill (SIGKILL) the worker that runs a partition.

    Its other partitions die with it; all of them recover.

    Example: seep kill sales store-minute/0
    """
    operator, _, index = target.rpartition("/")
    if not operator or not index.isdecimal():
        raise Misuse(f"{target!r} is not OPERATOR/PARTITION, such as store-minute/0")
    answer = client.ask(flow, "POST", "kill", {"operator": operator, "index": int(index)})
    show([answer], json, lambda a: [f"killed worker {a['worker']}, which ran {a['partition']}"])


def savepoint(
    flow: Flow,
    name: Annotated[str, typer.Argument(metavar="NAME", help="the savepoint's name, or s3://BUCKET/FOLDER")],
    json: Json = False,
) -> None:
    """Keep the whole flow's state at one epoch under a name.

    Example: seep savepoint sales v1
    """
    show([client.ask(flow, "POST", "savepoint", {"name": name})], json, _facts)


def audit(flow: Flow, json: Json = False) -> None:
    """Do the books balance? Nothing lost, nothing doubled.

    Every row that came in is accounted for: in = out + filtered + pending + late + dead letters. Exit code 1 when the
    books do not balance.

    Example: seep audit sales
    """
    answer = client.ask(flow, "GET", "audit")
    show([{"flow": flow, **answer}], json, _audited_lines)
    if answer.get("balanced") is False:
        raise typer.Exit(1)


def stop(
    flow: Flow,
    drain: Annotated[bool, typer.Option("--drain", help="let everything in flight reach the sinks first")] = False,
    json: Json = False,
) -> None:
    """End a flow; its state stays.

    Without --drain it ends at once; `seep run --resume` goes on from there.

    Example: seep stop sales --drain
    """
    show([client.ask(flow, "POST", "stop", {"drain": drain})], json, lambda a: [f"{a['flow']} stops ({a['stopping']})"])


def chaos(
    flow: Flow,
    plan: Annotated[str, typer.Option("--plan", help="such as: kill every 5s; pause 2s every 20s; scale random")],
    seconds: Annotated[str, typer.Option("--for", help="how long to break it")] = "60s",
    seed: Annotated[int, typer.Option("--seed", help="chooses whom and when")] = 42,
    json: Json = False,
) -> None:
    """Kill, pause, cut and scale a running flow, and judge it.

    Exit code 1 when anything was lost, doubled or reordered.

    Example: seep chaos sales --plan "kill every 5s; scale random" --for 60s
    """
    from seep.model.duration import positive_microseconds
    from seep.running.chaos import Chaos

    client.ask(flow, "GET", "status")
    chosen, lasts = Chaos(client.Remote(flow), job_path(flow), seed), positive_microseconds(seconds) / 1e6
    # However it is ended, short of SIGKILL: what is paused must go on, and what is cut be whole again.
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        found = with_progress(lambda tell: chosen.run(plan, lasts, seed, tell))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    show([{"flow": flow, **found.as_dict()}], json, _verdict_lines)
    if not found.good:
        raise typer.Exit(1)


def _verdict_lines(answer: dict[str, Any]) -> list[str]:
    counts = ", ".join(f"{name} {answer[name]}" for name in ("lost", "duplicated", "reordered", "wrong"))
    done = ", ".join(f"{count} x {kind}" for kind, count in answer["done"].items())
    times = ", ".join(f"{name} {ms:.0f} ms" for name, ms in answer["recovery_ms"].items())
    lines = [
        f"{answer['flow']}: {answer['verdict']}",
        f"  {counts}, of {answer['compared']:,} rows that were expected",
        f"  done: {done}",
    ]
    return [*lines, *([f"  recovery: {times}"] if times else []), *(f"  {problem}" for problem in answer["problems"])]


def _facts(answer: dict[str, Any]) -> list[str]:
    return [f"{name}: {value}" for name, value in answer.items()]


def _audited_lines(answer: dict[str, Any]) -> list[str]:
    from seep.flow.accounts import in_words

    lines = [f"{answer['flow']}: the books {'' if answer['balanced'] else 'do not '}balance at epoch {answer['epoch']}"]
    lines += [f"  {problem}" for problem in answer["problems"]]
    lines += [f"  source {name}: {rows} read" for name, rows in answer["read"].items()]
    lines += [f"  {edge['edge']}: {edge['sent']} sent, {_taken(edge['taken'])}" for edge in answer["edges"]]
    lines += [f"  sink {name}: {sink['committed']} committed" for name, sink in answer["sinks"].items()]
    lines += [f"  {name}: {in_words(node)}" for name, node in answer["nodes"].items() if node["in"]]
    for name, counters in answer["elsewhere"].items():
        lines.append(f"  {name}: " + ", ".join(f"{number} {counter}" for counter, number in counters.items()))
    return lines


def _taken(rows: int | None) -> str:
    # By a sink, or by every partition.
    return "not counted on the way" if rows is None else f"{rows} taken"


def _explained_lines(answer: dict[str, Any]) -> list[str]:
    lines = [f"{answer['flow']}  {answer['outcome']}", *map(_progress_line, answer["progress"])]
    lines += [f"  {name}: policy {policy}" for name, policy in answer["policies"].items()]
    if not answer["policies"]:
        lines.append("  no operator has a policy: they are scaled by hand only (scale(policy=...))")
    if answer["pool"]["shortage"]:
        lines.append(f"  no slot is free: {answer['pool']['shortage']}")
    lines += [f"  left out, the process died on it: {one}" for one in answer["poison"]]
    for made in answer["decisions"][-SHOWN:]:
        at = datetime.fromtimestamp(made["at"]).strftime("%H:%M:%S")
        change = (
            f"{made['before']} -> {made['after']}" if made["after"] != made["before"] else f"stays {made['before']}"
        )
        held = f" (held, {made['held']})" if made["held"] else ""
        what = f"{made['operator']}: {change}" if made["operator"] else "nothing decided"
        lines.append(f"  {at}  {what}{held}: {made['why']}")
    lines += [f"  step: {step['what']}" for step in answer["steps"][-SHOWN:]]
    return lines


def _progress_line(one: dict[str, Any]) -> str:
    behind = f", {one['behind_epochs']} behind its input" if one["behind_epochs"] else ""
    watermark = f", watermark {one['watermark']}" if one["watermark"] else ""
    itself = one["kind"] == "source" and not one["idle"]
    waits = f"; waits for {one['waits_for']}" if one["waits_for"] and not itself else ""
    return f"  {one['operator']}: epoch {one['epoch']}{behind}{watermark}{waits}"


def _status_lines(status: dict[str, Any]) -> list[str]:
    lines = [f"{status['flow']}  {status['outcome']}  workers: {len(status['workers'])}"]
    for operator, partitions in status["operators"].items():
        for index, partition in enumerate(partitions):
            low, high = partition["buckets"]
            epoch = "-" if partition["epoch"] is None else partition["epoch"]
            line = f"  {operator}/{index}  buckets {low}-{high - 1}  epoch {epoch}  on {partition['worker'] or '-'}"
            busy = partition.get("busy_seconds", 0.0)
            lines.append(f"{line}  busy with one epoch for {busy:.0f} s" if busy >= 1 else line)
    return lines
