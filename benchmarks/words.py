"""A word count that is asleep while it works: how many partitions each stage needs is known before anything runs.

    rows: sentences of four words --number--> split --word--> count --> out: the count of a word, when it has grown

Splitting and counting take a fixed time for each row, slept, so that many partitions run on few cores. The oracle
counts the words of the same sentences again with numpy.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import seep
from benchmarks.arrivals import ArrivalSink, epochs_of, read_file
from benchmarks.load import SOURCE, SmallReads, numbers_of_split

SPLIT, COUNT = "split", "count"
VOCABULARY = 1_000
WORDS = 4
"""In a sentence."""
MOST_PARTITIONS = 12
READ_ROWS = 50
"""Of one split for one epoch: with 8 splits and 100 ms, 4,000 sentences a second."""
EPOCH = "100ms"
"""Dozens of workers share the machine: each epoch costs every one of them some work beside the sleep."""
MOST_LATE_SECONDS = 0.2
"""Made up for; a process that was stopped for longer does not work it off."""
SENTENCE = pa.schema({"number": pa.int64(), "text": pa.string()})
WORD = pa.schema({"number": pa.int64(), "word": pa.string()})
COUNTED = pa.schema({"word": pa.string(), "count": pa.int64()})


def words_of(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Of each sentence the numbers of its words, a row each."""
    places = numbers[:, None] * WORDS + np.arange(WORDS, dtype=np.int64)
    return np.asarray(places * 7919 % VOCABULARY)


def sentences(first: int, count: int) -> pa.RecordBatch:
    numbers = np.arange(first, first + count, dtype=np.int64)
    texts = [" ".join(f"w{word}" for word in row) for row in words_of(numbers).tolist()]
    return pa.record_batch([pa.array(numbers), pa.array(texts)], schema=SENTENCE)


class Sentences(SmallReads):
    read_rows = READ_ROWS


class Pace:
    """A fixed time for each row, on the average: who wakes late on a busy machine sleeps less the next time. Otherwise
    many partitions, which sleep as often for fewer rows each, would be slower than they are said to be."""

    def __init__(self, seconds_per_row: float) -> None:
        self.seconds_per_row = seconds_per_row
        self._late = 0.0

    def take(self, rows: int) -> None:
        seconds, began = rows * self.seconds_per_row - self._late, time.monotonic()
        time.sleep(max(0.0, seconds))
        self._late = min(time.monotonic() - began - seconds, MOST_LATE_SECONDS)


class Split(seep.BatchOperator):
    def __init__(self, seconds_per_row: float) -> None:
        self.pace = Pace(seconds_per_row)

    def on_batch(self, batch: pa.RecordBatch, ctx: Any) -> None:
        self.pace.take(batch.num_rows)
        words = pc.split_pattern(batch.column("text"), " ")
        numbers = batch.column("number").take(pc.list_parent_indices(words))
        ctx.emit(pa.record_batch([numbers, pc.list_flatten(words)], schema=WORD))


class Count(seep.BatchOperator):
    counts = seep.TableState({"count": int})

    def __init__(self, seconds_per_row: float) -> None:
        self.pace = Pace(seconds_per_row)

    def on_batch(self, batch: pa.RecordBatch, ctx: Any) -> None:
        self.pace.take(batch.num_rows)
        grouped = pa.Table.from_batches([batch]).group_by("word", use_threads=False).aggregate([("word", "count")])
        new = grouped.combine_chunks().to_batches()[0]
        count = pc.add(new["word_count"], pc.fill_null(self.counts.get(new)["count"], 0))
        result = pa.record_batch([new["word"], count], schema=COUNTED)
        self.counts.put(result)
        ctx.emit(result)


def flow_of(
    name: str, rate: float, stages: Mapping[str, float], starts: Mapping[str, int], policy: Any, path: Path
) -> seep.Flow:
    """`rate`: sentences a second; `stages`: rows a second that one partition of each takes."""
    flow = seep.Flow(name, epoch=EPOCH, checkpoint="2s")
    rows = flow.source(SOURCE, Sentences(fn_batch=sentences, rate=rate))
    words = rows.key_by("number").apply(Split(1 / stages[SPLIT]), out=WORD, on_error="fail").named(SPLIT)
    words = words.scale(start=starts[SPLIT], max=MOST_PARTITIONS, policy=policy)
    counted = words.key_by("word").apply(Count(1 / stages[COUNT]), out=COUNTED, on_error="fail").named(COUNT)
    counted = counted.scale(start=starts[COUNT], max=MOST_PARTITIONS, policy=policy)
    counted.sink("out", ArrivalSink(path))
    return flow


def verdict(path: Path, given: Mapping[int, int]) -> dict[str, int]:
    """`given`: sentences of each split. Of a word every count must be greater than the one before, and the last one the
    number of times it was there."""
    found = {"rows_out": 0, "lost": 0, "duplicated": 0, "reordered": 0}
    last: dict[str, int] = {}
    for _, _, file in epochs_of(path):
        record = read_file(file)
        found["rows_out"] += record.num_rows
        for word, count in zip(record.column("word").to_pylist(), record.column("count").to_pylist(), strict=True):
            before = last.get(word, 0)
            found["duplicated"] += count == before
            found["reordered"] += count < before
            last[word] = count
    expected = np.zeros(VOCABULARY, np.int64)
    for split, rows in given.items():
        expected += np.bincount(words_of(numbers_of_split(split, rows)).ravel(), minlength=VOCABULARY)
    for word, times in enumerate(expected.tolist()):
        difference = last.get(f"w{word}", 0) - times
        found["duplicated"] += max(0, difference)
        found["lost"] += max(0, -difference)
    return found
