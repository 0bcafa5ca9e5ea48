"""Functions on single rows: `map`, `flat_map`, `filter(fn)`.

Rows are made by zipping the columns, never through dicts: a row is a tuple whose class knows the column names. What a
function returns is collected as values and becomes columns once for the whole batch.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.step import DEAD_LETTERS, Site, finish, halving, keep_where
from seep.model.arrow import ArrowBatch
from seep.model.schema import physical, record_of


class Row(tuple[Any, ...]):
    """One row: ``row.price``, ``row["odd name"]``, ``row.as_dict()``."""

    __slots__ = ()
    columns: tuple[str, ...] = ()

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, str):
            try:
                return tuple.__getitem__(self, type(self).columns.index(at))
            except ValueError:
                raise KeyError(f"no column {at!r}; there are {', '.join(type(self).columns)}") from None
        return tuple.__getitem__(self, at)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no column {name!r}; there are {', '.join(type(self).columns)}")

    def as_dict(self) -> dict[str, Any]:
        return dict(zip(type(self).columns, self, strict=True))

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in self.as_dict().items())})"


@lru_cache(maxsize=256)
def row_class(columns: tuple[str, ...]) -> type[Row]:
    """The class of rows with these columns.

    >>> row = row_class(("price", "odd name"))((2, 3))
    >>> row.price, row["odd name"], row.as_dict()
    (2, 3, {'price': 2, 'odd name': 3})
    """
    members: dict[str, Any] = {"__slots__": (), "columns": columns}
    # The getters of a named tuple, which are compiled: attribute access is the hot path.
    places = namedtuple("places", [f"at_{at}" for at in range(len(columns))])  # type: ignore[misc]
    for at, name in enumerate(columns):
        if name not in ("as_dict", "columns") and not name.startswith("__"):
            members[name] = getattr(places, f"at_{at}")
    return type("Row", (Row,), members)


def rows_in(record: pa.RecordBatch) -> Iterator[Row]:
    make = row_class(tuple(record.schema.names))
    if record.num_columns == 0:
        return (make(()) for _ in range(record.num_rows))
    return map(make, zip(*(column.to_pylist() for column in record.columns), strict=True))


def _results(function: Callable[[Any], Any], record: pa.RecordBatch) -> list[Any]:
    """What the function gives for each row."""
    results = list(map(function, rows_in(record)))
    if len(results) < record.num_rows:  # to `map` that is the end of the rows
        raise RuntimeError("the function raised StopIteration, as next(..) does where nothing is left")
    return results


VALUE = "value"
"""The column of a function that returns a scalar."""


def record_of_results(results: list[Any], schema: pa.Schema) -> pa.RecordBatch:
    """What functions returned (dataclass, dict, tuple, row or scalar) as columns."""
    if any(issubclass(kind, Row) for kind in set(map(type, results))):
        results = [result.as_dict() if isinstance(result, Row) else result for result in results]
    return record_of(results, schema)


@dataclass(frozen=True)
class MapRows:
    """`map`: one row for each row; None drops it."""

    name: str
    function: Callable[[Any], Any]
    schema: pa.Schema
    on_error: str = "dead_letter"

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": physical(self.schema), "errors": DEAD_LETTERS}

    def run(self, batch: ArrowBatch, site: Site) -> dict[str, ArrowBatch]:
        def work(part: ArrowBatch) -> tuple[ArrowBatch, Any]:
            results = _results(self.function, part.record)
            kept = np.array([result is not None for result in results], np.bool_)
            filled = results if kept.all() else [result for result in results if result is not None]
            return ArrowBatch(record_of_results(filled, self.schema), part.buckets[kept]), part.buckets[~kept]

        pairs, failures = halving(batch, work, self.on_error, site)
        for _, dropped in pairs:
            site.count("filtered", dropped)
        return finish(batch, [part for part, _ in pairs], failures, self.on_error, site)


@dataclass(frozen=True)
class FlatMapRows:
    """`flat_map`: any number of rows for each row."""

    name: str
    function: Callable[[Any], Iterable[Any]]
    schema: pa.Schema
    on_error: str = "dead_letter"

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": physical(self.schema), "errors": DEAD_LETTERS}

    def run(self, batch: ArrowBatch, site: Site) -> dict[str, ArrowBatch]:
        pairs, failures = halving(batch, self._expand, self.on_error, site)
        for _, numbers in pairs:
            site.ledger.add(site.account, "+added", int(np.maximum(numbers - 1, 0).sum()))
            site.ledger.add(site.account, "-dropped", int(np.count_nonzero(numbers == 0)))
        return finish(batch, [part for part, _ in pairs], failures, self.on_error, site)

    def _expand(self, part: ArrowBatch) -> tuple[ArrowBatch, npt.NDArray[np.int64]]:
        """The new rows, and how many each row has given."""
        made = _results(self.function, part.record)
        if not set(map(type, made)) <= {list, tuple}:
            made = [list(rows) for rows in made]
        record = record_of_results(list(chain.from_iterable(made)), self.schema)
        numbers = np.array(list(map(len, made)), np.int64)
        return ArrowBatch(record, np.repeat(part.buckets, numbers)), numbers


@dataclass(frozen=True)
class KeepRows:
    """`filter` by a function."""

    name: str
    function: Callable[[Any], Any]
    schema: pa.Schema
    on_error: str = "dead_letter"

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": physical(self.schema), "errors": DEAD_LETTERS}

    def run(self, batch: ArrowBatch, site: Site) -> dict[str, ArrowBatch]:
        def mask_of(part: ArrowBatch) -> Any:
            return np.array([bool(self.function(row)) for row in rows_in(part.record)], np.bool_)

        return keep_where(batch, mask_of, self.on_error, site)
