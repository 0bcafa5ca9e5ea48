"""What a window or a join gives is in time for whatever is behind it: a flow of two of them says the same of the same
rows, however its input is cut, when no row of the input is late."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

import seep
from seep import Flow, Stream, count, session, sliding, tumbling
from seep.flow.windows import Window

START = datetime(2024, 5, 1, tzinfo=UTC)
WINDOWS: dict[str, Window] = {
    "tumbling": tumbling("3s"),
    "offset": tumbling("4s", offset="1s"),
    "sliding": sliding("4s", every="2s"),
    "session": session("2s"),
    "inclusive": session("2s", inclusive=True),
}
ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 12)), min_size=1, max_size=12)


def _window(kind: str) -> Callable[[Stream], Stream]:
    return lambda stream: stream.key_by("k").window(WINDOWS[kind], n=count()).select("k", "window_end", "n")


def _join(how: str, **near: Any) -> Callable[[Stream], Stream]:
    def joined(stream: Stream) -> Stream:
        suffix = f"_{len(stream.schema.names)}"
        return stream.key_by("k").join(stream.key_by("k"), how=how, suffix=suffix, **near)

    return joined


STEPS: dict[str, Callable[[Stream], Stream]] = {
    **{kind: _window(kind) for kind in WINDOWS},
    "later partners": _join("left", within=("1s", "3s")),
    "earlier partners": _join("full", within=("-3s", "-1s")),
    "same window": _join("full", window=tumbling("3s")),
}


def _run(rows: list[dict[str, Any]], one: str, other: str, per_epoch: int | None) -> list[str]:
    flow = Flow("chain")
    given = flow.source("rows", seep.MemorySource(rows, per_epoch=per_epoch), time="at", lateness="4s")
    STEPS[other](STEPS[one](given)).collect("out")
    return sorted(map(repr, seep.run(flow)["out"].to_pylist()))


@settings(max_examples=40)
@example(rows=[("a", 0)] * 8, one="inclusive", other="earlier partners", size=1)
@given(rows=ROWS, one=st.sampled_from(sorted(STEPS)), other=st.sampled_from(sorted(STEPS)), size=st.integers(1, 3))
def test_two_in_a_row_do_not_depend_on_cuts(rows: list[tuple[str, int]], one: str, other: str, size: int) -> None:
    spread = [{"k": "b", "at": START}]
    spread += [{"k": key, "at": START + timedelta(seconds=i + at % 4)} for i, (key, at) in enumerate(rows)]
    assert _run(spread, one, other, size) == _run(spread, one, other, None)
