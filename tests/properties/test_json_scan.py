"""Rows that are read by a loop of our own, together, or apart from others come out as the parser reads each alone."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seep.connectors.jsonrows import JsonDecoder
from seep.connectors.jsonscan import PLAIN as UNREAD
from seep.connectors.jsonscan import READ, UNUSUAL, Scan, Scanned
from seep.model.schema import schema_of

DECLARED = schema_of(
    {"store": str, "items": int | None, "price": float | None, "open": bool | None, "at": datetime | None}
)
SCAN = Scan.of(DECLARED)
assert SCAN is not None


def scanned(values: list[bytes]) -> Scanned:
    assert SCAN is not None
    found = SCAN.read(b"\n".join([*values, b""]), len(values))
    assert found is not None
    return found


PLAIN = b'{"store":"a","items":1,"price":1.5,"open":true,"at":"2024-05-06T07:08:09.5Z"}'

NUMBERS = (
    "0 -0 -0.0 01 - 12 1.5 1. .5 1e3 -1E-2 1e400 NaN -Infinity 999999999999999999 9223372036854775807"
    " 9223372036854775808 99999999999999999999 0.1000000000000000055511151231257827 123456789012345678.5"
    " 0.123456789012345678 0.30000000000000004 9007199254740991 9007199254740993 900719925474099.1 900719925474.0991"
    " 1.7976931348623157 0.1 -0.1 100.10 0.000000000000000001 0.0000000000000000001 123456.789 -5e-324"
    " 4503599627370496.5"
)
TIMES = (
    "2024-05-06T07:08:09 2024-05-06T07:08:09.123456Z 2024-05-06T07:08:09.1234567Z 2024-02-31T00:00:00"
    " 2024-13-01T00:00:00Z 2024-05-06 2024-05-06T24:00:00 2024-05-06T07:08:09+02:00 2024-02-29T23:59:59.000001Z"
    " 1900-02-29T00:00:00Z 2000-02-29T00:00:00Z 1969-12-31T23:59:59.999999Z 0000-01-01T00:00:00Z 0000-02-29T12:00:00"
    " 0001-03-01T00:00:00 9999-12-31T23:59:59.999999Z 2023-04-31T00:00:00 2024-05-06T07:08:09. 2024-05-06T07:60:09Z"
)
numbers = st.sampled_from(NUMBERS.split())
times = st.sampled_from(TIMES.split()).map(lambda time: f'"{time}"')
words = st.sampled_from(['""', '"a"', '"\\u00e9"', '"é"', '"日本"', '"😀"', '"\\n"', '"12"', '"\\"', '"\t"', '"a'])
texts = st.one_of(times, words)
others = st.sampled_from(["true", "false", "null", "nul", "True", "[1]", "{}", '{"a":[1,{}]}', ""])
names = st.sampled_from(['"store"', '"items"', '"price"', '"open"', '"at"', '"more"', '"sto\\u0072e"', "store", '""'])
spaces = st.sampled_from(["", "", "", " ", "  ", "\t"])


@st.composite
def rows(draw: Any) -> bytes:
    fields = draw(st.lists(st.tuples(names, st.one_of(numbers, texts, others)), max_size=6))
    gap = draw(spaces)
    text = "{" + gap + f"{gap},{gap}".join(f"{name}{gap}:{gap}{value}" for name, value in fields) + gap + "}"
    text = text.removesuffix("}") if draw(st.booleans()) and draw(st.booleans()) else text
    return text.encode() + draw(st.sampled_from([b"", b"", b"", b" ", b"x", b"}", b'{"store":"b"}', b"\xff"]))


broken_text = st.sampled_from(
    [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc3", b"\xe2\x82", b"\xf0\x9f"]
)
any_row = st.one_of(
    rows(),
    st.just(PLAIN),
    broken_text.map(lambda bad: b'{"store":"' + bad + b'"}'),
    st.text(max_size=8).map(
        lambda text: json.dumps({"store": text}, ensure_ascii=False).encode("utf-8", "surrogatepass")
    ),
    st.binary(max_size=12),
)


def alone(decoder: JsonDecoder, value: bytes) -> tuple[list[Any], list[str]]:
    record, _, refused = decoder.decode([value])
    return record.to_pylist(), [why for _, why in refused]


@given(st.lists(any_row, max_size=12))
def test_a_row_among_many_is_what_it_is_alone(drawn: list[bytes]) -> None:
    decoder = JsonDecoder(DECLARED)
    values = [PLAIN] * 300 + [part for value in drawn for part in (value, *[PLAIN] * 100)]
    record, kept, refused = decoder.decode(values)
    whys = dict(refused)
    found = dict(zip(kept, record.to_pylist(), strict=True))
    assert sorted([*kept, *whys]) == list(range(len(values)))
    assert kept == sorted(kept)
    for place, value in enumerate(drawn):
        number = 300 + 101 * place
        row, why = alone(decoder, value)
        assert str([found[number]] if number in found else []) == str(row)  # NaN is not equal to itself
        assert (number in whys) == bool(why)
    expected, _ = alone(decoder, PLAIN)
    assert all(found[number] == expected[0] for number in found if values[number] == PLAIN)


@given(st.lists(any_row.filter(lambda row: b"\n" not in row), max_size=20))
def test_what_is_read_is_what_the_parser_reads(values: list[bytes]) -> None:
    decoder, found = JsonDecoder(DECLARED), scanned(values)
    for number, (value, state) in enumerate(zip(values, found.states, strict=True)):
        row = found.record.slice(number, 1)
        if state == UNUSUAL:
            continue
        parsed = decoder._parsed([value])
        assert isinstance(parsed, pa.RecordBatch), parsed
        if state == READ:
            row.validate(full=True)
            assert str(row.to_pylist()) == str(parsed.to_pylist())  # so that NaN is NaN, and -0.0 is not 0.0
        else:
            assert row.to_pylist() == [dict.fromkeys(DECLARED.names)]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_floats_are_those_that_the_parser_reads(numbers: list[float]) -> None:
    for written in (f"{{:.{digits}f}}" for digits in range(7)):
        texts = [written.format(number) for number in numbers]
        found = scanned([b'{"price":%s}' % text.encode() for text in texts])
        for text, number, state in zip(texts, found.record["price"].to_pylist(), found.states, strict=True):
            assert str(number) == str(float(text)) if state == READ else number is None


@given(st.lists(st.datetimes(), min_size=1))
def test_times_are_those_that_were_written(times: list[datetime]) -> None:
    found = scanned([b'{"at":"%s"}' % time.isoformat().encode() for time in times])
    assert (found.states == READ).all()
    assert [at.replace(tzinfo=None) for at in found.record["at"].to_pylist()] == times


def test_usual_rows_are_read() -> None:
    usual = [
        PLAIN,
        b'{"store": "\xc3\xa9", "other": "x", "items": null}',
        b'{"at":"2024-05-06T07:08:09"}',
        b'{"price":-3}',
    ]
    assert scanned(usual).states.tolist() == [READ] * len(usual)
    assert scanned([b'{"price":0.30000000000000004}', b'{"store":"\\n"}']).states.tolist() == [UNREAD, UNUSUAL]


@pytest.mark.parametrize("kind", [list[int], bytes])
def test_what_it_does_not_know_it_leaves_to_the_parser(kind: Any) -> None:
    assert Scan.of(schema_of({"some": kind})) is None


def test_a_broken_row_costs_no_other_a_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, seen = JsonDecoder(DECLARED), []
    read = decoder._read
    monkeypatch.setattr(decoder, "_read", lambda data, rows: seen.append(rows) or read(data, rows))
    _, kept, refused = decoder.decode([*[PLAIN] * 500, b'{"store":5}', *[PLAIN] * 500])
    assert (len(kept), [number for number, _ in refused]) == (1000, [500])
    assert seen == [1]


def test_rows_that_are_all_unusual_are_still_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, seen = JsonDecoder(DECLARED), []
    read = decoder._read
    monkeypatch.setattr(decoder, "_read", lambda data, rows: seen.append(rows) or read(data, rows))
    record, _, refused = decoder.decode([b'{"store":"\\n"}'] * 1_000)
    assert (record.num_rows, refused, seen) == (1_000, [], [1_000])


def test_rows_that_only_the_parser_reads_stand_in_their_places() -> None:
    values = [
        b'{"store":"s","items":%d,"price":%s}' % (n, b"0.30000000000000004" if n % 3 else b"0.3") for n in range(1_000)
    ]
    values[500] = b'{"items":"?"}'
    record, kept, refused = JsonDecoder(DECLARED).decode(values)
    assert record["items"].to_pylist() == kept == [n for n in range(1_000) if n != 500]
    assert record["price"].to_pylist() == [0.30000000000000004 if n % 3 else 0.3 for n in kept]
    assert [number for number, _ in refused] == [500]
