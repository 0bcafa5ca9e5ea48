"""How benchmarks judge what a change did: the pause, the catching up, and whether another engine's rows are right."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import sleepers, words
from benchmarks.arrivals import ArrivalSink
from benchmarks.catalogue import check
from benchmarks.elasticity import settled
from benchmarks.load import Load, numbers_of_split
from benchmarks.machine import descendants
from benchmarks.outcome import Options
from benchmarks.overhead import run as overhead
from benchmarks.peers.flinkchanges import ROW, judge
from benchmarks.recovery import DRIVER, EXECUTOR, WORKER, Kill, figures, plan
from benchmarks.recovery import run as recovery
from benchmarks.silence import Change, around
from seep.connectors.contract import Committed, Opening
from seep.connectors.generator import SPLITS
from seep.errors import Misuse
from seep.model.arrow import BUCKET
from seep.testing import Driver

LOAD = Load(keys=16, seed=7)
GIVEN = dict.fromkeys(range(SPLITS), 30)
SECOND = 1_000_000_000


def rows_every(step_ms: int, seconds: float) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.arange(0, int(seconds * 1000), step_ms, dtype=np.int64) * 1_000_000


def test_a_pause_and_what_has_piled_up_in_it() -> None:
    released = rows_every(10, 20)
    arrived = released + 5_000_000
    # From 10 s on nothing for two seconds; what waited comes at twice the pace.
    late = (released >= 10 * SECOND) & (released < 14 * SECOND)
    arrived[late] = 12 * SECOND + (released[late] - 10 * SECOND) // 2
    found = around(arrived, (arrived - released) / 1e6, Change("kill", 10 * SECOND, 18 * SECOND))
    assert found["pause_ms"] == pytest.approx(2000, abs=11)
    assert 3.6 <= found["caught_up_seconds"] <= 4.1
    assert found["behind_seconds"] == pytest.approx(found["caught_up_seconds"], abs=0.02)
    assert (found["usual_lag_ms"], found["steady_p999_ms"]) == (5.0, 10.0)


def test_rows_that_arrive_together_are_one_arrival() -> None:
    released = np.repeat(rows_every(50, 20), 1_000)
    arrived = released + 5_000_000
    found = around(arrived, (arrived - released) / 1e6, Change("rescale", 10 * SECOND, 18 * SECOND))
    assert (found["pause_ms"], found["steady_p999_ms"]) == (50.0, 50.0)


def test_a_change_that_begins_late_is_not_caught_up_before() -> None:
    released = rows_every(10, 20)
    arrived = released + 5_000_000
    late = (released >= 13 * SECOND) & (released < 14 * SECOND)
    arrived[late] = 14 * SECOND
    found = around(arrived, (arrived - released) / 1e6, Change("rescale", 10 * SECOND, 18 * SECOND))
    assert found["caught_up_seconds"] == pytest.approx(4.1, abs=0.11)
    assert found["behind_seconds"] == pytest.approx(1.1, abs=0.11)


def test_without_an_effect_there_is_nothing_to_catch_up_with() -> None:
    released = rows_every(10, 20)
    arrived = released + 5_000_000
    found = around(arrived, (arrived - released) / 1e6, Change("rescale", 10 * SECOND, 18 * SECOND))
    assert (found["pause_ms"], found["caught_up_seconds"]) == (10.0, 0.0)
    with pytest.raises(ValueError, match="no row"):
        around(arrived, (arrived - released) / 1e6, Change("kill", 40 * SECOND, 41 * SECOND))


def right_rows() -> np.ndarray[Any, Any]:
    """What Flink's sink must have written: every row once."""
    sums: dict[int, tuple[int, int, int]] = {}
    rows = []
    for split, count in GIVEN.items():
        numbers = numbers_of_split(split, count)
        values = zip(numbers, LOAD.key_of(numbers).tolist(), LOAD.value_of(numbers).tolist(), strict=True)
        for number, key, value in values:
            n, total, counted = sums.get(key, (0, 0, 0))
            sums[key] = (n + 1, total + value, counted + n + 1)
            rows.append((0, number, n + 1, *sums[key]))
    return np.array(rows, ROW)


def test_rows_of_another_engine_are_judged_one_by_one() -> None:
    rows = right_rows()
    assert judge(LOAD, GIVEN, rows) == {"lost": 0, "wrong": 0, "replayed": 0, "rows_in": 240}
    assert judge(LOAD, GIVEN, np.concatenate([rows, rows[7:20]]))["replayed"] == 13
    assert judge(LOAD, GIVEN, rows[:-1])["lost"] == 1
    for column in ("n", "changes", "total", "counted"):
        wrong = rows.copy()
        wrong[column][11] += 1
        assert judge(LOAD, GIVEN, wrong)["wrong"] == 1
    fewer = {**GIVEN, 3: 29}
    assert judge(LOAD, fewer, rows)["wrong"] >= 1, "a row that nobody gave"


