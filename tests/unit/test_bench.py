"""Benchmarks judge other code, so their own judgement is tested: a wrong row is found, and what kind it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from benchmarks import arrivals, load, verdict
from benchmarks.catalogue import MODULES, THROUGHPUT, together
from benchmarks.looped import BASE_US, Looped
from benchmarks.outcome import Options, Outcome
from benchmarks.pause import pauses_ms
from benchmarks.picture import as_text, draw
from benchmarks.rescale import Change, _gaps
from benchmarks.workload import Workload
from benchmarks.workloads.windows import Sales
from seep.cli.main import app
from seep.connectors.contract import Committed, Opening
from seep.connectors.generator import SPLITS
from seep.errors import Misuse
from seep.model.arrow import BUCKET

LOAD = load.Load(keys=16, seed=7)
GIVEN = dict.fromkeys(range(SPLITS), 20)
Row = tuple[int, int, int, int, int]


def sink_rows() -> list[list[Row]]:
    """What the sink must see when every row is an epoch of its own: (other, changes, n, total, counted)."""
    seen: dict[int, tuple[int, int, int]] = {}
    epochs = []
    for split in GIVEN:
        numbers = load.numbers_of_split(split, 20)
        for key, value in zip(LOAD.key_of(numbers).tolist(), LOAD.value_of(numbers).tolist(), strict=True):
            n, total, counted = seen.get(key, (0, 0, 0))
            seen[key] = (n + 1, total + value, counted + n + 1)
            epochs.append([(key * load.FACTOR + load.OFFSET, n + 1, *seen[key])])
    return epochs


def judged(path: Path, epochs: list[list[Row]]) -> verdict.Verdict:
    publish = arrivals.ArrivalSink(path).open(Opening("out"))
    for epoch, rows in enumerate(epochs, 1):
        columns = np.array(rows, np.int64).T
        names = ("other", "changes", "n", "total", "counted")
        record = pa.record_batch({**dict(zip(names, columns, strict=True)), "newest": columns[0]})
        publish([Committed(epoch, record.append_column(BUCKET, pa.array([0] * len(rows), pa.uint16())), False)])
    return verdict.judge(LOAD, GIVEN, path, [])


def test_what_is_right_is_called_identical(tmp_path: Path) -> None:
    found = judged(tmp_path, sink_rows())
    assert found.identical
    assert (found.rows_in, found.rows_out) == (160, 160)


def test_a_lost_row_is_found_in_the_middle_and_at_the_end(tmp_path: Path) -> None:
    epochs = sink_rows()
    middle = next(at for at, [row] in enumerate(epochs) if row[1] == 1)
    assert judged(tmp_path / "middle", epochs[:middle] + epochs[middle + 1 :]).lost > 0
    assert judged(tmp_path / "end", epochs[:-1]).lost > 0


def test_a_row_twice_is_found_in_one_epoch_and_in_two(tmp_path: Path) -> None:
    epochs = sink_rows()
    assert judged(tmp_path / "one", [epochs[0] * 2, *epochs[1:]]).duplicated == 1
    assert judged(tmp_path / "two", [epochs[0], epochs[0], *epochs[1:]]).duplicated == 1


def test_rows_of_a_key_out_of_order_are_found(tmp_path: Path) -> None:
    epochs = sink_rows()
    of_key = [at for at, [row] in enumerate(epochs) if row[0] == epochs[0][0][0]]
    first, second = of_key[0], of_key[1]
    epochs[first], epochs[second] = epochs[second], epochs[first]
    assert judged(tmp_path, epochs).reordered > 0


@pytest.mark.parametrize("column", [2, 3, 4])
def test_a_wrong_value_is_found(tmp_path: Path, column: int) -> None:
    epochs = sink_rows()
    row = list(epochs[40][0])
    row[column] += 1
    epochs[40] = [(row[0], row[1], row[2], row[3], row[4])]
    assert judged(tmp_path, epochs).wrong > 0


def test_an_epoch_published_twice_counts_once(tmp_path: Path) -> None:
    epochs = sink_rows()
    judged(tmp_path, epochs)
    assert judged(tmp_path, epochs).identical
    assert len(arrivals.Tail(tmp_path).news()) == 2 * len(epochs)


def test_a_key_belongs_to_one_split() -> None:
    numbers = LOAD.numbers(0, 50_000)
    assert np.array_equal(LOAD.key_of(numbers) % SPLITS, load.split_of(numbers))
    for split in range(SPLITS):
        mine = numbers[load.split_of(numbers) == split]
        assert np.array_equal(mine, load.numbers_of_split(split, len(mine)))
        assert np.array_equal(load.place_in_split(mine), np.arange(len(mine)))


def test_a_looped_source_gives_the_same_rows_however_it_is_read() -> None:
    lap, end = 1_000, 4_000
    source = Looped(Sales(10), lap, 20_000_000, 42, split_rows=end)
    whole = source.record(1, lap - 5, lap + 5)
    first = source.read(1, [lap - 5, 0], None, 7, 0)
    assert first is not None
    rest = source.read(1, first.position, [lap + 5, 0], 10**9, 0)
    assert rest is not None
    assert pa.concat_batches([first.record, rest.record]).equals(whole)
    times = source.record(0, 0, end).column("at").cast(pa.int64()).to_numpy() - BASE_US
    assert (np.maximum.accumulate(times) - times).max() < 2_000_000
    assert times.min() >= 0
    assert 60_000_000 <= times.max() < 82_000_000
    last = source.read(0, [end - 1, 0], None, 10, 0)
    assert last is not None
    assert (last.record.num_rows, last.ended, source.endless) == (1, True, False)


def test_an_open_load_is_released_by_the_clock() -> None:
    source = Looped(Sales(10), 1_000, 20_000_000, 42, rate=2_000)
    assert source.endless
    released = source.read(0, [0, 5_000], None, 10**6, 5_500)
    assert released is not None
    assert released.record.num_rows == 501
    assert source.read(0, released.position, None, 10**6, 5_500) is None


def test_a_gap_is_measured_during_a_change_and_the_usual_one_outside() -> None:
    times = np.array([0, 50, 100, 150, 400, 450, 500], np.int64) * 1_000_000
    change = Change("first", 160_000_000, 200_000_000, 1, 2, 1.0)
    steady, gaps = _gaps({"first": [times], "second": []}, [change], 0)
    assert (steady, gaps) == (50.0, [250.0])


def test_of_several_runs_the_median_counts_but_the_worst_loss() -> None:
    runs = [
        Outcome("x", {}, lost == 0, {"gap_ms": {"p50": gap}, "lost": lost}) for gap, lost in ((1, 0), (9, 2), (2, 0))
    ]
    assert together(runs).figures == {"gap_ms": {"p50": 2}, "lost": 2}
    assert not together(runs).verified


def test_several_runs_beside_peers() -> None:
    """Whether a peer was right is true or false, also of two runs; what only one of the runs has is not lost."""

    def run(verified: bool, gap_ms: dict[str, float], flink: dict[str, Any]) -> Outcome:
        polars = {"rows_per_second": 4, "verified": verified, "how": "lazy"}
        return Outcome("x", {}, True, {"gap_ms": gap_ms, "peers": {"polars": polars, "flink": flink}}, {}, ["a note"])

    one = run(True, {"count": 0}, {"unavailable": "no Java"})
    found = together([one, run(False, {"count": 2, "p50": 3.0}, {"rows_per_second": 8, "verified": True})])
    assert found.figures["gap_ms"] == {"count": 1, "p50": 3.0}
    peers = found.figures["peers"]
    assert peers["polars"] == {"rows_per_second": 4, "verified": False, "how": "lazy"}
    assert peers["flink"] == {"unavailable": "no Java", "rows_per_second": 8, "verified": True}
    assert type(peers["polars"]["verified"]) is type(peers["flink"]["verified"]) is bool
    assert together([one, one]).figures["peers"] == one.figures["peers"]
    assert found.notes == ["a note"]


def test_pauses_are_measured_for_each_size() -> None:
    found = pauses_ms((200,), (10, 1_000))
    assert list(found) == ["full, 200 keys", "10 of 200 keys"]


def test_pictures(tmp_path: Path) -> None:
    series = {"recovery_ms": [1.0, 2.0, float("nan"), 2.5]}
    assert as_text(series)[0] == "recovery_ms"
    draw(tmp_path / "out.png", "recovery", series)
    assert (tmp_path / "out.png").stat().st_size > 0


def test_runs_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(workload: Workload, options: Options, tell: object) -> Outcome:
        peers = {"polars": {"rows_per_second": 9, "verified": True}, "flink": {"unavailable": "no Java"}}
        return Outcome(workload.name, {"keys": options.keys}, True, {"rows_per_second": 7, "peers": peers}, {})

    monkeypatch.setattr("benchmarks.throughput.run", run)
    out, picture = tmp_path / "out.json", tmp_path / "out.png"
    arguments = ["bench", "--peers", "all", "--json", str(out), "--plot", str(picture)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    found = json.loads(out.read_text())
    assert [run["name"] for run in found["runs"]] == list(THROUGHPUT)
    assert picture.stat().st_size > 0
    assert CliRunner().invoke(app, ["bench", "keyed-count", "--sweep", "keys=10,20", *arguments[3:]]).exit_code == 0
    found = json.loads(out.read_text())
    assert (found["name"], [run["settings"]["keys"] for run in found["runs"]]) == ("keyed-count", [10, 20])
    assert found["machine"]["cores"] >= 1


def test_what_was_not_measured_is_null_in_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    figures = {"latency_ratio": float("inf"), "gap_ms": {"p50": float("nan")}}
    monkeypatch.setattr("benchmarks.zombie.run", lambda options, tell: Outcome("zombie", {}, True, figures, {}))
    assert CliRunner().invoke(app, ["bench", "zombie", "--json", str(tmp_path / "out.json")]).exit_code == 0
    found = json.loads((tmp_path / "out.json").read_text(), parse_constant=refuse)
    assert (found["latency_ratio"], found["gap_ms"]) == (None, {"p50": None})


def test_the_command_line_writes_one_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = pytest.importorskip(MODULES["zombie"])

    def run(options: Options, tell: object) -> Outcome:
        return Outcome("zombie", {"seed": options.seed}, options.kills == 1, {"pauses": options.kills}, {})

    monkeypatch.setattr(module, "run", run)
    runner = CliRunner()
    written = runner.invoke(app, ["bench", "zombie", "--kills", "1", "--json", str(tmp_path / "out.json")])
    assert written.exit_code == 0
    found = json.loads((tmp_path / "out.json").read_text())
    assert {"name": "zombie", "verified": True, "pauses": 1}.items() <= found.items()
    assert {"cores", "memory_gb", "versions"} <= found["machine"].keys()
    assert runner.invoke(app, ["bench", "zombie", "--kills", "1", "--csv", str(tmp_path / "out.csv")]).exit_code == 0
    table = (tmp_path / "out.csv").read_text().splitlines()
    assert table == ["name,repetition,seed,verified,pauses", "zombie,1,42,True,1"]
    printed = runner.invoke(app, ["bench", "zombie", "--kills", "2", "--json", "-"])
    assert printed.exit_code == 1
    assert json.loads(printed.stdout)["verified"] is False


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["keyed-count", "--on", "inline"], "--on inline: benchmarks run on: local, spark, ray"),
        (["zombie", "--on", "mars"], "--on mars: benchmarks run on: local, spark, ray"),
        (["recovery", "--part", "upgrade"], "recovery has no part 'upgrade'; those with parts are: kafka, "),
        (["overhead", "--part", "upgrade"], "overhead has no part 'upgrade'; it has: checkpoints, metrics"),
        (["zombie", "--plot", "out.xyz"], "--plot out.xyz: no picture ends in .xyz; give a file such as out.png"),
    ],
)
def test_what_cannot_be_run_or_drawn_is_refused_before_anything_runs(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("benchmarks.catalogue._once", pytest.fail)
    refused = CliRunner().invoke(app, ["bench", *arguments]).exception
    assert isinstance(refused, Misuse)
    assert says in str(refused)
    assert list(tmp_path.iterdir()) == []


def test_wrong_names_and_sizes_are_refused() -> None:
    runner = CliRunner()
    assert "there are: keyed-count" in str(runner.invoke(app, ["bench", "speed"]).exception)
    assert "has no peers" in str(runner.invoke(app, ["bench", "zombie", "--peers", "polars"]).exception)
    assert "250MB" in str(runner.invoke(app, ["bench", "rescale", "--state", "much"]).exception)
    assert "--seed" in runner.invoke(app, ["bench", "keyed-count", "--seed", "-1"]).stderr
