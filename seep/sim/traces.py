"""How many rows arrive in each second: read from a file, or made from a seed."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random

from seep.errors import Misuse

HOUR_SECONDS = 3_600
DAY_SECONDS = 24 * HOUR_SECONDS
MOST_SECONDS = 31 * DAY_SECONDS
"""Of a trace: a day of it takes half a minute."""
DAY = "day"
CURVE = "curve"
STEP = "step"
NAMES = (DAY, CURVE, STEP)

Trace = Sequence[float]
"""Rows that arrive in each second."""


def trace_of(named: str, seed: int = 42, noise: float = 0.0) -> Trace:
    """``day``: an hour shaped like a day, with spikes; ``curve``: without them; ``step``: a load that triples for two
    minutes; else a file."""
    if named in (DAY, CURVE):
        rates = day(seed, spikes=6 if named == DAY else 0)
    else:
        rates = step() if named == STEP else from_file(Path(named))
    random = Random(f"noise {seed}")
    return [max(0.0, rate * (1 + random.gauss(0.0, noise))) for rate in rates]


def day(seed: int, seconds: int = HOUR_SECONDS, low: float = 2_000.0, high: float = 10_000.0, spikes: int = 6) -> Trace:
    """Low at the ends, high in the middle; now and then twice as much for a minute, which takes 20 s to come."""
    random = Random(f"day {seed}")
    starts = sorted(random.randrange(int(0.05 * seconds), int(0.95 * seconds)) for _ in range(spikes))
    found = []
    for at in range(seconds):
        base = low + (high - low) * 0.5 * (1 - math.cos(2 * math.pi * at / seconds))
        found.append(base * (1 + max((_spike(at - start) for start in starts), default=0.0)))
    return found


def _spike(since: int, rise: int = 20, stay: int = 60, fall: int = 20) -> float:
    if not 0 <= since < rise + stay + fall:
        return 0.0
    return min(1.0, since / rise, (rise + stay + fall - since) / fall)


def step(before: int = 120, during: int = 120, after: int = 240, rate: float = 5_000.0) -> Trace:
    return [rate] * before + [3 * rate] * during + [rate] * after


def from_file(path: Path) -> Trace:
    """CSV with a header and the columns ``seconds,rows_per_second``; between two lines the rate of the first holds."""
    try:
        with path.open(newline="") as lines:
            points = [(float(line["seconds"]), float(line["rows_per_second"])) for line in csv.DictReader(lines)]
    except FileNotFoundError:
        raise Misuse(f"no trace {str(path)!r}; give a CSV file, or one of: {', '.join(NAMES)}") from None
    except OSError as error:
        raise Misuse(f"the trace {str(path)!r} cannot be read: {error.strerror or error}") from None
    except (KeyError, TypeError, ValueError, csv.Error):
        raise Misuse(f"{path}: a trace has the columns seconds,rows_per_second, with a number in each line") from None
    if len(points) < 2 or any(not b[0] > a[0] for a, b in pairwise(points)):
        raise Misuse(f"{path}: a trace has at least two lines, with growing seconds")
    if not 0.5 < points[-1][0] - points[0][0] <= MOST_SECONDS:
        raise Misuse(f"{path}: a trace is from a second to {MOST_SECONDS // DAY_SECONDS} days long")
    if wrong := [rate for _, rate in points if not 0 <= rate < math.inf]:
        raise Misuse(f"{path}: {wrong[0]:g} rows per second do not come; there are numbers from 0")
    found: list[float] = []
    for (_, rate), (until, _) in pairwise(points):
        found += [rate] * max(0, round(until - points[0][0]) - len(found))
    return found
