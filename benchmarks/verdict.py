"""What came out, compared row by row with what must: lost, duplicated, reordered, wrong.

The oracle makes all rows again with numpy and adds them up by key; it knows nothing of epochs, partitions or kills.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.arrivals import epochs_of, read_file
from benchmarks.load import Load, Numbers, key_of_other, numbers_of_split
from seep.flow.outlet import decode
from seep.model.arrow import BUCKET


@dataclass
class Verdict:
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    wrong: int = 0
    rows_in: int = 0
    rows_out: int = 0

    @property
    def identical(self) -> bool:
        return self.rows_out > 0 and not (self.lost or self.duplicated or self.reordered or self.wrong)

    def figures(self) -> dict[str, int]:
        return {
            "lost": self.lost,
            "duplicated": self.duplicated,
            "reordered": self.reordered,
            "wrong": self.wrong,
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
        }


class Oracle:
    """By key: how many rows it has, and the total of the first n of them."""

    def __init__(self, load: Load, given: Mapping[int, int]) -> None:
        self.keys = load.keys + load.cold_keys
        self.counts = np.zeros(self.keys, np.int64)
        self._start = np.zeros(self.keys, np.int64)
        prefixes = [np.zeros(1, np.int64)]
        offset, total = 0, 0
        for split, rows in sorted(given.items()):
            numbers = numbers_of_split(split, rows)
            keys = load.key_of(numbers)
            order = np.argsort(keys, kind="stable")
            counts = np.bincount(keys, minlength=self.keys)
            mine = counts > 0
            self._start[mine] = offset + (np.cumsum(counts) - counts)[mine]
            self.counts += counts
            prefix = np.cumsum(load.value_of(numbers[order])) + total
            prefixes.append(prefix)
            offset += rows
            total = int(prefix[-1]) if rows else total
        self._prefix = np.concatenate(prefixes)
        self.rows = offset

    def totals(self, keys: Numbers, n: Numbers) -> Numbers:
        start = self._start[keys]
        return np.asarray(self._prefix[np.minimum(start + n, self.rows)] - self._prefix[start])


def judge(load: Load, given: Mapping[int, int], path: Path, committed: Iterable[tuple[int, bytes | None]]) -> Verdict:
    """`given`: rows of each split; `path`: what was published; `committed`: what only the log of the sink has."""
    oracle = Oracle(load, given)
    verdict = Verdict(rows_in=oracle.rows)
    changes, seen, counted = (np.zeros(oracle.keys, np.int64) for _ in range(3))
    for records in _epochs(path, committed, verdict):
        record = pa.concat_batches(records) if len(records) > 1 else records[0]
        columns = {name: record.column(name).to_numpy() for name in ("other", "changes", "n", "total")}
        keys = key_of_other(columns["other"])
        verdict.rows_out += len(keys)
        unique, first = np.unique(keys, return_index=True)
        verdict.duplicated += len(keys) - len(unique)
        change, n, total = (columns[name][first] for name in ("changes", "n", "total"))
        running = record.column("counted").to_numpy()[first]
        step = change - changes[unique]
        verdict.lost += int((step[step > 1] - 1).sum())
        verdict.duplicated += int((step == 0).sum())
        verdict.reordered += int((step < 0).sum())
        good = (n > seen[unique]) & (n <= oracle.counts[unique]) & (total == oracle.totals(unique, n))
        verdict.wrong += int((~(good & (running == counted[unique] + n)) & (step == 1)).sum())
        changes[unique], seen[unique], counted[unique] = change, n, running
    missing = oracle.counts - seen
    verdict.lost += int(missing[missing > 0].sum())
    verdict.duplicated += int(-missing[missing < 0].sum())
    return verdict


def _epochs(
    path: Path, committed: Iterable[tuple[int, bytes | None]], verdict: Verdict
) -> Iterable[list[pa.RecordBatch]]:
    """The records of each epoch, in order. What stands in both places must be the same."""
    files: dict[tuple[int, int], Path | pa.RecordBatch] = {(epoch, low): file for epoch, low, file in epochs_of(path)}
    for epoch, data in committed:
        if data is None:
            continue
        record = decode(data)
        place = (epoch, record.column(BUCKET)[0].as_py())
        known = files.setdefault(place, record)
        if isinstance(known, Path) and not read_file(known).equals(record):
            verdict.wrong += record.num_rows
    by_epoch: dict[int, list[tuple[int, int]]] = {}
    for place in sorted(files):
        by_epoch.setdefault(place[0], []).append(place)
    for places in by_epoch.values():
        found = [files[place] for place in places]
        yield [read_file(one) if isinstance(one, Path) else one for one in found]
