"""What engines are told that read a topic and write another."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.contest import Program, Task
from benchmarks.sales import LATENESS_MS, WINDOW_MS


class Topics(NamedTuple):
    begin: Callable[[], Program]
    version: str
    how: str


def arguments(task: Task) -> list[str]:
    settings = {
        "servers": task.servers,
        "in": task.source,
        "out": task.target,
        "home": task.home,
        "checkpoint_ms": task.checkpoint_ms,
        "parallelism": task.parallelism,
        "window_ms": WINDOW_MS,
        "lateness_ms": LATENESS_MS,
    }
    return [f"{name}={value}" for name, value in settings.items()]
