"""Notes in the flow's store: which row is being run, found by whoever comes after a process that died of it.

The store is what every worker reaches, on whatever host, and it is there when a host is gone. Nothing is synced to a
disk for a note: a machine that goes down takes no row's blame.
"""

from __future__ import annotations

import time

from seep.errors import Retry
from seep.model.ids import Generation, PartitionId
from seep.partition.wary import Note
from seep.runtime.clock import now_ms
from seep.runtime.stores.base import Store
from seep.state import plain

WAIT_MS = 60_000.0
"""For a store that is away. To run a row without a note would leave the blame with the one before it."""
PAUSE_SECONDS = 0.1
ROW_SECONDS = 1.0
"""Before a suspected row is run once more: most rows take thousandths of it."""


class StoreNotes:
    """`seep.partition.wary.Notes`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def write(self, partition: PartitionId, generation: Generation, note: Note | None) -> None:
        value = None if note is None else plain.pack(note)
        until_ms = now_ms() + WAIT_MS
        while True:
            try:
                self._store.note(partition, generation, value)
                return
            except OSError as problem:
                if now_ms() > until_ms:
                    raise Retry(f"the store takes no notes: {problem}") from problem
                time.sleep(PAUSE_SECONDS)

    def wait(self) -> None:
        time.sleep(ROW_SECONDS)

    def read(self, partition: PartitionId, generation: Generation) -> Note | None:
        try:
            value = self._store.noted(partition, generation)
            return None if value is None else plain.unpack(Note, value)
        except (OSError, plain.MisfitError):
            return None  # what cannot be read blames nobody
