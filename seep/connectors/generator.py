"""Rows made by a function of their number: load for demos, tests and benchmarks, the same at every read.

Numbers are dealt in blocks to a fixed count of splits, so the rows of a split do not depend on how many partitions
read it. With a rate each split releases its share evenly from its first read on. The time of that read is part of the
position, so a source that is started again keeps the pace; and so is the size of the blocks, which are small where rows
come slowly: numbers then come about in their order, and few rows are as fast as many.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from math import inf
from numbers import Integral, Real
from typing import Any

import pyarrow as pa

from seep.connectors.complete import complete
from seep.connectors.contract import Rows
from seep.errors import Misuse
from seep.model.schema import infer_schema, normalise, physical, record_of, schema_of

SPLITS = 8
BLOCK_ROWS, BLOCK_MS = 1_000, 10
"""A block holds at most so many rows, and of a source with a rate what comes in so many milliseconds."""
ENDLESS = 2**62


class GeneratorSource:
    """Rows made from their numbers 0, 1, ...: by ``fn(i) -> row``, or by ``fn_batch(first, n) -> RecordBatch``.

    ``rate`` is how many rows come in a second, as many as can be without it; ``rows`` how many there are in all, else
    they never end.

    >>> GeneratorSource(lambda i: {"n": i}, rows=10).read(0, None, None, 3, 0).record.to_pylist()
    [{'n': 0}, {'n': 1}, {'n': 2}]
    """

    splits = SPLITS

    def __init__(
        self,
        fn: Callable[[int], Any] | None = None,
        rate: float | None = None,
        rows: int | None = None,
        fn_batch: Callable[[int, int], pa.RecordBatch] | None = None,
        schema: Any = None,
    ) -> None:
        if (fn is None) == (fn_batch is None):
            raise Misuse("GeneratorSource: give either fn or fn_batch")
        if rate is not None and not _is_rate(rate):
            raise Misuse(f"GeneratorSource: rate={rate!r}; give rows a second, a number above 0, or leave it out")
        if rows is not None and not _is_count(rows):
            raise Misuse(f"GeneratorSource: rows={rows!r}; give a whole number, 0 or more, or leave it out")
        self._fn = fn
        self._fn_batch = fn_batch
        self.rate = rate
        self.rows = rows
        self._declared = schema_of(schema) if schema is not None else self._find_schema()

    def _find_schema(self) -> pa.Schema:
        if self._fn_batch is not None:
            return physical(self._called(0, 1).schema)
        assert self._fn is not None
        hint = _returned(self._fn)
        return schema_of(hint) if hint is not None else infer_schema(self._rows(0, 1))

    @property
    def schema(self) -> pa.Schema:
        return physical(self._declared)

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Rows | None:
        start, since_ms, block = self._place(position, now_ms)
        total = self._total(split, block)
        if until is not None:
            end, since_ms, block = until
        else:
            end = min(start + limit_rows, self._released(now_ms - since_ms), total)
            if end <= start and start < total:
                return None
        return Rows(self._make(split, start, end, block), [end, since_ms, block], end >= total)

    def behind(self, split: int, position: Any, now_ms: int) -> int | None:
        """Against the pace; without one, against the number of rows."""
        start, since_ms, block = self._place(position, now_ms)
        there = min(self._released(now_ms - since_ms), self._total(split, block))
        return max(0, there - start) if there < ENDLESS else None

    @property
    def endless(self) -> bool:
        return self.rows is None

    def _place(self, position: Any, now_ms: int) -> tuple[int, int, int]:
        """Rows given, when the first was, rows in a block."""
        if position is not None:
            return position[0], position[1], position[2]
        return 0, now_ms, self.block_rows

    @property
    def block_rows(self) -> int:
        """In a block, of a source that is read for the first time."""
        return BLOCK_ROWS if self.rate is None else max(1, min(BLOCK_ROWS, int(self.rate * BLOCK_MS / 1000)))

    def _released(self, elapsed_ms: int) -> int:
        """Rows a split may have given by now. The first comes at once, and fixes when the pace began."""
        return ENDLESS if self.rate is None else 1 + int(self.rate / SPLITS * elapsed_ms / 1000)

    def _total(self, split: int, block: int) -> int:
        """How many of the numbers below `rows` are this split's."""
        if self.rows is None:
            return ENDLESS
        rounds, rest = divmod(self.rows, SPLITS * block)
        return rounds * block + min(max(rest - split * block, 0), block)

    def _make(self, split: int, start: int, end: int, block: int) -> pa.RecordBatch:
        parts = []
        while start < end:
            number, inside = divmod(start, block)
            count = min(block - inside, end - start)
            parts.append(self._block((number * SPLITS + split) * block + inside, count))
            start += count
        return pa.concat_batches(parts) if parts else pa.RecordBatch.from_pylist([], schema=self.schema)

    def _block(self, first: int, count: int) -> pa.RecordBatch:
        if self._fn_batch is not None:
            record = normalise(self._called(first, count))
            if record.num_rows != count or record.schema != self.schema:
                raise Misuse(
                    f"GeneratorSource: fn_batch({first}, {count}) gave {record.num_rows} rows of "
                    f"{record.schema.names}; it must give {count} of {self.schema.names}, in the same types"
                )
            _, lacking = complete(record, self._declared)
            if lacking:
                where = f"fn_batch({first}, {count}), row {lacking[0].position}"
                raise Misuse(f"GeneratorSource: {where}: {lacking[0].reason}")
            return record
        return record_of(self._rows(first, count), self._declared)

    def _rows(self, first: int, count: int) -> list[Any]:
        assert self._fn is not None
        rows: list[Any] = []
        try:
            for number in range(first, first + count):
                rows.append(self._fn(number))
        except Exception as problem:  # a user's function may raise anything
            raise Misuse(
                f"GeneratorSource: fn({number}) raises {type(problem).__name__}: {problem}; fix it"
            ) from problem
        for number, row in enumerate(rows, first):
            if row is None:
                raise Misuse(f"GeneratorSource: fn({number}) gives None; give a row; .filter(..) leaves rows out")
        return rows

    def _called(self, first: int, count: int) -> pa.RecordBatch:
        assert self._fn_batch is not None
        try:
            found = self._fn_batch(first, count)
        except Exception as problem:  # a user's function may raise anything
            raise Misuse(
                f"GeneratorSource: fn_batch({first}, {count}) raises {type(problem).__name__}: {problem}; fix it"
            ) from problem
        if not isinstance(found, pa.RecordBatch):
            wrong = type(found).__name__
            raise Misuse(f"GeneratorSource: fn_batch({first}, {count}) gives a {wrong}; give a pyarrow.RecordBatch")
        return found


def _is_rate(given: Any) -> bool:
    return isinstance(given, Real) and 0 < float(given) < inf


def _is_count(given: Any) -> bool:
    return isinstance(given, Integral) and int(given) >= 0


def _returned(function: Callable[..., Any]) -> Any:
    """The annotated type of the rows; None when it says nothing about columns."""
    if not inspect.isroutine(function):
        return None
    try:
        hint = typing.get_type_hints(function).get("return")
    except NameError:
        return None
    return hint if isinstance(hint, type) and hasattr(hint, "__annotations__") else None
