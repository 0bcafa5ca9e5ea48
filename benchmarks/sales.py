"""Rows of a topic as JSON, and what one-second windows over them must hold, by DuckDB from the same JSON.

Rows of a store lie in one partition, as is usual in Kafka. They come in the order of their times, except that each may
be up to two seconds early; so with two seconds of lateness none is late. After the last row comes one of an hour later
in each partition: it closes all windows before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

BASE_MS = 1_700_000_000_000
WINDOW_MS, LATENESS_MS = 1_000, 2_000
ROWS_PER_MS = 50
KEYS = 1_000
PARTITIONS = 4
HOUR_MS = 3_600_000
END = "end"


class Message(NamedTuple):
    partition: int
    key: bytes
    value: bytes


@dataclass(frozen=True)
class Sales:
    rows: int
    seed: int = 42

    def columns(self) -> pl.DataFrame:
        rng = np.random.default_rng(self.seed)
        return pl.DataFrame(
            {
                "number": rng.integers(0, KEYS, self.rows),
                "at": BASE_MS + np.arange(self.rows) // ROWS_PER_MS + rng.integers(0, LATENESS_MS, self.rows),
                "amount": rng.integers(0, 10_000, self.rows),
            }
        )

    def write(self, path: Path) -> npt.NDArray[np.int64]:
        """The rows as JSON, a line each; the number of the store of each."""
        known = self.columns()
        stores = pl.Series([store_of(number) for number in range(KEYS)])
        known.select(store=stores.gather(known["number"]), at="at", amount="amount").write_ndjson(path)
        return known["number"].to_numpy()

    def messages(self, path: Path, numbers: npt.NDArray[np.int64], first: int, end: int) -> Iterator[Message]:
        """Rows from one place to another; behind the last of all, those that close the windows."""
        keys = [store_of(number).encode() for number in range(KEYS)]
        with path.open("rb") as file:
            for number, value in zip(numbers[:end].tolist(), file, strict=False):
                if first:
                    first -= 1
                    continue
                yield Message(number % PARTITIONS, keys[number], value[:-1])
        if end >= self.rows:
            last = {"store": END, "at": BASE_MS + self.rows // ROWS_PER_MS + HOUR_MS, "amount": 0}
            for partition in range(PARTITIONS):
                yield Message(partition, END.encode(), json.dumps(last).encode())

    def closed_by(self, end: int) -> int:
        """Windows that begin before this are over for everybody when so many rows were read. A second is left out,
        since not all mean the same by the last millisecond."""
        return BASE_MS + end // ROWS_PER_MS - LATENESS_MS - 2 * WINDOW_MS


def store_of(number: int) -> str:
    return f"store-{number:03d}"


def expected(path: Path) -> pl.DataFrame:
    """All windows, by DuckDB."""
    import duckdb

    place = str(path).replace("'", "''")
    question = f"""
        select store, "at" - "at" % {WINDOW_MS} as window_start, count(*) as items,
               sum(amount)::bigint as revenue, max(amount) as largest
        from read_json('{place}', format = 'newline_delimited',
                       columns = {{store: 'varchar', "at": 'bigint', amount: 'bigint'}})
        group by all"""
    with duckdb.connect() as connection:
        found = pl.from_arrow(connection.sql(question).to_arrow_table())
    assert isinstance(found, pl.DataFrame)
    return ordered(found)


def results_of(values: Iterable[bytes]) -> pl.DataFrame:
    """What a system has written, each time as often as it has. Times are milliseconds or ISO 8601.

    >>> one = b'{"store": "a", "window_start": %s, "items": 1, "revenue": 2, "largest": 2}'
    >>> results_of([one % b"5000", one % b'"1970-01-01T00:00:05Z"']).get_column("window_start").to_list()
    [5000, 5000]
    """
    names = ("store", "window_start", "items", "revenue", "largest")
    rows = [json.loads(value) for value in values]
    columns = {name: [row[name] for row in rows] for name in names}
    columns["window_start"] = [_milliseconds(start) for start in columns["window_start"]]
    return ordered(pl.DataFrame(columns, schema={"store": pl.String, **dict.fromkeys(names[1:], pl.Int64)}))


def ordered(results: pl.DataFrame) -> pl.DataFrame:
    return results.sort(results.columns)


@cache
def _milliseconds(time: int | str) -> int:
    return time if isinstance(time, int) else round(datetime.fromisoformat(time).timestamp() * 1000)


def judged(found: pl.DataFrame, right: pl.DataFrame) -> dict[str, int]:
    """What is wrong with what was read.

    >>> one = pl.DataFrame({"store": ["a"], "window_start": [0], "items": [1], "revenue": [2], "largest": [2]})
    >>> judged(pl.concat([one, one]), one)
    {'lost': 0, 'duplicated': 1, 'wrong': 0}
    >>> judged(one.with_columns(items=pl.col("items") + 1), one)
    {'lost': 0, 'duplicated': 0, 'wrong': 1}
    """
    place = ["store", "window_start"]
    once = found.unique(place, keep="any")
    return {
        "lost": right.join(once, on=place, how="anti").height,
        "duplicated": found.height - once.height,
        "wrong": found.unique().join(right, on=right.columns, how="anti").height,
    }
