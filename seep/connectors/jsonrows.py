"""JSON objects, one a message, read many at a time.

Simple rows are read by a loop of our own (`jsonscan`). The others go to Arrow's parser, which reads them in one go and
stops at the first row it cannot read. So those that look unusual are parsed each alone, when they are few. Should one
of the others be broken all the same, or many be unusual, the parser is asked again for the rows before the one it names
and for those behind it. What a row is alone decides whether it is refused, never those beside it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.json

from seep.connectors.jsonscan import READ, UNUSUAL, Scan, Scanned
from seep.connectors.textforms import refuse_no_json
from seep.model.fitting import whole
from seep.model.schema import physical

_TOGETHER = 512
"""Rows that are tried again together when one of many is broken: it limits what a broken one can cost."""
_FEW = 0.02
"""Of the rows: no more of them are parsed alone."""
_ROW = re.compile(r" in row (\d+)$")

Kept = tuple[pa.RecordBatch, list[int], list[tuple[int, str]]]
"""Rows, for each the number of its message, and (number, reason) of those that are none."""
Parsed = tuple[list[pa.RecordBatch], list[int], list[tuple[int, str]]]
"""The same in pieces."""


class JsonDecoder:
    """Fields that are not in the schema are left out; times are ISO 8601 (no zone: UTC)."""

    def __init__(self, declared: pa.Schema) -> None:
        refuse_no_json(declared)
        self.schema = physical(declared)
        self._scan = Scan.of(self.schema)
        read = [field.with_type(_read_as(field.type)) for field in self.schema]
        self._parse = pyarrow.json.ParseOptions(
            explicit_schema=pa.schema(read), newlines_in_values=False, unexpected_field_behavior="ignore"
        )
        self._required = [field for field in declared if not field.nullable or pa.types.is_nested(field.type)]

    def warm(self) -> None:
        """Load the compiled loops."""
        self._scanned([b"{}"])

    def decode(self, values: Sequence[bytes]) -> Kept:
        scanned = self._scanned(values)
        if scanned is None:
            return self._complete(*self._many(values, None))
        read, left = (np.flatnonzero(chosen) for chosen in (scanned.states == READ, scanned.states != READ))
        if not len(left):
            return self._complete([scanned.record], list(range(len(values))), [])
        numbers = left.tolist()
        unusual = np.flatnonzero(scanned.states[left] == UNUSUAL).tolist()
        few = len(unusual) <= _FEW * len(values)
        records, kept, refused = self._many([values[number] for number in numbers], unusual if few else None)
        places = np.concatenate([read, left[kept]])
        order = np.argsort(places)
        rows = pa.concat_batches([scanned.record.take(pa.array(read)), *records]).take(pa.array(order))
        return self._complete([rows], places[order].tolist(), [(numbers[at], why) for at, why in refused])

    def _scanned(self, values: Sequence[bytes]) -> Scanned | None:
        """What is known of the rows without the parser; None: nothing."""
        return None if self._scan is None else self._scan.read(b"\n".join((*values, b"")), len(values))

    def _many(self, values: Sequence[bytes], apart: Sequence[int] | None) -> Parsed:
        """All of them by the parser; ``apart``: those that it may not like, if they are few."""
        if apart and (found := self._without(values, apart)) is not None:
            return found
        whole = None if apart else self._parsed(values)
        if isinstance(whole, pa.RecordBatch):
            return [whole], list(range(len(values))), []
        return self._in_ranges(values)

    def _without(self, values: Sequence[bytes], apart: Sequence[int]) -> Parsed | None:
        """These few rows each alone, the others together; None: one of the others is broken too."""
        alone = set(apart)
        kept = [number for number in range(len(values)) if number not in alone]
        together = self._parsed([values[number] for number in kept])
        if not isinstance(together, pa.RecordBatch):
            return None
        records, refused = [together], []
        for number in apart:
            found = self._parsed(values[number : number + 1])
            if isinstance(found, pa.RecordBatch):
                records.append(found)
                kept.append(number)
            else:
                refused.append((number, _reason(found)))
        return records, kept, refused

    def _in_ranges(self, values: Sequence[bytes]) -> Parsed:
        records: list[pa.RecordBatch] = []
        kept: list[int] = []
        refused: list[tuple[int, str]] = []
        # Ranges still to be read, the next one last.
        left = [(low, min(low + _TOGETHER, len(values))) for low in range(0, len(values), _TOGETHER)][::-1]
        while left:
            low, high = left.pop()
            found = self._parsed(values[low:high])
            if isinstance(found, pa.RecordBatch):
                records.append(found)
                kept += range(low, high)
            elif high - low == 1:
                refused.append((low, _reason(found)))
            else:
                left += _parts(low, high, found)
        return records, kept, refused

    def _parsed(self, values: Sequence[bytes]) -> pa.RecordBatch | str:
        """All of them as columns, or what the parser says."""
        if not values:
            return pa.RecordBatch.from_pylist([], schema=self.schema)
        data = b"\n".join(values)
        ends = len(values) - 1
        if data[:1] != b"{" or data.count(b"\n{") != ends or data.count(b"\n") != ends:
            for number, value in enumerate(values):
                if value.lstrip()[:1] != b"{":
                    return f"not a JSON object in row {number}"
            # Line ends inside of an object mean nothing to JSON; to the parser each is the end of a row.
            data = b"\n".join(b" ".join(value.split(b"\n")) for value in values)
        return self._read(data, len(values))

    def _read(self, data: bytes, rows: int) -> pa.RecordBatch | str:
        """So many rows, each a line that begins with an object."""
        options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1)
        try:
            table = pyarrow.json.read_json(pa.BufferReader(data), read_options=options, parse_options=self._parse)
            table.validate(full=True)
            table = table.cast(self.schema)
        except pa.ArrowException as problem:
            return str(problem)
        if table.num_rows != rows:
            return "not one JSON object"
        return table.combine_chunks().to_batches()[0]

    def _complete(self, records: list[pa.RecordBatch], kept: list[int], refused: list[tuple[int, str]]) -> Kept:
        empty = pa.RecordBatch.from_pylist([], schema=self.schema)
        record = records[0] if len(records) == 1 else pa.concat_batches([empty, *records])
        for field in self._required:
            there = whole(record.column(field.name), field)
            if there.true_count != len(there):
                flags = there.to_pylist()
                inside = ", or something in it is" if pa.types.is_nested(field.type) else ""
                why = f"{field.name!r} is missing or null{inside}"
                refused += [(n, why) for n, ok in zip(kept, flags, strict=True) if not ok]
                kept = [n for n, ok in zip(kept, flags, strict=True) if ok]
                record = record.filter(there)
        return record, kept, refused


def _read_as(kind: pa.DataType) -> pa.DataType:
    """Arrow takes dates in JSON for numbers: they are read as text."""
    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(pa.field("item", _read_as(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_read_as(field.type)) for field in kind])
    return kind


def _parts(low: int, high: int, said: str) -> list[tuple[int, int]]:
    """What to read apart, the first of it last: around the row that is named, or the halves."""
    named = _ROW.search(said)
    middle = low + int(named[1]) if named else high
    if middle >= high:
        middle = (low + high) // 2
        return [(middle, high), (low, middle)]
    return [part for part in ((middle + 1, high), (middle, middle + 1), (low, middle)) if part[0] < part[1]]


def _reason(said: str) -> str:
    return _ROW.sub("", said.removeprefix("JSON parse error: ")).strip()
