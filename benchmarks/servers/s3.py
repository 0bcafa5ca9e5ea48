"""An S3 of its own: moto's server, which speaks the protocol over HTTP and keeps what it is given in memory.

Killed, it has forgotten everything, buckets too: what an object store never does, and what must not pass for "nothing
was ever saved".
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from urllib.request import urlopen

import pyarrow.fs

from benchmarks.servers.kafka import ServerError, free_ports

START_SECONDS = 30.0
STOP_SECONDS = 10.0
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "seep", "AWS_SECRET_ACCESS_KEY": "seep-tests", "AWS_EC2_METADATA_DISABLED": "true"}
"""What a client needs in its environment."""


class S3Server:
    """``with S3Server(home) as s3: s3.url("folder")``: answers from the first line to the last, and has the bucket."""

    bucket = "kept"

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = free_ports(1)[0]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> S3Server:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def url(self, folder: str) -> str:
        return f"s3://{self.bucket}/{folder}?scheme=http&endpoint_override=127.0.0.1:{self.port}&region=us-east-1"

    def files(self) -> pyarrow.fs.S3FileSystem:
        """The whole server, for those who look from outside."""
        return pyarrow.fs.S3FileSystem(
            access_key=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            secret_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            endpoint_override=f"127.0.0.1:{self.port}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )

    def start(self) -> None:
        """Until it answers and the bucket is there, empty."""
        self.home.mkdir(parents=True, exist_ok=True)
        log_path = self.home / "s3.log"
        call = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(call, stdout=log, stderr=log, env={**os.environ, **CREDENTIALS})
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None:
                raise ServerError(f"moto's server has ended: {log_path.read_text()[-2000:]}")
            if time.monotonic() > deadline:
                raise ServerError(f"moto's server does not answer within {START_SECONDS:.0f} s")
            time.sleep(0.05)
        self.files().create_dir(self.bucket)

    def _answers(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/", timeout=1.0) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(STOP_SECONDS)
            self._process = None

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)
