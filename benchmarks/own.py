"""A workload of a user's own, by ``module:Class``: a plain class with the parts of a `Workload` as attributes.

Its ``blocks`` make the rows, ``build`` is the flow over them, ``answer`` the same question put to Polars: that is what
the flow's results are compared with. Results in time name the column (``time``); those that are a Table name their
``keys``, and say in ``repeated`` what they are when each row came so many ``times``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import polars as pl

from benchmarks.oracle import digest_frame
from benchmarks.workload import Workload
from seep.connectors.memory import MemorySink
from seep.errors import Misuse, SeepError
from seep.running.named import named

NEEDED = ("blocks", "build", "answer", "columns")
ROWS, SEED = 1_000, 42
"""Of the rehearsal."""
Done = TypeVar("Done")
USUAL: dict[str, Any] = {"rows": 1_000_000, "lap_rows": 100_000, "sql": ""}


def workload_named(text: str) -> Workload:
    """By ``module:Class``."""
    made = named(text, "benchmark")
    try:
        made = made() if isinstance(made, type) else made
    except Exception as error:
        raise Misuse(f"workload {text!r} cannot be made: {type(error).__name__}: {error}") from error
    return workload_of(made, text)


def workload_of(made: Any, text: str = "") -> Workload:
    """What an object of such a class comes to. `text`: what it is called where something is wrong with it."""
    if isinstance(made, Workload):
        return made
    text = text or type(made).__name__
    lacking = [name for name in NEEDED if not hasattr(made, name)]
    if lacking:
        raise Misuse(f"workload {text!r} has no {', '.join(lacking)}; it needs {', '.join(NEEDED)}")
    about = (inspect.getdoc(made) or "").partition("\n")[0]
    given = {part.name: getattr(made, part.name) for part in fields(Workload) if hasattr(made, part.name)}
    workload = Workload(**{"name": _kebab(type(made).__name__), "about": about, **USUAL, **given})
    if (workload.time is None) == (not workload.keys):
        raise Misuse(f"workload {text!r}: give `time` (results with a time column) or `keys` (a Table), one of them")
    if workload.keys and workload.repeated is None:
        raise Misuse(f"workload {text!r}: a Table needs `repeated`: its content when each row came `times` times")
    return workload


def rehearse(workload: Workload, text: str) -> None:
    """Each part once, over a few rows: what is wrong with one is said before anything is measured.

    Results that are a Table are compared with `repeated`, so that must be what `answer` is.
    """

    def tried(part: str, work: Callable[[], Done]) -> Done:
        try:
            return work()
        except SeepError as error:
            raise Misuse(f"workload {text!r}: {part}: {error}") from error
        except (Exception, SystemExit) as error:
            said = " ".join(str(error).split())
            raise Misuse(f"workload {text!r}: {part} raises {type(error).__name__}: {said}") from error

    few = workload.with_lap(min(workload.lap_rows, ROWS))
    sources = tried("blocks", lambda: {name: few.looped(name, SEED) for name in few.blocks})
    frames = tried("blocks", lambda: {name: pl.DataFrame(one.record(0, 0, ROWS)) for name, one in sources.items()})
    flow = tried("build", lambda: few.flow(sources, MemorySink()))
    given = next(vertex.inputs[0].schema.names for vertex in flow.vertices if vertex.kind == "sink")
    if lacking := [name for name in few.columns if name not in given]:
        raise Misuse(f"workload {text!r}: build gives no {', '.join(lacking)}; it gives {', '.join(given)}")
    lazy = {name: frame.lazy() for name, frame in frames.items()}
    answer = tried("answer", lambda: digest_frame(few.answer(lazy).collect(), few.columns))
    if few.repeated is not None:
        once = next(iter(frames.values())).with_columns(times=pl.lit(1, pl.Int64)).lazy()
        repeated = few.repeated
        if tried("repeated", lambda: digest_frame(repeated(once).collect(), few.columns)) != answer:
            raise Misuse(f"workload {text!r}: over rows that came once each, `answer` and `repeated` differ; mend one")


def _kebab(name: str) -> str:
    """
    >>> _kebab("BestSellers")
    'best-sellers'
    """
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()
