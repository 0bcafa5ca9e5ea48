"""The benchmark `kafka` without a broker: its rows, its oracle, its judgement, and what other engines are told."""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from benchmarks.catalogue import check
from benchmarks.contest import Measured, Program, Task
from benchmarks.decode import figures
from benchmarks.outcome import Options
from benchmarks.peers import PEERS, Spec, Unable, adapter, flink, kafka_streams, quix
from benchmarks.sales import BASE_MS, END, LATENESS_MS, PARTITIONS, WINDOW_MS, Sales, expected, judged, results_of
from seep.errors import Misuse

SALES = Sales(5_000, seed=7)
NAMES = ("store", "window_start", "items", "revenue", "largest")


def test_the_oracle_says_what_plain_python_says(tmp_path: Path) -> None:
    path = tmp_path / "rows.ndjson"
    SALES.write(path)
    sums: dict[tuple[str, int], list[int]] = defaultdict(list)
    for line in path.read_bytes().splitlines():
        row = json.loads(line)
        sums[row["store"], row["at"] // WINDOW_MS * WINDOW_MS].append(row["amount"])
    rows = [(*place, len(known), sum(known), max(known)) for place, known in sorted(sums.items())]
    assert expected(path).rows() == rows


def test_every_row_is_a_message_and_the_last_ones_close_the_windows(tmp_path: Path) -> None:
    path = tmp_path / "rows.ndjson"
    numbers = SALES.write(path)
    first, rest = (list(SALES.messages(path, numbers, low, high)) for low, high in ((0, 1_000), (1_000, 5_000)))
    assert len(first) == 1_000
    assert [m.value for m in (*first, *rest)][:5_000] == path.read_bytes().splitlines()
    assert [(m.partition, m.key) for m in rest[4_000:]] == [(number, END.encode()) for number in range(PARTITIONS)]
    homes: dict[bytes, set[int]] = defaultdict(set)
    newest = dict.fromkeys(range(PARTITIONS), 0)
    for message in (*first, *rest[:4_000]):
        row = json.loads(message.value)
        assert message.key.decode() == row["store"]
        homes[message.key].add(message.partition)
        newest[message.partition] = max(newest[message.partition], row["at"])
        assert row["at"] > newest[message.partition] - LATENESS_MS  # none is late
    assert all(len(partitions) == 1 for partitions in homes.values())
    assert json.loads(rest[-1].value)["at"] > max(newest.values()) + WINDOW_MS + LATENESS_MS


def test_windows_that_the_first_rows_close_are_known(tmp_path: Path) -> None:
    sales, first = Sales(400_000), 300_000
    closed = sales.closed_by(first)
    assert closed > BASE_MS
    known = sales.columns()[:first]
    by_partition = known.group_by(pl.col("number") % PARTITIONS).agg(pl.col("at").max())
    assert closed + WINDOW_MS + LATENESS_MS <= by_partition["at"].min()


def test_what_is_lost_twice_there_or_wrong_is_found(tmp_path: Path) -> None:
    path = tmp_path / "rows.ndjson"
    SALES.write(path)
    right = expected(path)
    values = [json.dumps(dict(zip(NAMES, row, strict=True))).encode() for row in right.rows()]
    assert judged(results_of(reversed(values)), right) == {"lost": 0, "duplicated": 0, "wrong": 0}
    assert judged(results_of(values[1:]), right) == {"lost": 1, "duplicated": 0, "wrong": 0}
    assert judged(results_of([*values, values[0]]), right) == {"lost": 0, "duplicated": 1, "wrong": 0}
    changed = {**json.loads(values[0]), "revenue": -1}
    assert judged(results_of([json.dumps(changed).encode(), *values[1:]]), right)["wrong"] == 1
    assert judged(results_of([*values, json.dumps(changed).encode()]), right)["wrong"] == 1


def test_broken_rows_are_dead_letters_one_by_one() -> None:
    found, verified = figures(seed=42, rows=20_000)
    assert verified
    assert found["decode_dead_letters"] == 20


def test_the_broker_counts() -> None:
    measured = Measured(2.0, 3.0, 1.0, 0.5, pl.DataFrame({"a": [1]})).figures(1_000_000)
    assert measured["rows_per_second"] == 500_000
    assert (measured["cpu_seconds_per_10m_rows"], measured["broker_cpu_seconds_per_10m_rows"]) == (40.0, 10.0)


@pytest.mark.parametrize("name", ["flink", "kafka-streams", "quix"])
def test_an_engine_is_told_where_to_read_and_write(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (flink, kafka_streams):
        monkeypatch.setattr(module, "compiled", lambda name, sources: tmp_path)
    monkeypatch.setattr(quix, "environment", lambda name, packages: sys.executable)
    began: list[Any] = []
    engine = adapter(name)
    monkeypatch.setattr(engine, "Program", lambda command, home: began.append((command, home)))
    told = engine.topics(Task(name, 1_000, "127.0.0.1:1", "in", "out", tmp_path, 500, 2))
    told.begin()
    ((command, home),) = began
    assert home == tmp_path
    assert {"servers=127.0.0.1:1", "in=in", "out=out", "checkpoint_ms=500", "parallelism=2"} <= set(command)
    assert "exactly once" in told.how
    assert "500 ms" in told.how
    assert told.version[0].isdigit()


def test_kafka_streams_has_no_program_for_rows_in_memory(tmp_path: Path) -> None:
    with pytest.raises(Unable, match="see the benchmark kafka"):
        adapter("kafka-streams").main(Spec("keyed-count", 1, 42, 1, True, 0.0, 1.0, str(tmp_path)))


def test_a_program_that_ends_says_why(tmp_path: Path) -> None:
    program = Program([sys.executable, "-c", "raise SystemExit('no broker')"], tmp_path)
    program.process.wait(30)
    assert "ended with 1: no broker" in program.problem()
    program.close()
    running = Program([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path)
    assert running.problem() == ""
    began = time.monotonic()
    running.close()
    assert running.process.returncode is not None
    assert time.monotonic() - began < 30


def test_who_may_be_compared() -> None:
    check("kafka", Options(peers=PEERS), ["checkpoint", "rows"])
    with pytest.raises(Misuse, match="does not depend on rate"):
        check("kafka", Options(), ["rate"])
    with pytest.raises(Misuse, match="has no peers"):
        check("zombie", Options(peers=("kafka-streams",)))
