"""The flows of an app that has several, run beside each other, each by a process of its own.

One process could not have two applications of Spark, and what one flow ends with should not end the others.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable
from typing import Any


def run_beside(flows: Iterable[str]) -> int:
    """This command again for each of them; the exit code of the first that has one. Signals are passed on."""
    again = [sys.executable, "-P", "-c", "from seep.cli.main import main; main()", *sys.argv[1:], "--flow"]
    running: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _: Any) -> None:
        for process in running:
            process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        # A session each: what a terminal sends would reach them twice.
        running += [subprocess.Popen([*again, flow], start_new_session=True) for flow in flows]
        codes = [process.wait() for process in running]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return next((code if code > 0 else 1 for code in codes if code), 0)
