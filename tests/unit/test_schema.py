"""Schemas from what users write, rows to columns and back, one physical form."""

from __future__ import annotations

import math
from collections import namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Required, TypedDict

import numpy as np
import pyarrow as pa
import pytest

from seep.errors import Misuse
from seep.model.schema import TIMESTAMP, infer_schema, normalise, physical, record_of, rows_of, schema_of


class Colour(Enum):
    RED = "red"


@dataclass
class Place:
    name: str
    height: float | None


@dataclass
class Sale:
    store: str
    items: int
    amount: float
    paid: bool
    raw: bytes
    at: datetime
    day: date
    took: timedelta
    price: Decimal
    colour: Colour
    kind: Literal["a", "b"]
    tags: list[str]
    place: Place
    note: str | None


class Point(NamedTuple):
    x: int
    y: int | None


class Reading(TypedDict):
    sensor: str
    value: float


SALE = Sale(
    "Oslo", 3, 1.5, True, b"x", datetime(2024, 1, 2, 3), date(2024, 1, 2), timedelta(seconds=1), Decimal("2.5"),
    Colour.RED, "a", ["t"], Place("hill", None), None,
)  # fmt: skip


def test_every_type_of_the_contract() -> None:
    schema = schema_of(Sale)
    expected = [
        pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.binary(), TIMESTAMP, pa.date32(), pa.duration("us"),
        pa.decimal128(38, 9), pa.string(), pa.string(),
    ]  # fmt: skip
    assert schema.types[:11] == expected
    assert schema.field("tags").type.value_type == pa.string()
    assert schema.field("place").type.field("height").nullable
    assert [f.name for f in schema if f.nullable] == ["note"]


def test_rows_of_every_shape() -> None:
    assert schema_of(Point).names == ["x", "y"]
    assert schema_of(Reading).types == [pa.string(), pa.float64()]
    schema = schema_of(Point)
    expected = [{"x": 1, "y": None}, {"x": 2, "y": 3}]
    for rows in (
        [Point(1, None), Point(2, 3)],
        [(1, None), (2, 3)],
        [{"x": 1}, {"y": 3, "x": 2}],
        [Point(1, None), (2, 3)],
    ):
        assert rows_of(record_of(rows, schema)) == expected
    assert record_of([], schema).num_rows == 0
    assert rows_of(record_of([1, 2], schema_of({"n": int}))) == [{"n": 1}, {"n": 2}]
    assert rows_of(record_of([[1, 2], ([3],)], schema_of({"n": list[int]}))) == [{"n": [1, 2]}, {"n": [3]}]


def test_a_whole_row_goes_in_and_comes_out() -> None:
    row = rows_of(record_of([SALE], schema_of(Sale)))[0]
    assert row["at"] == datetime(2024, 1, 2, 3, tzinfo=UTC), "naive is UTC"
    assert row["colour"] == "red"
    assert row["place"] == {"name": "hill", "height": None}
    assert row["price"] == Decimal("2.5")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"x": 1, "z": 2}], "field 'z', which is not in the schema"),
        ([{"y": 1}], "column 'x': the row has no value"),
        ([{"x": 1}, {"x": "one"}], "column 'x': row 1 has 'one', which is not a int64"),
        ([(1, 2, 3)], "3 values for the 2 columns"),
        (["text"], "a row is a str"),
    ],
)
def test_a_wrong_row_is_named(rows: list[Any], message: str) -> None:
    with pytest.raises(Misuse, match=message):
        record_of(rows, schema_of(Point))


