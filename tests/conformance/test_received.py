"""Sources that listen: what was answered with 200 is there once, whatever dies."""

from __future__ import annotations

import errno
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seep
from seep.connectors.received import http, lines, listener, log
from seep.connectors.received.log import LINES, LogReader, LogWriter
from seep.connectors.received.source import ReceivedSource
from seep.testing import check_source
from tests.servers import free_port

SCHEMA = {"n": int, "text": str}
_CLIENT = httpx.Client(headers={"Connection": "close"})
"""One for all: each has to read the certificates of the machine first."""


def post(port: int, content: bytes) -> httpx.Response:
    return _CLIENT.post(f"http://127.0.0.1:{port}/any", content=content)


def until(condition: Callable[[], Any], seconds: float = 10.0) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError("it did not come")


@contextmanager
def listening(source: ReceivedSource, home: Path) -> Iterator[Any]:
    kept = source.kept_in(home)
    try:
        until(lambda: kept.read(0, None, None, 1, 0) or kept._listener)
        yield kept
    finally:
        kept.close()


def body(numbers: Any) -> bytes:
    return b"".join(json.dumps({"n": n, "text": "é"}).encode() + b"\n" for n in numbers)


def all_of(source: Any, position: Any = None) -> tuple[list[Any], list[Any], Any]:
    rows: list[Any] = []
    refused: list[Any] = []
    while (found := source.read(0, position, None, 7, 0)) is not None:
        rows += found.record.to_pylist()
        refused += found.refused
        position = found.position
    return rows, refused, position


# --- the log ---------------------------------------------------------------------------------------------------------


@settings(max_examples=12, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 4000), min_size=1, max_size=12),
    cut=st.integers(0, 5000),
    segment=st.sampled_from([100, 3000, 10**9]),
)
def test_what_was_half_written_is_cut_off_and_the_rest_is_there(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], cut: int, segment: int
) -> None:
    home = tmp_path_factory.mktemp("log")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "SEGMENT_BYTES", segment)
        patch.setattr(log, "PIECE_BYTES", 1000)
        writer = LogWriter("log", home, 40, "one")
        for number, size in enumerate(sizes):
            writer.append([(LINES, bytes([number]) * size), (LINES, b"beside")])
        with pytest.raises(BlockingIOError):
            LogWriter("log", home, 0, "two")
        end = writer.end
        writer.close()
        assert [data for data in everything(home, 40) if data != b"beside"] == [
            bytes([number]) * size for number, size in enumerate(sizes)
        ]
        last = max(home.glob("*.log"))
        os.truncate(last, max(0, last.stat().st_size - cut))
        again = LogWriter("log", home, 0, "two")
        assert 40 <= again.end <= end
        again.append([(LINES, b"after")])
        again.close()
        found = everything(home, 40)
        assert found[-1] == b"after"
        assert (
            found[:-1] == [d for n, size in enumerate(sizes) for d in (bytes([n]) * size, b"beside")][: len(found) - 1]
        )
    assert log.name_of(home) == "one"


def everything(home: Path, place: int) -> list[bytes]:
    reader, found = LogReader("log", home), list[bytes]()
    while frames := reader.some(place, None):
        found += [frame.data for frame in frames]
        place = frames[-1].after
    return found


def test_the_beginning_is_forgotten_and_damage_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "SEGMENT_BYTES", 100)
    monkeypatch.setattr(log, "KEPT_BYTES", 200)
    writer = LogWriter("log", tmp_path, 0, "one")
    places = []
    for _ in range(10):
        places.append(writer.end)
        writer.append([(LINES, b"x" * 100)])
    reader = LogReader("log", tmp_path)
    reader.forget(places[5])
    assert min(log.segments(tmp_path)) == places[3]
    with pytest.raises(seep.DataLoss, match=f"what was received at 0 is forgotten; its log begins with {places[3]}"):
        reader.some(0, None)
    path = tmp_path / f"{places[6]:020d}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"y")
    with pytest.raises(seep.DataLoss, match="is damaged at"):
        reader.some(places[6], None)
    assert len(reader.some(places[9], places[9] + 113)) == 1
    assert reader.some(places[9], places[9]) == [], "not synced yet"
    writer.close()


def test_rows_that_are_synced_are_kept_though_no_new_segment_can_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "SEGMENT_BYTES", 100)
    writer = LogWriter("log", tmp_path, 0, "one")
    real_open, real_fsync = os.open, os.fsync

    def full(*_: Any, **__: Any) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "open", full)
    for number in range(3):
        writer.append([(LINES, b"%d" % number * 100)])
    assert log.segments(tmp_path) == [0]
    monkeypatch.setattr(os, "open", real_open)
    monkeypatch.setattr(os, "fsync", full)
    writer.append([(LINES, b"3" * 100)])
    place = writer.end
    assert log.segments(tmp_path) == [0, place], "a new one, of which the directory may not know after a power cut"
    with pytest.raises(OSError, match="too many"):
        writer.append([(LINES, b"4" * 10)])
    monkeypatch.setattr(os, "fsync", real_fsync)
    writer.append([(LINES, b"5" * 10)])
    writer.close()
    assert b"".join(sorted({data[:1] for data in everything(tmp_path, 0)})) == b"01235"
    again = LogWriter("log", tmp_path, 0, "two")
    assert again.end > place
    again.close()


