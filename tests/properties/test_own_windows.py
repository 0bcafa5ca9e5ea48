"""An aggregate of a user's own, word for word as the guide has it, in every kind of window."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seep
from seep import count_window, every, maximum, minimum, session, sliding, tumbling

START = datetime(2024, 1, 1, tzinfo=UTC)
GUIDE = (Path(__file__).parents[2] / "docs/guide/aggregates.md").read_text()
EXAMPLE = re.search(r"^class Range\(.*?(?=^\S)", GUIDE.partition("## Your own")[2], re.DOTALL | re.MULTILINE)
WINDOWS: list[dict[str, Any]] = [
    {"window": tumbling("10s")},
    {"window": tumbling("10s", by="arrival")},
    {"window": sliding("10s", every="5s")},
    {"window": sliding("10s", every="3s")},
    {"window": sliding("5s", every="10s")},
    {"window": session("3s")},
    {"window": session("3s", inclusive=True)},
    {"window": count_window(3)},
    {"window": count_window(3, every=1)},
    {"window": count_window(2, every=3)},
    {"window": sliding("10s", every="5s"), "emit": "update"},
    {"window": session("3s"), "emit": "update"},
    {"window": tumbling("10s"), "emit": every("1s")},
]


def own_range() -> type[seep.Aggregate]:
    assert EXAMPLE is not None
    names: dict[str, Any] = {"seep": seep}
    exec(EXAMPLE.group(), names)
    found: type[seep.Aggregate] = names["Range"]
    return found


rows_fed = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 40), st.one_of(st.none(), st.integers(-9, 9))),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize("kind", WINDOWS, ids=lambda kind: " ".join(map(str, kind.values())))
@settings(max_examples=3, deadline=None)
@given(fed=rows_fed, per_epoch=st.sampled_from([None, 1, 4]))
def test_the_guides_aggregate_works_in_every_window(
    kind: dict[str, Any], fed: list[tuple[str, int, int | None]], per_epoch: int | None
) -> None:
    content = [{"key": k, "at": START + timedelta(seconds=s), "value": v} for k, s, v in fed]
    schema = {"key": str, "at": datetime, "value": float | None}
    flow = seep.Flow("ranges")
    source = flow.source(
        "src", seep.MemorySource(content, per_epoch=per_epoch, schema=schema), time="at", lateness="1m"
    )
    aggregates: Any = {"range": own_range()("value"), "most": maximum("value"), "least": minimum("value")}
    source.key_by("key").window(kind["window"], emit=kind.get("emit", "close"), **aggregates).collect("out")
    for row in seep.run(flow, on="inline")["out"].to_pylist():
        assert row["range"] == (None if row["most"] is None else row["most"] - row["least"])


def test_one_row_in_sliding_windows() -> None:
    flow = seep.Flow("ranges")
    source = flow.source("src", seep.MemorySource([{"key": "a", "at": START, "value": 1.0}]), time="at")
    source.key_by("key").window(sliding("10s", every="5s"), range=own_range()("value")).collect("out")
    assert [row["range"] for row in seep.run(flow, on="inline")["out"].to_pylist()] == [0.0, 0.0]
