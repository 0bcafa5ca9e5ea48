"""Dead letters that no stream of the flow takes: kept as JSON lines in one bounded file of the job directory.

All workers of a job append to the same file. Once it is full, letters are only counted (`seep_dead_letters_total`):
a flow that refuses every row must not fill the disk. It is for people to read, not part of the exactly-once promise:
a replay after a crash may write a letter again; its operator, epoch and position say that it is the same one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from seep.partition.operator import OperatorPartition
from seep.partition.source import SourcePartition
from seep.partition.worker import Partition
from seep.protocol.journal import SHADOW
from seep.runtime.stores.files import locked, write_all

NAME = "dead-letters.jsonl"
LIMIT_BYTES = 10 << 20


class DeadLetters:
    def __init__(self, job_path: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self._path = job_path / NAME
        self._limit_bytes = limit_bytes
        self.unwritten = 0
        """Letters that found no room, or no working disk."""

    def collect(self, partitions: Iterable[Partition]) -> None:
        """Write what these partitions refused since the last call."""
        letters: list[dict[str, Any]] = []
        for partition in partitions:
            takes = [getattr(code, "take_unclaimed", None) for code in _code_of(partition)]
            found = [letter for take in takes if take is not None for letter in take()]
            # A shadow repeats what the one it will replace has said.
            if partition.entry.role != SHADOW:
                letters += found
        if letters:
            self._append(letters)

    def _append(self, letters: list[dict[str, Any]]) -> None:
        lines = [json.dumps(letter).encode() + b"\n" for letter in letters]
        try:
            with locked(self._path.with_suffix(".lock")):
                descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
                try:
                    room = self._limit_bytes - os.fstat(descriptor).st_size
                    fitting: list[bytes] = []
                    for line in lines:
                        room -= len(line)
                        if room < 0:
                            break
                        fitting.append(line)
                    write_all(descriptor, fitting)
                finally:
                    os.close(descriptor)
        except OSError:
            fitting = []
        self.unwritten += len(lines) - len(fitting)


def _code_of(partition: Partition) -> list[Any]:
    """What a partition runs, and what it ran until it was upgraded."""
    if isinstance(partition, OperatorPartition):
        before, partition.code.before = partition.code.before, None
        return [before, partition.logic]
    return [partition.intake] if isinstance(partition, SourcePartition) else [partition.outlet]