def test_damage_in_the_middle_is_not_cut_off(tmp_path: Path) -> None:
    writer = LogWriter("log", tmp_path, 0, "one")
    for number in range(3):
        writer.append([(LINES, b"%d" % number * 100)])
    writer.close()
    path = tmp_path / f"{0:020d}.log"
    data = path.read_bytes()
    path.write_bytes(data[:150] + b"?" + data[151:])
    with pytest.raises(seep.DataLoss, match=r"its log in .* is damaged at 113"):
        LogWriter("log", tmp_path, 0, "one")
    reader = LogReader("log", tmp_path)
    assert len(reader.some(0, None)) == 1
    for synced in (None, len(data)):
        with pytest.raises(seep.DataLoss, match="is damaged at 113"):
            reader.some(113, synced)
    assert path.stat().st_size == len(data)


# --- sources ---------------------------------------------------------------------------------------------------------


def test_http_keeps_the_contract(tmp_path: Path) -> None:
    port = free_port()
    with listening(seep.HttpSource(port, schema=SCHEMA), tmp_path / "log") as source:
        for first in range(0, 120, 30):
            sent = body(range(first, first + 30)) + b'\n  \nbroken\n{"n": "x", "text": ""}\n{"n": 1}\n'
            answer = post(port, sent)
            assert (answer.status_code, answer.json()) == (200, {"rows": 33})
        rows, refused, position = all_of(source)
        assert [row["n"] for row in rows] == [*range(120)]
        assert [bad.position for bad in refused[:3]] == ["0+30", "0+31", "0+32"]
        assert [bad.reason for bad in refused[:3]] == [
            "not a JSON object",
            refused[1].reason,
            "'text' is missing or null",
        ]
        assert source.behind(0, position, 0) == 0
        assert source.behind(0, None, 0) > 50
        check_source(lambda: source)


def test_a_socket_keeps_the_contract(tmp_path: Path) -> None:
    port = free_port()
    with listening(seep.SocketSource(port), tmp_path / "log") as source:
        with socket.create_connection(("127.0.0.1", port)) as there:
            there.sendall(b"one\r\n\ntwo\n")
            until(lambda: source.read(0, None, None, 10, 0))
            there.sendall(b"x" * (3 * lines.LINE_BYTES) + b"\nfour\nfi")
            there.sendall(b"ve")
        until(lambda: len(all_of(source)[0]) == 5)
        rows, refused, _ = all_of(source)
        assert [row["line"] for row in rows] == ["one", "", "two", "four", "five"]
        assert [bad.reason for bad in refused] == [f"a line of more than {lines.LINE_BYTES} bytes"]
        check_source(lambda: source)
    assert source.schema.names == ["line"]


def test_a_socket_of_json(tmp_path: Path) -> None:
    port = free_port()
    with listening(seep.SocketSource(port, schema=SCHEMA), tmp_path / "log") as source:
        with socket.create_connection(("127.0.0.1", port)) as there:
            there.sendall(body(range(3)) + b"broken\n\n" + body([3])[:-1])
        until(lambda: len(all_of(source)[0]) == 4)
        assert len(all_of(source)[1]) == 1


def raw(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 5.0) as there:
        there.sendall(request)
        found = b""
        while data := there.recv(65536):
            found += data
            if b"\r\n\r\n" in found:
                break
    return found


