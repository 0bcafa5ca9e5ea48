"""What a workload must give, computed by Polars (or DuckDB) from the rows that were given, without any flow.

The rows of a long run are the same block again and again with later times, so of results in time only the first laps,
one in the middle and the last need computing: the others are the middle one, later. A Table is computed from the block
with a count of how often each row came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.digest import Digest, digest
from benchmarks.looped import BASE_US, Looped
from benchmarks.workload import LAP_US, Workload

Given = Mapping[str, Sequence[int]]
"""By source: how many rows each split has given."""


def expected(workload: Workload, given: Given, seed: int) -> Digest:
    sources = {name: workload.looped(name, seed) for name in workload.blocks}
    if workload.repeated is not None:
        [(name, source)] = sources.items()
        return digest_frame(workload.repeated(_counted(source, given[name]).lazy()).collect(), workload.columns)
    return _in_time(workload, sources, given)


def digest_frame(frame: pl.DataFrame, columns: Sequence[str]) -> Digest:
    table = frame.select(columns).rechunk().to_arrow()
    return digest_table(table, columns)


def digest_table(table: pa.Table, columns: Sequence[str]) -> Digest:
    whole = table.select(list(columns)).combine_chunks()
    return digest([_plain(column) for column in whole.columns])


def _plain(column: pa.ChunkedArray) -> pa.Array:
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz))
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _counted(source: Looped, given: Sequence[int]) -> pl.DataFrame:
    parts = []
    for split, rows in enumerate(given):
        laps, rest = divmod(rows, source.lap_rows)
        for count, times in ((source.lap_rows, laps), (rest, 1)):
            if count and times:
                part = _frame(source.record(split, 0, count))
                parts.append(part.with_columns(times=pl.lit(times, pl.Int64)))
    return pl.concat(parts)


def _in_time(workload: Workload, sources: Mapping[str, Looped], given: Given) -> Digest:
    around = 1 + workload.reach_us // LAP_US
    whole = min(rows // sources[name].lap_rows for name, each in given.items() for rows in each)
    most = max(rows // sources[name].lap_rows for name, each in given.items() for rows in each)
    found, middle = Digest(), None
    # A row may be late by less than a lap, so results may lie in the lap after the last; windows that slide begin
    # before their first row.
    for lap in range(-around, most + 2 + around):
        inner = around + 1 <= lap < whole - around
        if not inner:
            found = found.plus(digest_frame(_lap(workload, sources, given, lap, around), workload.columns))
            continue
        if middle is None:
            middle = (lap, _lap(workload, sources, given, lap, around))
        later = pl.duration(microseconds=(lap - middle[0]) * LAP_US)
        times = [pl.col(name) + later for name, kind in middle[1].schema.items() if isinstance(kind, pl.Datetime)]
        found = found.plus(digest_frame(middle[1].with_columns(times), workload.columns))
    return found


def _lap(workload: Workload, sources: Mapping[str, Looped], given: Given, lap: int, around: int) -> pl.DataFrame:
    """The results whose time lies in this lap."""
    assert workload.time is not None
    frames = {}
    for name, source in sources.items():
        parts = []
        for split, rows in enumerate(given[name]):
            # Rows of a lap may have times in the next one, hence one lap more before than after.
            start = max(0, lap - around - 1) * source.lap_rows
            end = min(rows, max(0, lap + around + 1) * source.lap_rows)
            parts.append(_frame(source.record(split, start, max(start, end))))
        frames[name] = pl.concat(parts).lazy()
    begin_us = BASE_US + lap * LAP_US
    begin, end_ = (pa.scalar(us, pa.timestamp("us", "UTC")) for us in (begin_us, begin_us + LAP_US))
    answer = workload.answer(frames).collect().to_arrow()
    times = answer.column(workload.time)
    inside = pc.and_(pc.greater_equal(times, begin), pc.less(times, end_))
    found = pl.from_arrow(answer.filter(inside))
    assert isinstance(found, pl.DataFrame)
    return found


def _frame(record: Any) -> pl.DataFrame:
    frame = pl.from_arrow(record)
    assert isinstance(frame, pl.DataFrame)
    return frame
