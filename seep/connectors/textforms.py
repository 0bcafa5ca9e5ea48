"""CSV, JSON lines and plain lines: a piece of a file that ends at a row's end, as columns.

A row that cannot be read is handed back as text with the reason and its place in the piece, and harms no other.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.csv

from seep.connectors.contract import Refused
from seep.errors import Misuse
from seep.model.schema import infer_schema, normalise, physical, record_of


class Parsed(NamedTuple):
    record: pa.RecordBatch
    refused: tuple[Refused, ...] = ()


class TextForm(Protocol):
    quoted: bool
    """May a quoted value hold a line end?"""
    schema: pa.Schema

    def start(self, file: str) -> int | None:
        """The byte where the rows begin; None: the header is not complete yet."""

    def parse(self, file: str, data: bytes) -> Parsed: ...


BOM = codecs.BOM_UTF8
_NO_TEXT = {
    b"\x1f\x8b": "compressed (gzip)",
    b"\x28\xb5\x2f\xfd": "compressed (zstd)",
    b"\xfd7zXZ": "compressed (xz)",
    b"PK\x03\x04": "an archive (zip)",
    codecs.BOM_UTF16_LE: "text in UTF-16",
    codecs.BOM_UTF16_BE: "text in UTF-16",
}


def refuse_no_text(file: str) -> None:
    """What would be read as rows of nonsense, or as none."""
    with open(file, "rb") as opened:
        begin = opened.read(8)
    for mark, what in _NO_TEXT.items():
        if begin.startswith(mark):
            raise Misuse(f"FileSource: {file!r} is {what}; make plain text in UTF-8 of it")


def row_ends(data: bytes, quoted: bool) -> Any:
    """The positions after each line end that ends a row."""
    letters = np.frombuffer(data, np.uint8)
    lines = letters == 10
    if quoted:
        lines &= np.cumsum(letters == 34) % 2 == 0
    return np.flatnonzero(lines) + 1


class TextLines:
    """One column, ``line``, without its line end."""

    quoted = False

    def __init__(self) -> None:
        self.schema = pa.schema([("line", pa.string())])

    def start(self, file: str) -> int | None:
        with open(file, "rb") as opened:
            return len(BOM) if opened.read(len(BOM)) == BOM else 0

    def parse(self, file: str, data: bytes) -> Parsed:
        lines = data.decode(errors="replace").removesuffix("\n").split("\n") if data else []
        column = pa.array([line.removesuffix("\r") for line in lines], pa.string())
        return Parsed(pa.RecordBatch.from_arrays([column], schema=self.schema))


class CsvForm:
    """The first row names the columns; those not in the schema are left out."""

    quoted = True

    def __init__(self, declared: pa.Schema) -> None:
        self.schema = physical(declared)
        self._times = [f.name for f in self.schema if pa.types.is_timestamp(f.type)]
        self._required = [f.name for f in declared if not f.nullable]

    @classmethod
    def infer(cls, head: bytes) -> CsvForm:
        try:
            found = pyarrow.csv.read_csv(io.BytesIO(head), parse_options=_PARSE, convert_options=_CONVERT).schema
        except pa.ArrowInvalid as problem:
            raise Misuse(f"its columns cannot be told ({problem}); give schema=") from problem
        _refuse_twice(found.names)
        return cls(pa.schema([f if not pa.types.is_null(f.type) else f.with_type(pa.string()) for f in found]))

    def start(self, file: str) -> int | None:
        return _header(file)[1]

    def parse(self, file: str, data: bytes) -> Parsed:
        if not data:
            return Parsed(pa.RecordBatch.from_pylist([], schema=self.schema))
        names, _ = _header(file)
        _refuse_twice(names, f"FileSource: {file!r}: ")
        refuse_missing(file, self.schema.names, names)
        with contextlib.suppress(pa.ArrowInvalid):
            record = self._columns(names, data)
            if self._missing(record) is None:
                return Parsed(record)
        return self._row_by_row(names, data)

    def _missing(self, record: pa.RecordBatch) -> str | None:
        """A column that lacks a value, and is not declared to."""
        return next((name for name in self._required if record.column(name).null_count), None)

    def _columns(self, names: list[str], data: bytes) -> pa.RecordBatch:
        """Times without a zone are taken for UTC; to Arrow a column with zones is of a type of its own."""
        for zoned in ([], self._times):
            with contextlib.suppress(pa.ArrowInvalid):
                return self._read(names, data, self.schema.names, zoned)
        return self._read(names, data, self.schema.names, [n for n in self._times if self._has_zones(names, data, n)])

    def _has_zones(self, names: list[str], data: bytes, name: str) -> bool:
        try:
            self._read(names, data, [name], [])
        except pa.ArrowInvalid:
            return True
        return False

    def _read(self, names: list[str], data: bytes, wanted: list[str], zoned: list[str]) -> pa.RecordBatch:
        schema = pa.schema([self.schema.field(name) for name in wanted])
        naive = {name: pa.timestamp("us") for name in self._times if name not in zoned}
        table = pyarrow.csv.read_csv(
            io.BytesIO(data),
            read_options=pyarrow.csv.ReadOptions(column_names=names, use_threads=False),
            parse_options=_PARSE,
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={f.name: f.type for f in schema} | naive,
                include_columns=wanted,
                timestamp_parsers=_TIMES,
                null_values=_NULLS,
            ),
        )
        batches = table.combine_chunks().to_batches()
        return normalise(batches[0]) if batches else pa.RecordBatch.from_pylist([], schema=schema)

    def _row_by_row(self, names: list[str], data: bytes) -> Parsed:
        good: list[pa.RecordBatch] = [pa.RecordBatch.from_pylist([], schema=self.schema)]
        bad: list[Refused] = []
        ends = row_ends(data, quoted=True).tolist()
        for low, high in zip([0, *ends], [*ends, len(data)], strict=True):
            row = data[low:high]
            if not (row.strip() if len(names) > 1 else row.strip(b"\r\n")):
                continue  # Arrow passes over empty lines, too; blanks may be the text of a single column
            try:
                record = self._columns(names, row)
                missing = self._missing(record)
                problem = f"column {missing!r} has no value; declare it `T | None`" if missing else ""
            except pa.ArrowInvalid as error:
                problem = str(error)
            if problem:
                bad.append(Refused(row.decode(errors="replace").rstrip("\r\n"), problem, low))
            else:
                good.append(record)
        return Parsed(pa.concat_batches(good), tuple(bad))


def _header(file: str) -> tuple[list[str], int | None]:
    """What the first row says, and where it ends; None: it may go on. A quoted name may hold line ends."""
    read: list[bytes] = []

    def lines() -> Iterator[str]:
        with open(file, "rb") as opened:
            for line in opened:
                read.append(line)
                yield line.decode("utf-8-sig", errors="replace")

    try:
        names = next(csv.reader(lines()), [])
    except csv.Error as problem:
        raise Misuse(f"FileSource: {file!r}: its first row cannot be read ({problem})") from problem
    return names, sum(map(len, read)) if read and read[-1].endswith(b"\n") else None


def refuse_missing(file: str, wanted: list[str], there: list[str]) -> None:
    missing = [name for name in wanted if name not in there]
    if missing:
        raise Misuse(f"FileSource: {file!r} has no column {missing[0]!r}; it has {', '.join(there)}")


def _refuse_twice(names: list[str], where: str = "") -> None:
    """Which of two columns of one name would be read?"""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise Misuse(f"{where}it has several columns {twice[0]!r}; give each a name of its own")


_PARSE = pyarrow.csv.ParseOptions(newlines_in_values=True)
_NULLS = [one for one in pyarrow.csv.ConvertOptions().null_values if one.strip("-").lower() != "nan"]
"""To Arrow "nan" is one of them, too; here it is a number."""
_CONVERT = pyarrow.csv.ConvertOptions(null_values=_NULLS)
_TIMES = [pyarrow.csv.ISO8601, "%Y-%m-%dT%H:%M:%S.%f%z", "%Y-%m-%d %H:%M:%S.%f"]


def refuse_no_json(declared: pa.Schema) -> None:
    """Refuse types that JSON has no form for, and of which several are in use."""
    for field in declared:
        if any(is_kind(field.type) for is_kind in (pa.types.is_duration, pa.types.is_time, pa.types.is_map)):
            raise Misuse(f"field {field.name!r}: JSON has no {field.type}; declare a number or text and convert it")


class JsonForm:
    """One JSON object a line; fields not in the schema are left out."""

    quoted = False

    def __init__(self, declared: pa.Schema) -> None:
        refuse_no_json(declared)
        self._declared = declared
        self.schema = physical(declared)
        self._makers = _makers(self.schema)

    @classmethod
    def infer(cls, head: bytes) -> JsonForm:
        rows = []
        for line in head.splitlines():
            try:
                rows.append(_object(line))
            except (ValueError, TypeError):
                continue  # no row: it will be a dead letter
        return cls(infer_schema(rows))

    def start(self, file: str) -> int | None:
        return 0

    def parse(self, file: str, data: bytes) -> Parsed:
        lines = data.split(b"\n")
        try:
            return Parsed(record_of([self._row(line) for line in lines if line.strip()], self._declared))
        except (ValueError, TypeError, RecursionError, Misuse):
            return self._row_by_row(lines)

    def _row_by_row(self, lines: list[bytes]) -> Parsed:
        rows: list[dict[str, Any]] = []
        bad: list[Refused] = []
        at = 0
        for line in lines:
            place, at = at, at + len(line) + 1
            if not line.strip():
                continue
            try:
                row = self._row(line)
                record_of([row], self._declared)
                rows.append(row)
            except (ValueError, TypeError, RecursionError, Misuse) as problem:
                bad.append(Refused(line.decode(errors="replace"), str(problem), place))
        return Parsed(record_of(rows, self._declared), tuple(bad))

    def _row(self, line: bytes) -> dict[str, Any]:
        found = _object(line)
        return _with_made({name: found.get(name) for name in self.schema.names}, self._makers)


_Make = Callable[[Any], Any]


def value_maker(kind: pa.DataType) -> _Make | None:
    """Of what JSON has, a value of this type; None: it is one already."""
    if pa.types.is_list(kind):
        inner = value_maker(kind.value_type)
        return None if inner is None else lambda found: list(map(inner, found)) if isinstance(found, list) else found
    if pa.types.is_struct(kind):
        parts = _makers(kind)
        return (lambda found: _with_made(found, parts) if isinstance(found, dict) else found) if parts else None
    make = next((make for is_kind, make in _TEXTS if is_kind(kind)), None)
    return None if make is None else lambda found: make(found) if isinstance(found, str) else found


def _makers(fields: Iterable[pa.Field]) -> dict[str, _Make]:
    return {field.name: make for field in fields if (make := value_maker(field.type)) is not None}


def _with_made(found: dict[str, Any], makers: dict[str, _Make]) -> dict[str, Any]:
    return found | {name: make(found.get(name)) for name, make in makers.items()}


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text!r} is no decimal") from None


_TEXTS: tuple[tuple[Callable[[pa.DataType], bool], _Make], ...] = (
    (pa.types.is_timestamp, datetime.fromisoformat),
    (pa.types.is_date, date.fromisoformat),
    (pa.types.is_binary, str.encode),
    (pa.types.is_decimal, _decimal),
)


def _object(line: bytes) -> dict[str, Any]:
    found = json.loads(line)
    if not isinstance(found, dict):
        raise TypeError("not a JSON object")
    return found
