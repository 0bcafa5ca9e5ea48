"""Where the controller gets its metrics: from a Prometheus server, or by scraping the same endpoints itself.

Both give the raw samples of the latest window under the same names; what cannot be had is said in one line, and then
nothing is decided.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import pairwise
from statistics import median
from typing import Any, Protocol

import httpx
from prometheus_client.parser import text_string_to_metric_families

from seep.control.observed import NEEDED, Samples, Series
from seep.runtime.addresses import shown
from seep.runtime.clock import steady_seconds
from seep.runtime.controllernumbers import WORKERS

EVERY_SECONDS = 1.0
"""That the controller looks: no samples are needed in between."""
TIMEOUT_SECONDS = 1.0
WHOLE_SECONDS = 3.0
"""For a whole answer: what was new when it began is not at its end."""
ROUND_SECONDS = 0.6
"""That a look waits for answers: who takes longer is heard at the next one."""
LEARN_SECONDS, LEARN_FROM, LEARN_POINTS = 5.0, "10m", 10
"""How often, from how much and from how many samples it is learned how often a server scrapes."""
AT_ONCE = 32
"""Workers asked beside each other: an answer takes as long as a worker needs to come to it, and costs little here."""


class Unreadable(Exception):
    """There are no metrics; the text says why."""


class Reader(Protocol):
    @property
    def interval_seconds(self) -> float:
        """Between two samples of one series."""

    @property
    def told(self) -> str:
        """Whose samples they are, where it is not the controller that takes them."""

    def read(self, window_seconds: float) -> Samples:
        """What was measured in the last so many seconds. Raises Unreadable."""

    def now(self) -> float:
        """By the clock of its samples."""

    def close(self) -> None: ...


class Scraper:
    """Asks every worker, each time it is read; remembers as much as the window holds.

    All are asked at once: one after the other, a dozen busy ones took longer than a window has room for, and one that
    was paused held up everybody's numbers.
    """

    interval_seconds = EVERY_SECONDS
    told = ""

    def __init__(self, targets: Callable[[], Mapping[str, str]]) -> None:
        self._targets = targets
        """By worker: the address of its metrics."""
        # Packing would cost the workers more than it saves on the way.
        # The job's own processes: no proxy of the environment lies between.
        self._client = httpx.Client(timeout=TIMEOUT_SECONDS, headers={"accept-encoding": "identity"}, trust_env=False)
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="seep-scrape")
        self._asked: dict[str, Future[None]] = {}
        """Answers that are awaited, by address."""
        self._points: dict[Series, deque[tuple[float, float]]] = {}
        self._lock = threading.Lock()
        """Of the points: who answers late does so while others read."""

    def read(self, window_seconds: float) -> Samples:
        for address in set(self._targets().values()) - set(self._asked):
            self._asked[address] = self._pool.submit(self._ask, address)
        done, _ = wait(self._asked.values(), ROUND_SECONDS)
        self._asked = {address: asked for address, asked in self._asked.items() if asked not in done}
        for asked in done:
            asked.result()  # what went wrong there is told here: who decides hears of it
        with self._lock:
            self._forget(self.now() - window_seconds)
            return {series: list(points) for series, points in self._points.items()}

    def now(self) -> float:
        return steady_seconds()

    def _ask(self, address: str) -> None:
        try:
            text = self._client.get(address).raise_for_status().text
        except (httpx.HTTPError, RuntimeError):
            return  # it is starting, or gone, or we are: what is missing of a live partition is noticed by who decides
        at = self.now()
        found = list(_samples(text))
        with self._lock:
            for series, value in found:
                self._points.setdefault(series, deque()).append((at, value))

    def _forget(self, before: float) -> None:
        for series in list(self._points):
            points = self._points[series]
            while points and points[0][0] < before:
                points.popleft()
            if not points:
                del self._points[series]

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()


def _samples(text: str) -> Iterable[tuple[Series, float]]:
    """Of what a worker has said, what is needed: most of it is not, and to parse it takes the time of the flow."""
    lines = [line for line in text.splitlines() if line.partition("{")[0] in NEEDED]
    for family in text_string_to_metric_families("\n".join([*lines, ""])):
        for sample in family.samples:
            yield _series(sample.name, sample.labels), sample.value


class PrometheusServer:
    """How often it scrapes is seen from its samples of the controller, which is there as long as the flow: its
    configuration says it, too, but not of every server that answers like a Prometheus."""

    def __init__(self, url: str, flow: str) -> None:
        self._url = url.rstrip("/")
        self._shown = f"Prometheus at {shown(self._url)}"
        self._of = f"flow={json.dumps(flow, ensure_ascii=False)}"  # a name may have quotes in it
        self._client = httpx.Client(timeout=TIMEOUT_SECONDS)
        self.interval_seconds = EVERY_SECONDS
        self._learned = -math.inf

    @property
    def told(self) -> str:
        return f"{self._shown}, which scrapes every {self.interval_seconds:g} s"

    def read(self, window_seconds: float) -> Samples:
        names = "|".join(NEEDED)
        found = self._ask(f'{{__name__=~"{names}",{self._of}}}[{1000 * window_seconds:.0f}ms]')
        if time.monotonic() - self._learned > LEARN_SECONDS:
            self._learned = time.monotonic()
            spaced = self._ask(f"{WORKERS.name}{{{self._of}}}[{LEARN_FROM}]")
            self.interval_seconds = max(EVERY_SECONDS, spacing(spaced.values()) or self.interval_seconds)
        return found

    def now(self) -> float:
        return time.time()

    def _ask(self, query: str) -> Samples:
        try:
            return dict(_matrix(json.loads(self._whole(f"{self._url}/api/v1/query", query))))
        except TimeoutError as error:
            raise Unreadable(f"{self._shown} takes more than {WHOLE_SECONDS:.0f} s for an answer") from error
        except httpx.TimeoutException as error:
            raise Unreadable(f"{self._shown} has not answered for {TIMEOUT_SECONDS:.0f} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, TypeError, LookupError, AttributeError) as error:
            # Whatever answers there need not be a Prometheus: its words may be of any shape.
            why = shown(str(error).partition("\n")[0])  # some errors name the whole address
            raise Unreadable(f"{self._shown}: {type(error).__name__}: {why}") from error

    def _whole(self, address: str, query: str) -> bytes:
        """One that comes in bits, each in time, would hold up whoever waits for the last of them."""
        until, found = time.monotonic() + WHOLE_SECONDS, bytearray()
        with self._client.stream("GET", address, params={"query": query}) as answer:
            if not answer.is_success:
                raise Unreadable(f"{self._shown} answers {answer.status_code} {answer.reason_phrase}")
            for part in answer.iter_bytes():
                found += part
                if time.monotonic() > until:
                    raise TimeoutError
        return bytes(found)

    def close(self) -> None:
        self._client.close()


def spacing(found: Iterable[Sequence[tuple[float, float]]]) -> float:
    """Seconds between samples, to a tenth: the middle of the latest few, so that neither a scrape that was missed nor
    one that was late counts; 0: there are too few.

    >>> spacing([[(0.0, 1.0), (2.0, 1.0), (4.003, 1.0), (20.0, 1.0), (22.0, 1.0)]]), spacing([[(0.0, 1.0)]])
    (2.0, 0.0)
    """
    passed = [later[0] - earlier[0] for points in found for earlier, later in pairwise(points[-LEARN_POINTS:])]
    return round(median(passed), 1) if passed else 0.0


def _matrix(answer: Mapping[str, Any]) -> Iterable[tuple[Series, list[tuple[float, float]]]]:
    for found in answer.get("data", {}).get("result", ()):
        labels = dict(found["metric"])
        points = [(float(at), float(value)) for at, value in found["values"]]
        yield _series(labels.pop("__name__"), labels), points


def _series(name: str, labels: Mapping[str, str]) -> Series:
    detail = labels.get("edge", labels.get("le", ""))
    return Series(name, labels.get("operator", ""), labels.get("partition", ""), detail, labels.get("worker", ""))
