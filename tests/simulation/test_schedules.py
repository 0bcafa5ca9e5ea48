"""The quick tier of the simulator: some seeds, every directed schedule, every single crash, and the net itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from seep.sim.directed import SCENARIOS
from seep.sim.exhaustive import run_all
from seep.sim.faults import KINDS
from seep.sim.flows import DrawnFlow
from seep.sim.injector import Injector
from seep.sim.mutations.drawn import draw
from seep.sim.mutations.patch import Mutant, source_of
from seep.sim.mutations.written import WRITTEN
from seep.sim.schedule import COLUMNS_EVERY, HITS, MESSAGES, run_schedule
from seep.sim.shrink import faults_of
from seep.sim.stage import Stage

ROOT = Path(__file__).parents[2]
CHUNKS = 10
CHUNK = 15


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_seeds(chunk: int) -> None:
    for seed in range(1 + chunk * CHUNK, 1 + (chunk + 1) * CHUNK):
        outcome = run_schedule(seed)
        assert not outcome.violation, f"seed {seed} ({outcome.shape})"
        assert outcome.rows > 0 or outcome.stopped, f"seed {seed} checked nothing"
        assert outcome.messages >= MESSAGES, f"seed {seed} tried too little"
        assert outcome.hits >= HITS, f"seed {seed} hit too little"
        assert outcome.columns == (seed % COLUMNS_EVERY == 0)


@pytest.mark.parametrize("seed", [3, 14, 159, COLUMNS_EVERY])
def test_the_same_seed_gives_the_same_bytes(seed: int) -> None:
    assert run_schedule(seed).digest == run_schedule(seed).digest


def test_shrinking_begins_with_the_faults_that_the_seed_draws() -> None:
    for seed in (5, 6):
        assert run_schedule(seed).digest == run_schedule(seed, faults_of(seed)).digest


def test_every_kind_of_fault_can_be_drawn_and_performed() -> None:
    drawn = {fault.kind for seed in range(60) for fault in faults_of(seed)}
    assert drawn == set(KINDS)
    stage = Stage()
    flow = DrawnFlow("chain", stage.graph, {}, {})
    assert set(Injector(stage.world, flow).acts) == set(KINDS)


@pytest.mark.parametrize("name", SCENARIOS)
def test_directed(name: str) -> None:
    SCENARIOS[name]()


@pytest.mark.parametrize("parts", [1, 2])
def test_every_placement_of_one_crash(parts: int) -> None:
    paths = run_all(crashes=1, parts=parts, processes=1)
    assert [f"{path.crashes}: {path.violation}" for path in paths if path.violation] == []
    assert not any(path.missed for path in paths)
    steps = {step for path in paths for _, step in path.crashes}
    expected = {"operator: shadow", "operator: pinned", "operator: sealed", "source: handing over", "sink: log append"}
    expected |= {"operator: stopped", "operator: tried", "controller: replace, upgrade, last epoch"}
    assert expected | {"controller: journal swap", "controller: replace, shadows"} <= steps


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_placement_of_two_crashes() -> None:
    assert [f"{path.crashes}: {path.violation}" for path in run_all(2, 1, 2) if path.violation] == []


@pytest.mark.parametrize("mutant", WRITTEN, ids=lambda mutant: mutant.name)
def test_a_written_breakage_still_fits_the_source(mutant: Mutant) -> None:
    compile(mutant.apply(source_of(mutant.module)), mutant.module, "exec")
    assert not mutant.scenario or mutant.scenario in SCENARIOS


def test_each_rule_has_one_name() -> None:
    assert len({mutant.name for mutant in WRITTEN}) == len(WRITTEN) >= 30


def test_the_draw_is_by_seed_and_compiles() -> None:
    drawn = draw(40, 7)
    assert drawn == draw(40, 7) != draw(40, 8)
    for mutant in drawn:
        compile(mutant.apply(source_of(mutant.module)), mutant.module, "exec")


@pytest.mark.parametrize("name", ["trim-before-durable", "forget-buffer", "gap-ignored", "zombie-sender-heard"])
def test_the_net_has_no_hole_here(name: str) -> None:
    """The bench itself: a broken rule is found, by a seed or by its directed schedule."""
    command = [sys.executable, "-m", "seep.sim.mutants", "--only", name, "--drawn", "0", "--limit", "30"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
