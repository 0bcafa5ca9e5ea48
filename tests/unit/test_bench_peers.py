"""What surrounds the other engines, without them: rows laid out for them, the clock, and who has no program."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks.peers import PEERS, Spec, Unable, adapter, known_peers
from benchmarks.peers.buffers import write
from benchmarks.peers.quix import ROWS_PER_SECOND, _ending
from benchmarks.peers.spark import END_LAP, Laps, Mark, Sink
from benchmarks.servers.kafka import free_ports
from benchmarks.workloads import WORKLOADS

LAP = 100


def spec(workload: str, home: Path, rows: int | None = None) -> Spec:
    settings = dict(WORKLOADS[workload].settings)
    return Spec(workload, LAP, 42, rows or 0, rows is not None, 2.0, 4.0, str(home), settings=settings)


def test_all_peers_have_an_adapter() -> None:
    assert known_peers("all") == PEERS
    for peer in PEERS:
        assert callable(adapter(peer).main)


@pytest.mark.parametrize("peer", ["timely", "timely-fixed", "spark", "bytewax", "pathway", "quix"])
def test_a_workload_without_a_program_is_reported_before_anything_is_fetched(peer: str, tmp_path: Path) -> None:
    with pytest.raises(Unable, match="no program for window-join"):
        adapter(peer).main(spec("window-join", tmp_path))
    assert not list(tmp_path.iterdir())


def test_every_source_of_a_join_is_written(tmp_path: Path) -> None:
    told = spec("interval-join", tmp_path)
    sales, offers = write(told)
    assert (sales.text, sales.number, offers.text, offers.number) == ("store", "amount", "store", "price")
    for source, written in zip(told.load().blocks.values(), (sales, offers), strict=True):
        record = source(1, LAP, 42)
        home = written.data / "1"
        assert np.array_equal(np.fromfile(home / "at.values", np.int64), record.column("at").to_numpy())
        assert np.array_equal(np.fromfile(home / f"{written.number}.values", np.int64), record.column(2).to_numpy())
        offsets = np.fromfile(home / "store.offsets", np.int32)
        text = (home / "store.bytes").read_bytes().decode()
        assert [text[a:b] for a, b in pairwise(offsets)] == record.column("store").to_pylist()


def test_spark_gets_lap_after_lap_then_the_rest_then_one_row_more(tmp_path: Path) -> None:
    told = spec("keyed-window", tmp_path, rows=2 * (2 * LAP + 30))
    laps = Laps.write(told, told.load(), tmp_path)
    given = []
    for _ in range(5):
        laps.lay_out()
        given.append(laps.given)
    assert given == [LAP, 2 * LAP, 2 * LAP + 30, 2 * LAP + 30, 2 * LAP + 30]
    laps.lay_out_last()
    rows = {
        int(path.name.removeprefix("lap=")): [pq.read_metadata(path / f"{split}.parquet").num_rows for split in (0, 1)]
        for path in laps.path.iterdir()
    }
    assert rows == {0: [LAP, LAP], 1: [LAP, LAP], 2: [30, 30], END_LAP: [1, 1]}


def test_spark_is_measured_from_the_first_arrival_after_the_warm_up(tmp_path: Path) -> None:
    told = spec("keyed-count", tmp_path)
    laps = Laps(tmp_path, tmp_path, 2, LAP, None)
    marks = [Mark(0, 0, 0), Mark(5, 6, 100), Mark(6, 7, 200), Mark(8, 9, 300), Mark(13, 14, 400)]
    assert Sink(told, told.load(), laps, marks).measured() == (200, 5, 5, 1)
    bounded = replace(told, bounded=True)
    assert Sink(bounded, told.load(), laps, marks).measured() == (800, 13, 14, 4)


def test_quix_gets_as_many_rows_as_it_takes_in_the_time_asked_for(tmp_path: Path) -> None:
    asked = _ending(spec("keyed-count", tmp_path))
    assert (asked.rows, asked.bounded, asked.warm_seconds) == (6 * ROWS_PER_SECOND["keyed-count"], True, 2.0)
    asked = _ending(spec("keyed-count", tmp_path, rows=50))
    assert (asked.rows, asked.warm_seconds) == (50, 0.0)


def testfree_ports_differ() -> None:
    assert len(set(free_ports(3))) == 3
