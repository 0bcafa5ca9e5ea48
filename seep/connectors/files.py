"""Files as a source: one split for each file, in name order; positions are bytes (text forms) or rows (Parquet).

A text file is read in pieces that end at a row's end, so whatever is appended later never changes what lies between
two positions; the ends of CSV rows are found by counting quotes, since a quoted value may hold a line end.
"""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from seep.connectors.contract import Rows
from seep.connectors.textforms import CsvForm, JsonForm, TextForm, TextLines, row_ends
from seep.errors import Misuse
from seep.model.schema import normalise, physical, schema_of

SAMPLE_ROWS = 1_000
_PIECE_BYTES = 4 << 20
_SAMPLE_BYTES = 64 << 10
_FORMATS = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".txt": "text", ".log": "text"}


class FileSource:
    """A file, a directory or a pattern such as ``"logs/*.csv"``; ``follow=True`` goes on as the files grow.

    The files are those found when the flow is built. The format comes from the name's ending unless it is given.
    """

    def __init__(
        self, path: str | os.PathLike[str], format: str | None = None, follow: bool = False, schema: Any = None
    ) -> None:
        self.files = _find(os.fspath(path))
        self.format = format or _FORMATS.get(Path(self.files[0]).suffix, "")
        self.follow = follow
        if self.format not in ("parquet", "csv", "jsonl", "text"):
            raise Misuse(f"FileSource: format of {self.files[0]!r}?; give format=, one of parquet, csv, jsonl, text")
        if follow and self.format == "parquet":
            raise Misuse("FileSource: a Parquet file is written once, it cannot be followed")
        if follow and schema is None and self.format != "text":
            raise Misuse("FileSource: follow=True needs schema=, since the file may still be empty")
        declared = schema_of(schema) if schema is not None else None
        self._form: TextForm | None = None
        if self.format == "parquet":
            self._schema = physical(declared or pyarrow.parquet.read_schema(self.files[0]))
        else:
            self._form = self._text_form(declared)
            self._schema = self._form.schema

    def _text_form(self, declared: pa.Schema | None) -> TextForm:
        if self.format == "text":
            return TextLines()
        form = CsvForm if self.format == "csv" else JsonForm
        if declared is not None:
            return form(declared)
        quoted = self.format == "csv"
        head = _whole_rows(self.files[0], 0, SAMPLE_ROWS + 1, quoted, at_end=True)
        if not head:
            raise Misuse(f"FileSource: {self.files[0]!r} is empty; give schema=")
        return form.infer(head)

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
        file, start = self.files[split], position or 0
        if not os.path.exists(file):
            return None
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
        if self._form is None:
            return self._read_parquet(split, position or 0, until, limit_rows)
        return self._read_text(self._form, split, position, until, limit_rows)

    def _read_text(self, form: TextForm, split: int, position: Any, until: Any, limit_rows: int) -> Rows | None:
        file = self.files[split]
        if not os.path.exists(file):
            if self.follow:
                return None
            raise Misuse(f"FileSource: {file!r} is gone")
        start = position if position is not None else form.start(file)
        if start is None:
            # No complete header: nothing yet, or (not followed) a file without rows.
            if self.follow:
                return None
            start = os.path.getsize(file)
        if until is not None:
            with open(file, "rb") as opened:
                opened.seek(start)
                data = opened.read(until - start)
        else:
            data = _whole_rows(file, start, limit_rows, form.quoted, at_end=not self.follow)
        end = start + len(data)
        ended = not self.follow and end >= os.path.getsize(file)
        if not data and not ended:
            return None
        parsed = form.parse(file, data)
        return Rows(parsed.record, end, ended, parsed.refused)

    def _read_parquet(self, split: int, start: int, until: Any, limit_rows: int) -> Rows:
        with pyarrow.parquet.ParquetFile(self.files[split]) as file:
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
        record = pa.concat_tables(parts).combine_chunks().to_batches()[0]
        return Rows(normalise(record).cast(self._schema), end, end >= total)


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


def _whole_rows(file: str, start: int, limit_rows: int, quoted: bool, at_end: bool) -> bytes:
    """At most so many whole rows from byte `start` on. ``at_end``: a last row needs no line end."""
    size_bytes = _PIECE_BYTES
    while True:
        with open(file, "rb") as opened:
            opened.seek(start)
            data = opened.read(size_bytes)
        complete = len(data) < size_bytes
        ends = row_ends(data, quoted)
        if complete and at_end and data and (len(ends) == 0 or ends[-1] < len(data)):
            ends = np.append(ends, len(data))
        if len(ends) or complete:
            count = min(limit_rows, len(ends))
            return data[: int(ends[count - 1])] if count else b""
        size_bytes *= 4  # one row longer than the piece
