"""The stable hash: published vectors, our own frozen ones, and a reference in plain Python."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from seep.errors import Misuse
from seep.model.hashing import hash_rows
from seep.model.keyform import decode, encode
from seep.model.keyspace import bucket_of_values, buckets_of, check_keys, hash_columns

MASK = 2**64 - 1
P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & MASK


def mix(accumulator: int, lane: int) -> int:
    return rotate((accumulator + lane * P2) & MASK, 31) * P1 & MASK


def reference(data: bytes) -> int:
    """xxh64 with seed 0, from its specification."""
    at, length = 0, len(data)
    if length >= 32:
        lanes = [(P1 + P2) & MASK, P2, 0, -P1 & MASK]
        while length - at >= 32:
            lanes = [mix(lane, word) for lane, word in zip(lanes, struct.unpack_from("<4Q", data, at), strict=True)]
            at += 32
        digest = sum(rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
        for lane in lanes:
            digest = ((digest ^ mix(0, lane)) * P1 + P4) & MASK
    else:
        digest = P5
    digest = (digest + length) & MASK
    while length - at >= 8:
        digest = (rotate(digest ^ mix(0, struct.unpack_from("<Q", data, at)[0]), 27) * P1 + P4) & MASK
        at += 8
    if length - at >= 4:
        digest = (rotate(digest ^ struct.unpack_from("<I", data, at)[0] * P1 & MASK, 23) * P2 + P3) & MASK
        at += 4
    for byte in data[at:]:
        digest = rotate(digest ^ byte * P5 & MASK, 11) * P1 & MASK
    digest = (digest ^ digest >> 33) * P2 & MASK
    digest = (digest ^ digest >> 29) * P3 & MASK
    return digest ^ digest >> 32


def form(value: Any) -> bytes:
    """The canonical form of one value, written out by hand."""
    if value is None:
        return bytes(8)
    if isinstance(value, bool):
        return header(1, 8) + struct.pack("<q", value)
    if isinstance(value, int):
        return header(2, 8) + struct.pack("<q", value)
    if isinstance(value, str | bytes):
        data = value.encode() if isinstance(value, str) else value
        return header(3 if isinstance(value, str) else 4, len(data)) + data + bytes(-len(data) % 8)
    if isinstance(value, datetime):
        return header(6, 8) + struct.pack("<q", (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1))
    if isinstance(value, date):
        return header(5, 8) + struct.pack("<q", (value - date(1970, 1, 1)).days)
    if isinstance(value, timedelta):
        return header(7, 8) + struct.pack("<q", value // timedelta(microseconds=1))
    assert isinstance(value, Decimal)
    return header(8, 16, 2) + int(value.scaleb(2)).to_bytes(16, "little", signed=True)


def header(tag: int, length: int, scale: int = 0) -> bytes:
    return struct.pack("<Q", tag << 56 | scale << 48 | length)


KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "string": (pa.string(), st.text(max_size=40)),
    "large_string": (pa.large_string(), st.text(max_size=40)),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), st.text(max_size=10)),
    "binary": (pa.binary(), st.binary(max_size=40)),
    "int8": (pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    "uint32": (pa.uint32(), st.integers(0, 2**32 - 1)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "bool": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "duration": (pa.duration("us"), st.timedeltas(timedelta(days=-(10**5)), timedelta(days=10**5))),
    "decimal": (pa.decimal128(20, 2), st.decimals(-(10**15), 10**15, places=2, allow_nan=False)),
    "null": (pa.null(), st.none()),
}


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_the_reference_gives_the_published_vectors(data: bytes, digest: int) -> None:
    assert reference(data) == digest == xxhash.xxh64_intdigest(data)


@given(st.data())
def test_the_compiled_hash_is_the_reference(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4))
    skip = data.draw(st.integers(0, 3))
    rows = data.draw(st.lists(st.tuples(*(st.one_of(st.none(), KINDS[n][1]) for n in names)), min_size=1, max_size=9))
    columns = []
    for at, name in enumerate(names):
        values = [row[at] for row in rows]
        # A slice that begins inside a byte of the validity bitmap, and strings that begin anywhere.
        padded = pa.array([*values[:1] * skip, *values], KINDS[name][0])
        columns.append(padded.slice(skip))
    forms = [b"".join(form(value) for value in row) for row in rows]
    offsets, words = encode(columns, len(rows))
    assert words.tobytes() == b"".join(forms)
    assert hash_columns(columns).tolist() == [reference(f) for f in forms] == [xxhash.xxh64_intdigest(f) for f in forms]
    kinds = [KINDS[name][0] for name in names]
    again = decode(words, offsets[:-1], kinds)
    assert [a.to_pylist() for a in again] == [c.to_pylist() for c in columns]
    assert [a.type for a in again] == kinds


FROZEN = [
    (("",), [pa.string()], 0x15C2D270722E75CA),
    (("a",), [pa.string()], 0x7011D5B3A7E8CB67),
    (("exactly8",), [pa.string()], 0x9711CFE58FAF609F),
    ((5,), [pa.int64()], 0x92C494EF8018AB25),
    ((None,), [pa.int64()], 0x34C96ACDCADB1BBB),
    ((True,), [pa.bool_()], 0xC58611A43C278D74),
    ((b"a",), [pa.binary()], 0xB853381068D74DC2),
    ((date(2013, 6, 22),), [pa.date32()], 0xA4BE6610B1DFE3D4),
    ((Decimal("1.50"),), [pa.decimal128(9, 2)], 0x96A4189E57589992),
    (("Oslo", 7, None), [pa.string(), pa.int32(), pa.string()], 0xBEEF85D5621370C4),
]


@pytest.mark.parametrize(("values", "types", "digest"), FROZEN)
def test_hashes_never_change(values: tuple[Any, ...], types: list[pa.DataType], digest: int) -> None:
    """Saved state is cut by these: a change here makes it unreadable."""
    columns = [pa.array([value], kind) for value, kind in zip(values, types, strict=True)]
    assert hash_columns(columns).tolist() == [digest]
    assert bucket_of_values(values, types) == digest >> 52


def test_columns_do_not_run_into_each_other() -> None:
    one = encode([pa.array(["ab"]), pa.array(["c"])], 1)
    other = encode([pa.array(["a"]), pa.array(["bc"])], 1)
    assert one.words.tolist() != other.words.tolist()


def test_no_keys_is_one_bucket() -> None:
    record = pa.RecordBatch.from_pydict({"x": [1, 2, 3]})
    assert set(buckets_of(record, []).tolist()) == {0xEF4}
    assert hash_rows(*encode([], 0)).tolist() == []


def test_integers_of_every_width_are_one_key() -> None:
    kinds = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
    assert len({bucket_of_values((5,), [kind]) for kind in kinds}) == 1


def test_nested_values_are_equal_in_their_words_exactly_when_they_are() -> None:
    """What digests and comparisons rest on; slices and nulls do not show."""
    inner = pa.struct({"a": pa.float64(), "b": pa.list_(pa.string())})
    nan = float("nan")
    cases: list[tuple[pa.DataType, list[Any]]] = [
        (pa.list_(pa.int64()), [None, [], [1], [None], [1, 2], [0], [1]]),
        (inner, [None, {"a": None, "b": None}, {"a": 1.0, "b": ["x"]}, {"a": 1.0, "b": []}, {"a": 1.0, "b": ["x"]}]),
        (pa.list_(inner), [None, [], [None], [{"a": nan, "b": []}], [{"a": nan, "b": []}], [{"a": nan, "b": None}]]),
    ]
    for kind, values in cases:
        array = pa.concat_arrays([pa.array([values[-1], None], kind), pa.array(values, kind)]).slice(2)
        offsets, words = encode([array], len(array))
        rows = [words[low:high].tolist() for low, high in pairwise(offsets)]
        for row, value in zip(rows, values, strict=True):
            assert [one == row for one in rows] == [repr(one) == repr(value) for one in values]


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.list_(pa.int64()), pa.struct({"a": pa.int64()})])
def test_floats_and_nested_values_are_no_keys(kind: pa.DataType) -> None:
    with pytest.raises(Misuse, match="cannot key by 'x'"):
        check_keys(pa.schema({"x": kind}), ["x"])


def test_a_missing_key_column_is_named() -> None:
    with pytest.raises(Misuse, match="no column 'y' to key by; there are x"):
        check_keys(pa.schema({"x": pa.int64()}), ["y"])
