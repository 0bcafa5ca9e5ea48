"""Rows that are parsed together, and those that are parsed apart from them, come out as if each had been alone."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seep.connectors.jsonrows import JsonDecoder
from seep.connectors.jsonscan import Scan
from seep.model.schema import schema_of

DECLARED = schema_of(
    {"store": str, "items": int | None, "price": float | None, "open": bool | None, "at": datetime | None}
)
SCAN = Scan.of(DECLARED)
assert SCAN is not None
PLAIN = b'{"store":"a","items":1,"price":1.5,"open":true,"at":"2024-05-06T07:08:09.5Z"}'

NUMBERS = (
    "0 -0 -0.0 01 - 12 1.5 1. .5 1e3 -1E-2 1e400 NaN -Infinity 999999999999999999 9223372036854775807"
    " 9223372036854775808 99999999999999999999 0.1000000000000000055511151231257827 123456789012345678.5"
    " 0.123456789012345678"
)
TIMES = (
    "2024-05-06T07:08:09 2024-05-06T07:08:09.123456Z 2024-05-06T07:08:09.1234567Z 2024-02-31T00:00:00"
    " 2024-13-01T00:00:00Z 2024-05-06 2024-05-06T24:00:00 2024-05-06T07:08:09+02:00"
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


@given(any_row)
def test_what_is_called_plain_the_parser_reads(value: bytes) -> None:
    if b"\n" in value or b"2024-02-31" in value or not SCAN.plain(value, 1)[0]:
        return
    parsed = JsonDecoder(DECLARED)._parsed([value])
    assert isinstance(parsed, pa.RecordBatch), parsed


def test_usual_rows_are_called_plain() -> None:
    usual = [
        PLAIN,
        b'{"store": "\xc3\xa9", "other": "x", "items": null}',
        b'{"at":"2024-05-06T07:08:09"}',
        b'{"price":-3}',
    ]
    assert SCAN.plain(b"\n".join(usual), len(usual)).tolist() == [True] * len(usual)


@pytest.mark.parametrize("kind", [list[int], bytes])
def test_what_it_does_not_know_it_leaves_to_the_parser(kind: Any) -> None:
    assert Scan.of(schema_of({"some": kind})) is None


def test_a_broken_row_costs_no_other_a_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, seen = JsonDecoder(DECLARED), []
    read = decoder._read
    monkeypatch.setattr(decoder, "_read", lambda data, rows: seen.append(rows) or read(data, rows))
    _, kept, refused = decoder.decode([*[PLAIN] * 500, b'{"store":5}', *[PLAIN] * 500])
    assert (len(kept), [number for number, _ in refused]) == (1000, [500])
    assert seen == [1000, 1]


def test_rows_that_are_all_unusual_are_still_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, seen = JsonDecoder(DECLARED), []
    read = decoder._read
    monkeypatch.setattr(decoder, "_read", lambda data, rows: seen.append(rows) or read(data, rows))
    record, _, refused = decoder.decode([b'{"store":"\\n"}'] * 1_000)
    assert (record.num_rows, refused, seen) == (1_000, [], [1_000])
