"""A Prometheus of its own that scrapes one job each second: it finds the workers by the job's own list."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from urllib.parse import quote
from urllib.request import urlopen

from benchmarks.servers.kafka import ServerError, free_ports

STOP_SECONDS = 20.0
ANSWER_SECONDS = 10.0
CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: seep
    http_sd_configs:
      - url: {api}/targets
        refresh_interval: 1s
        authorization: {{type: Bearer, credentials_file: {token}}}
"""


class Prometheus:
    """``with Prometheus(home) as prometheus: prometheus.start(api, token)``."""

    def __init__(self, home: Path) -> None:
        self.url = f"http://127.0.0.1:{free_ports(1)[0]}"
        self._home = home
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Prometheus:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def start(self, api: str, token: Path) -> None:
        """`api`: the address of the job's; `token`: the file with what opens it. Neither need be there yet."""
        if shutil.which("prometheus") is None:
            raise ServerError("no prometheus here; install it with: apt-get install -y prometheus")
        self._home.mkdir(parents=True, exist_ok=True)
        config = self._home / "prometheus.yml"
        config.write_text(CONFIG.format(api=api, token=token))
        options = {
            "config.file": config,
            "storage.tsdb.path": self._home / "metrics",
            "web.listen-address": self.url.removeprefix("http://"),
            "scrape.discovery-reload-interval": "1s",
        }
        with (self._home / "prometheus.log").open("wb") as log:
            command = ["prometheus", *(f"--{name}={value}" for name, value in options.items())]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def forget_targets(self) -> None:
        """It runs on and answers, with what it has; nothing is scraped any more."""
        (self._home / "prometheus.yml").write_text("global: {}\n")
        self.signal(signal.SIGHUP)

    def signal(self, number: int) -> None:
        if self._process is not None:
            os.kill(self._process.pid, number)

    def value(self, query: str) -> float | None:
        with urlopen(f"{self.url}/api/v1/query?query={quote(query)}", timeout=ANSWER_SECONDS) as answer:
            result = json.load(answer)["data"]["result"]
        return float(result[0]["value"][1]) if result else None

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_SECONDS)
            self._process = None