@pytest.mark.parametrize(
    ("hint", "values", "message"),
    [
        (int, [1, 2.5], "row 1 has 2.5, which is not a int64; round it"),
        (int, [Decimal("1.5")], "which is not a int64"),
        (int, [np.float32(1.5)], "which is not a int64"),
        (datetime, [1704067200000], "give a datetime"),
        (datetime, [datetime(2024, 1, 1), float("nan")], "row 1 has nan, which is not a timestamp"),
        (timedelta, [Decimal("NaN")], "the row has Decimal..NaN.., which is not a duration"),
        (date, [np.int64(3)], "give a date"),
        (timedelta, [1.0], "give a timedelta"),
        (date | None, [Decimal("nan")], "the row has Decimal.'NaN'., which is not a date32"),
        (timedelta, [math.inf], "the row has inf, which is not a duration"),
        (str, [b"a"], "decode it"),
        (str, ["\ud800"], "the row has '.ud800', which is not a string"),
        (bytes, ["a"], "encode it"),
        (date, [datetime(2024, 1, 2, 3)], "take its .date.., or declare a datetime"),
        (list[date], [[datetime(2024, 1, 2, 3)]], "in x.., which is not a date32"),
        (list[str], ["ab"], "give a list"),
        (Place, [Place("hill", None), []], r"row 1 has \[\] in x, which is not a struct.*; give a dict or a dataclass"),
        (list[Place], [[()]], r"the row has \[\] in x\[\], which is not a struct"),
        (list[int], [[1], [1, 2.5]], "row 1 has 2.5 in x.., which is not a int64"),
        (list[int], [[1, None]], "the row has no value in x..; declare it"),
        (Place, [Place("hill", None), Place(None, 1.5)], r"row 1 has no value in x.name; declare it"),  # type: ignore[arg-type]
        (Place, [{"height": 1.5}], r"the row has no value in x.name"),
        (pa.list_(pa.field("item", pa.date32(), False)), [[3]], "3 in x.., which is not a date32"),
    ],
)
def test_nothing_is_made_to_fit(hint: Any, values: list[Any], message: str) -> None:
    with pytest.raises(Misuse, match=message):
        record_of([{"x": value} for value in values], schema_of({"x": hint}))


def test_what_fits_stays() -> None:
    values: list[tuple[Any, list[Any]]] = [
        (int, [2.0, np.int8(3), 2**63 - 1]),
        (float, [1, 2.5]),
        (list[int | None], [[1, None], []]),
        (Place, [{"name": "hill"}]),
        (timedelta, [np.timedelta64(1, "us")]),
        (date, [date(2024, 1, 2), datetime(2024, 1, 2)]),
    ]
    kept = [
        record_of([{"x": v} for v in given], schema_of({"x": hint})).column(0).to_pylist() for hint, given in values
    ]
    assert kept == [
        [2, 3, 2**63 - 1],
        [1.0, 2.5],
        [[1, None], []],
        [{"name": "hill", "height": None}],
        [timedelta(microseconds=1)],
        [date(2024, 1, 2)] * 2,
    ]


class Partial(TypedDict, total=False):
    left: int
    needed: Required[int]
    either: Required[int | None]
    noted: Annotated[int, ["a list"]]


class Mostly(TypedDict):
    needed: int
    left: NotRequired[int]


def test_fields_that_may_be_left_out_are_nullable() -> None:
    assert [(f.name, f.nullable) for f in schema_of(Mostly)] == [("needed", False), ("left", True)]
    assert [f.name for f in schema_of(Partial) if not f.nullable] == ["needed"]
    strict = pa.schema([pa.field("l", pa.list_(pa.field("item", pa.large_string(), False)))])
    assert not schema_of(strict).field("l").type.value_field.nullable


@pytest.mark.parametrize("name", ["__bucket", "", 1])
def test_a_column_has_a_name_that_is_not_ours(name: Any) -> None:
    for wrong in (lambda: infer_schema([{name: 1}]), lambda: schema_of({name: int})):
        with pytest.raises(Misuse, match=f"column {name!r}: give a name of letters, not beginning with '__'"):
            wrong()


