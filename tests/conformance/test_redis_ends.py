"""Redis as a source and as a sink: servers that are killed, hang, forget or refuse; writers that do not know."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
import redis as client_library
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import seep
from seep.connectors.contract import Committed, Opening
from seep.connectors.redis import client
from seep.connectors.redis import source as sources
from seep.model.arrow import BUCKET
from seep.testing import check_sink, check_source
from tests.servers import RedisServer, free_port

pytestmark = pytest.mark.server
_NUMBERS = count()


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis") / "home")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis")
    server.start()
    yield server
    server.stop()


def connect(server: RedisServer) -> Any:
    return client_library.Redis.from_url(server.url)


def add(server: RedisServer, stream: str, numbers: Any, **more: Any) -> list[bytes]:
    with connect(server) as there, there.pipeline() as pipe:
        for n in numbers:
            pipe.xadd(stream, {"n": n, "text": f"row {n}", **more})
        found: list[bytes] = pipe.execute()
        return found


def source_of(server: RedisServer, stream: Any, **options: Any) -> seep.RedisStreamSource:
    return seep.RedisStreamSource(stream, **{"url": server.url, "schema": {"n": int, "text": str}, **options})


def new_name() -> str:
    return f"name-{next(_NUMBERS)}"


def numbers_of(source: seep.RedisStreamSource, split: int = 0, position: Any = None, limit: int = 1000) -> list[int]:
    rows = source.read(split, position, None, limit, 0)
    return [] if rows is None else rows.record.column("n").to_pylist()


# --- source --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("load", [None, "to-end"])
def test_the_source_keeps_the_contract(redis: RedisServer, load: Any) -> None:
    streams = [new_name(), new_name()]
    add(redis, streams[0], range(200))
    add(redis, streams[1], ["x", 1, 2, "broken", 3])
    check_source(lambda: source_of(redis, streams if load else streams[1], load=load))


def test_where_a_flow_begins_is_decided_once(redis: RedisServer) -> None:
    stream = new_name()
    nothing = source_of(redis, stream).prepared()
    add(redis, stream, range(5))
    earliest, latest = source_of(redis, stream).prepared(), source_of(redis, stream, start="latest").prepared()
    bounded = source_of(redis, stream, load="to-end").prepared()
    add(redis, stream, range(5, 8))
    assert numbers_of(nothing) == numbers_of(earliest) == [*range(8)]
    assert numbers_of(latest) == [5, 6, 7]
    assert numbers_of(bounded) == [*range(5)]
    assert earliest.behind(0, None, 0) == 8


def test_fields_are_decoded_and_what_cannot_be_is_a_dead_letter(redis: RedisServer) -> None:
    stream = new_name()
    good = {"n": "-7", "x": "1.5", "ok": "true", "at": "2024-01-02T03:04:05Z", "day": "2024-01-02", "price": "1.25"}
    good |= {"tags": '["a"]', "raw": b"\xff", "more": "left out"}
    bad = [{**good, name: "?"} for name in ("n", "x", "ok", "at", "day", "price", "tags")]
    bad += [{**good, "n": str(2**70)}, {**good, "text": b"\xff"}, {**good, "tags": "7"}, {"x": "1"}]
    with connect(redis) as there:
        ids = [there.xadd(stream, entry).decode() for entry in [good, *bad, good]]
        large = there.xadd(stream, {**good, "text": "x" * (9 << 20)}).decode()
    schema = {"n": int, "x": float, "ok": bool, "at": datetime, "day": datetime, "price": Decimal}
    schema |= {"tags": list[str], "raw": bytes, "text": str | None}
    flow = seep.Flow("fields")
    rows = flow.source("stream", seep.RedisStreamSource(stream, redis.url, schema=schema, load="to-end"))
    rows.collect("rows")
    rows.errors.collect("errors")
    result = seep.run(flow)
    row = {"n": -7, "x": 1.5, "ok": True, "at": datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC), "price": Decimal("1.25")}
    row |= {"day": datetime(2024, 1, 2, tzinfo=UTC), "tags": ["a"], "raw": b"\xff", "text": None}
    assert result["rows"].to_pylist() == [{name: row[name] for name in schema}] * 2
    errors = result["errors"].to_pylist()
    assert [error["position"] for error in errors] == [f"0:{at}" for at in (*ids[1:-1], large)]
    assert "field 'n' has b'?', which is not a int64" in errors[0]["error"]
    assert "'n': the row has no value" in errors[-2]["error"]
    assert "more than 8388608" in errors[-1]["error"]


def test_what_was_trimmed_before_it_was_read_stops_with_a_report(redis: RedisServer) -> None:
    stream = new_name()
    ids = add(redis, stream, range(20))
    source = source_of(redis, stream).prepared()
    half = source.read(0, None, None, 10, 0)
    assert half is not None
    with connect(redis) as there:
        there.xtrim(stream, minid=ids[10], approximate=False)
        assert numbers_of(source, position=half.position) == [*range(10, 20)], "only what was read is gone"
        with pytest.raises(seep.DataLoss, match="10 entries after 0-0 are gone, which are still needed"):
            source.read(0, None, half.position, 2**62, 0)
        there.xdel(stream, ids[12])
        there.xtrim(stream, minid=ids[15], approximate=False)
        with pytest.raises(seep.DataLoss, match=r"5 entries after .* were trimmed before they were read"):
            source.read(0, half.position, None, 10, 0)
        there.delete(stream)
        with pytest.raises(seep.DataLoss, match="it is not there any more"):
            source.read(0, half.position, None, 10, 0)
        add(redis, stream, range(3))
        with pytest.raises(seep.DataLoss, match="it was made anew"):
            source.read(0, half.position, None, 10, 0)


def test_entries_deleted_from_the_middle_are_not_taken_for_a_loss(redis: RedisServer) -> None:
    stream = new_name()
    ids = add(redis, stream, range(20))
    source = source_of(redis, stream).prepared()
    first = source.read(0, None, None, 2, 0)
    assert first is not None
    with connect(redis) as there:
        there.xdel(stream, *ids[3:6])
        rows = source.read(0, first.position, None, 100, 0)
        assert rows is not None
        assert rows.record.num_rows == 15
        there.xtrim(stream, maxlen=0, approximate=False)
        assert source.read(0, rows.position, None, 100, 0) is None
        add(redis, stream, [99])
        assert numbers_of(source, position=rows.position) == [99]


def test_a_server_that_dies_is_waited_for(mortal: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "READ_SECONDS", 0.2)
    add(mortal, "s", range(10))
    source = source_of(mortal, "s").prepared()
    rows = source.read(0, None, None, 100, 0)
    assert rows is not None
    mortal.kill()
    assert source.read(0, rows.position, None, 100, 0) is None
    assert source.read(0, rows.position, None, 100, 10) is None, "it is left alone for a while"
    mortal.start()
    add(mortal, "s", [10])
    assert numbers_of(source, position=rows.position) == []
    found = source.read(0, rows.position, None, 100, 5_000)
    assert found is not None
    assert found.record.column("n").to_pylist() == [10]
    with mortal.paused():
        assert source.read(0, found.position, None, 100, 10_000) is None
    again = source.read(0, None, rows.position, 2**62, 0)
    assert again is not None
    assert again.record == rows.record


def one_line(made: Callable[[], object], kind: type[seep.SeepError], why: str) -> None:
    with pytest.raises(kind, match=why) as refused:
        made()
    assert "\n" not in str(refused.value)


def test_what_is_wrong_at_the_start_is_said_in_one_line(mortal: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "CONNECT_SECONDS", 0.5)
    nobody = f"redis://127.0.0.1:{free_port()}/0"
    with connect(mortal) as there:
        there.set("text", "x")
        one_line(source_of(mortal, "text").prepared, seep.Misuse, "WRONGTYPE")
        there.config_set("requirepass", "secret")
        with_password = mortal.url.replace("//", "//:secret@")
        wrong = mortal.url.replace("//", "//:wrong@")
        for url, kind, why in (
            (nobody, seep.Retry, "no answer for 0 s .*; is Redis up"),
            (mortal.url, seep.Misuse, "does not accept these credentials"),
            (wrong, seep.Misuse, "does not accept these credentials"),
        ):
            one_line(source_of(mortal, "s", url=url).prepared, kind, why)
            one_line(seep.RedisSink("p:", url=url, key="k").prepared, kind, why)
        source_of(mortal, "s", url=with_password).prepared()
    for url in ("http://127.0.0.1", 7, ""):
        one_line(lambda url=url: source_of(mortal, "s", url=url), seep.Misuse, "such as redis://")  # type: ignore[misc]
    one_line(lambda: source_of(mortal, []), seep.Misuse, "give the name of a stream")
    one_line(lambda: source_of(mortal, "s", start="now"), seep.Misuse, "start='now'")
    one_line(lambda: source_of(mortal, "s", load="all"), seep.Misuse, "load='all'")


# --- sink ------------------------------------------------------------------------------------------------------------


def hashes(server: RedisServer, prefix: str) -> list[dict[str, Any]]:
    with connect(server) as there:
        found = [there.hgetall(name) for name in there.scan_iter(match=f"{prefix}*")]
    return [{"key": row[b"key"].decode(), "n": int(row[b"n"])} for row in found]


def texts(server: RedisServer, prefix: str) -> list[dict[str, Any]]:
    with connect(server) as there:
        return [json.loads(there.get(name)) for name in there.scan_iter(match=f"{prefix}*")]


@pytest.mark.parametrize(("format", "read"), [("hash", hashes), ("json", texts)])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_sink_keeps_the_contract(redis: RedisServer, format: str, read: Any, seed: int) -> None:
    prefix = f"{new_name()}:"
    make = lambda: seep.RedisSink(prefix, url=redis.url, format=format)  # noqa: E731
    check_sink(make, lambda: read(redis, prefix), upserts=True, seed=seed)


class Lost(Exception):
    """The process ends here."""


def epoch(number: int, value: int) -> Committed:
    columns = {"key": [f"k{number % 3}"], "n": [value], BUCKET: pa.array([0], pa.uint16())}
    return Committed(number, pa.RecordBatch.from_pydict(columns), False)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(faults=st.lists(st.sampled_from(["", "before", "after", "unknown"]), min_size=2, max_size=6))
def test_each_epoch_changes_something_once(redis: RedisServer, faults: list[str]) -> None:
    """An epoch that is published again has other values here: those must not show."""
    prefix = f"{new_name()}:"
    sink = seep.RedisSink(prefix, url=redis.url, key="key").prepared()
    publish = sink.open(Opening("out"))
    was = client_library.client.Pipeline.execute
    for number, fault in enumerate(faults, 1):

        def execute(pipe: Any, *given: Any, fault: str = fault) -> Any:
            if fault != "before":
                was(pipe, *given)
            raise client_library.ConnectionError("no answer") if fault == "unknown" else Lost

        if fault:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(client_library.client.Pipeline, "execute", execute)
                with pytest.raises((Lost, ConnectionError)):
                    publish([epoch(number, number)])
        if fault in ("before", "after"):
            publish = sink.open(Opening("out"))
        done = fault in ("after", "unknown")
        publish([epoch(n, -1) for n in range(1, number)] + [epoch(number, -1 if done else number)])
    latest = {f"k{number % 3}": number for number in range(1, len(faults) + 1)}
    assert {row["key"]: row["n"] for row in hashes(redis, prefix)} == latest


def test_a_server_that_came_back_empty_is_not_written_to(mortal: RedisServer) -> None:
    sink = seep.RedisSink("p:", url=mortal.url, key="key").prepared()
    publish = sink.open(Opening("out"))
    publish([epoch(1, 1)])
    mortal.kill()
    with pytest.raises(ConnectionError):
        publish([epoch(2, 2)])
    mortal.start()
    publish([epoch(2, 2)])
    assert {row["key"]: row["n"] for row in hashes(mortal, "p:")} == {"k1": 1, "k2": 2}
    mortal.empty()
    mortal.start()
    with pytest.raises(seep.DataLoss, match="no longer has what it had answered"):
        publish([epoch(3, 3)])
    with pytest.raises(seep.DataLoss, match="no longer has what it had answered"):
        sink.open(Opening("out", forgotten=True))([epoch(3, 3)])


def test_a_table_is_kept_by_key_and_nulls_are_absent(redis: RedisServer) -> None:
    prefix = f"{new_name()}:"
    flow = seep.Flow("table")
    rows = [{"k": "a", "n": 1, "t": "x"}, {"k": "b", "n": 2, "t": None}, {"k": "a", "n": -1, "t": None},
            {"k": "b", "n": 3, "t": "y"}, {"k": "c", "n": 4, "t": "z"}, {"k": "c", "n": 5, "t": None}]  # fmt: skip
    table = flow.source("rows", seep.MemorySource(rows, per_epoch=1)).key_by("k").table(deleted=pl.col("n") < 0)
    table.sink("out", seep.RedisSink(prefix, url=redis.url))
    flow.source("one", seep.MemorySource([{"a": "x", "b": 1, "ok": True, "l": [1.5]}])).sink(
        "pairs", seep.RedisSink(f"pairs-{prefix}", url=redis.url, key=("a", "b"))
    )
    seep.run(flow)
    with connect(redis) as there:
        assert sorted(there.scan_iter(match=f"{prefix}*")) == [f"{prefix}{k}".encode() for k in "bc"]
        assert there.hgetall(f"{prefix}b") == {b"k": b"b", b"n": b"3", b"t": b"y"}
        assert there.hgetall(f"{prefix}c") == {b"k": b"c", b"n": b"5"}
        assert there.hgetall(f'pairs-{prefix}["x", 1]') == {b"a": b"x", b"b": b"1", b"ok": b"true", b"l": b"[1.5]"}


def test_what_cannot_be_written_is_refused_where_it_is_declared(redis: RedisServer) -> None:
    rows = seep.Flow("refused").source("rows", seep.MemorySource([{"k": "a", "value": b""}]))
    for number, (made, why) in enumerate(
        [
            (lambda: seep.RedisSink("p:", url=redis.url), "give key="),
            (lambda: seep.RedisSink("p:", url=redis.url, key="x"), "unknown column 'x'"),
            (lambda: seep.RedisSink("p:", url=redis.url, key="k", format="json"), "JSON has no bytes"),
            (lambda: seep.RedisSink("p:", url=redis.url, key="k", format="xml"), "format='xml'"),
            (lambda: seep.RedisSink("", url=redis.url, key="k"), "give what the names begin with"),
        ]
    ):
        one_line(lambda made=made, number=number: rows.sink(f"out{number}", made()), seep.Misuse, why)  # type: ignore[misc]


def test_a_server_that_may_forget_is_said(mortal: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    sink = seep.RedisSink("p:", url=mortal.url, key="key")
    sink.prepared()
    assert capsys.readouterr().err == ""
    with connect(mortal) as there:
        there.config_set("appendfsync", "everysec")
    sink.prepared()
    assert "may forget what it has answered (appendfsync is 'everysec', not 'always')" in capsys.readouterr().err
