"""Files as a source: one split for each file, in name order; positions are bytes (text forms) or rows (Parquet).

A text file is read in pieces that end at a row's end, so whatever is appended later never changes what lies between
two positions; the ends of CSV rows are found by counting quotes, since a quoted value may hold a line end. A row that
is longer than any should be is a piece of its own, which is passed over and not read.
"""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from seep.connectors.complete import complete
from seep.connectors.contract import Refused, Rows
from seep.connectors.textforms import (
    CsvForm,
    JsonForm,
    Parsed,
    TextForm,
    TextLines,
    refuse_missing,
    refuse_no_text,
    row_ends,
)
from seep.connectors.trouble import Trouble
from seep.errors import DataLoss, Misuse, Retry
from seep.model.schema import normalise, physical, refuse_counted_times, schema_of

SAMPLE_ROWS = 1_000
EVERYTHING = 2**62
PIECE_BYTES = 4 << 20
ROW_BYTES = 8 << 20
"""A longer row is not read."""
SHOWN_BYTES = 10_000
"""Of a row that is not read."""
_SAMPLE_BYTES = 64 << 10
_FORMATS = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".txt": "text", ".log": "text"}


class FileSource:
    """A file, a directory or a pattern such as ``"logs/*.csv"``; ``follow=True`` goes on as the files grow.

    The files are those found when the flow is built: one that appears later in the directory is not read, not even with
    ``follow=True``; a flow that is built anew finds it. The format comes from the name's ending unless it is given.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "sales.csv")
    >>> _ = path.write_text("store,amount\\nOslo,1.5\\n")
    >>> FileSource(path).schema.names
    ['store', 'amount']
    """

    def __init__(
        self, path: str | os.PathLike[str], format: str | None = None, follow: bool = False, schema: Any = None
    ) -> None:
        if not isinstance(path, str | os.PathLike):
            raise Misuse(f"FileSource: {path!r} is no path")
        self._given = os.path.abspath(os.fspath(path))
        self.files = _find(os.fspath(path))
        self.split_names = _named(os.fspath(path), self.files)
        self.format = format or _FORMATS.get(Path(self.files[0]).suffix.lower(), "")
        self.follow = follow
        self._trouble = Trouble("FileSource")
        if self.format not in ("parquet", "csv", "jsonl", "text"):
            raise Misuse(
                f"FileSource: format={format!r} of {self.files[0]!r}; give format=, one of parquet, csv, jsonl, text"
            )
        if follow and self.format == "parquet":
            raise Misuse("FileSource: a Parquet file is written once, it cannot be followed")
        if follow and schema is None and self.format != "text":
            raise Misuse("FileSource: follow=True needs schema=, since the file may still be empty")
        declared = schema_of(schema) if schema is not None else None
        self._form: TextForm | None = None
        if self.format == "parquet":
            found = self._parquet_schema()
            self._schema = physical(declared or found)
            _refuse_unlike(self.files[0], self._schema, found)
        else:
            self._form = self._text_form(declared)
            self._schema = self._form.schema
        self._declared = declared or self._schema

    def __fingerprint__(self) -> tuple[Any, ...]:
        """A file that has come since makes no other app of it: whoever resumes goes on with those that were there."""
        return self._given, self.format, self.follow, self._schema, self._declared

    def _parquet_schema(self) -> pa.Schema:
        try:
            return pyarrow.parquet.read_schema(self.files[0])
        except (pa.ArrowException, OSError) as problem:
            raise Misuse(f"FileSource: {self.files[0]!r} is no Parquet file ({problem})") from problem

    def _text_form(self, declared: pa.Schema | None) -> TextForm:
        refuse_no_text(self.files[0])
        if self.format == "text":
            return TextLines()
        form = CsvForm if self.format == "csv" else JsonForm
        if declared is not None:
            return form(declared)
        quoted = self.format == "csv"
        head = _piece(self.files[0], 0, SAMPLE_ROWS + 1, quoted, at_end=True).data
        if not head:
            raise Misuse(f"FileSource: {self.files[0]!r} is empty; give schema=")
        try:
            return form.infer(head)
        except Misuse as problem:
            raise Misuse(f"FileSource: {self.files[0]!r}: {problem}") from problem

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def splits(self) -> int:
        return len(self.files)

    @property
    def endless(self) -> bool:
        return self.follow

    def behind(self, split: int, position: Any, now_ms: int) -> int | None:
        """Of a text file an estimate, by the length of the rows that come next."""
        try:
            return self._left(self.files[split], position or 0)
        except OSError:
            return None

    def _left(self, file: str, start: int) -> int:
        if self._form is None:
            with pyarrow.parquet.ParquetFile(file) as opened:
                return int(opened.metadata.num_rows) - start
        with open(file, "rb") as opened:
            opened.seek(start)
            sample = opened.read(_SAMPLE_BYTES)
        rows = len(row_ends(sample, self._form.quoted))
        left = os.path.getsize(file) - start
        return rows if left <= len(sample) else round(left * max(1, rows) / len(sample))

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Rows | None:
        try:
            if self._form is None:
                return self._read_parquet(split, position or 0, until, limit_rows)
            return self._read_text(self._form, split, position, until, limit_rows)
        except OSError as problem:
            told = f"FileSource: {self.files[split]!r} cannot be read: {problem.strerror or problem}"
            if isinstance(problem, IsADirectoryError | NotADirectoryError | PermissionError):
                raise Misuse(told) from problem
            if problem.errno is None:  # Arrow's word for what is no Parquet inside
                raise DataLoss(" ".join(told.split())) from problem
            if until is not None:
                raise Retry(told) from problem
            self._trouble.hears(told.removeprefix("FileSource: "))
            return None

    def _read_text(self, form: TextForm, split: int, position: Any, until: Any, limit_rows: int) -> Rows | None:
        file = self.files[split]
        if not os.path.exists(file):
            if self.follow:
                return None
            raise Misuse(f"FileSource: {file!r} is gone")
        if position is None:
            refuse_no_text(file)
        start = position if position is not None else form.start(file)
        if start is None:
            # No complete header: nothing yet, or (not followed) a file without rows.
            if self.follow:
                return None
            start = os.path.getsize(file)
        if position is not None and (why := _another(file, start)):
            raise DataLoss(f"FileSource: {file!r} was read up to byte {start}, and {why}; was it written anew?")
        limit_rows = limit_rows if until is None else EVERYTHING
        pieces = [_piece(file, start, limit_rows, form.quoted, not self.follow, until)]
        while until is not None and pieces[-1].data != b"" and pieces[-1].end < until:
            pieces.append(_piece(file, pieces[-1].end, limit_rows, form.quoted, not self.follow, until))
        end = pieces[-1].end
        ended = not self.follow and end >= os.path.getsize(file)
        if end == start and not ended:
            return None
        parsed = [_parsed(form, file, piece) for piece in pieces]
        record = parsed[0].record if len(parsed) == 1 else pa.concat_batches([one.record for one in parsed])
        return Rows(record, end, ended, tuple(bad for one in parsed for bad in one.refused))

    def _read_parquet(self, split: int, start: int, until: Any, limit_rows: int) -> Rows:
        try:
            return self._row_groups(split, start, until, limit_rows)
        except pa.ArrowInvalid as problem:
            raise DataLoss(f"FileSource: {self.files[split]!r} cannot be read: {problem}") from problem

    def _row_groups(self, split: int, start: int, until: Any, limit_rows: int) -> Rows:
        with pyarrow.parquet.ParquetFile(self.files[split]) as file:
            _refuse_unlike(self.files[split], self._schema, file.schema_arrow)
            total = file.metadata.num_rows
            end = min(total, start + limit_rows) if until is None else until
            parts, first = [], 0
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                low, high = max(start, first), min(end, first + rows)
                if low < high:
                    table = file.read_row_group(group, columns=self._schema.names)
                    parts.append(table.slice(low - first, high - low))
                first += rows
        if not parts:
            return Rows(pa.RecordBatch.from_pylist([], schema=self._schema), end, end >= total)
        record = normalise(pa.concat_tables(parts).combine_chunks().to_batches()[0]).cast(self._schema)
        record, refused = complete(record, self._declared)
        return Rows(record, end, end >= total, tuple(one._replace(position=start + one.position) for one in refused))


