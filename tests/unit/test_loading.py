"""Tables first: a Table fed by a bounded source is loaded before other sources emit their first row."""

from __future__ import annotations

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
    assert {name: (node.loads, node.waits) for name, node in nodes.items() if node.kind == "source"} == {
        "prices": (True, False),
        "orders": (False, True),
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
    assert not any(node.loads or node.waits for node in compile_flow(flow).nodes.values())


def test_nobody_waits_for_an_endless_table() -> None:
    endless = GeneratorSource(lambda i: {"item": str(i), "price": i}, schema={"item": str, "price": int})
    nodes = compile_flow(priced(endless, MemorySource([{"item": "a"}]))).nodes
    assert not any(node.loads or node.waits for node in nodes.values())
