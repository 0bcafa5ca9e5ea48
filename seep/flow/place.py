"""Where in the user's file something was written: every complaint about a flow names it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seep.errors import Misuse

_OURS = (str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "operators"))


def place() -> str:
    """File and line of the nearest caller outside seep, such as ``app.py:12``."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((*_OURS, "<frozen", _CONTEXTLIB)):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


_CONTEXTLIB = contextmanager.__code__.co_filename


@contextmanager
def at_place(verb: str) -> Iterator[None]:
    """Complaints raised inside say where the verb was written.

    >>> with at_place("window"):
    ...     raise Misuse("no time")
    Traceback (most recent call last):
    seep.errors.Misuse: ...: window: no time
    """
    try:
        yield
    except Misuse as error:
        if getattr(error, "placed", False):
            raise
        placed = Misuse(f"{place()}: {verb}: {error}", error.history)
        placed.placed = True  # type: ignore[attr-defined]
        raise placed from error
