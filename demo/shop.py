"""The flow: what a chain of supermarkets wants to know of its sales, while they happen.

- of each store in the last minute: items, total, median and mean;
- the best-selling items of the last five minutes, of each store, each region, and all;
- the revenue of the last hour by region, and everything since the start.

An item is sold once for each line. Amounts are cents, so that every sum is exact.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import polars as pl

import seep
from demo.load import Tills
from demo.lookup import Looked, Lookup
from demo.sales import Tape
from seep import count, maximum, mean, median, sliding, total

SALES, LOOKUP = "sales", "lookup"
MINUTES, BEST, HOURS, SO_FAR = "minutes", "best", "hours", "so-far"
EVERY_SECONDS = 10
MINUTE_SECONDS, BEST_SECONDS, HOUR_SECONDS = 60, 300, 3600
BEST_OF = 3
EVERYWHERE = "all"


class Size(NamedTuple):
    """Of the step that is scaled."""

    line_seconds: float = 0.000_25
    """What the lookup waits for a line: 4,000 lines a second and partition."""
    start: int = 2
    most: int = 8


SIZE = Size()


def build(tape: Tape, plan: Path, size: Size) -> seep.Flow:
    flow = seep.Flow("supermarket", epoch="100ms", checkpoint="1s")
    stores = flow.source("stores", seep.MemorySource(tape.stores)).key_by("store").table().named("stores-now")
    sales = flow.source(SALES, Tills(tape, plan), time="at").key_by("store")
    looked = sales.apply(Lookup(tape, size.line_seconds), out=Looked).named(LOOKUP)
    looked = looked.scale(start=size.start, max=size.most, policy="rate")
    placed = looked.key_by("store").join_table(stores, how="left").named("placed")

    minute = sliding(f"{MINUTE_SECONDS}s", every=f"{EVERY_SECONDS}s")
    by_store = placed.key_by("store", "region")
    asked = by_store.window(minute, items=count(), total=total("cents"), median=median("cents"), mean=mean("cents"))
    asked.named("minute").collect(MINUTES)

    # One window and one ranking for all three: a line counts for its store, for its region, and for all.
    scopes = [pl.format("store {}", "store"), pl.format("region {}", "region"), pl.lit(EVERYWHERE)]
    of_store, *others = [placed.select("at", "item", scope=scope) for scope in scopes]
    minutes = sliding(f"{BEST_SECONDS}s", every=f"{EVERY_SECONDS}s")
    sold = of_store.union(*others).key_by("scope", "item").window(minutes, sold=count()).named("sold")
    sold.key_by("scope").top(BEST_OF, by="sold").named("ranked").collect(BEST)

    by_region = placed.key_by("region")
    hour = sliding(f"{HOUR_SECONDS}s", every=f"{EVERY_SECONDS}s")
    by_region.window(hour, items=count(), revenue=total("cents")).named("hour").collect(HOURS)
    weighed = total(pl.col("cents") * pl.col("number"))  # differs when any two lines of a store change places
    so_far = by_region.aggregate(items=count(), revenue=total("cents"), weighed=weighed, newest=maximum("at"))
    so_far.named("sum").collect(SO_FAR)
    return flow
