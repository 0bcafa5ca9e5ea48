"""What the console sinks of a running flow print, passed on to this console.

The console of a local worker is its log, in the job's directory. So `seep run` follows the logs there and shows the
lines of these sinks: as a worker does, the last epoch again after a restart. That of a worker on Spark or Ray is kept
by these, with the output of their own tasks; there it is only said where the rows are.
"""

from __future__ import annotations

import json as json_form
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

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
        while not self._closed.wait(LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        for path in sorted(self._logs.glob("*.log")):
            with path.open("rb") as log:
                log.seek(self._shown.get(path, 0))
                whole, end, _ = log.read().rpartition(b"\n")
            self._shown[path] = self._shown.get(path, 0) + len(whole) + len(end)
            for line in whole.decode(errors="replace").splitlines():
                self._show(line)

    def _show(self, line: str) -> None:
        sink = next((name for name in self._sinks if line.startswith(f"{name}: {{")), None)
        if sink is not None:
            row = line.removeprefix(f"{sink}: ")
            typer.echo(json_form.dumps({"sink": sink, "row": json_form.loads(row)}) if self._json else line)
