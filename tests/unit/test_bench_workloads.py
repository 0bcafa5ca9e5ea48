"""Every workload: its oracle against the whole data in Polars and in DuckDB, its flow against its oracle."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import seep
from benchmarks.digest import Digest, digest
from benchmarks.digestsink import DigestSink, digest_of, read_arrivals
from benchmarks.looped import SPLITS
from benchmarks.oracle import digest_table, expected
from benchmarks.outcome import Options
from benchmarks.peers import ask, known_peers
from benchmarks.peers.duckdb import query as by_duckdb
from benchmarks.peers.polars import query as by_polars
from benchmarks.throughput import plan_of, run
from benchmarks.workload import Workload
from benchmarks.workloads import WORKLOADS
from seep.connectors.contract import Committed, Opening

LAP = 2_000
SMALL = [(w.keyed(500) if w.keyed is not None else w).with_lap(LAP) for w in WORKLOADS.values()]
each = pytest.mark.parametrize("workload", SMALL, ids=lambda workload: workload.name)


def ran(workload: Workload, path: Path, split_rows: int, per_read: int = 700) -> Digest:
    sources = {name: workload.looped(name, 42, split_rows) for name in workload.blocks}
    for source in sources.values():
        object.__setattr__(source, "read_rows", per_read)
    sink = DigestSink(path, workload.columns, workload.keys, workload.time)
    seep.run(workload.flow(sources, sink), on="inline")
    return digest_of(read_arrivals(path))


def plain_hash(text: str, number: int) -> int:
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    value ^= number % 2**64
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
    return value ^ value >> 31


@each
@pytest.mark.parametrize("rows", [900, 3 * LAP + 77, 9 * LAP + 1])
def test_laps_put_together_are_the_whole_data(workload: Workload, rows: int) -> None:
    tables = workload.frames(SPLITS * rows, 42)
    wanted = digest_table(by_polars(workload, tables), workload.columns)
    assert wanted.rows > 0
    assert digest_table(by_duckdb(workload, tables), workload.columns) == wanted
    assert expected(workload, {name: [rows] * SPLITS for name in workload.blocks}, 42) == wanted


@each
def test_the_flow_gives_what_the_oracle_says(workload: Workload, tmp_path: Path) -> None:
    rows = 2 * LAP + 300
    given = {name: [rows] * SPLITS for name in workload.blocks}
    assert ran(workload, tmp_path, rows) == expected(workload, given, 42)
    more = {name: [rows + 50, rows] for name in workload.blocks}
    assert ran(workload, tmp_path / "more", rows) != expected(workload, more, 42)


def test_a_digest_sees_every_value_and_no_order() -> None:
    columns = [pa.array(["a", "bc", ""]), pa.array([1, -2, 3])]
    found = digest(columns)
    order = pa.array([2, 0, 1])
    assert digest([column.take(order) for column in columns]) == found
    assert digest([column.slice(1) for column in columns]).plus(digest([c.slice(0, 1) for c in columns])) == found
    assert digest([pa.array(["a", "b", "c"]), columns[1]]) != found
    assert digest([columns[0], pa.array([1, -2, 4])]) != found
    assert found == Digest(3, sum(map(plain_hash, ["a", "bc", ""], [1, -2, 3])) % 2**64)
    with pytest.raises(ValueError, match="nulls"):
        digest([pa.array([None, "a"])])


def test_of_a_table_the_last_row_of_each_key_counts(tmp_path: Path) -> None:
    publish = DigestSink(tmp_path, ("word", "n"), ("word",)).open(Opening("out"))
    for epoch, (word, n) in enumerate([("a", 1), ("b", 1), ("a", 2)] * 40, 1):
        bucket = pa.array([0], pa.uint16())
        publish([Committed(epoch, pa.record_batch([[word], [n], bucket], names=["word", "n", "__bucket"]), False)])
    publish([Committed(200, None, True)])
    assert digest_of(read_arrivals(tmp_path)) == digest([pa.array(["a", "b"]), pa.array([2, 1])])


def test_peers_are_known_by_name() -> None:
    assert known_peers("") == ()
    assert "duckdb" in known_peers("all")
    with pytest.raises(seep.Misuse, match="no peer 'storm'; there are: flink"):
        known_peers("polars,storm")


@pytest.mark.slow
@pytest.mark.timeout(180)
@each
@pytest.mark.parametrize("peer", ["polars", "duckdb"])
def test_a_peer_is_verified(workload: Workload, peer: str, tmp_path: Path) -> None:
    found = ask(peer, workload, plan_of(Options(rows=5 * LAP)), tmp_path)
    assert found.get("verified"), found


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("options", [Options(rows=40_000), Options(seconds=3.0)], ids=["bounded", "endless"])
def test_a_small_run_is_verified(options: Options) -> None:
    outcome = run(WORKLOADS["word-count"], options, lambda what, share: None)
    assert outcome.verified
    assert outcome.figures["rows_per_second"] > 0


FETCHED = [(peer, "keyed-window") for peer in ("timely", "timely-fixed", "spark", "bytewax", "pathway", "quix")]
FETCHED += [("flink", name) for name in WORKLOADS]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("peer", "name"), FETCHED)
def test_a_peer_to_be_fetched_is_right_or_says_why_not(peer: str, name: str, tmp_path: Path) -> None:
    """The first time it is built, which needs its tools and a network."""
    found = ask(peer, WORKLOADS[name].with_lap(LAP), plan_of(Options(rows=5 * LAP)), tmp_path)
    assert found.get("verified", bool(found.get("unavailable"))), found
