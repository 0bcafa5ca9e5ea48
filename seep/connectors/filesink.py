"""Committed rows as files. Only whole files are ever visible: each is written aside, synced and renamed.

Rows of a fixed block of epochs go into one file, so that files are not tiny; until the block is complete its rows live
in the sink's committed log. A file is named by the last epoch in it, the lowest origin bucket of that epoch, and the
run: no two partitions share all three, and a partition that publishes a block again finds its file there and leaves it
alone. Another run begins with epoch 1 again: what an earlier one has left in the directory is not its own.
"""

from __future__ import annotations

import copy
import io
import json
import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from seep.connectors.contract import Committed, Opening, Publish
from seep.connectors.rowtext import check_json
from seep.errors import Misuse
from seep.model.arrow import BUCKET

BLOCK_EPOCHS = 20
_EMPTY_LINE = re.compile(rb"^(?=\n)", re.MULTILINE)
PREFIX_BYTES = 150
"""Of a sink's name in those of its files: no file system takes more than 255 for all of it."""
_ENDINGS = {"parquet": ".parquet", "csv": ".csv", "jsonl": ".jsonl"}


class FileSink:
    """Files in a directory, as ``parquet``, ``csv`` or ``jsonl``; of a Table, its changes.

    >>> import seep, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> flow = seep.Flow("words")
    >>> flow.source("words", seep.MemorySource([{"word": "a"}])).sink("kept", seep.FileSink(folder, format="jsonl"))
    >>> result = seep.run(flow)
    >>> [file.read_text() for file in folder.iterdir()]
    ['{"word": "a"}\\n']
    """

    kind = "file"

    def __init__(self, path: str | os.PathLike[str], format: str = "parquet") -> None:
        if format not in _ENDINGS:
            raise Misuse(f"FileSink: format={format!r}; choose one of {', '.join(_ENDINGS)}")
        if not isinstance(path, str | os.PathLike):
            raise Misuse(f"FileSink: {path!r} is no path")
        self.path = Path(path).absolute()  # workers may be elsewhere
        self.format = format
        self._run = ""

    def check(self, schema: pa.Schema, table_keys: tuple[str, ...] | None) -> None:
        """Can rows of these columns be written?"""
        if self.format == "jsonl":
            check_json("FileSink", schema)
        if self.format == "csv":
            _check_csv(schema)
        _encoded(schema.empty_table(), self.format, "these columns")

    def prepared(self) -> FileSink:
        """With a name that no other run has; refuses a path where no directory can be."""
        there = next(path for path in (self.path, *self.path.parents) if path.exists())
        if not there.is_dir():
            raise Misuse(
                f"FileSink: {str(self.path)!r} cannot be a directory, {str(there)!r} is a file; give another path"
            )
        found = copy.copy(self)
        found._run = secrets.token_hex(4)
        return found

    def open(self, opening: Opening) -> Publish:
        return _FilePartition(self.path, opening.name, self.format, self._run).publish


class _FilePartition:
    def __init__(self, path: Path, name: str, format: str, run: str) -> None:
        self._path = path
        self._name = name
        prefix = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)
        self._prefix = prefix.encode()[:PREFIX_BYTES].decode(errors="ignore")
        self._format = format
        self._ending = f"-{run}{_ENDINGS[format]}" if run else _ENDINGS[format]
        self._pending: list[tuple[int, pa.RecordBatch]] = []
        self._done = 0

    def publish(self, commits: Sequence[Committed]) -> int:
        for commit in commits:
            self._add(*commit)
        return self._done

    def _add(self, epoch: int, record: pa.RecordBatch | None, ended: bool) -> None:
        block = epoch // BLOCK_EPOCHS
        if self._pending and self._pending[0][0] // BLOCK_EPOCHS < block:
            self._write()
        # A publish that failed is called again: what it has added already is there.
        known = self._pending[-1][0] if self._pending else self._done
        if record is not None and record.num_rows and epoch > max(known, self._done):
            self._pending.append((epoch, record))
        if ended:
            self._write()
            self._done = max(self._done, epoch)
        elif not self._pending:
            self._done = max(self._done, block * BLOCK_EPOCHS - 1)

    def _write(self) -> None:
        if not self._pending:
            return
        last, rows = self._pending[-1]
        lowest = rows.column(BUCKET)[0].as_py()
        target = self._path / f"{self._prefix}-{last:012d}-{lowest:04d}{self._ending}"
        if not target.exists():
            records = [record for _, record in self._pending]
            table = pa.Table.from_batches(records).drop_columns([BUCKET])
            _write_whole(target, _encoded(table, self._format, f"rows of sink {self._name!r}"))
        self._done = max(self._done, last)
        self._pending = []


def _check_csv(schema: pa.Schema) -> None:
    """Refuse columns that would come back as others, or not at all."""
    for field in schema:
        if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
            raise Misuse(
                f"FileSink: column {field.name!r}: CSV has no {field.type}; choose another format, or make text"
            )


def _encoded(table: pa.Table, format: str, what: str) -> bytes:
    """The bytes of a file, or the first column that has no form there."""
    try:
        return _encode(table, format)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as problem:
        for name in table.column_names if table.num_columns > 1 else ():
            _encoded(table.select([name]), format, what)
        reason = " ".join(str(problem).split())
        raise Misuse(
            f"FileSink: {what}: {', '.join(map(repr, table.column_names))} cannot be written as {format} ({reason}); "
            "change the column, or choose another format"
        ) from problem


def _encode(table: pa.Table, format: str) -> bytes:
    buffer = io.BytesIO()
    if format == "parquet":
        pyarrow.parquet.write_table(table, buffer)
    elif format == "csv":
        lonely = table.num_columns == 1 and table.column(0).null_count > 0
        if lonely and pa.types.is_string(table.column(0).type):
            table, lonely = table.set_column(0, table.field(0), table.column(0).fill_null("")), False
        pyarrow.csv.write_csv(table, buffer)
        if lonely:  # an empty line is no row to whoever reads it
            return _EMPTY_LINE.sub(b'""', buffer.getvalue())
    else:
        buffer.write("".join(json.dumps(row, default=str) + "\n" for row in table.to_pylist()).encode())
    return buffer.getvalue()


def _write_whole(target: Path, data: bytes) -> None:
    _make_directory(target.parent)
    # A hidden name of our own: readers that list the directory pass it by, and two writers never share it.
    aside = target.with_name(f".{target.name}.{os.getpid()}.partial")
    with aside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(target)
    _sync(target.parent)


def _make_directory(path: Path) -> None:
    """One that a power cut takes out of its parent takes along what is in it."""
    if not path.is_dir():
        _make_directory(path.parent)
        path.mkdir(exist_ok=True)
        _sync(path.parent)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
