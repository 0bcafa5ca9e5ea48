"""Running counts: `keyed-count` of string keys, and `word-count` of sentences split by a plain Python function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

import seep
from benchmarks.workload import Workload
from benchmarks.workloads.windows import names_of

KEYS = 10_000
WORDS = 5_000
WORDS_PER_SENTENCE = 10


@dataclass(frozen=True)
class Visits:
    """Of so many stores, without a time."""

    keys: int

    def __call__(self, split: int, rows: int, seed: int) -> pa.RecordBatch:
        rng = np.random.default_rng([seed, split])
        stores = names_of(self.keys).take(pa.array(rng.integers(0, self.keys, rows)))
        return pa.record_batch({"store": stores, "amount": rng.integers(0, 10_000, rows)})


def sentences(split: int, rows: int, seed: int) -> pa.RecordBatch:
    """Words as frequent as in speech: the k-th in proportion to 1/k."""
    rng, shared = np.random.default_rng([seed, split]), np.random.default_rng(seed)
    weights = 1 / np.arange(1, WORDS + 1)
    letters = shared.integers(ord("a"), ord("z") + 1, (WORDS, 8), dtype=np.uint8)
    lengths = shared.integers(3, 9, WORDS)
    words = pa.array([bytes(row[:length]).decode() for row, length in zip(letters, lengths, strict=True)])
    drawn = rng.choice(WORDS, rows * WORDS_PER_SENTENCE, p=weights / weights.sum())
    offsets = np.arange(rows + 1, dtype=np.int32) * WORDS_PER_SENTENCE
    lists = pa.ListArray.from_arrays(pa.array(offsets), words.take(pa.array(drawn)))
    return pa.record_batch({"sentence": pc.binary_join(lists, " ")})


class Word(NamedTuple):
    word: str


def split_sentence(row: Any) -> list[str]:
    words: list[str] = row.sentence.split(" ")
    return words


def _keyed_count(streams: Mapping[str, seep.Stream]) -> Any:
    return streams["sales"].key_by("store").aggregate(n=seep.count())


def _word_count(streams: Mapping[str, seep.Stream]) -> Any:
    return streams["lines"].flat_map(split_sentence, schema=Word).key_by("word").aggregate(n=seep.count())


def _words(frame: pl.LazyFrame) -> pl.LazyFrame:
    return frame.with_columns(word=pl.col("sentence").str.split(" ")).explode("word")


def keyed_count(keys: int) -> Workload:
    return Workload(
        "keyed-count",
        "a running count by string key",
        rows=10_000_000,
        lap_rows=1_000_000,
        blocks={"sales": Visits(keys)},
        build=_keyed_count,
        answer=lambda frames: frames["sales"].group_by("store").agg(n=pl.len().cast(pl.Int64)),
        sql="select store, count(*) as n from sales group by store",
        columns=("store", "n"),
        keys=("store",),
        repeated=lambda rows: rows.group_by("store").agg(n=pl.col("times").sum()),
        settings={"keys": keys},
        keyed=keyed_count,
    )


KEYED_COUNT = keyed_count(KEYS)
WORD_COUNT = Workload(
    "word-count",
    "sentences of ten words, split by a Python function, and a running count by word",
    rows=1_000_000,
    lap_rows=100_000,
    blocks={"lines": sentences},
    build=_word_count,
    answer=lambda frames: _words(frames["lines"]).group_by("word").agg(n=pl.len().cast(pl.Int64)),
    sql="select word, count(*) as n from (select unnest(string_split(sentence, ' ')) as word from lines) group by word",
    columns=("word", "n"),
    keys=("word",),
    repeated=lambda rows: _words(rows).group_by("word").agg(n=pl.col("times").sum()),
    settings={"words": WORDS, "words_per_sentence": WORDS_PER_SENTENCE},
)
