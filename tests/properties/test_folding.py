"""A chain folded by the store restores to the same thing as the chain."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from seep.model.arrow import BUCKET, DELETED, KEY, ArrowBatch, ArrowState
from seep.model.epoch import Progress
from seep.model.ids import BEGINNING, EVERYTHING, Generation, PartitionId
from seep.protocol.effects import FenceStore, LoadCheckpoints, PutCheckpoint
from seep.runtime.stores.checkpoints import CHAIN_MAXIMUM, CHAIN_MINIMUM
from seep.runtime.stores.directory import DirectoryStore
from seep.state.checkpoint import Buffered, Checkpoint
from seep.state.folding import fold

PART = PartitionId("count", 0)
changes = st.lists(st.dictionaries(st.integers(0, 8), st.one_of(st.none(), st.integers(0, 99))), min_size=1, max_size=9)


def state(entries: dict[int, int | None], increment: bool) -> ArrowState:
    columns = {
        BUCKET: pa.array([k * 100 for k in entries], pa.uint16()),
        KEY: pa.array([str(k).encode() for k in entries], pa.binary()),
        "value": pa.array([v or 0 for v in entries.values()], pa.int64()),
    }
    if increment:
        columns[DELETED] = pa.array([v is None for v in entries.values()], pa.bool_())
    return ArrowState({"t": pa.record_batch(columns)})


def checkpoint(version: int, entries: dict[int, int | None], trimmed: int) -> Checkpoint:
    if version == 1:
        entries = {key: value for key, value in entries.items() if value is not None}
    batch = ArrowBatch(pa.record_batch({"n": [version]}), np.zeros(1, np.uint16))
    return Checkpoint(
        PART,
        Generation(1, 1),
        EVERYTHING,
        version,
        version - 1,
        version,
        0,
        BEGINNING,
        False,
        state(entries, version > 1),
        {"out": (Buffered(Progress(version, 0, 0, 0), (batch,)),)},
        {"out": Progress(trimmed, 0, 0, 0)},
    )


def contents(chain: list[Checkpoint]) -> tuple[dict[bytes, int], list[int]]:
    """What a partition that loads the chain remembers, and which epochs it can serve."""
    found: dict[bytes, int] = {}
    served: list[int] = []
    for one in chain:
        assert isinstance(one.state, ArrowState)
        for row in one.state.tables["t"].to_pylist():
            if row.get(DELETED):
                found.pop(row[KEY], None)
            else:
                found[row[KEY]] = row["value"]
        served += [entry.progress.epoch for entry in one.buffers["out"]]
    return found, [epoch for epoch in served if epoch > chain[-1].trimmed["out"].epoch]


@given(changes, st.data())
def test_a_folded_chain_is_the_chain(steps: list[dict[int, int | None]], data: st.DataObject) -> None:
    trimmed = sorted(data.draw(st.integers(0, at)) for at in range(len(steps)))
    chain = [checkpoint(at + 1, entries, trimmed[at]) for at, entries in enumerate(steps)]
    folded = fold(chain)
    assert folded.parent == 0
    assert contents([folded]) == contents(chain)


def test_a_store_keeps_chains_short_and_says_where_they_start(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path, b"k" * 32, fsync=False)
    store.perform(FenceStore(1, PART, Generation(0, 0)))
    known: dict[bytes, int] = {}
    roots = []
    for version in range(1, 3 * CHAIN_MINIMUM + 2):
        reply = store.perform(PutCheckpoint(1, checkpoint(version, {version % 5: version}, 0)))
        assert reply is not None
        store.fold(PART, Generation(1, 1))
        known[str(version % 5).encode()] = version
        roots.append(reply.value)
    assert len(set(roots)) > 2
    assert roots == sorted(roots)
    # Another process goes on with the same chain, which was folded after the last put.
    again = DirectoryStore(tmp_path, b"k" * 32, fsync=False)
    version = 3 * CHAIN_MINIMUM + 2
    assert again.perform(PutCheckpoint(1, checkpoint(version, {0: 77}, 0))).value == version - 1  # type: ignore[union-attr]
    known[b"0"] = 77
    loaded = again.perform(LoadCheckpoints(2, PART))
    assert loaded is not None
    assert contents(loaded.value) == (known, list(range(1, version + 1)))
    assert len(loaded.value) <= CHAIN_MAXIMUM
