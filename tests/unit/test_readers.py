"""A Prometheus server that says something else than metrics: no decision, and one line that says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from seep.control.observed import BUSY, Series
from seep.runtime.readers import PrometheusServer, Unreadable

Answer = Callable[[httpx.Request], httpx.Response]


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
        (lambda _: httpx.Response(503), "Prometheus at http://metrics.example: HTTPStatusError: Server error '503"),
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


def test_samples_of_the_flow_are_asked_for() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.params["query"])
        labels = {"__name__": BUSY, "operator": "work", "partition": "0", "worker": "w", "flow": "sales", "job": "seep"}
        return httpx.Response(200, json=matrix({"metric": labels, "values": [[1.5, "2"], [2.5, "3"]]}))

    server = reader(answer)
    assert server.read(5.0) == {Series(BUSY, "work", "0", "", "w"): [(1.5, 2.0), (2.5, 3.0)]}
    server.close()
    assert asked[0].endswith('",flow="sales"}[5s]')
