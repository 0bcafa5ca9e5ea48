"""Text files whose columns are written in more ways than one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import seep
from seep.connectors.contract import Rows, Source
from seep.connectors.jsonrows import JsonDecoder
from seep.model.schema import schema_of


def read(source: Source) -> Rows:
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


@pytest.mark.parametrize("schema", [None, {"x": float | None, "n": int | None}])
def test_a_nan_in_a_csv_is_no_null(tmp_path: Path, schema: Any) -> None:
    (tmp_path / "a.csv").write_text("x,n\nnan,1\nNaN,\n,2\n-nan,NULL\n1.5,N/A\n")
    rows = read(seep.FileSource(tmp_path / "a.csv", schema=schema))
    assert [str(x) for x in rows.record.column("x").to_pylist()] == ["nan", "nan", "None", "nan", "1.5"]
    assert rows.record.column("n").to_pylist() == [1, None, 2, None, None]
    assert not rows.refused


def test_what_is_declared_is_there_in_a_csv_too(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,n,x\n,1,\nb,,2.5\nc,3,nan\n")
    rows = read(seep.FileSource(tmp_path / "a.csv", schema={"text": str, "n": int, "x": float | None}))
    assert rows.record.select(["text", "n"]).to_pylist() == [{"text": "", "n": 1}, {"text": "c", "n": 3}]
    assert [(one.text, one.reason) for one in rows.refused] == [
        ("b,,2.5", "column 'n' has no value; declare it `T | None`")
    ]
    assert read(seep.FileSource(tmp_path / "a.csv")).record.column("n").to_pylist() == [1, None, 3]


@dataclass
class Part:
    price: Decimal | None
    days: list[date]


@dataclass
class Bill:
    price: Decimal
    at: datetime
    parts: list[Part]
    first: Part | None


def test_what_a_sink_writes_as_json_is_read_again(tmp_path: Path) -> None:
    part = Part(Decimal("-0.25"), [date(2024, 1, 2)])
    bills = [
        Bill(Decimal("1.5"), datetime(2024, 1, 1, 10), [part, Part(None, [])], None),
        Bill(Decimal(2), datetime(2024, 1, 1), [], part),
    ]
    flow = seep.Flow("written")
    flow.source("bills", seep.MemorySource(bills)).sink("o", seep.FileSink(tmp_path / "out", format="jsonl"))
    seep.run(flow, on="inline")
    rows = [
        row
        for path in (tmp_path / "out").iterdir()
        for row in read(seep.FileSource(path, schema=Bill)).record.to_pylist()
    ]
    assert rows == read(seep.MemorySource(bills)).record.to_pylist()


def test_a_decimal_is_text_or_a_whole_number(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"d": "1.500000000"}\n{"d": 2}\n{"d": "two"}\n{"d": "NaN"}\n{"d": "1e-12"}\n')
    rows = read(seep.FileSource(tmp_path / "a.jsonl", schema={"d": Decimal}))
    assert rows.record.column("d").to_pylist() == [Decimal("1.5"), Decimal(2)]
    assert [one.position for one in rows.refused] == [30, 43, 56]
    messages = [b'{"d": "1.500000000"}', b'{"d": 2}', b'{"d": 2.25}', b'{"d": "two"}']
    record, kept, refused = JsonDecoder(schema_of({"d": Decimal})).decode(messages)
    assert record.column("d").to_pylist() == [Decimal("1.5"), Decimal(2), Decimal("2.25")]
    assert (kept, [number for number, _ in refused]) == ([0, 1, 2], [3])