def _refuse_unlike(file: str, wanted: pa.Schema, there: pa.Schema) -> None:
    """Of a Parquet file, before anything is read."""
    refuse_missing(file, wanted.names, there.names)
    try:
        refuse_counted_times(there, wanted)
    except Misuse as problem:
        raise Misuse(f"FileSource: {file!r}: {problem}") from problem


def _find(path: str) -> list[str]:
    if os.path.isdir(path):
        found = [os.path.join(path, name) for name in os.listdir(path) if not name.startswith((".", "_"))]
        found = [name for name in found if os.path.isfile(name)]
    elif glob.has_magic(path):
        found = glob.glob(path)
    else:
        found = [path] if os.path.exists(path) else []
    if not found:
        raise Misuse(f"FileSource: there is no file {path!r}")
    return sorted(os.path.abspath(name) for name in found)


def _named(path: str, files: list[str]) -> list[str]:
    """As seen from what does not depend on which files there are: they may have moved together."""
    fixed = path if os.path.isdir(path) else os.path.dirname(re.split(r"[*?[]", path, maxsplit=1)[0])
    return [os.path.relpath(file, fixed or os.curdir) for file in files]


def _another(file: str, start: int) -> str:
    """Why this cannot be the file of which so many bytes were read; empty: it may be."""
    size = os.path.getsize(file)
    if start > size:
        return "ends before"
    if 0 < start < size:
        with open(file, "rb") as opened:
            opened.seek(start - 1)
            if opened.read(1) != b"\n":
                return "no row ends there"
    return ""


