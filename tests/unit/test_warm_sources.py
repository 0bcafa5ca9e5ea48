"""What a source needs of compiled loops is loaded where workers start, not with its first rows."""

from __future__ import annotations

from typing import Any

import pytest

import seep
from seep.connectors import jsonscan
from seep.flow.compile import compile_flow

SCHEMA = {"store": str, "amount": int}
SOURCES = {
    "kafka": lambda: seep.KafkaSource("sales", servers="127.0.0.1:1", schema=SCHEMA),
    "http": lambda: seep.HttpSource(port=18_080, schema=SCHEMA),
    "socket": lambda: seep.SocketSource(port=18_081, schema=SCHEMA),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_the_loops_of_a_source_are_loaded_where_workers_start(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = seep.Flow("warm")
    flow.source("rows", SOURCES[kind]()).collect("out")
    called: list[Any] = []
    loop = jsonscan._scan
    monkeypatch.setattr(jsonscan, "_scan", lambda *given: called.append(given) or loop(*given))
    compile_flow(flow).nodes["rows"].make.warm()
    assert len(called) == 1
