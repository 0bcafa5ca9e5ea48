"""What a file sink cannot write is said in one line, where the flow is built, or where it starts."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

import seep
from seep.connectors.contract import Committed, Opening
from seep.model.arrow import BUCKET


@pytest.mark.parametrize("on", ["inline", "local"])
@pytest.mark.parametrize("inside", ["", "deeper/still"])
def test_a_path_that_is_a_file_is_refused_before_anything_runs(tmp_path: Path, on: str, inside: str) -> None:
    (tmp_path / "out").write_text("no directory")
    flow = seep.Flow("refused")
    flow.source("rows", seep.MemorySource([{"n": 1}])).sink("o", seep.FileSink(tmp_path / "out" / inside))
    with pytest.raises(seep.Misuse, match=r"FileSink: .*out' is a file; give another path"):
        seep.run(flow, on=on)


NO_TEXT = pa.StringArray.from_buffers(1, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xff"))
MONTHS = pa.array([(1, 2, 3)], pa.month_day_nano_interval())


@pytest.mark.parametrize(("format", "odd"), [("jsonl", NO_TEXT), ("csv", MONTHS), ("parquet", MONTHS)])
def test_a_value_that_cannot_be_written_names_sink_and_column(tmp_path: Path, format: str, odd: pa.Array) -> None:
    record = pa.RecordBatch.from_arrays([pa.array([1]), odd, pa.array([0], pa.uint16())], names=["n", "odd", BUCKET])
    publish = seep.FileSink(tmp_path, format=format).open(Opening("o"))
    with pytest.raises(seep.Misuse, match=f"FileSink: rows of sink 'o': 'odd' cannot be written as {format}"):
        publish([Committed(1, record, True)])


def test_directories_that_are_made_are_synced_into_their_parents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut takes them out of there, with files of which the log knows nothing any more."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    record = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([0], pa.uint16())], names=["n", BUCKET])
    deep = tmp_path / "a" / "b"
    seep.FileSink(deep, format="jsonl").open(Opening("o"))([Committed(1, record, True)])
    places = [tmp_path, deep.parent, *deep.iterdir(), deep]
    assert synced == [path.stat().st_ino for path in places]


@pytest.mark.parametrize("name", ["x" * 250, "é" * 120, "漢" * 80])
def test_a_long_name_makes_a_name_of_a_file(tmp_path: Path, name: str) -> None:
    """Else publishing is tried again for ever."""
    flow = seep.Flow("long")
    flow.source("rows", seep.MemorySource([{"n": 1}])).sink(name, seep.FileSink(tmp_path, format="jsonl"))
    seep.run(flow)
    assert [path.read_text() for path in tmp_path.iterdir()] == ['{"n": 1}\n']


def test_decimals_of_hundreds_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(seep.Misuse, match="'n' cannot be written as parquet"):
        seep.FileSink(tmp_path).check(pa.schema({"n": pa.decimal128(5, -2)}), None)