class Piece(NamedTuple):
    start: int
    end: int
    data: bytes | None
    """Whole rows; None: one row, too long to be read."""


def _piece(file: str, start: int, limit_rows: int, quoted: bool, at_end: bool, until: int | None = None) -> Piece:
    """At most so many whole rows from byte `start` on. ``at_end``: a last row needs no line end. ``until``: none ends
    behind it, and one ends there."""
    most = ROW_BYTES if until is None else min(ROW_BYTES, until - start)
    wanted = min(PIECE_BYTES, most)
    with open(file, "rb") as opened:
        opened.seek(start)
        data = opened.read(wanted)
        ends = row_ends(data, quoted)
        if len(ends) == 0 and len(data) == wanted < most:
            data, wanted = data + opened.read(most - wanted), most
            ends = row_ends(data, quoted)
        over = len(data) < wanted or start + len(data) == until
        if at_end and over and 0 < len(data) < ROW_BYTES and (len(ends) == 0 or ends[-1] < len(data)):
            ends = np.append(ends, len(data))
        if len(ends):
            size = int(ends[min(limit_rows, len(ends)) - 1])
            return Piece(start, start + size, data[:size])
        end = start if len(data) < ROW_BYTES else _end_of_row(opened, start, data, quoted, at_end)
    return Piece(start, end, b"" if end == start else None)


def _end_of_row(opened: BinaryIO, start: int, data: bytes, quoted: bool, at_end: bool) -> int:
    """Of a row that begins with these bytes; where it begins, if it has no end yet."""
    at, quotes = start, 0
    while data:
        letters = np.frombuffer(data, np.uint8)
        lines = letters == 10
        if quoted:
            counted = np.cumsum(letters == 34) + quotes
            lines &= counted % 2 == 0
            quotes = int(counted[-1])
        found = np.flatnonzero(lines)
        if len(found):
            return at + int(found[0]) + 1
        at += len(data)
        data = opened.read(ROW_BYTES)
    return at if at_end else start


def _parsed(form: TextForm, file: str, piece: Piece) -> Parsed:
    """With places that count from the beginning of the file."""
    if piece.data is not None:
        found = form.parse(file, piece.data)
        return found._replace(refused=tuple(bad._replace(position=piece.start + bad.position) for bad in found.refused))
    with open(file, "rb") as opened:
        opened.seek(piece.start)
        text = opened.read(SHOWN_BYTES).decode(errors="replace")
    reason = f"a row of {piece.end - piece.start} bytes, more than {ROW_BYTES}"
    return Parsed(pa.RecordBatch.from_pylist([], schema=form.schema), (Refused(text, reason, piece.start),))
