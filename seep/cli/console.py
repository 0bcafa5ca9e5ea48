"""What the console sinks of a running flow print, passed on to this console.

The console of a local worker is its log, in the job's directory. So `seep run` follows the logs there and shows the
lines of these sinks: as a worker does, the last epoch again after a restart. That of a worker on Spark or Ray is kept
by these, with the output of their own tasks; there it is only said where the rows are.
"""

from __future__ import annotations

import io
import json as json_form
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer

if TYPE_CHECKING:
    from seep.flow.build import Flow

LOOK_SECONDS = 0.1


def console_sinks(flow: Flow) -> list[str]:
    return [v.name for v in flow.vertices if v.kind == "sink" and v.name and getattr(v.make, "kind", "") == "console"]


class Follower:
    """Shows lines until closed; those that are there before are left out if they are of an earlier run (`resume`)."""

    def __init__(self, logs: Path, sinks: Iterable[str], json: bool, resume: bool) -> None:
        self._logs, self._sinks, self._json = logs, tuple(sinks), json
        self._shown = {path: path.stat().st_size for path in logs.glob("*.log")} if resume else {}
        """Bytes of each log."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="seep-console", daemon=True)

    def start(self) -> None:
        if self._sinks:
            self._thread.start()

    def close(self) -> None:
        """All that was printed is shown: the workers have ended."""
        self._closed.set()
        if self._sinks:
            self._thread.join()
            self._look()

    def _run(self) -> None:
        try:
            while not self._closed.wait(LOOK_SECONDS):
                self._look()
        except OSError:
            # Nobody reads any more, or there is no room: as with Ctrl-C. Why, `close` meets again.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _look(self) -> None:
        for path in sorted(self._logs.glob("*.log")):
            with path.open("rb") as log:
                log.seek(self._shown.get(path, 0))
                whole, end, _ = log.read().rpartition(b"\n")
            self._shown[path] = self._shown.get(path, 0) + len(whole) + len(end)
            for line in whole.decode(errors="replace").splitlines():
                if (told := _told(line, self._sinks)) is not None:
                    typer.echo(json_form.dumps(told) if self._json else line)


def _told(line: str, sinks: Iterable[str]) -> dict[str, Any] | None:
    """What a console sink has printed here, if it was one."""
    sink = next((name for name in sinks if line.startswith(f"{name}: {{")), None)
    try:
        return None if sink is None else {"sink": sink, "row": json_form.loads(line.removeprefix(f"{sink}: "))}
    except ValueError:
        return None  # a function of the app has printed something that looks like it


@contextmanager
def rows_as_lines(sinks: Sequence[str], json: bool) -> Iterator[None]:
    """What console sinks print in this process meanwhile is a JSON object to a line, if that is wanted; the rest is on
    standard error."""
    if not json:
        yield
        return
    with redirect_stdout(_Lines(sys.stdout, sinks)):
        yield


class _Lines(io.TextIOBase):
    """Passes on what is written: of console sinks as JSON, the rest (what an app prints) on standard error."""

    def __init__(self, out: TextIO, sinks: Sequence[str]) -> None:
        self._out, self._sinks = out, sinks
        self._begun = ""

    def write(self, text: str) -> int:
        *whole, self._begun = (self._begun + text).split("\n")
        for line in whole:
            told = _told(line, self._sinks)
            print(line if told is None else json_form.dumps(told), file=sys.stderr if told is None else self._out)
        return len(text)

    def flush(self) -> None:
        self._out.flush()
