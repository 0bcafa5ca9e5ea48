"""Where metrics come from: workers that are slow, and a Prometheus server that says something else than metrics."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from seep.control.observed import BUSY, LATENCY, ROWS_IN, Samples, Series
from seep.runtime.readers import PrometheusServer, Scraper, Unreadable

Answer = Callable[[httpx.Request], httpx.Response]
PATIENCE_SECONDS = 30.0


def reader(answer: Answer) -> PrometheusServer:
    server = PrometheusServer("http://metrics.example/", "sales")
    server.close()
    server._client = httpx.Client(transport=httpx.MockTransport(answer))
    return server


def slow(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadTimeout("", request=request)


def matrix(*found: dict[str, Any]) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "matrix", "result": list(found)}}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (slow, "Prometheus at http://metrics.example has not answered for 1 s"),
        (lambda _: httpx.Response(503), "Prometheus at http://metrics.example answers 503 Service Unavailable"),
        (lambda _: httpx.Response(302), "Prometheus at http://metrics.example answers 302 Found"),
        (lambda _: httpx.Response(200, text="<html>"), "Prometheus at http://metrics.example: JSONDecodeError: "),
        (lambda _: httpx.Response(200, json=[1]), "Prometheus at http://metrics.example: AttributeError: "),
        (
            lambda _: httpx.Response(200, json=matrix({"metric": {}})),
            "Prometheus at http://metrics.example: KeyError: ",
        ),
    ],
)
def test_what_is_no_answer_is_said_in_one_line(answer: Answer, said: str) -> None:
    server = reader(answer)
    with pytest.raises(Unreadable) as raised:
        server.read(5.0)
    server.close()
    assert str(raised.value).startswith(said)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 200, "it names no query"


class Trickle(httpx.SyncByteStream):
    """An answer without an end, each bit of it in time."""

    def __iter__(self) -> Iterator[bytes]:
        for _ in range(10_000):
            time.sleep(0.001)
            yield b" "


def test_an_answer_that_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was said as long as it came, and a flow that was to be started with it was not."""
    monkeypatch.setattr("seep.runtime.readers.WHOLE_SECONDS", 0.05)
    server = reader(lambda _: httpx.Response(200, stream=Trickle()))
    with pytest.raises(Unreadable, match=r"^Prometheus at http://metrics.example takes more than 0 s for an answer$"):
        server.read(5.0)
    server.close()


@pytest.mark.parametrize(
    "answer", [slow, lambda request: httpx.Response(503, request=request), lambda _: httpx.Response(200, json=matrix())]
)
def test_a_password_is_not_shown(answer: Answer) -> None:
    server = PrometheusServer("http://me:secret@metrics.example", "sales")
    server.close()
    server._client = httpx.Client(transport=httpx.MockTransport(answer))
    said = [server.told]
    try:
        server.read(5.0)
    except Unreadable as problem:
        said.append(str(problem))
    server.close()
    for text in said:
        assert "secret" not in text
        assert text.startswith("Prometheus at http://me:...@metrics.example")


def test_samples_of_the_flow_are_asked_for() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.params["query"])
        labels = {"__name__": BUSY, "operator": "work", "partition": "0", "worker": "w", "flow": "sales", "job": "seep"}
        return httpx.Response(200, json=matrix({"metric": labels, "values": [[1.5, "2"], [2.5, "3"]]}))

    server = reader(answer)
    server._learned = time.monotonic()
    assert server.read(5.0) == {Series(BUSY, "work", "0", "", "w"): [(1.5, 2.0), (2.5, 3.0)]}
    server.close()
    assert asked[0].endswith('",flow="sales"}[5000ms]')


