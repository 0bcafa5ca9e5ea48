"""What a sink writes, a source reads again with the same schema: equal to the last bit, null where it was null.
What a form has no word for is refused before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import seep
from seep.connectors.kafka.decoders import decoder_of
from seep.connectors.kafka.encoders import Encoder, Unwritten
from seep.connectors.redis.fields import FieldDecoder
from seep.connectors.redis.sink import _hashes
from seep.model.arrow import BUCKET

NOW = datetime(2024, 2, 29, 12, 0, 0, 1, UTC)
DECIMAL = pa.decimal128(38, 9)
AMOUNT = Decimal("-12345678901234567890123456789.123456789")
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (
        pa.string(),
        ["", "é\u2028", 'q"uo,te', "new\n\nline", " ", "NA", "null", "\x00z", "a\r\nb", "\x85", "=1"],
    ),
    "whole": (pa.int64(), [0, 2**63 - 1, -(2**63), 2**53 + 1, None]),
    "unsigned": (pa.uint64(), [0, 2**64 - 1, None]),
    "float": (pa.float64(), [0.0, -0.0, 0.1, 1e308, 5e-324, 1e22, None]),
    "single": (pa.float32(), [0.1, 3.4e38, 1e-45, None]),
    "truth": (pa.bool_(), [True, False, None]),
    "bytes": (pa.binary(), [b"", b"\x00\xff", None]),
    "time": (pa.timestamp("us", "UTC"), [NOW, datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC), None]),
    "date": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31), None]),
    "of-day": (pa.time64("us"), [time(0), time(23, 59, 59, 999999), None]),
    "span": (pa.duration("us"), [timedelta(0), timedelta(days=-1, microseconds=5), None]),
    "decimal": (DECIMAL, [Decimal(0), Decimal("1e-9"), AMOUNT, None]),
    "decimals": (pa.list_(DECIMAL), [[], [AMOUNT, None], None]),
    "times": (pa.list_(pa.timestamp("us", "UTC")), [[], [NOW, None], None]),
    "lists": (pa.list_(pa.list_(pa.int64())), [[], [[], None, [1, None]], None]),
    "record": (
        pa.struct([("a", DECIMAL), ("t", pa.timestamp("us", "UTC")), ("l", pa.list_(pa.date32()))]),
        [{"a": AMOUNT, "t": NOW, "l": [date(2024, 1, 1)]}, {"a": None, "t": None, "l": None}, None],
    ),
    "records": (pa.list_(pa.struct([("s", pa.string())])), [[{"s": "x"}, None, {"s": None}], [], None]),
}
BINARY, TIMES, NESTED = {"bytes"}, {"of-day", "span"}, {"decimals", "times", "lists", "record", "records"}
REFUSED = {
    "parquet": set[str](),
    "csv": BINARY | NESTED,
    "jsonl": BINARY | TIMES,
    "json": BINARY | TIMES,
    "avro": {"span"},
    "arrow": set[str](),
    "hash": TIMES,
}
LOST = {("avro", "unsigned"): [2**64 - 1]}
"""Values that have no place in a form: they are left out, with a reason."""


def filed(form: str, folder: Path, rows: pa.RecordBatch) -> pa.Table:
    flow = seep.Flow("writing")
    flow.source("rows", seep.MemorySource(pa.Table.from_batches([rows]))).sink("out", seep.FileSink(folder, form))
    seep.run(flow)
    flow = seep.Flow("reading")
    flow.source("rows", seep.FileSource(folder, schema=rows.schema)).collect("out")
    return seep.run(flow)["out"]


def sent(form: str, _folder: Path, rows: pa.RecordBatch) -> pa.RecordBatch:
    decoder, encoder = decoder_of("me", form, rows.schema), Encoder("me", form, (), {}, rows.schema)
    committed = rows.append_column(BUCKET, pa.array([0] * rows.num_rows, pa.uint16()))
    values = [value for _, value, _ in encoder.messages(committed, False) if isinstance(value, bytes)]
    return decoder.decode(list(values)).record


def looked_up(_form: str, _folder: Path, rows: pa.RecordBatch) -> pa.RecordBatch:
    hashes = [{name.encode(): value for name, value in row.items()} for row in _hashes(rows)]
    return FieldDecoder("me", rows.schema).decode(hashes)[0]


WAYS: dict[str, Callable[[str, Path, pa.RecordBatch], Any]] = {
    **dict.fromkeys(("parquet", "csv", "jsonl"), filed),
    **dict.fromkeys(("json", "avro", "arrow"), sent),
    "hash": looked_up,
}


@pytest.mark.parametrize("alone", [False, True], ids=["beside", "alone"])
@pytest.mark.parametrize("form", WAYS)
def test_what_is_written_is_read_again(tmp_path: Path, form: str, alone: bool) -> None:
    for name, (kind, values) in COLUMNS.items():
        column = pa.array(values, kind)
        rows = pa.record_batch({name: column} if alone else {"n": range(len(values)), name: column})
        if name in REFUSED[form]:
            with pytest.raises(seep.Misuse) as refused:
                WAYS[form](form, tmp_path / name, rows)
            assert "\n" not in str(refused.value)
            continue
        found = WAYS[form](form, tmp_path / name, rows)
        kept = [value for value in column.to_pylist() if value not in LOST.get((form, name), ())]
        assert list(map(repr, found.column(name).to_pylist())) == list(map(repr, kept)), f"{name} as {form}"


def test_bytes_inside_of_what_becomes_json_are_refused() -> None:
    sink = seep.RedisSink("x:", url="redis://127.0.0.1:1/0", key="n")
    sink.check(pa.schema({"n": pa.int64(), "b": pa.binary()}), None)
    with pytest.raises(seep.Misuse, match="column 'b': JSON has no bytes"):
        sink.check(pa.schema({"n": pa.int64(), "b": pa.list_(pa.binary())}), None)


def test_a_row_that_has_no_form_is_named() -> None:
    schema = pa.schema({"n": pa.uint64()})
    rows = pa.record_batch({"n": pa.array([2**64 - 1], pa.uint64()), BUCKET: pa.array([0], pa.uint16())})
    [(_, value, _)] = Encoder("me", "avro", (), {}, schema).messages(rows, False)
    assert isinstance(value, Unwritten)
    assert "18446744073709551615" in value.reason
