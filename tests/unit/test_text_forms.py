"""Text files whose columns are written in more ways than one."""

from __future__ import annotations

import gzip
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import seep
from seep.connectors.contract import Rows, Source
from seep.connectors.jsonrows import JsonDecoder
from seep.connectors.kafka.decoders import decoder_of
from seep.connectors.own import connector_of
from seep.model.schema import schema_of
from seep.testing import check_source


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


def test_a_header_may_hold_line_ends_and_rows_other_letters(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes('\ufeff"n","s\r\nx"\r\n1,a\r\n'.encode() + b"2,\xe9\n3,c")
    found = read(seep.FileSource(tmp_path / "a.csv", schema={"n": int, "s\r\nx": str}))
    assert found.record.to_pylist() == [{"n": 1, "s\r\nx": "a"}, {"n": 3, "s\r\nx": "c"}]
    assert [one.text for one in found.refused] == ["2,\N{REPLACEMENT CHARACTER}"]
    (tmp_path / "b.csv").write_bytes(b'n,\xe9 5" pipe\n1,a\n')
    assert read(seep.FileSource(tmp_path / "b.csv", schema={"n": int})).record.to_pylist() == [{"n": 1}]


def test_blanks_are_the_text_of_a_single_column_whatever_stands_beside_them(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"s\na\n  \n\n\xff\nb\n")
    for limit in (1, 100):
        source, position, found = seep.FileSource(tmp_path / "a.csv", schema={"s": str}), None, list[str]()
        while (rows := source.read(0, position, None, limit, 0)) is not None and not rows.ended:
            found, position = found + rows.record.column("s").to_pylist(), rows.position
        assert found + (rows.record.column("s").to_pylist() if rows else []) == ["a", "  ", "b"]


def test_a_mark_at_the_beginning_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("\ufeffone\r\ntwo\ufeff".encode())
    assert read(seep.FileSource(tmp_path / "a.txt")).record["line"].to_pylist() == ["one", "two\ufeff"]


@pytest.mark.parametrize("format", ["csv", "jsonl", "text"])
@pytest.mark.parametrize(
    ("data", "what"),
    [
        (gzip.compress(b"n\n1\n", mtime=0), "compressed"),
        ("n\n1\n".encode("utf-16"), "UTF-16"),
        (b"PK\x03\x04", "archive"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path: Path, format: str, data: bytes, what: str) -> None:
    """As CSV it would have no rows, as text rows of nonsense."""
    schema = None if format == "text" else {"n": int}
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "b").write_bytes(data)
    source = seep.FileSource(tmp_path, format=format, schema=schema)
    with pytest.raises(seep.Misuse, match=f"b' is .*{what}"):
        source.read(1, None, None, 100, 0)
    (tmp_path / "a").unlink()
    with pytest.raises(seep.Misuse, match=f"b' is .*{what}"):
        seep.FileSource(tmp_path, format=format, schema=schema)


@dataclass
class Inner:
    a: int


@dataclass
class Outer:
    n: int
    inner: Inner | None
    many: list[int]


COLUMNS = pa.table(
    {
        "n": pa.array([1, None, 3, 4], pa.int64()),
        "inner": pa.array([{"a": 1}, {"a": 1}, None, {"a": None}]),
        "many": pa.array([[1], [1], [], [2]], pa.list_(pa.int64())),
    }
)


class Columns(seep.Source):
    schema = Outer

    def read(self, position: Any) -> Any:
        return COLUMNS.to_batches(), None


def test_what_is_declared_is_there_in_columns_too(tmp_path: Path) -> None:
    pq.write_table(COLUMNS, tmp_path / "a.parquet", row_group_size=2)
    for source in (seep.FileSource(tmp_path / "a.parquet", schema=Outer), Columns()):
        found = read(connector_of(source))
        assert found.record["n"].to_pylist() == [1, 3]
        assert [one.reason for one in found.refused] == [
            "column 'n' has no value; declare it `T | None`",
            "column 'inner' has no value in it; declare it `T | None`",
        ]
    check_source(lambda: seep.FileSource(tmp_path / "a.parquet", schema=Outer))
    decoder = decoder_of("me", "arrow", Outer)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, COLUMNS.schema) as writer:
        writer.write_table(COLUMNS.slice(3))
    assert decoder.decode([sink.getvalue().to_pybytes()]).refused == [(0, "something in 'inner' is null")]


def test_a_generator_gives_what_it_declares() -> None:
    source = seep.GeneratorSource(fn_batch=lambda first, n: COLUMNS.to_batches()[0].slice(0, n), rows=2, schema=Outer)
    with pytest.raises(seep.Misuse, match=r"fn_batch\(0, 2\), row 1: column 'n' has no value"):
        source.read(0, None, None, 10, 0)


def test_a_number_that_is_none_is_the_same_when_it_is_read_again() -> None:
    check_source(lambda: seep.MemorySource([{"x": math.nan}, {"x": 1.0}]))
