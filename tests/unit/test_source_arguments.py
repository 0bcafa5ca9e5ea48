"""What is given to sources and sinks in Python: what is not meant is refused in one line that says what to give."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

import seep


@pytest.mark.parametrize("rate", [math.nan, math.inf, "5", 0, -1])
def test_a_rate_is_a_number_above_zero(rate: Any) -> None:
    with pytest.raises(seep.Misuse, match=f"rate={rate!r}; give rows a second"):
        seep.GeneratorSource(lambda i: {"n": i}, rate=rate)


@pytest.mark.parametrize("rows", [5.5, "5", -1])
def test_rows_are_counted(rows: Any) -> None:
    with pytest.raises(seep.Misuse, match=f"rows={rows!r}; give a whole number"):
        seep.GeneratorSource(lambda i: {"n": i}, rows=rows)


def test_a_generator_gives_rows_or_record_batches() -> None:
    source = seep.GeneratorSource(lambda i: None if i % 2 else {"i": i}, rows=5)
    with pytest.raises(seep.Misuse, match=r"GeneratorSource: fn\(1\) gives None; give a row"):
        source.read(0, None, None, 5, 0)
    with pytest.raises(seep.Misuse, match=r"fn_batch\(0, 1\) gives a Table; give a pyarrow.RecordBatch"):
        seep.GeneratorSource(fn_batch=lambda first, n: pa.table({"n": range(first, first + n)}))


def test_rows_in_memory() -> None:
    assert seep.MemorySource(pl.DataFrame({"a": [1], "b": ["x"]})).schema.types == [pa.int64(), pa.string()]
    with pytest.raises(seep.Misuse, match=r"of columns, give pyarrow.table\(..\) of it"):
        seep.MemorySource({"a": [1, 2]})
    table = pa.table({"a": [1]})
    assert seep.MemorySource(table, schema={"a": int}).schema.types == [pa.int64()]
    with pytest.raises(seep.Misuse, match="the table has other columns than schema= says; cast it"):
        seep.MemorySource(table, schema={"a": float})


def test_a_class_is_no_source_and_no_sink() -> None:
    flow = seep.Flow("classes")
    with pytest.raises(
        seep.Misuse, match=r"source: MemorySource is a class; give one that is made, MemorySource\(..\)"
    ):
        flow.source("s", seep.MemorySource)
    with pytest.raises(seep.Misuse, match="sink: ConsoleSink is a class"):
        flow.source("s", seep.MemorySource([{"n": 1}])).sink("o", seep.ConsoleSink)


@pytest.mark.parametrize(
    ("values", "hint"),
    [([1], datetime), ([1.5], timedelta), ([datetime(2024, 1, 1)], int), ([date(2024, 1, 1)], int), ([True], date)],
)
def test_numbers_of_a_parquet_file_are_no_times(tmp_path: Path, values: list[Any], hint: Any) -> None:
    pyarrow.parquet.write_table(pa.table({"n": values}), tmp_path / "a.parquet")
    with pytest.raises(seep.Misuse, match=r"a\.parquet': column 'n' is a .*, not a .*; declare it as it is"):
        seep.FileSource(tmp_path / "a.parquet", schema={"n": hint})


def test_times_of_a_parquet_file_in_other_units(tmp_path: Path) -> None:
    at = datetime(2024, 1, 1, tzinfo=UTC)
    pyarrow.parquet.write_table(
        pa.table({"at": pa.array([at], pa.timestamp("ms")), "t": [str(at)]}), tmp_path / "a.parquet"
    )
    found = seep.FileSource(tmp_path / "a.parquet", schema={"at": datetime, "t": datetime}).read(0, None, None, 5, 0)
    assert found is not None
    assert found.record.to_pylist() == [{"at": at, "t": at}]


def test_a_parquet_file_without_a_declared_column_is_refused(tmp_path: Path) -> None:
    for name, column in (("1", "a"), ("2", "b")):
        pyarrow.parquet.write_table(pa.table({column: [1]}), tmp_path / f"{name}.PARQUET")
    with pytest.raises(seep.Misuse, match=r"1\.PARQUET' has no column 'zz'; it has a"):
        seep.FileSource(tmp_path, schema={"zz": int})
    source = seep.FileSource(tmp_path, schema={"a": int})
    rows = source.read(0, None, None, 10, 0)
    assert rows is not None
    assert rows.record.to_pylist() == [{"a": 1}]
    with pytest.raises(seep.Misuse, match=r"2\.PARQUET' has no column 'a'; it has b"):
        source.read(1, None, None, 10, 0)
