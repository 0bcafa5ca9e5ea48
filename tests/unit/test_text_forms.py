"""Text files whose columns are written in more ways than one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import seep
from seep.connectors.contract import Rows


def read(source: seep.FileSource) -> Rows:
    rows = source.read(0, None, None, 1_000, 0)
    assert rows is not None
    return rows


@pytest.mark.parametrize("schema", [None, {"zoned": datetime, "naive": datetime, "n": int}])
def test_each_column_of_times_has_zones_or_none(tmp_path: Path, schema: Any) -> None:
    (tmp_path / "a.csv").write_text(
        "n,zoned,naive\n1,2024-01-01T10:00:00Z,2024-01-01 10:00:00\n2,2024-01-01T12:00:00+02:00,2024-01-01T10:00:00\n"
    )
    rows = read(seep.FileSource(tmp_path / "a.csv", schema=schema))
    at = datetime(2024, 1, 1, 10, tzinfo=UTC)
    assert rows.record.select(["n", "zoned", "naive"]).to_pylist() == [
        {"n": n, "zoned": at, "naive": at} for n in (1, 2)
    ]
    assert not rows.refused


def test_a_column_of_times_with_zones_here_and_there(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "a,b\n2024-01-01T10:00:00Z,2024-01-01 10:00:00\n2024-01-01 10:00:00,2024-01-01T10:00:00Z\nno,2024-01-01 10:00\n"
    )
    rows = read(seep.FileSource(tmp_path / "a.csv", schema={"a": datetime, "b": datetime}))
    at = datetime(2024, 1, 1, 10, tzinfo=UTC)
    assert rows.record.to_pylist() == [{"a": at, "b": at}] * 2
    assert [one.text for one in rows.refused] == ["no,2024-01-01 10:00"]


@pytest.mark.parametrize("schema", [None, {"b": int}])
def test_two_columns_of_one_name_are_refused(tmp_path: Path, schema: Any) -> None:
    (tmp_path / "a.csv").write_text("a,b,a\n1,2,3\n")
    with pytest.raises(seep.Misuse, match=r"a\.csv': it has several columns 'a'; give each a name of its own"):
        read(seep.FileSource(tmp_path / "a.csv", schema=schema))
