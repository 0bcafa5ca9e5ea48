"""The key index: many keys come and go, and state is emitted by (bucket, time, key bytes)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from operators.identities import identity_rows
from operators.index import KeyIndex
from operators.kernels.lookup import look_up_text
from operators.search import NO_TIMES, _text, seek_text_far
from seep.errors import SeepError
from seep.model.keyform import column_of, encode
from seep.model.keyspace import hash_columns, to_buckets


def names(numbers: range) -> pa.Array:
    """Of one length, with the same first bytes: only the whole key tells them apart."""
    return pa.array([f"the same start {number:06d}" for number in numbers])


def test_order_is_by_bucket_time_and_whole_key() -> None:
    index = KeyIndex([pa.string()], timed=True)
    column = names(range(20_000))
    times = (np.arange(20_000, dtype=np.int64) % 2) * 60
    shuffled = np.random.default_rng(7).permutation(20_000)
    found = index.find([column.take(pa.array(shuffled))], 20_000, times[shuffled])
    ordered = index.ordered(found.touched)
    offsets, words = encode([column], 20_000)
    data = words.tobytes()
    keys = [data[8 * a : 8 * b] for a, b in pairwise(offsets)]
    buckets = to_buckets(hash_columns([column])).tolist()
    rows = sorted(range(20_000), key=lambda row: (buckets[row], times[row], keys[row]))
    assert index.keys(ordered)[0].to_pylist() == column.take(pa.array(rows)).to_pylist()
    assert index.times[ordered].tolist() == times[rows].tolist()
    assert len({buckets[row] for row in rows}) < 20_000, "some share a bucket"


def test_keys_come_and_go() -> None:
    index = KeyIndex([pa.string()], timed=False)
    present: set[str] = set()
    random = np.random.default_rng(3)
    for _ in range(40):
        low = int(random.integers(0, 3_000))
        column = names(range(low, low + int(random.integers(1, 800))))
        found = index.find([column], len(column))
        new = {column[int(np.flatnonzero(found.slots == slot)[0])].as_py() for slot in found.fresh}
        assert new == set(column.to_pylist()) - present
        present |= set(column.to_pylist())
        gone = found.touched[random.random(len(found.touched)) < 0.7]
        present -= set(index.keys(gone)[0].to_pylist())
        index.remove(gone)
        assert len(index) == len(present)
        assert set(index.keys(index.all())[0].to_pylist()) == present


@pytest.mark.parametrize("far_keys", [0, 1_000_000])
def test_keys_of_every_length_take_the_place_of_others(far_keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of those who are gone are written over, moved away from, and never read as anybody's, whichever loop
    looks for them."""
    monkeypatch.setattr("operators.search._FAR_KEYS", far_keys)
    index = KeyIndex([pa.string()], timed=True)
    present: set[tuple[str, int]] = set()
    random = np.random.default_rng(5)
    for turn in range(60):
        numbers = random.integers(0, 2_000, int(random.integers(1, 600)))
        column = pa.array([f"{number:0{1 + number % 40}d}" for number in numbers])
        times = random.integers(0, 40 if turn % 3 else 4, len(column))
        found = index.find([column], len(column), times)
        present |= set(zip(column.to_pylist(), times.tolist(), strict=True))
        assert index.keys(found.slots)[0].equals(column)
        assert index.times[found.slots].tolist() == times.tolist()
        gone = found.touched[random.random(len(found.touched)) < 0.6]
        present -= set(zip(index.keys(gone)[0].to_pylist(), index.times[gone].tolist(), strict=True))
        index.remove(gone)
        everybody = index.all()
        held = zip(index.keys(everybody)[0].to_pylist(), index.times[everybody].tolist(), strict=True)
        assert set(held) == present
        assert len(everybody) == len(present) == len(index)


def test_keys_of_one_length_leave_no_garbage() -> None:
    index = KeyIndex([pa.string()], timed=True)
    for turn in range(20):
        found = index.find([names(range(1_000 * turn, 1_000 * turn + 1_000))], 1_000, np.full(1_000, turn))
        if turn == 0:
            arena = index._arena
        index.remove(found.touched)
    assert index._arena is arena
    assert index.numbers == 1_001


def test_entries_of_one_window_lie_together() -> None:
    index = KeyIndex([pa.string()], timed=True)
    times = np.random.default_rng(2).integers(0, 5, 4_000)
    slots = index.find([names(range(4_000))], 4_000, times).slots
    for time in range(5):
        assert np.ptp(slots[times == time]) + 1 == np.count_nonzero(times == time)


