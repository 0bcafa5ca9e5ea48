"""The flow of the backends' suite, and what it must give: for each key a chain of hashes, one for each row.

All rows of a key come from one split of the source, so their order is fixed. Each is given out with a hash of itself
and of all before it: one that is lost, doubled, out of order, or meets the wrong state shows in all that follow it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any

import seep
from seep.connectors.generator import BLOCK_ROWS, SPLITS
from seep.model.settings import Settings
from tests.scenarios.oracles import Gated

OUT = {"key": str, "n": int, "chain": int}
PRIME = 2**61 - 1
KEYS_OF_A_SPLIT = 5
RELEASE_MS = 1_000.0


def row(number: int) -> dict[str, Any]:
    return {"key": f"{number // BLOCK_ROWS % SPLITS}-{number % KEYS_OF_A_SPLIT}", "n": number}


def link(chain: int, number: int) -> int:
    return (chain * 1_000_003 + number + 1) % PRIME


class Chain(seep.Operator):
    chain = seep.ValueState(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> None:
        self.chain.value = link(self.chain.value, row.n)
        ctx.emit({"key": row.key, "n": row.n, "chain": self.chain.value})


class Brisk(seep.Flow):
    """Lets go of workers sooner than usual."""

    @property
    def settings(self) -> Settings:
        return with_fields(super().settings, release_ms=RELEASE_MS)


def chained(name: str, rows: int, rate: float, gate: Path) -> seep.Flow:
    flow = Brisk(name, epoch="20ms", checkpoint="200ms")
    numbers = flow.source("numbers", Gated(rows, rate, gate, row))
    numbers.key_by("key").apply(Chain, out=OUT).named("count").collect("counts")
    return flow


def expected(rows: int) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for number in range(rows):
        links = found.setdefault(row(number)["key"], [])
        links.append((number, link(links[-1][1] if links else 0, number)))
    return found


def assert_chained(given: Iterable[dict[str, Any]], rows: int, ended: bool = False) -> None:
    """Of each key the first links, in order; when the flow has ended, all of them."""
    found: dict[str, list[tuple[int, int]]] = {}
    for one in given:
        found.setdefault(one["key"], []).append((one["n"], one["chain"]))
    whole = expected(rows)
    assert found, "nothing was given out"
    for key, links in found.items():
        assert links == whole[key][: len(links)], key
    if ended:
        assert {key: len(links) for key, links in found.items()} == {key: len(links) for key, links in whole.items()}
