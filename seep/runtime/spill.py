"""Output kept for replay goes to disk when there is much of it.

The batch that comes back is the same one, its columns mapped from a file. The file never has a name: its space is free
again as soon as the batch is forgotten, and after a kill, also one in the middle of the writing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from seep.model.arrow import BUCKET, ArrowBatch
from seep.model.batch import Batch


def spill_into(directory: Path) -> Callable[[Batch], Batch]:
    """A function that puts a batch on the disk of this directory. On a full disk the batch stays in memory."""

    def spill(batch: Batch) -> Batch:
        if not isinstance(batch, ArrowBatch) or batch.rows == 0:
            return batch
        record = batch.record.append_column(BUCKET, pa.array(batch.buckets))
        try:
            with tempfile.TemporaryFile(dir=directory) as file:
                with pa.ipc.new_file(pa.PythonFile(file, "w"), record.schema) as writer:
                    writer.write_batch(record)
                file.flush()
                mapped = pa.memory_map(f"/proc/self/fd/{file.fileno()}")
        except OSError:
            return batch
        found = pa.ipc.open_file(mapped).get_batch(0)
        names = batch.record.schema.names
        return ArrowBatch(found.select(names), found.column(BUCKET).to_numpy())

    return spill
