"""What can be said of a foreign case, once it was tried.

A case *passed*, or seep *differs* by design (with the reason), or it cannot be *said* in seep's verbs (with what is
missing), or it *failed*: only the last is a fault, and it always is one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

PASSED, DIFFERS, UNSAID, FAILED = "passed", "differs by design", "not expressible", "failed"


class NotSaid(Exception):
    """The case needs something that seep's verbs do not say; the text names it."""


class Differs(Exception):
    """seep means something else by this, on purpose; the text is the reason."""


@dataclass(frozen=True)
class Verdict:
    """What became of one case."""

    case: str
    outcome: str
    reason: str = ""


def verdict_of(case: str, run: Callable[[], str]) -> Verdict:
    """Try it; `run` tells what is wrong with the result. Whatever else it raises is a failure, too."""
    try:
        found = run()
    except NotSaid as reason:
        return Verdict(case, UNSAID, str(reason))
    except Differs as reason:
        return Verdict(case, DIFFERS, str(reason))
    except Exception as error:
        return Verdict(case, FAILED, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    return Verdict(case, FAILED if found else PASSED, found)


def summary(verdicts: Iterable[Verdict]) -> list[str]:
    """Counts by outcome, and by reason where there is one, the most frequent first."""
    found = list(verdicts)
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    for verdict in found:
        reasons[verdict.outcome][verdict.reason] += 1
    lines = [f"{len(found)} foreign cases"]
    for outcome in (PASSED, DIFFERS, UNSAID, FAILED):
        counted = reasons[outcome]
        lines.append(f"{sum(counted.values()):6} {outcome}")
        if outcome in (DIFFERS, UNSAID):
            lines += [
                f"{number:12} {reason}" for reason, number in sorted(counted.items(), key=lambda x: (-x[1], x[0]))
            ]
    lines += [f"FAILED {verdict.case}: {verdict.reason}" for verdict in found if verdict.outcome == FAILED]
    return lines
