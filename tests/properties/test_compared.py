"""What is found between two outputs, when rows were dropped, doubled, changed and swapped on purpose."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from seep.model.arrow import BUCKET
from seep.running.compared import compare

SCHEMA = pa.schema([("n", pa.int64()), ("x", pa.float64()), (BUCKET, pa.uint16())])
Rows = list[tuple[int, float, int]]
BUCKETS = st.integers(0, 3)


def record(rows: Rows) -> bytes:
    ordered = sorted(rows, key=lambda row: row[2])
    columns = list(zip(*ordered, strict=True)) if ordered else [(), (), ()]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        arrays = [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)]
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
    return bytes(sink.getvalue().to_pybytes())


@st.composite
def outputs(draw: st.DrawFn) -> dict[int, Rows]:
    """Epochs of rows, all different."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    numbers = iter(range(100))
    value = st.sampled_from([1.5, float("nan")])
    return {
        epoch: [(next(numbers), draw(value), draw(BUCKETS)) for _ in range(size)]
        for epoch, size in enumerate(sizes, start=1)
    }


@given(outputs(), st.data())
def test_each_thing_done_is_counted(wanted: dict[int, Rows], data: st.DataObject) -> None:
    found = {epoch: list(rows) for epoch, rows in wanted.items()}
    counted = {"lost": 0, "duplicated": 0, "wrong": 0}
    for epoch, rows in found.items():
        fate = data.draw(st.lists(st.sampled_from("....ldw"), min_size=len(rows), max_size=len(rows)), label=str(epoch))
        kept: Rows = []
        for row, what in zip(rows, fate, strict=True):
            counted["lost"] += what in "lw"
            counted["wrong"] += what == "w"
            counted["duplicated"] += what == "d"
            changed = (row[0] + 1_000, row[1], row[2])
            kept += {"l": [], "d": [row, row], "w": [changed]}.get(what, [row])
        found[epoch] = kept
    difference = compare("out", _records(wanted), _records(found).items())
    assert {name: getattr(difference, name) for name in counted} == counted
    assert difference.reordered == 0
    assert difference.rows == sum(map(len, wanted.values()))
    assert bool(difference.examples) == any(counted.values())


@given(outputs(), st.data())
def test_only_the_order_inside_a_bucket_counts(wanted: dict[int, Rows], data: st.DataObject) -> None:
    """Several partitions of a sink commit an epoch, each its buckets, in any order among them."""
    parts = []
    for epoch, rows in wanted.items():
        edge = data.draw(BUCKETS)
        halves = [[r for r in rows if r[2] < edge], [r for r in rows if r[2] >= edge]]
        parts += [(epoch, record(half)) for half in halves if half]
    assert compare("out", _records(wanted), data.draw(st.permutations(parts))).examples == []


def test_two_that_changed_places() -> None:
    rows: Rows = [(1, 0.5, 7), (2, 0.5, 7), (3, 0.5, 7)]
    swapped = [rows[1], rows[0], rows[2]]
    difference = compare("out", {1: record(rows)}, [(1, record(swapped))])
    assert (difference.lost, difference.duplicated, difference.wrong, difference.reordered) == (0, 0, 0, 2)


def test_the_same_row_in_another_epoch_is_another_row() -> None:
    rows: Rows = [(1, 0.5, 7)]
    difference = compare("out", {1: record(rows)}, [(2, record(rows))])
    assert (difference.lost, difference.wrong) == (1, 1)


def _records(epochs: dict[int, Rows]) -> dict[int, bytes]:
    return {epoch: record(rows) for epoch, rows in epochs.items() if rows}
