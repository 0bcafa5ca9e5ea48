"""Messages as rows: what is broken is refused alone, whatever stands beside it; what seep writes it reads."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.ipc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seep
from seep.connectors.kafka.avro import avro_schema
from seep.connectors.kafka.decoders import MESSAGE_BYTES, Decoder, decoder_of
from seep.model.schema import schema_of


@dataclass
class Sale:
    store: str
    amount: float
    items: int | None = None
    at: datetime | None = None
    day: date | None = None


GOOD: list[tuple[bytes, dict[str, Any]]] = [
    (b'{"store":"a","amount":1.5}', {"store": "a", "amount": 1.5, "items": None, "at": None, "day": None}),
    (b'{"amount":2,"store":"\xc3\xa9\\n","items":3,"other":[1]}', {"store": "é\n", "amount": 2.0, "items": 3}),
    (b'{"store":"b","amount":0,"at":"2024-05-06T07:08:09.5Z"}', {"at": datetime(2024, 5, 6, 7, 8, 9, 500000, UTC)}),
    (b'{"store":"b","amount":0,"at":"2024-05-06T07:08:09"}', {"at": datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)}),
    (b'{"store":"b","amount":0,"day":"2024-05-06"}', {"day": date(2024, 5, 6)}),
    (b' {\n "store": "c",\n "amount": 1e3 }\n', {"store": "c", "amount": 1000.0}),
]
BROKEN: list[tuple[bytes | None, str]] = [
    (None, "tombstone"),
    (b"", "not a JSON object"),
    (b"null", "not a JSON object"),
    (b"[1]", "not a JSON object"),
    (b'{"store":"a","amount":1.5', "comma"),
    (b'{"store":"a"}', "'amount' is missing"),
    (b'{"store":null,"amount":1}', "'store' is missing"),
    (b'{"store":5,"amount":1}', "changed from string to number"),
    (b'{"store":"a","amount":"1"}', "changed from number to string"),
    (b'{"store":"a","amount":1,"items":1.5}', "int64"),
    (b'{"store":"a","amount":1,"items":99999999999999999999}', "int64"),
    (b'{"store":"a","amount":1}{"store":"b","amount":2}', "not one JSON object"),
    (b'{"store":"a","amount":1}x', "Invalid value"),
    (b'{"store":"a","amount":1}}', "empty"),
    (b'{"store":"\xff","amount":1}', "UTF8"),
    (b'{"store":"a","amount":1,"at":"yesterday"}', "timestamp"),
    (b'{"store":"a","amount":1,"day":"2024-13-01"}', "date32"),
    (b'{"store":"a","amount":1,"at":5}', "changed from string to number"),
]


@pytest.fixture(scope="module")
def sales() -> Decoder:
    return decoder_of("test", "json", Sale)


@pytest.mark.parametrize(("value", "expected"), GOOD)
def test_json_that_is_read(sales: Decoder, value: bytes, expected: dict[str, Any]) -> None:
    decoded = sales.decode([value])
    assert decoded.refused == []
    (row,) = decoded.record.to_pylist()
    assert {name: row[name] for name in expected} == expected


@pytest.mark.parametrize(("value", "why"), BROKEN)
def test_json_that_is_refused_alone(sales: Decoder, value: bytes | None, why: str) -> None:
    around = GOOD[0][0]
    decoded = sales.decode([around, value, around])
    assert decoded.messages == [0, 2]
    ((number, reason),) = decoded.refused
    assert number == 1
    assert why in reason
    assert "\n" not in reason


@dataclass
class Stay:
    nights: list[date]
    place: Sale | None


def test_what_is_inside_a_field_is_judged_too() -> None:
    whole = b'{"nights":["2024-05-06"],"place":{"store":"a","amount":1}}'
    wrong = [
        b'{"nights":[null]}',
        b'{"nights":[19000]}',
        b'{"nights":["2024-05-06",null],"place":null}',
        b'{"nights":[],"place":{"store":"a"}}',
        b'{"nights":[],"place":{"store":null,"amount":1}}',
    ]
    decoded = decoder_of("test", "json", Stay).decode([whole, *wrong, b'{"nights":[]}'])
    assert decoded.messages == [0, 6]
    assert [row["nights"] for row in decoded.record.to_pylist()] == [[date(2024, 5, 6)], []]
    assert "'place' is missing or null, or something in it is" in decoded.refused[4][1]


@given(st.lists(st.sampled_from([*GOOD * 4, *BROKEN]), max_size=1_200))
def test_a_row_is_judged_alone_however_many_stand_beside_it(sales: Decoder, drawn: list[tuple[Any, Any]]) -> None:
    together = sales.decode([value for value, _ in drawn])
    assert together.messages == [n for n, (_, expected) in enumerate(drawn) if isinstance(expected, dict)]
    assert [n for n, _ in together.refused] == [n for n, (_, expected) in enumerate(drawn) if isinstance(expected, str)]
    rows = together.record.to_pylist()
    for row, number in zip(rows, together.messages, strict=True):
        assert {name: row[name] for name in drawn[number][1]} == drawn[number][1]


def test_messages_that_are_too_large_are_not_looked_into(sales: Decoder) -> None:
    large = b'{"store":"' + b"x" * MESSAGE_BYTES + b'","amount":1}'
    for decoder in (sales, decoder_of("test", "raw", None), decoder_of("test", json.loads, Sale)):
        decoded = decoder.decode([GOOD[0][0], large])
        assert decoded.messages == [0]
        assert [number for number, _ in decoded.refused] == [1]
        assert f"more than {MESSAGE_BYTES}" in decoded.refused[0][1]


def test_raw_keeps_bytes_and_tombstones() -> None:
    decoded = decoder_of("test", "raw", None).decode([b"\xff", None, b""])
    assert decoded.record.to_pylist() == [{"value": b"\xff"}, {"value": None}, {"value": b""}]
    assert decoded.messages == [0, 1, 2]


def test_a_function_of_the_users() -> None:
    def pair(value: bytes) -> dict[str, Any]:
        name, amount = value.split(b"=")
        return {"store": name.decode(), "amount": float(amount) if amount != b"?" else "?"}

    decoded = decoder_of("test", pair, {"store": str, "amount": float}).decode([b"a=1", b"none", b"c=?", None, b"d=2"])
    assert decoded.record.to_pylist() == [{"store": "a", "amount": 1.0}, {"store": "d", "amount": 2.0}]
    assert [number for number, _ in decoded.refused] == [1, 2, 3]
    assert decoded.refused[0][1].startswith("ValueError")


def test_arrow_messages_hold_many_rows() -> None:
    def stream(columns: dict[str, Any]) -> bytes:
        table = pa.table(columns)
        target = pa.BufferOutputStream()
        with pa.ipc.new_stream(target, table.schema) as writer:
            writer.write_table(table)
        return bytes(target.getvalue().to_pybytes())

    decoder = decoder_of("test", "arrow", {"store": str, "n": int})
    good, other = stream({"n": [1, 2], "store": ["a", "b"], "more": [0, 0]}), stream({"n": [3], "store": ["c"]})
    bad = [b"nothing", good[:-30], stream({"n": [1]}), stream({"n": ["x"], "store": ["a"]})]
    bad.append(stream({"n": [None], "store": ["a"]}))
    decoded = decoder.decode([good, *bad, other])
    assert decoded.record.to_pylist() == [{"store": s, "n": n} for s, n in (("a", 1), ("b", 2), ("c", 3))]
    assert decoded.messages == [0, 0, 6]
    assert [number for number, _ in decoded.refused] == [1, 2, 3, 4, 5]


def test_avro_by_the_declared_columns() -> None:
    declared = {"store": str, "n": int | None, "at": datetime, "price": Decimal, "tags": list[str]}
    row = {
        "store": "a",
        "n": None,
        "at": datetime(2024, 1, 2, 3, 4, 5, 6, UTC),
        "price": Decimal("1.500000000"),
        "tags": ["x"],
    }
    target = io.BytesIO()
    fastavro.schemaless_writer(target, avro_schema("test", schema_of(declared)), row)
    decoded = decoder_of("test", "avro", declared).decode([target.getvalue(), b"\x01", target.getvalue() + b"!"])
    assert decoded.record.to_pylist() == [row]
    assert [number for number, _ in decoded.refused] == [1, 2]
    assert "left over" in decoded.refused[1][1]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"format": "xml", "schema": Sale}, "format='xml'"),
    ({"format": "json"}, "give schema="),
    ({"format": "raw", "schema": Sale}, "leave schema= out"),
    ({"schema": Sale, "start": "yesterday"}, "start='yesterday'"),
    ({"schema": Sale, "start": {0: -5}}, "start="),
    ({"schema": Sale, "load": "all"}, "load='all'"),
    ({"schema": Sale, "servers": ""}, "servers=''"),
    ({"schema": {"_key": str}, "metadata": True}, "_key"),
    ({"schema": Sale, "config": {"plugin.library.paths": "x.so"}}, "load or run code"),
    ({"schema": Sale, "config": {"ssl.engine.location": "x.so"}}, "load or run code"),
    ({"schema": Sale, "config": {"sasl.kerberos.kinit.cmd": "rm"}}, "load or run code"),
    ({"schema": Sale, "config": {"oauth_cb": print}}, "load or run code"),
    ({"schema": Sale, "config": {"isolation.level": "read_uncommitted"}}, "seep's own"),
    ({"schema": Sale, "config": {"client.id": ["x"]}}, "'client.id' is a list"),
]


@pytest.mark.parametrize(("options", "why"), REFUSED)
def test_what_cannot_be_read_is_refused_in_one_line(options: dict[str, Any], why: str) -> None:
    with pytest.raises(seep.Misuse, match="KafkaSource 'sales'") as refused:
        seep.KafkaSource("sales", **{"servers": "127.0.0.1:1", **options})
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


# --- Arrow streams from anybody -------------------------------------------------------------------------------------

ANY = pa.schema(
    [
        pa.field("a", pa.int64(), nullable=False),
        ("s", pa.string()),
        ("t", pa.timestamp("us", "UTC")),
        ("l", pa.list_(pa.string())),
        ("d", pa.decimal128(38, 9)),
        ("b", pa.bool_()),
    ]
)
VALUES_OF_ANY: dict[str, Any] = {
    "a": 1,
    "s": "text that is longer than a view",
    "t": datetime(2024, 1, 1, tzinfo=UTC),
    "l": ["a", "bb"],
    "d": Decimal("1.5"),
    "b": True,
}


def streamed(record: pa.RecordBatch, compression: str | None = None) -> bytes:
    target = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(target, record.schema, options=options) as writer:
        writer.write_batch(record)
    return bytes(target.getvalue().to_pybytes())


def of_any(**kinds: pa.DataType) -> pa.RecordBatch:
    """Two rows, some columns of other types."""
    columns = {}
    for field in ANY:
        plain = pa.array([VALUES_OF_ANY[field.name]] * 2, field.type)
        kind = kinds.get(field.name, field.type)
        columns[field.name] = plain.dictionary_encode() if pa.types.is_dictionary(kind) else plain.cast(kind)
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize(
    "kinds",
    [
        {"s": pa.string_view(), "a": pa.uint16()},
        {"s": pa.dictionary(pa.int32(), pa.string()), "t": pa.timestamp("ns", "UTC")},
        {"s": pa.large_string(), "l": pa.large_list(pa.large_string()), "d": pa.decimal128(5, 2)},
    ],
)
@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_arrow_columns_of_other_types_are_read_if_they_mean_the_same(kinds: Any, compression: Any) -> None:
    found = decoder_of("it", "arrow", ANY).decode([streamed(of_any(**kinds), compression)])
    assert (found.refused, found.record.to_pylist()) == ([], [VALUES_OF_ANY] * 2)


@pytest.mark.parametrize(
    ("kinds", "why"),
    [
        ({"a": pa.string()}, "'a' is a string, not a int64"),
        ({"s": pa.int64()}, "'s' is a int64, not a string"),
        ({"l": pa.string()}, "'l' is a string, not a list<item: string>"),
        ({"d": pa.float64()}, "'d' is a double, not a decimal128(38, 9)"),
    ],
)
def test_arrow_columns_of_other_meaning_are_refused(kinds: Any, why: str) -> None:
    record = pa.RecordBatch.from_pydict({f.name: pa.nulls(1, kinds.get(f.name, f.type)) for f in ANY})
    assert decoder_of("it", "arrow", ANY).decode([streamed(record)]).refused == [(0, why)]


def test_an_arrow_decimal_with_a_scale_that_there_is_not_is_refused() -> None:
    """Arrow reads and validates it, and dies in the cast."""
    at_nine = streamed(of_any())
    broken = [at_nine.replace(struct.pack("<ii", 38, 9), struct.pack("<ii", 38, scale)) for scale in (9830409, -1, 77)]
    swapped = [at_nine.replace(struct.pack("<ii", 9, 38), struct.pack("<ii", scale, 38)) for scale in (9830409, -1, 77)]
    messages = [message for message in [*broken, *swapped] if message != at_nine]
    assert len(messages) >= 3
    found = decoder_of("it", "arrow", ANY).decode(messages)
    assert [number for number, _ in found.refused] == list(range(len(messages)))


def test_an_arrow_column_whose_name_is_no_text_is_refused() -> None:
    message = streamed(of_any()).replace(b"d\0\0\0", b"\xff\0\0\0")
    found = decoder_of("it", "arrow", ANY).decode([message, streamed(of_any())])
    assert ([number for number, _ in found.refused], found.messages) == ([0], [1, 1])


@pytest.mark.parametrize(
    "column",
    [
        pa.array([0] * 9_000_000, pa.int64()),
        pa.nulls(9_000_000),
        pa.DictionaryArray.from_arrays(pa.array([0] * 100_000, pa.int32()), ["x" * 1000]),
    ],
    ids=["packed", "nulls", "dictionary"],
)
def test_a_small_arrow_message_that_becomes_large_is_refused(column: pa.Array) -> None:
    kind = pa.string() if pa.types.is_dictionary(column.type) else pa.int64()
    message = streamed(pa.RecordBatch.from_arrays([column], names=["a"]), "zstd")
    assert len(message) < MESSAGE_BYTES
    before = pa.total_allocated_bytes()
    decoder = decoder_of("it", "arrow", pa.schema([("a", kind)]))
    ((_, why),) = decoder.decode([message]).refused
    assert why.startswith("oversized")
    assert pa.total_allocated_bytes() - before < 10 << 20


def test_arrow_dictionaries_in_parts_are_refused() -> None:
    first = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), ["x"])
    second = pa.DictionaryArray.from_arrays(pa.array([1], pa.int8()), ["x", "y"])
    target = pa.BufferOutputStream()
    schema = pa.schema([("s", first.type)])
    with pa.ipc.new_stream(target, schema, options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)) as writer:
        for column in (first, second):
            writer.write_batch(pa.RecordBatch.from_arrays([column], schema=schema))
    decoder = decoder_of("it", "arrow", pa.schema([("s", pa.string())]))
    ((_, why),) = decoder.decode([target.getvalue().to_pybytes()]).refused
    assert "delta" in why


FUZZ = """
import random, sys
import pyarrow as pa
import pyarrow.ipc
from seep.connectors.kafka.decoders import decoder_of
from tests.unit.test_kafka_decoders import ANY, of_any, streamed