@pytest.mark.parametrize(
    ("flow", "asked_for"), [('a"b', r'{flow="a\"b"}'), (r"a\b", r'{flow="a\\b"}'), ("é", '{flow="é"}')]
)
def test_names_of_flows_may_have_quotes_in_them(flow: str, asked_for: str) -> None:
    """The server refused the question, or found nothing."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.params["query"])
        return httpx.Response(200, json=matrix())

    server = PrometheusServer("http://metrics.example/", flow)
    server.close()
    server._client = httpx.Client(transport=httpx.MockTransport(answer))
    server.read(5.0)
    server.close()
    assert asked[0].endswith(f",{asked_for[1:]}[5000ms]")
    assert asked[1] == f"seep_controller_workers{asked_for}[10m]"


def test_how_often_a_server_scrapes_is_seen_from_its_samples() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if "seep_controller_workers" not in request.url.params["query"]:
            return httpx.Response(200, json=matrix())
        labels = {"__name__": "seep_controller_workers", "flow": "sales"}
        values = [[at, "3"] for at in (0.0, 15.001, 30.0, 60.002, 75.0)]
        return httpx.Response(200, json=matrix({"metric": labels, "values": values}))

    server = reader(answer)
    assert server.interval_seconds == 1.0
    assert server.read(4.0) == {}
    server.close()
    assert server.told == "Prometheus at http://metrics.example, which scrapes every 15 s"


# --- the controller's own scraping -------------------------------------------------------------------------------


def told(worker: int, busy: float) -> str:
    labels = f'worker="w{worker}",operator="work",partition="{worker}"'
    return "\n".join(
        [
            "# HELP seep_busy_seconds_total Time.",
            "# TYPE seep_busy_seconds_total counter",
            f"seep_busy_seconds_total{{{labels}}} {busy}",
            f'seep_rows_in_total{{{labels},edge="a>b"}} 7.0',
            f'seep_latency_seconds_bucket{{{labels},le="0.1"}} 3.0',
            f"seep_latency_seconds_sum{{{labels}}} 3.0",
            f"seep_epoch{{{labels}}} 9.0",
            "",
        ]
    )


class Workers:
    """A dozen of them. The answer of one can be held back, and each says how many were being asked when it was."""

    def __init__(self) -> None:
        self.asked = dict.fromkeys(range(12), 0)
        self.said: dict[int, str] = {}
        """What it says instead of numbers."""
        self.free = {number: threading.Event() for number in self.asked}
        self.together = threading.Barrier(len(self.asked))
        """Passed when all of them are being asked at the same time."""
        for event in self.free.values():
            event.set()

    def targets(self) -> dict[str, str]:
        return {f"w{n}": f"http://worker-{n}.example/metrics" for n in self.asked}

    def answer(self, request: httpx.Request) -> httpx.Response:
        number = int(request.url.host.removeprefix("worker-").partition(".")[0])
        self.asked[number] += 1
        if self.asked[number] == 1:
            self.together.wait(PATIENCE_SECONDS)
        self.free[number].wait(PATIENCE_SECONDS)
        return httpx.Response(200, text=self.said.get(number, told(number, float(self.asked[number]))))


@pytest.fixture
def dozen() -> Iterator[tuple[Workers, Scraper]]:
    workers = Workers()
    scraper = Scraper(workers.targets)
    scraper._client.close()
    scraper._client = httpx.Client(transport=httpx.MockTransport(workers.answer))
    yield workers, scraper
    for event in workers.free.values():
        event.set()
    scraper.close()


def busy_of(worker: int) -> Series:
    return Series(BUSY, "work", str(worker), "", f"w{worker}")


def read_until(scraper: Scraper, enough: Callable[[Samples], bool]) -> Samples:
    """Look after look, as the controller does; who is late is there at a later one."""
    for _ in range(200):
        found = scraper.read(60.0)
        if enough(found):
            return found
    raise AssertionError("the numbers never came")


class Metrics(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(told(0, 1.0).encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", "socks5://127.0.0.1:9"])
def test_a_proxy_of_the_environment_is_not_between(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Metrics) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        scraper = Scraper(lambda: {"w0": f"http://127.0.0.1:{server.server_port}/metrics"})
        read_until(scraper, lambda found: busy_of(0) in found)
        scraper.close()
        server.shutdown()


def test_all_workers_are_asked_at_once(dozen: tuple[Workers, Scraper]) -> None:
    workers, scraper = dozen
    found = read_until(scraper, lambda found: all(busy_of(worker) in found for worker in workers.asked))
    assert not workers.together.broken, "each was answered only once all the others had been asked"
    assert {series.name for series in found} == {BUSY, ROWS_IN, LATENCY}, "what is not needed is not parsed"
    assert found[Series(ROWS_IN, "work", "3", "a>b", "w3")][0][1] == 7.0
    assert found[Series(LATENCY, "work", "3", "0.1", "w3")][0][1] == 3.0


def test_who_is_paused_holds_up_nobody(dozen: tuple[Workers, Scraper]) -> None:
    workers, scraper = dozen
    workers.free[3].clear()
    found = read_until(scraper, lambda found: len(found.get(busy_of(0), ())) >= 2)
    assert busy_of(3) not in found
    assert workers.asked[3] == 1, "it is not asked again before it has answered"
    workers.free[3].set()
    read_until(scraper, lambda found: busy_of(3) in found)


def test_a_clock_that_is_set_moves_no_sample(dozen: tuple[Workers, Scraper], monkeypatch: pytest.MonkeyPatch) -> None:
    """Set back by an hour, what was there seemed to come: rates were none or many times too high, and nothing was
    forgotten until that hour was over."""
    _, scraper = dozen
    for seen, jump in enumerate((0.0, -3_600.0, 3_600.0), 1):
        clock = time.time() + jump
        monkeypatch.setattr("seep.runtime.readers.time.time", lambda clock=clock: clock)
        found = read_until(scraper, lambda found, seen=seen: len(found.get(busy_of(0), ())) >= seen)
    times = [at for at, _ in found[busy_of(0)]]
    assert times == sorted(times)
    assert 0 <= times[-1] - times[0] < 60.0


def test_numbers_that_cannot_be_read_are_told(dozen: tuple[Workers, Scraper]) -> None:
    workers, scraper = dozen
    workers.said[5] = f"{BUSY}{{worker=}} much\n"
    with pytest.raises(ValueError, match=r"much|label|worker"):
        read_until(scraper, lambda found: False)
