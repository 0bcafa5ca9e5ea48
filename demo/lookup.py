"""The step that has to grow: for each line it asks a slow service what the product is called.

The service is made up, the wait is real: a partition sleeps for each line, so it takes no more than a certain number of
lines a second, and more partitions help on a machine with two cores, too. Besides, each line gets its number among
those of its product: state that is cut, merged and restored with the keys, and any line lost, doubled or out of its
order would show in every number after it.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import seep
from demo.sales import NO_ITEM, Tape


class Looked(NamedTuple):
    product: int
    store: int
    cents: int
    at: datetime
    item: str
    number: int


class Lookup(seep.BatchOperator):
    sold = seep.TableState({"number": int})

    def __init__(self, tape: Tape, line_seconds: float) -> None:
        self.tape, self.line_seconds = tape, line_seconds

    def on_batch(self, batch: pa.RecordBatch, ctx: Any) -> None:
        time.sleep(batch.num_rows * self.line_seconds)
        products = batch.column("product").to_numpy()
        before = self.sold.get(batch).column("number").fill_null(0).to_numpy()
        numbers, last = numbered(products, before)
        self.sold.put(pa.record_batch({"product": products[last], "number": numbers[last]}))
        items = called(self.tape.items, products)
        names = ("product", "store", "cents", "at")
        ctx.emit(pa.record_batch({name: batch.column(name) for name in names} | {"item": items, "number": numbers}))


def numbered(keys: Any, before: Any) -> tuple[Any, Any]:
    """The number of each row among those of its key, after so many before it; and where the last of each key stands.

    >>> numbered(np.array([7, 8, 7]), np.array([10, 0, 10]))
    (array([11,  1, 12]), array([2, 1]))
    """
    order = np.argsort(keys, kind="stable")
    begins = np.flatnonzero(np.diff(keys[order], prepend=keys[order[0]] - 1))
    lengths = np.diff(begins, append=len(keys))
    numbers = np.empty(len(keys), np.int64)
    numbers[order] = before[order] + 1 + np.arange(len(keys)) - np.repeat(begins, lengths)
    return numbers, order[begins + lengths - 1]


def called(items: pa.RecordBatch, products: Any) -> pa.Array:
    """What the products are called, by the list."""
    known = items.column("product").to_numpy()
    places = np.minimum(np.searchsorted(known, products), len(known) - 1)
    names = items.column("item").take(pa.array(places, mask=known[places] != products))
    return names.fill_null(NO_ITEM)
