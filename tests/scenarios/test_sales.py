"""The flow that the documentation shows first, on real processes: windows, a Table, a stream joined with it, the best
of each window and a join of two streams, killed and split while it runs, against DuckDB over the whole data."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import seep
from seep import Flow, count, median, sliding, total, tumbling
from tests.scenarios.conftest import Start
from tests.scenarios.oracles import until

START = datetime(2024, 5, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ROWS = 30_000
STORES = [{"store": f"s{i}", "region": ("north", "south")[i % 2]} for i in range(17)]  # s17..s19 have no region


def sale(i: int) -> dict[str, Any]:
    noise = i * 7919 % 1000
    return {
        "store": f"s{noise % 20}",
        "item": f"i{i % 7}",
        "amount": noise - 100,
        "at": START + timedelta(milliseconds=10 * i - noise),
    }


def refund(i: int) -> dict[str, Any]:
    return {"store": f"s{i % 20}", "back": i % 50, "at": START + timedelta(milliseconds=100 * i)}


def shop() -> Flow:
    flow = Flow("shop", epoch="20ms", checkpoint="250ms")
    stores = flow.source("stores", seep.MemorySource(STORES)).key_by("store").table().named("stores-now")
    source = seep.GeneratorSource(sale, rate=3_000, rows=ROWS)
    sales = flow.source("sales", source, time="at", lateness="2s").filter(pl.col("amount") > 0)
    refunds = flow.source("refunds", seep.GeneratorSource(refund, rate=300, rows=ROWS // 10), time="at")

    by_store = sales.key_by("store")
    minutes = by_store.window(tumbling("20s"), items=count(), revenue=total("amount"), typical=median("amount"))
    minutes.named("minutes").collect("all-minutes")
    placed = by_store.join_table(stores, how="left").named("placed")
    sold = placed.key_by("region", "item").window(sliding("40s", every="20s"), sold=total("amount")).named("sold")
    sold.key_by("region").top(2, by="sold").named("best").collect("all-best")
    by_store.join(refunds.key_by("store"), within="50ms", how="inner").named("refunded").collect("all-refunded")
    placed.key_by("region").aggregate(n=count(), revenue=total("amount")).named("regions").collect("all-regions")
    return flow


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows)


def answer(query: str) -> list[tuple[Any, ...]]:
    sales = table([row for row in map(sale, range(ROWS)) if row["amount"] > 0])
    refunds, stores = table([refund(i) for i in range(ROWS // 10)]), table(STORES)
    with duckdb.connect() as connection:
        for name, found in (("sales", sales), ("refunds", refunds), ("stores", stores)):
            connection.register(name, found)
        return connection.execute(query).fetchall()


def rows_of(found: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    rows = [tuple(_micros(row[c]) for c in columns) for row in found.to_pylist()]
    return sorted(rows, key=lambda row: [(value is None, value) for value in row])


def _micros(value: Any) -> Any:
    return (value - EPOCH) // timedelta(microseconds=1) if isinstance(value, datetime) else value


WINDOW = 'epoch_us("at") // 20_000_000 * 20_000_000'
MINUTES = f"""select store, {WINDOW} w, count(*), sum(amount)::bigint, median(amount)::double
from sales group by all order by 1, 2"""
REGIONS = """select region, count(*), sum(amount)::bigint from sales left join stores using (store)
group by all order by 1 nulls last"""
REFUNDED = """select s.store, s.amount, r.back from sales s join refunds r on s.store = r.store
and abs(epoch_us(s."at") - epoch_us(r."at")) <= 50000 order by all"""
BEST = f"""with hops as (select region, item, amount, unnest([{WINDOW}, {WINDOW} - 20_000_000]) w
from sales left join stores using (store)),
sold as (select region, item, w, sum(amount)::bigint sold from hops group by all)
select region, w, row_number() over (partition by region, w order by sold desc, item) rank, item, sold
from sold qualify rank <= 2 order by 1 nulls last, 2, 3"""


@pytest.mark.timeout(110)
def test_the_shop_is_exact_under_kills_and_splits(begin: Start) -> None:
    job = begin(shop(), workers=3)

    def taken(operator: str) -> int:
        return sum(p["statistics"].get("rows_in", 0) for p in job.status()["operators"][operator])

    until(lambda: taken("minutes") > 3_000, "rows")
    job.scale("minutes", 2)
    job.kill("refunded", 0)
    until(lambda: taken("minutes") > 8_000, "more rows")
    job.scale("refunded", 2)
    job.kill("sold", 0)
    job.kill("placed", 0)
    found = job.wait()
    assert rows_of(found["all-minutes"], "store", "window_start", "items", "revenue", "typical") == answer(MINUTES)
    assert rows_of(found["all-regions"], "region", "n", "revenue") == answer(REGIONS)
    assert rows_of(found["all-refunded"], "store", "amount", "back") == answer(REFUNDED)
    assert rows_of(found["all-best"], "region", "window_start", "rank", "item", "sold") == answer(BEST)
