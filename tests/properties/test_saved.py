"""What is read of a saved checkpoint is what was written, whole or in part; a fold keeps it so; damage is seen where
it matters, and only there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seep.model.arrow import BUCKET, DELETED, KEY, REPLICATED, ArrowBatch, ArrowState
from seep.model.epoch import Progress
from seep.model.ids import BEGINNING, BUCKETS, EVERYTHING, Generation, KeyRange, PartitionId
from seep.state.checkpoint import Buffered, Checkpoint
from seep.state.codec import DamagedError, ForeignError
from seep.state.folding import fold
from seep.state.saved import Saved, decode_checkpoint, encode_checkpoint, fold_saved

JOB_KEY = b"k" * 32
SHARED = f"{REPLICATED}rates"
WHOLE, SECTIONED = 1 << 30, 0
Entries = dict[int, int | None]
entries = st.dictionaries(st.integers(0, 40), st.one_of(st.none(), st.integers(0, 99)), max_size=30)
ranges = st.tuples(st.integers(0, BUCKETS), st.integers(0, BUCKETS)).map(lambda p: KeyRange(min(p), max(p)))


def bucket_of(key: int) -> int:
    return key * 769 % BUCKETS


def table(found: Entries, increment: bool) -> pa.RecordBatch:
    columns = {
        BUCKET: pa.array([bucket_of(k) for k in found], pa.uint16()),
        KEY: pa.array([str(k).encode() for k in found], pa.binary()),
        "value": pa.array([None if v is None else str(v) for v in found.values()], pa.string()),
    }
    if increment:
        columns[DELETED] = pa.array([v is None for v in found.values()], pa.bool_())
    return pa.record_batch(columns)


def checkpoint(version: int, found: Entries, rows: int = 2) -> Checkpoint:
    full = {k: v for k, v in found.items() if v is not None}
    tables = {"t": table(full, False) if version == 1 else table(found, True), SHARED: table(full, False)}
    batch = ArrowBatch(pa.record_batch({"n": [version] * rows}), np.zeros(rows, np.uint16))
    return Checkpoint(
        PartitionId("count", 0), Generation(1, 1), EVERYTHING, version, version - 1, version, 5, BEGINNING, False,
        ArrowState(tables), {"out": (Buffered(Progress(version, 0, 0, 0), (batch,)),), "quiet": ()},
        {"out": Progress(0, 0, 0, 0), "quiet": Progress(0, 0, 0, 0)}, {"late": 1},
    )  # fmt: skip


def saved(one: Checkpoint, sectioned_bytes: int) -> bytes:
    return joined(encode_checkpoint(one, JOB_KEY, sectioned_bytes))


def joined(parts: Iterable[Any]) -> bytes:
    return b"".join(map(bytes, parts))


def by_bucket(state: object) -> dict[str, list[dict[str, Any]]]:
    """The rows of each table, ordered by bucket only: inside one the order they are in counts."""
    assert isinstance(state, ArrowState)
    return {name: sorted(t.to_pylist(), key=lambda row: row[BUCKET]) for name, t in state.tables.items()}


def opened(data: bytes) -> Saved:
    return Saved(len(data), lambda offset, size: data[offset : offset + size], JOB_KEY)


@given(entries, st.sampled_from([WHOLE, SECTIONED]))
def test_what_was_written_comes_back(found: Entries, sectioned: int) -> None:
    for one in (checkpoint(1, found), checkpoint(2, found)):
        back = decode_checkpoint(saved(one, sectioned), JOB_KEY)
        assert by_bucket(back.state) == by_bucket(one.state)
        assert back.buffers.keys() == one.buffers.keys()
        assert back.buffers["out"][0].batches[0].record.equals(one.buffers["out"][0].batches[0].record)
        assert (back.trimmed, back.counts, back.parent) == (one.trimmed, one.counts, one.parent)


@given(entries, ranges, st.sampled_from([WHOLE, SECTIONED]))
def test_a_part_is_the_part_of_the_whole(found: Entries, part: KeyRange, sectioned: int) -> None:
    for one in (checkpoint(1, found), checkpoint(2, found)):
        data = saved(one, sectioned)
        back = decode_checkpoint(data, JOB_KEY, part)
        assert by_bucket(back.state) == by_bucket(decode_checkpoint(data, JOB_KEY).part(part).state)
        assert by_bucket(back.state) == by_bucket(one.part(part).state)
        assert back.buffers == {}
        assert (back.epoch, back.trimmed) == (one.epoch, one.trimmed)


@given(st.lists(entries, min_size=1, max_size=5), st.sampled_from([WHOLE, SECTIONED]), ranges)
def test_a_chain_folded_section_by_section_is_the_chain(steps: list[Entries], sectioned: int, part: KeyRange) -> None:
    chain = [checkpoint(at + 1, found) for at, found in enumerate(steps)]
    data = joined(fold_saved([opened(saved(one, sectioned)) for one in chain], JOB_KEY, sectioned))
    folded, expected = decode_checkpoint(data, JOB_KEY), fold(chain)
    assert by_bucket(folded.state) == by_bucket(expected.state)
    assert by_bucket(decode_checkpoint(data, JOB_KEY, part).state) == by_bucket(expected.part(part).state)
    assert [b.progress for b in folded.buffers["out"]] == [b.progress for b in expected.buffers["out"]]
    assert (folded.parent, folded.version) == (0, chain[-1].version)
    assert len(opened(data).contents.sections) == len(opened(saved(expected, sectioned)).contents.sections)


def large() -> tuple[Checkpoint, bytes, dict[KeyRange | None, int]]:
    """One in sections, its bytes, and where each section begins."""
    one = checkpoint(1, dict(enumerate(range(40))))
    data = saved(one, SECTIONED)
    return one, data, {section.key_range: at for section, at in opened(data)._places()}


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


def test_a_part_reads_its_own_sections_and_nothing_else() -> None:
    _, data, places = large()
    read: list[tuple[int, int]] = []

    def count(offset: int, size: int) -> bytes:
        read.append((offset, size))
        return data[offset : offset + size]

    part = KeyRange(0, 2 * BUCKETS // 64)
    Saved(len(data), count, JOB_KEY).load(part)
    expected = [at for r, at in places.items() if r == EVERYTHING or (r is not None and r.overlaps(part))]
    assert [offset for offset, _ in read[2:]] == expected
    assert len(expected) < len(places) / 4


def test_every_flipped_bit_is_seen_by_whoever_needs_it() -> None:
    one, data, places = large()
    for key_range, at in places.items():
        broken = flipped(data, at + 20)
        with pytest.raises(DamagedError):
            decode_checkpoint(broken, JOB_KEY)
        with pytest.raises(DamagedError):
            opened(broken).check()
        for part in (KeyRange(0, 1_000), KeyRange(1_000, 4_096)):
            if key_range == EVERYTHING or (key_range is not None and key_range.overlaps(part)):
                with pytest.raises(DamagedError):
                    decode_checkpoint(broken, JOB_KEY, part)
            else:
                assert by_bucket(decode_checkpoint(broken, JOB_KEY, part).state) == by_bucket(one.part(part).state)


@given(st.data())
def test_no_flipped_bit_goes_unseen_in_the_whole(data: st.DataObject) -> None:
    _, whole, _ = large()
    at = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(DamagedError):
        decode_checkpoint(flipped(whole, at), JOB_KEY)


def test_what_is_torn_off_is_missed_even_by_those_who_do_not_need_it() -> None:
    _, data, _ = large()
    part = KeyRange(0, 64)
    for end in (0, 3, 20, len(data) // 2, len(data) - 1):
        with pytest.raises(DamagedError):
            decode_checkpoint(data[:end], JOB_KEY, part)
    with pytest.raises(DamagedError):
        decode_checkpoint(data[40:], JOB_KEY, part)


def test_another_key_is_told_from_damage() -> None:
    _, data, _ = large()
    with pytest.raises(ForeignError):
        decode_checkpoint(data, b"x" * 32)
