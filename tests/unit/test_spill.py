"""Spilled output is the same output."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from seep.model.arrow import ArrowBatch
from seep.model.epoch import Progress
from seep.model.ids import BEGINNING, KeyRange
from seep.runtime.spill import spill_into
from seep.state.buffer import Buffer
from seep.state.checkpoint import Buffered


def batch_of(epoch: int) -> ArrowBatch:
    record = pa.record_batch({"n": np.arange(1000) + epoch, "text": [str(n) for n in range(1000)]})
    return ArrowBatch(record, (np.arange(1000) * 4).astype(np.uint16))


def test_a_buffer_beyond_its_limit_keeps_its_rows_on_disk(tmp_path: Path) -> None:
    buffer = Buffer(Progress(0, 0, BEGINNING, 0))
    one_bytes = batch_of(0).size_bytes
    for epoch in range(1, 11):
        buffer.add(Buffered(Progress(epoch, 0, 0, 0), (batch_of(epoch),)))
        buffer.spill(3 * one_bytes, spill_into(tmp_path))
    assert buffer.memory_bytes <= 3 * one_bytes
    assert buffer.spilled == 7
    assert list(tmp_path.iterdir()) == []
    for epoch in range(1, 11):
        (found,) = buffer.at(epoch - 1).batches
        assert isinstance(found, ArrowBatch)
        assert found.record == batch_of(epoch).record
        assert found.digest() == batch_of(epoch).digest()
        low = KeyRange(0, 2000)
        assert found.part(low).record == batch_of(epoch).part(low).record
    buffer.trim(8)
    assert buffer.memory_bytes == 2 * one_bytes
    buffer.cut_from(10)
    assert buffer.memory_bytes == one_bytes
    buffer.trim(10)
    assert (buffer.memory_bytes, buffer.size_bytes) == (0, 0)


def test_a_process_that_is_killed_while_it_spills_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, seen = pa.ipc.new_file, []

    def look(*arguments: Any) -> Any:
        seen.append(list(tmp_path.iterdir()))
        return before(*arguments)

    monkeypatch.setattr(pa.ipc, "new_file", look)
    descriptors = len(os.listdir("/proc/self/fd"))
    kept = [spill_into(tmp_path)(batch_of(epoch)) for epoch in range(3)]
    assert seen == [[], [], []]
    assert len(os.listdir("/proc/self/fd")) == descriptors, "one for each would soon be too many"
    assert [batch.digest() for batch in kept] == [batch_of(epoch).digest() for epoch in range(3)]
