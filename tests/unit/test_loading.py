"""Tables first: a Table fed by a bounded source is loaded before other sources emit their first row."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import seep
from seep import Flow, GeneratorSource, MemorySource
from seep.flow.compile import compile_flow

PRICES = [{"item": item, "price": price} for price, item in enumerate("abcdefgh")]


class Priced(seep.Operator):
    price = seep.ValueState(int, default=-1)

    def on_row(self, row: Any, ctx: Any) -> None:
        if ctx.port == 1:
            self.price.value = row.price
        else:
            ctx.emit({"item": row.item, "price": self.price.value})


def priced(prices: Any, orders: Any) -> Flow:
    flow = Flow("shop")
    table = flow.source("prices", prices).key_by("item").table()
    sold = flow.source("orders", orders).key_by("item")
    sold.apply(Priced, table.changes(), out={"item": str, "price": int}).collect("sold")
    return flow


def test_rows_wait_for_the_table() -> None:
    orders = MemorySource([{"item": row["item"]} for row in PRICES])
    found = seep.run(priced(MemorySource(PRICES, per_epoch=1), orders), on="inline")["sold"].to_pylist()
    assert sorted(found, key=lambda row: row["price"]) == PRICES


def test_who_loads_and_who_waits() -> None:
    nodes = compile_flow(priced(MemorySource(PRICES), MemorySource([{"item": "a"}]))).nodes
    assert {name: (node.loads, node.turn) for name, node in nodes.items() if node.kind == "source"} == {
        "prices": (True, 0),
        "orders": (False, 1),
    }


def test_a_table_that_an_aggregate_makes_is_loaded_before_it_is_looked_up() -> None:
    for per_epoch in (None, 1):
        flow = Flow("shop")
        prices = flow.source("prices", MemorySource(PRICES * 2, per_epoch=per_epoch)).key_by("item")
        orders = flow.source("orders", MemorySource([{"item": row["item"]} for row in PRICES], per_epoch=per_epoch))
        known = prices.aggregate(price=seep.last("price"), times=seep.count())
        orders.key_by("item").join_table(known).select("price", "times").collect("sold")
        found = seep.run(flow)["sold"].to_pylist()
        assert sorted(found, key=lambda row: row["price"]) == [{"price": at, "times": 2} for at in range(len(PRICES))]


def test_what_is_only_aggregated_keeps_nobody_waiting() -> None:
    flow = Flow("shop")
    for name in ("prices", "orders"):
        flow.source(name, MemorySource(PRICES)).key_by("item").aggregate(n=seep.count()).collect(f"of {name}")
    assert not any(node.loads or node.turn for node in compile_flow(flow).nodes.values())


def test_nobody_waits_for_an_endless_table() -> None:
    endless = GeneratorSource(lambda i: {"item": str(i), "price": i}, schema={"item": str, "price": int})
    nodes = compile_flow(priced(endless, MemorySource([{"item": "a"}]))).nodes
    assert not any(node.loads or node.turn for node in nodes.values())


REGIONS = [{"region": region, "country": country} for region, country in (("n", "x"), ("s", "y"))]
STORES = [{"store": number, "region": "ns"[number % 2]} for number in range(20)]


def test_a_table_that_is_made_with_another_is_loaded_after_it() -> None:
    flow = Flow("shop")
    regions = flow.source("regions", MemorySource(REGIONS, per_epoch=1)).key_by("region").table()
    stores = flow.source("stores", MemorySource(STORES, per_epoch=1)).key_by("region").join_table(regions)
    sales = flow.source("sales", MemorySource([{"store": row["store"]} for row in STORES])).key_by("store")
    sales.join_table(stores.key_by("store").table()).select("store", "country").collect("sold")
    nodes = compile_flow(flow).nodes
    assert {name: (nodes[name].loads, nodes[name].turn) for name in ("regions", "stores", "sales")} == {
        "regions": (True, 0),
        "stores": (True, 1),
        "sales": (False, 2),
    }
    found = {row["store"]: row["country"] for row in seep.run(flow)["sold"].to_pylist()}
    assert found == {number: "xy"[number % 2] for number in range(20)}


def test_a_source_that_fills_another_table_waits_all_the_same() -> None:
    flow = Flow("shop")
    seen = flow.source("seen", MemorySource([{"item": "a", "n": n} for n in range(50)], per_epoch=1)).key_by("item")
    orders = flow.source("orders", MemorySource([{"item": "a", "order": n} for n in range(3)], per_epoch=1))
    orders.key_by("item").join_table(seen.aggregate(times=seep.count())).collect("sold")
    orders.key_by("item").table().collect("latest")
    result = seep.run(flow)
    assert [row["times"] for row in result["sold"].to_pylist()] == [50, 50, 50]
    assert [row["order"] for row in result["latest"].to_pylist()] == [2]


def test_who_was_looked_up_on_the_way_does_not_wait_for_the_rows_that_went_on() -> None:
    for as_of in (False, True):
        flow = Flow("shop")
        known = flow.source("prices", MemorySource(PRICES, per_epoch=1)).key_by("item").table()
        at = [{"item": row["item"], "at": datetime(2024, 1, 1, tzinfo=UTC)} for row in PRICES]
        orders = flow.source("orders", MemorySource(at), time="at").key_by("item")
        sold = orders.join_table(known)
        latest = orders.table(history="1h") if as_of else orders.table()
        sold.join_table(latest, as_of=as_of).collect("again")
        sold.select("item", "price").collect("sold")
        assert {name: node.turn for name, node in compile_flow(flow).nodes.items() if node.kind == "source"} == {
            "prices": 0,
            "orders": 1,
        }
        found = seep.run(flow)["sold"].to_pylist()
        assert sorted(found, key=lambda row: row["price"]) == PRICES


def test_two_that_would_wait_for_each_other_load_together() -> None:
    flow = Flow("shop")
    one, other = (flow.source(name, MemorySource(PRICES)).key_by("item") for name in ("one", "other"))
    third = flow.source("third", MemorySource(PRICES)).key_by("item")
    one.join_table(other.table()).collect("a")
    other.join_table(one.table().rename(other="price")).collect("b")
    third.join_table(one.aggregate(n=seep.count())).collect("c")
    nodes = compile_flow(flow).nodes
    assert {name: (nodes[name].loads, nodes[name].turn) for name in ("one", "other", "third")} == {
        "one": (True, 0),
        "other": (True, 0),
        "third": (False, 1),
    }
    assert seep.run(flow)["c"].num_rows == len(PRICES)
