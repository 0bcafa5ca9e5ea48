"""The flow: what a chain of supermarkets wants to know of its sales, while they happen.

- of each store in the last minute: items, total, median and mean;
- the best-selling items of the last five minutes, of each store, each region, and all;
- the revenue of the last hour by region, and everything since the start.

An item is sold once for each line. Amounts are cents, so that every sum is exact.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import polars as pl

import seep
from demo.lookup import Looked, Lookup
from demo.sales import Tape
from seep import count, maximum, mean, median, sliding, total
from seep.model.settings import Settings

SALES, LOOKUP = "sales", "lookup"
MINUTES, BEST, HOURS, SO_FAR = "minutes", "best", "hours", "so-far"
MINUTE, BEST_MINUTES, HOUR = (60, 10), (300, 20), (3600, 10)
"""Windows: so many seconds long, a new one every so many."""
BEST_OF = 3
EVERYWHERE = "all"
CREDIT_EPOCHS, SPARE_WORKERS = 8, 6


class Size(NamedTuple):
    line_seconds: float = 0.000_2
    """What the lookup waits for a line: at most 5,000 lines a second and partition."""
    start: int = 2
    """Partitions of the lookup, ..."""
    most: int = 8
    epoch_rows: int = 1_000
    """Lines in an epoch, at most."""


SIZE = Size()


class Shop(seep.Flow):
    """With few epochs under way: what piles up waits at the tills, where the controller sees it at once. With warm
    workers for all that one executor may take with it: what shares a worker with the lookup waits while that sleeps."""

    @property
    def settings(self) -> Settings:
        return replace(super().settings, credit_epochs=CREDIT_EPOCHS, spare_workers=SPARE_WORKERS)


class Ends(Protocol):
    """Where sales come from and results go to (`demo.edges`)."""

    def source(self, tape: Tape, plan: Path, epoch_rows: int) -> Any: ...

    def end(self, rows: Any, name: str) -> None: ...


def build(tape: Tape, plan: Path, size: Size, ends: Ends) -> seep.Flow:
    flow = Shop("supermarket", epoch="50ms", checkpoint="1s")
    stores = flow.source("stores", seep.MemorySource(tape.stores)).key_by("store").broadcast()
    sales = flow.source(SALES, ends.source(tape, plan, size.epoch_rows), time="at").key_by("product")
    looked = sales.apply(Lookup(tape, size.line_seconds), out=Looked).named(LOOKUP)
    looked = looked.scale(start=size.start, max=size.most, policy="rate")
    placed = looked.join_table(stores, how="left").named("placed")

    by_store = placed.key_by("store", "region")
    asked = by_store.window(
        _sliding(*MINUTE), items=count(), total=total("cents"), median=median("cents"), mean=mean("cents")
    )
    ends.end(asked.named("minute"), MINUTES)

    # One window and one ranking for all three: a line counts for its store, for its region, and for all.
    scopes = [pl.format("store {}", "store"), pl.format("region {}", "region"), pl.lit(EVERYWHERE)]
    of_store, *others = [placed.select("at", "item", scope=scope) for scope in scopes]
    sold = of_store.union(*others).key_by("scope", "item").window(_sliding(*BEST_MINUTES), sold=count()).named("sold")
    ends.end(sold.key_by("scope").top(BEST_OF, by="sold").named("ranked"), BEST)

    by_region = placed.key_by("region")
    ends.end(by_region.window(_sliding(*HOUR), items=count(), revenue=total("cents")).named("hour"), HOURS)
    weighed = total(pl.col("cents") * pl.col("number"))  # differs when any two lines of a product change places
    so_far = by_region.aggregate(items=count(), revenue=total("cents"), weighed=weighed, newest=maximum("at"))
    ends.end(so_far.named("sum"), SO_FAR)
    return flow


def _sliding(seconds: int, every: int) -> Any:
    return sliding(f"{seconds}s", every=f"{every}s")