@pytest.mark.parametrize("wrong", [int, 5, "Sale", {}, {"x": object}, {"x": int | str}])
def test_what_is_no_schema_is_refused(wrong: Any) -> None:
    with pytest.raises(Misuse):
        schema_of(wrong)


def test_the_physical_form() -> None:
    record = pa.RecordBatch.from_arrays(
        [
            pa.array(["a"], pa.large_string()),
            pa.array(["b"], pa.dictionary(pa.int8(), pa.string())),
            pa.array([1_500], pa.timestamp("ns")),
            pa.array([["c"]], pa.large_list(pa.large_string())),
            pa.array([b"d"], pa.large_binary()),
            pa.array([b"0123456789abcdef"], pa.uuid()),
            pa.array([[("e", 1)]], pa.map_(pa.large_string(), pa.int64())),
        ],
        schema=pa.schema(
            [
                pa.field("s", pa.large_string(), False),
                ("d", pa.dictionary(pa.int8(), pa.string())),
                ("t", pa.timestamp("ns")),
                ("l", pa.large_list(pa.large_string())),
                ("b", pa.large_binary()),
                ("u", pa.uuid()),
                ("m", pa.map_(pa.large_string(), pa.int64())),
            ],
            metadata={"from": "elsewhere"},
        ),
    )
    plain = normalise(record)
    kinds = [pa.string(), pa.string(), TIMESTAMP, pa.list_(pa.string()), pa.binary(), pa.binary()]
    assert plain.schema.types == [*kinds, pa.map_(pa.string(), pa.int64())]
    assert all(f.nullable for f in plain.schema)
    assert plain.schema.metadata is None
    assert plain.column("t").cast(pa.int64()).to_pylist() == [1]
    assert normalise(plain) is plain
    assert physical(plain.schema) == plain.schema


def test_schemas_of_rows_without_one() -> None:
    rows = [{"a": 1, "at": datetime(2024, 1, 1)}, {"a": None, "b": "x", "at": None}]
    assert infer_schema(rows).types == [pa.int64(), TIMESTAMP, pa.string()]
    assert infer_schema([Point(1, 2)]) == schema_of(Point)
    Untyped = namedtuple("Untyped", ["a", "b"])  # type: ignore[misc]
    assert infer_schema([Untyped(1, None), Untyped(2, "x")]).types == [pa.int64(), pa.string()]
    with pytest.raises(Misuse, match="row 1 is None, the first one a dict; give each as a dict"):
        infer_schema([{"a": 1}, None])
    for wrong in ([], [{"a": None}], [{"a": 1}, {"a": "x"}], [(1, 2)], [{"a": 2**64}], [{"a": "\ud800"}],
                  [{"a": np.datetime64("2024-01-01")}]):  # fmt: skip
        with pytest.raises(Misuse):
            infer_schema(wrong)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, Decimal("1.5")], pa.decimal128(38, 9)),
        ([None, [], [Decimal(1), None]], pa.list_(pa.decimal128(38, 9))),
        ([{"d": 1, "l": [[Decimal(1)]]}, {"d": Decimal(2)}], "struct<d: m, l: list<item: list<item: m>>>"),
        ([{"n": None}, None, {}], "struct<n: null>"),
        ([Place("hill", None), None], "struct<name: string not null, height: double>"),
        ([[Place("hill", 1)], [], None], "list<item: struct<name: string not null, height: double>>"),
        ([{"at": Point(1, None)}], "struct<at: struct<x: int64 not null, y: int64>>"),
        ([[1, 2.5], (3,)], pa.list_(pa.float64())),
        ([[]], pa.list_(pa.null())),
    ],
)  # fmt: skip
def test_types_inside_of_values(values: list[Any], kind: pa.DataType | str) -> None:
    rows = [{"x": value} for value in values]
    schema = infer_schema(rows)
    assert str(schema.field("x").type) == str(kind).replace(": m", ": decimal128(38, 9)")
    assert record_of(rows, schema).num_rows == len(rows)