draws, decoder = random.Random(int(sys.argv[1])), decoder_of("it", "arrow", ANY)
bases = [
    streamed(of_any()),
    streamed(of_any(s=pa.string_view(), a=pa.int16()), "lz4"),
    streamed(of_any(s=pa.dictionary(pa.int8(), pa.string()), l=pa.large_list(pa.string())), "zstd"),
]
for _ in range(int(sys.argv[2])):
    message = bytearray(draws.choice(bases))
    for _ in range(draws.randint(1, 4)):
        at = draws.randrange(len(message) - 4)
        many = (draws.choice([-1, 2**31 - 1, 255, 16]) & 0xFFFFFFFF).to_bytes(4, "little")
        match draws.randrange(5):
            case 0: message[at : at // 4 * 4 + 4] = many
            case 1: message[at] ^= 1 << draws.randrange(8)
            case 2: message[at : at + 16] = message[at // 2 : at // 2 + 16]
            case _: message[at] = draws.randrange(256)
    decoder.decode([bytes(message)]).record.validate(full=True)
print("alive")
"""


def test_no_broken_arrow_message_ends_the_process() -> None:
    found = subprocess.run([sys.executable, "-X", "faulthandler", "-c", FUZZ, "7", "3000"], capture_output=True)
    assert found.stdout == b"alive\n", found.stderr.decode()
