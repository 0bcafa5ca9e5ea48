"""Expressions inside operators that fail on a row: the row is a dead letter, the others are unharmed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import seep
from seep import Flow, MemorySource, Misuse, count, total, tumbling
from seep.flow.stream import Stream

ROWS = [
    {"k": "a", "n": "1", "at": 1_000},
    {"k": "a", "n": "one", "at": 2_000},
    {"k": "b", "n": "2", "at": 3_000},
    {"k": "a", "n": "3", "at": 4_000},
]
NUMBER = pl.col("n").cast(pl.Int64)

VERBS: dict[str, tuple[Callable[..., Any], list[dict[str, Any]]]] = {
    "aggregate": (
        lambda stream, **given: stream.aggregate(sum=total(NUMBER), rows=count(), **given),
        [{"k": "a", "sum": 4, "rows": 2}, {"k": "b", "sum": 2, "rows": 1}],
    ),
    "window": (
        lambda stream, **given: stream.window(tumbling("10s"), sum=total(NUMBER), rows=count(), **given),
        [{"k": "a", "sum": 4, "rows": 2}, {"k": "b", "sum": 2, "rows": 1}],
    ),
    "top": (
        lambda stream, **given: stream.top(1, by=NUMBER, **given),
        [{"k": "a", "n": "3"}, {"k": "b", "n": "2"}],
    ),
    "table": (
        lambda stream, **given: stream.table(deleted=NUMBER > 1, **given),
        [],
    ),
    "split": (
        lambda stream, **given: stream.split(small=NUMBER < 3, **given).small,
        [{"k": "a", "n": "1"}, {"k": "b", "n": "2"}],
    ),
}


def _built(verb: str, **given: Any) -> tuple[Flow, Any]:
    flow = Flow("guarded")
    stream: Stream = flow.source("rows", MemorySource(ROWS), time=("at", "ms")).key_by("k")
    return flow, VERBS[verb][0](stream, **given)


def _rows(table: Any, like: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [{name: row[name] for name in like[0]} if like else row for row in table.to_pylist()]
    return sorted(found, key=repr)


@pytest.mark.parametrize("verb", VERBS)
def test_the_row_is_a_dead_letter_and_the_others_count(verb: str) -> None:
    flow, made = _built(verb)
    made.named("it").collect("out")
    made.errors.collect("errors")
    result = seep.run(flow, on="inline")
    assert _rows(result["out"], VERBS[verb][1]) == VERBS[verb][1]
    (letter,) = result["errors"].to_pylist()
    assert letter["operator"] == "it"
    assert '"n": "one"' in letter["row"]
    assert "for 1 out of 1 values" in letter["error"]


@pytest.mark.parametrize("verb", VERBS)
def test_skip_drops_the_row_and_fail_stops_the_flow(verb: str) -> None:
    flow, made = _built(verb, on_error="skip")
    made.collect("out")
    assert _rows(seep.run(flow, on="inline")["out"], VERBS[verb][1]) == VERBS[verb][1]
    flow, made = _built(verb, on_error="fail")
    made.collect("out")
    with pytest.raises(seep.SeepError, match="conversion"):
        seep.run(flow, on="inline")


@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_way_is_refused(verb: str) -> None:
    with pytest.raises(Misuse, match="on_error='ignore'"):
        _built(verb, on_error="ignore")


def test_nothing_is_added_where_nothing_can_fail() -> None:
    flow = Flow("calm")
    stream = flow.source("rows", MemorySource(ROWS)).key_by("k")
    made = stream.aggregate(later=total(pl.col("at") + 1))
    made.collect("out")
    assert made.lineage.vertex.guard is None
    made.errors.collect("errors")
    assert seep.run(flow, on="inline")["errors"].num_rows == 0


def test_a_stream_of_any_kind_is_told_what_is_missing() -> None:
    flow = Flow("routed")
    routed = flow.source("rows", MemorySource(ROWS)).route(lambda row: row.k)
    with pytest.raises(Misuse, match="call key_by"):
        routed.aggregate(sum=total(NUMBER))