def test_what_http_does_not_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setattr(http, "BODY_SECONDS", 0.2)
    with listening(seep.HttpSource(port, schema=SCHEMA), tmp_path / "log") as source:
        large = str(http.BODY_BYTES + 1).encode()
        for request, status in (
            (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"405"),
            (b"POST / HTTP/1.1\r\nHost: x\r\nOrigin: http://evil\r\nContent-Length: 2\r\n\r\n{}", b"403"),
            (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", b"411"),
            (
                b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
                b"2\r\n{}\r\n0\r\n\r\n",
                b"411",
            ),
            (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + large + b"\r\n\r\n", b"413"),
            (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n", b"413"),
            (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", b"400"),
            (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{", b"408"),
            (b"nonsense\r\n\r\n", b"400"),
        ):
            assert raw(port, request).split(b" ")[1] == status, request
        assert post(port, b"").json() == {"rows": 0}
        assert all_of(source)[:2] == ([], [])


def test_a_flow_that_is_behind_answers_503(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "UNREAD_BYTES", 1000)
    port = free_port()
    with listening(seep.HttpSource(port, schema=SCHEMA), tmp_path / "log") as source:
        answers = [post(port, body(range(10))) for _ in range(6)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 503, 503]
        assert answers[-1].headers["retry-after"] == "1"
        *_, position = all_of(source)
        source.read(0, position, None, 1, 0)
        assert post(port, body([1])).status_code == 200


def test_who_is_refused_can_read_why_however_much_he_sends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "UNREAD_BYTES", 100)
    port = free_port()
    with listening(seep.HttpSource(port, schema=SCHEMA), tmp_path / "log"):
        assert post(port, body(range(100))).status_code == 200
        for _ in range(10):
            assert post(port, b"x" * 2_000_000).status_code == 503
        assert httpx.put(f"http://127.0.0.1:{port}/", content=b"x" * 2_000_000).status_code == 405


def test_a_disk_that_is_full_answers_503(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    with listening(seep.HttpSource(port, schema=SCHEMA), tmp_path / "log") as source:

        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", full)
            answer = post(port, body([1]))
        assert answer.status_code == 503
        assert "No space left" in answer.json()["error"]
        assert post(port, body([2])).status_code == 200
        assert [row["n"] for row in all_of(source)[0]] == [2]


def test_another_takes_over_and_reads_what_the_one_before_it_still_takes(tmp_path: Path) -> None:
    port = free_port()
    with listening(seep.HttpSource(port, schema=SCHEMA), tmp_path / "log") as first:
        second = seep.HttpSource(port, schema=SCHEMA)
        second._home = first._home
        post(port, body([1]))
        assert [row["n"] for row in all_of(second)[0]] == [1], "although the first one has the port"
        first.close()
        time.sleep(0.6)
        *_, position = all_of(second)
        assert second._listener is not None
        post(port, body([2]))
        assert [row["n"] for row in all_of(second, position)[0]] == [2]
        assert not second.drained(0, position)
        with pytest.raises(httpx.ConnectError):
            post(port, body([3]))
        *_, position = all_of(second, position)
        assert second.drained(0, position)


def test_a_savepoint_is_restored_with_the_log_without_it_and_beside_another(tmp_path: Path) -> None:
    port = free_port()
    with listening(seep.HttpSource(port, schema=SCHEMA), tmp_path / "log") as source:
        post(port, body(range(5)))
        saved = source.read(0, None, None, 3, 0).position
    with listening(seep.HttpSource(port, schema=SCHEMA), tmp_path / "log") as source:
        assert [row["n"] for row in all_of(source, saved)[0]] == [3, 4]
    elsewhere = seep.HttpSource(port, schema=SCHEMA).kept_in(tmp_path / "elsewhere")
    try:
        assert all_of(elsewhere, saved)[0] == []
        post(port, body([7, 8]))
        assert [row["n"] for row in all_of(elsewhere, saved)[0]] == [7, 8]
    finally:
        elsewhere.close()
    other = listening(seep.HttpSource(port, schema=SCHEMA), tmp_path / "other")
    with other as source, pytest.raises(seep.DataLoss, match="is of another run; remove it"):
        source.read(0, saved, None, 3, 0)
    lost = seep.HttpSource(port, schema=SCHEMA)
    lost._home = tmp_path / "nowhere"
    with pytest.raises(seep.DataLoss, match="is not here; all hosts of a job must share"):
        lost.read(0, None, None, 3, 0)


def test_where_nobody_can_listen(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(seep.Misuse, match=f"nobody can listen on 127.0.0.1:{port}: Address already in use"):
            seep.HttpSource(port, schema=SCHEMA).kept_in(tmp_path)
    for made, why in (
        (lambda: seep.HttpSource(0, schema=SCHEMA), "port=0"),
        (lambda: seep.HttpSource("80", schema=SCHEMA), "port='80'"),  # type: ignore[arg-type]
        (lambda: seep.SocketSource(80, host=""), "host=''"),
        (lambda: seep.HttpSource(80, schema=None), "give schema="),
    ):
        with pytest.raises(seep.Misuse, match=why):
            made()
    flow = seep.Flow("inline")
    flow.source("http", seep.HttpSource(port, schema=SCHEMA)).collect("rows")
    with pytest.raises(seep.Misuse, match="never ends"):
        seep.run(flow)


@pytest.mark.parametrize("port", [0, 99_999, -1, "80", 80.0, True])
def test_a_port_that_is_none_is_refused(port: Any) -> None:
    with pytest.raises(seep.Misuse, match="give a number from 1 to 65535"):
        seep.HttpSource(port, schema=SCHEMA)
    with pytest.raises(seep.Misuse, match="give a number from 1 to 65535"):
        seep.SocketSource(port)