def counted(path: Path, *epochs: dict[str, int]) -> None:
    publish = ArrivalSink(path).open(Opening("out"))
    for epoch, counts in enumerate(epochs, 1):
        record = pa.record_batch([pa.array(list(counts)), pa.array(list(counts.values()))], schema=words.COUNTED)
        rows = record.append_column(BUCKET, pa.array([0] * len(counts), pa.uint16()))
        publish([Committed(epoch, rows, False)])


def test_words_are_counted_again(tmp_path: Path) -> None:
    given = {0: 3}
    right = {f"w{word}": 1 for word in words.words_of(numbers_of_split(0, 3)).ravel().tolist()}
    assert words.sentences(0, 1).column("text")[0].as_py().split() == list(right)[:4]
    counted(tmp_path / "right", right)
    assert words.verdict(tmp_path / "right", given) == {"rows_out": 12, "lost": 0, "duplicated": 0, "reordered": 0}
    some = next(iter(right))
    counted(tmp_path / "twice", right, {some: 1})
    assert words.verdict(tmp_path / "twice", given)["duplicated"] == 1
    counted(tmp_path / "more", {**right, some: 2})
    assert words.verdict(tmp_path / "more", given)["duplicated"] == 1
    counted(tmp_path / "less", {name: 1 for name in right if name != some})
    assert words.verdict(tmp_path / "less", given)["lost"] == 1


def test_the_word_count_counts_words(tmp_path: Path) -> None:
    fast, two = dict.fromkeys((words.SPLIT, words.COUNT), 1e9), dict.fromkeys((words.SPLIT, words.COUNT), 2)
    driver = Driver(words.flow_of("words", 500.0, fast, two, None, tmp_path))
    for first in (0, 300):
        driver.feed("rows", words.sentences(first, 300).to_pylist())
    found = {row["word"]: row["count"] for row in driver.output("out")}
    numbers, counts = np.unique(words.words_of(np.arange(600)), return_counts=True)
    assert found == {f"w{number}": count for number, count in zip(numbers, counts, strict=True)}


def test_a_sleepers_last_row_is_missed(tmp_path: Path) -> None:
    publish = ArrivalSink(tmp_path).open(Opening("out"))
    record = sleepers.numbers(0, 9)
    publish([Committed(1, record.append_column(BUCKET, pa.array([0] * 9, pa.uint16())), False)])
    assert sleepers.verdict(tmp_path, {0: 9})["lost"] == 0
    assert sleepers.verdict(tmp_path, {0: 10})["lost"] == 1


def test_settled_means_from_then_on() -> None:
    assert settled([50.0, 10.0, 50.0, 10.0, 10.0], 10.0) == 3.0
    assert settled([10.0, 10.0], 10.0) == 0.0


def test_drivers_are_told_apart() -> None:
    everything = np.ones(4, np.bool_)
    done = [Kill(kind, 0, 0, 1, 5.0, everything, ("first",), ms, ms, ms / 1000) for kind, ms in KINDS]
    found = figures(done, "spark")
    assert found["recovery_ms"]["max"] == 300.0
    assert (found["worker_recovery_ms"]["p50"], found["executor_recovery_ms"]["p50"]) == (150.0, 300.0)
    assert found["driver_resume_seconds"]["max"] == 20.0
    assert (found["kills"], found["unrecovered"]) == (4, 0)
    assert [plan("spark", None).count(kind) for kind in (WORKER, EXECUTOR, DRIVER)] == [30, 15, 3]


KINDS = ((WORKER, 100.0), (WORKER, 200.0), (EXECUTOR, 300.0), (DRIVER, 20_000.0))


def test_what_cannot_be_run_is_refused() -> None:
    with pytest.raises(Misuse, match="it runs on: local, spark, ray"):
        recovery(Options(on="inline"), lambda what, share: None)
    with pytest.raises(Misuse, match="there are: checkpoints, metrics"):
        overhead(Options(part="rows"), lambda what, share: None)
    check("elasticity", Options(peers=("flink",)))
    with pytest.raises(Misuse, match="elasticity has as peers: flink"):
        check("elasticity", Options(peers=("flink", "polars")))


def test_descendants_are_children_and_theirs() -> None:
    with subprocess.Popen(["sh", "-c", "sh -c 'echo $$; sleep 30' & wait"], stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        child = int(shell.stdout.readline())
        below = descendants(shell.pid)
        for process in below:
            os.kill(process, signal.SIGKILL)
    assert child in below
    assert shell.pid not in below
