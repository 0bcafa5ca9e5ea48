"""``python -m seep.sim.mutants``: break the protocol, rule by rule, and see the simulator find it.

Each breakage runs in a fresh process: first its directed schedule if it has one, else seed after seed until a schedule
is violated. The unbroken machines must pass what the broken ones failed, or the finding does not count. Exit code 1
when a written breakage is not found, or when fewer than 80 % of the drawn ones are.
"""

from __future__ import annotations

import argparse
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import count
from multiprocessing import get_context
from os import cpu_count
from types import FrameType
from typing import TypeVar

from seep.sim.mutations.drawn import draw
from seep.sim.mutations.patch import BadPatch, Mutant, install, source_of
from seep.sim.mutations.survivors import SURVIVORS
from seep.sim.mutations.written import WRITTEN

LIMIT_S = 60.0
HANGS_AFTER_S = 20.0
"""One schedule takes a fifth of a second; one that takes this long goes round in circles."""
MEMORY_BYTES = 3 << 30
SHARE = 0.8

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Finding:
    mutant: Mutant
    what: str = ""
    """Empty: not found."""
    seed: int = 0
    scenario: str = ""
    tried: int = 0
    seconds: float = 0.0
    """Of one core's time: a busy machine changes nothing."""
    false_alarm: str = ""
    """What the unbroken machines say to the same schedule."""


class Hangs(Exception):
    """A schedule did not end in real time."""


def _hangs(_signal: int, _frame: FrameType | None) -> None:
    raise Hangs(f"a schedule still runs after {HANGS_AFTER_S:.0f} s")


def run_one(seed: int, scenario: str) -> str:
    """What is wrong with this schedule; anything that the machines raise is a finding too."""
    signal.signal(signal.SIGPROF, _hangs)
    signal.setitimer(signal.ITIMER_PROF, HANGS_AFTER_S)
    try:
        return _schedule(seed, scenario)
    except (Exception, RecursionError) as error:  # any way to fail is a way to be found
        return f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _schedule(seed: int, scenario: str) -> str:
    # Imported here: the broken module must come in after its patch.
    if scenario:
        from seep.sim.directed import run_scenario

        return run_scenario(scenario)
    from seep.sim.schedule import run_schedule

    return run_schedule(seed).violation


def hunt(mutant: Mutant, start: int, limit_s: float) -> Finding:
    """In a fresh process: break the module, then look for a schedule that notices."""
    install(mutant)
    # Now, not inside a schedule: a module that does not even load is a fault of the bench, not a finding.
    import_module("seep.sim.schedule")
    directed = import_module("seep.sim.directed")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    began = time.process_time()
    tried = 0
    for seed, scenario in _schedules(mutant, start, directed.in_order()):
        what = run_one(seed, scenario)
        tried += 1
        seconds = time.process_time() - began
        if what:
            return Finding(mutant, what, seed, scenario, tried, seconds)
        if seconds > limit_s:
            break
    return Finding(mutant, tried=tried, seconds=time.process_time() - began)


def _schedules(mutant: Mutant, start: int, directed: list[str]) -> Iterator[tuple[int, str]]:
    """(seed, directed schedule): a written one's own; a drawn one's may be any of them; else seed after seed."""
    if mutant.scenario:
        yield 0, mutant.scenario
        return
    if mutant.line:
        yield from ((0, name) for name in directed)
    yield from ((seed, "") for seed in count(start))


def _alone(run: Callable[..., Answer], *arguments: object) -> Answer:
    """Run it in a process of its own. (A pool that renews its workers would do, but it hangs in Python 3.11.)"""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(run, *arguments).result()


def judge(mutant: Mutant, start: int, limit_s: float) -> Finding:
    try:
        finding = _alone(hunt, mutant, start, limit_s)
    except BrokenProcessPool:
        return Finding(mutant, "the process died")
    if finding.what:
        finding = replace(finding, false_alarm=_alone(run_one, finding.seed, finding.scenario))
    return finding


def bench(
    mutants: list[Mutant], start: int, limit_s: float, processes: int, say: Callable[[Finding], None]
) -> list[Finding]:
    findings: list[Finding] = []
    with ThreadPoolExecutor(processes) as hands:
        for future in as_completed([hands.submit(judge, mutant, start, limit_s) for mutant in mutants]):
            findings.append(future.result())
            say(findings[-1])
    return findings


def show(finding: Finding) -> None:
    mutant = finding.mutant
    if finding.false_alarm:
        verdict = f"UNSOUND: the unbroken machines fail it too: {finding.false_alarm[:120]}"
    elif finding.what:
        verdict = finding.what.replace("\n", " ")[:110]
    else:
        verdict = f"NOT FOUND {SURVIVORS.get(mutant.rule, '')}"
    how = finding.scenario or f"seed {finding.seed}" if finding.what else ""
    print(f"{finding.tried:5d} {finding.seconds:6.1f} s  {mutant.name:32s} {how:14s} {verdict}")
    print(f"{'':16s}{mutant.rule}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m seep.sim.mutants", description=__doc__)
    parser.add_argument("--drawn", type=int, help="how many to draw by seed; 40, none with --only")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--start", type=int, default=1, help="first seed of the schedules")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds of a core for each")
    parser.add_argument("--processes", type=int, default=cpu_count() or 1)
    parser.add_argument("--only", default="", help="written ones with this in their name")
    options = parser.parse_args(arguments)
    chosen = [mutant for mutant in WRITTEN if options.only in mutant.name]
    draws = options.drawn if options.drawn is not None else 0 if options.only else 40
    try:
        print(f"{len(chosen)} written\ntried  seconds  name")
        for mutant in chosen:
            mutant.apply(source_of(mutant.module))
        alone = [mutant for mutant in chosen if not mutant.braces]
        written = bench(alone, options.start, options.limit, options.processes, show)
        for mutant in chosen:
            if mutant.braces:
                print(f"not alone        {mutant.name:32s} {mutant.rule}\n{'':16s} {mutant.braces}")
        print(f"\n{draws} drawn with seed {options.seed}")
        drawn = bench(draw(draws, options.seed), options.start, options.limit, options.processes, show)
    except BadPatch as problem:
        print(f"the bench is wrong: {problem}")
        return 2
    return verdict(written, drawn)


def verdict(written: list[Finding], drawn: list[Finding]) -> int:
    def found(findings: list[Finding]) -> int:
        return sum(bool(f.what) and not f.false_alarm for f in findings)

    slowest = max((f.seconds for f in written), default=0.0)
    print(f"\nwritten: {found(written)} of {len(written)} found, the slowest in {slowest:.1f} s")
    if drawn:
        print(f"drawn: {found(drawn)} of {len(drawn)} found ({100 * found(drawn) / len(drawn):.0f} %)")
    return 0 if found(written) == len(written) and found(drawn) >= SHARE * len(drawn) else 1


if __name__ == "__main__":
    sys.exit(main())
