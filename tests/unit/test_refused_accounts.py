"""Rows that expressions on Tables and users' own aggregates refuse are accounted for, too."""

from __future__ import annotations

from typing import Any, ClassVar

import polars as pl
import pytest

import seep
from tests.saving import fix
from tests.unit.test_accounts import CUT, EPOCHS, flow_of, settled, trouble

RISKY = pl.when(pl.col("n") % 5 == 4).then(pl.lit("no")).otherwise(pl.lit("7")).cast(pl.Int64)


class Picky(seep.Aggregate):
    output: ClassVar[type] = int

    def zero(self) -> int:
        return 0

    def add(self, state: int, value: int) -> int:
        if value % 5 == 4:
            raise ValueError("no")
        return state + value

    def result(self, state: int) -> int:
        return state


class Merging(Picky):
    def merge(self, state: int, other: int) -> int:
        return state + other


def window(of: Any, aggregate: type[Picky], **given: Any) -> Any:
    return lambda s, how: (
        s.key_by("k")
        .window(of, items=seep.count(), own=aggregate("n"), on_error=how, **given)
        .named("w")
        .collect("out")
    )


KINDS: dict[str, Any] = {
    "running": lambda s, how: (
        s.key_by("k").aggregate(items=seep.count(), own=Merging("n"), on_error=how).collect("out")
    ),
    "tumbling": window(seep.tumbling("20s"), Merging),
    "updates": window(seep.tumbling("20s"), Merging, emit="update"),
    "sliding": window(seep.sliding("20s", every="5s"), Merging),
    "copied": window(seep.sliding("20s", every="5s"), Picky),
    "session": window(seep.session("9s"), Merging),
    "counted": window(seep.count_window(4), Merging),
    "derived": lambda s, how: s.key_by("k").table().with_columns(m=RISKY, on_error=how).named("made").collect("out"),
    "grouped": lambda s, how: (
        s.key_by("k")
        .table()
        .key_by("n")
        .aggregate(own=Merging("n"), most=seep.maximum("x"), on_error=how)
        .collect("out")
    ),
    "best": lambda s, how: (
        s.key_by("n").table().key_by("k").top(2, by=RISKY, on_error=how).named("best").collect("out")
    ),
}


@pytest.mark.parametrize("how", ["dead_letter", "skip"])
@pytest.mark.parametrize("kind", KINDS)
def test_refused_rows_are_accounted_for(kind: str, how: str) -> None:
    answer = settled(fix(flow_of(lambda s: KINDS[kind](s, how), "100ms"), EPOCHS, 2, midway=trouble))
    assert answer["nodes"]["rows"]["in"]["read"] >= EPOCHS * CUT // 2
