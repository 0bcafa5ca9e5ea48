"""Batches and state as columns: cutting, digests, and full + increments as one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from seep.model.arrow import BUCKET, DELETED, KEY, ArrowBatch, ArrowState, compact
from seep.model.ids import EVERYTHING, KeyRange

SCHEMA = pa.schema(
    {"a": pa.string(), "b": pa.string(), "i": pa.int32(), "f": pa.float64(), "l": pa.list_(pa.int64()), "o": pa.bool_()}
)
row = st.fixed_dictionaries(
    {
        "a": st.one_of(st.none(), st.text(max_size=12)),
        "b": st.one_of(st.none(), st.text(max_size=3)),
        "i": st.one_of(st.none(), st.integers(-5, 5)),
        "f": st.one_of(st.none(), st.floats()),
        "l": st.one_of(st.none(), st.lists(st.integers(0, 3), max_size=2)),
        "o": st.one_of(st.none(), st.booleans()),
    }
)
contents = st.lists(st.tuples(row, st.integers(0, 4095)), max_size=12)


def text(values: dict[str, Any]) -> str:
    """Comparable where NaN equals NaN and 0.0 is not -0.0."""
    return repr(sorted(values.items()))


def batch_of(content: list[tuple[dict[str, Any], int]]) -> ArrowBatch:
    record = pa.RecordBatch.from_pylist([r for r, _ in content], schema=SCHEMA)
    return ArrowBatch(record, np.array([b for _, b in content], np.uint16))


@given(contents, st.integers(1, 4095), st.randoms(use_true_random=False))
def test_parts_add_up_to_the_digest(content: list[tuple[dict[str, Any], int]], cut: int, random: Any) -> None:
    batch = batch_of(content)
    parts = [batch.part(KeyRange(0, cut)), batch.part(KeyRange(cut, 4096))]
    assert sum(p.digest() for p in parts) % 2**64 == batch.digest()
    assert sum(p.digest() for p in batch.pieces(3)) % 2**64 == batch.digest()
    shuffled = list(content)
    random.shuffle(shuffled)
    assert batch_of(shuffled).digest() == batch.digest()
    assert batch.part(EVERYTHING) is batch


@given(contents, row)
def test_another_row_is_another_digest(content: list[tuple[dict[str, Any], int]], other: dict[str, Any]) -> None:
    if content and text(content[0][0]) != text(other):
        assert batch_of([(other, 0), *content[1:]]).digest() != batch_of(content).digest()


def test_neighbouring_strings_do_not_run_into_each_other() -> None:
    plain = {"i": None, "f": None, "l": None, "o": None}
    pairs = [("a", ""), ("", "a"), ("a", None), (None, "a"), ("", ""), (None, None)]
    assert len({batch_of([({"a": a, "b": b, **plain}, 0)]).digest() for a, b in pairs}) == len(pairs)


@given(contents, st.integers(0, 4095), st.integers(1, 4096))
def test_a_part_keeps_order(content: list[tuple[dict[str, Any], int]], low: int, width: int) -> None:
    key_range = KeyRange(low, min(4096, low + width))
    part = batch_of(content).part(key_range)
    expected = sorted((x for x in content if x[1] in key_range), key=lambda x: x[1])
    if key_range != EVERYTHING:
        assert [text(r) for r in part.record.to_pylist()] == [text(r) for r, _ in expected]
        assert part.buckets.tolist() == [b for _, b in expected]


entries = st.dictionaries(
    st.sampled_from([b"a", b"b", b"c", b"d"]), st.one_of(st.none(), st.integers(0, 9)), max_size=4
)


def table_of(content: dict[bytes, int | None], increment: bool) -> ArrowState:
    columns = {
        BUCKET: pa.array([key[0] for key in content], pa.uint16()),
        KEY: pa.array(list(content), pa.binary()),
        "value": pa.array(list(content.values()), pa.int64()),
    }
    if increment:
        columns[DELETED] = pa.array([value is None for value in content.values()], pa.bool_())
    return ArrowState({"t": pa.RecordBatch.from_pydict(columns)})


@given(st.lists(entries, max_size=4))
def test_compact_is_a_dict(increments: list[dict[bytes, int | None]]) -> None:
    full: dict[bytes, int | None] = {b"a": 100, b"c": 101}
    state = compact([table_of(full, False), *(table_of(i, True) for i in increments)])
    for increment in increments:
        for key, value in increment.items():
            if value is None:
                full.pop(key, None)
            else:
                full[key] = value
    table = state.tables["t"]
    assert list(zip(table.column(KEY).to_pylist(), table.column("value").to_pylist(), strict=True)) == list(
        full.items()
    )
    assert table.schema.names == [BUCKET, KEY, "value"]
    assert state.part(KeyRange(0, 98)).tables["t"].num_rows == (b"a" in full)