def test_identities_come_back_from_any_slice() -> None:
    index = KeyIndex([pa.string()], timed=True)
    found = index.find([pa.array(["a", "longer than a word", None])], 3, np.array([5, -6, 7], np.int64))
    keys = index.identities(found.slots)
    rows, times = identity_rows(keys.slice(1), timed=True)
    assert times is not None
    assert times.tolist() == [-6, 7]
    expected = encode([pa.array(["longer than a word", None])], 2)
    assert rows.offsets.tolist() == expected.offsets.tolist()
    assert rows.words.tolist() == expected.words.tolist()


def test_entries_that_have_not_moved_to_the_larger_table_are_found_and_removed() -> None:
    """A dict is the reference: keys come, go and come again while the table is being exchanged, again and again."""
    random, index = np.random.default_rng(7), KeyIndex([pa.int64()], timed=False)
    known: dict[int, int] = {}
    exchanging = 0
    for _ in range(400):
        keys = random.integers(0, 60_000, 300)
        found = index.find([pa.array(keys)], len(keys))
        fresh = set(found.fresh.tolist())
        for key, slot in zip(keys.tolist(), found.slots.tolist(), strict=True):
            assert known.setdefault(key, slot) == slot
            assert (slot in fresh) or index.live[slot]
        exchanging += index._left is not None
        gone = random.choice(list(known), 60, replace=False).tolist()
        index.remove(np.array([known.pop(key) for key in gone], np.int64))
    assert len(index) == len(known)
    assert exchanging > 20
    everything = index.all()
    assert sorted(index.keys(everything)[0].to_pylist()) == sorted(known)


def test_looking_finds_what_has_not_moved_yet() -> None:
    index, keys = KeyIndex([pa.int64()], timed=False), np.arange(1_000)
    for low in range(0, 1_000, 130):
        found = index.find([pa.array(keys[low : low + 130])], len(keys[low : low + 130]))
        assert index.look([pa.array(keys[low : low + 130])], len(found.slots)).tolist() == found.slots.tolist()
        assert (index.look([pa.array(keys[: low + 1])], low + 1) > 0).all()
        assert index.look([pa.array([-1, 5_000])], 2).tolist() == [-1, -1]


@pytest.mark.parametrize("timed", [False, True])
def test_a_large_index_finds_what_a_small_one_does(timed: bool) -> None:
    """Of every length of text, null, absent, at any offset; the two loops must agree."""
    random = np.random.default_rng(3)
    known = [None, "", *("x" * int(n) + str(i) for i, n in enumerate(random.integers(0, 20, 5_000)))]
    index = KeyIndex([pa.string()], timed)
    times = random.integers(0, 3, len(known)) if timed else None
    slots = index.find([pa.array(known)], len(known), times).slots
    assert index.numbers > 4_096
    chosen = random.integers(0, len(known), 3_000)
    asked = pa.array([known[i] if i % 7 else f"absent-{i}" for i in chosen], pa.string()).slice(5)
    wanted = np.array([slots[i] if i % 7 else -1 for i in chosen])[5:]
    given = (times[chosen][5:] if times is not None else NO_TIMES).copy()
    shape = column_of(asked)
    far, near = np.empty(len(asked), np.int64), np.empty(len(asked), np.int64)
    missing = seek_text_far(index, shape, given, index._table, far)
    place = (index._arena, index._starts, index.times)
    assert look_up_text(*_text(shape, given), index._table, *place, near) == missing == int((wanted < 0).sum())
    assert np.maximum(far, -1).tolist() == near.tolist() == wanted.tolist()


def test_keys_never_lie_where_no_start_can_point_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Near the limit what is garbage goes first; only when the keys themselves are too many is that an error."""
    monkeypatch.setattr("operators.index._MOST_WORDS", 4_000)
    index = KeyIndex([pa.int64()], timed=False)
    held = index.find([pa.array(range(1_000))], 1_000).slots
    for turn in range(1, 30):
        gone, held = held[:300], held[300:]
        index.remove(gone)
        fresh = range(10_000 * turn, 10_000 * turn + 300)
        held = np.concatenate([held, index.find([pa.array(fresh)], 300).slots])
        assert len(index._arena) <= 4_000
        assert index.keys(held[-300:])[0].to_pylist() == list(fresh)
    with pytest.raises(SeepError, match="scale the operator out"):
        index.find([pa.array(range(10**6, 10**6 + 2_000))], 2_000)


def test_searches_are_counted_anew_after_the_last_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operators.search._LAST_STAMP", 3)
    index = KeyIndex([pa.int64()], timed=False)
    for _ in range(10):
        found = index.find([pa.array([5, 6, 5])], 3)
        assert found.touched.tolist() == found.slots[:2].tolist()
