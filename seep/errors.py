"""One tree of errors, sorted by what the one who catches it should do.

The class says what to do next, never which part failed: a caller has few choices (fix the input, try again, rebuild
from a checkpoint, give up the role, stop with a report), and each has one class here.
"""

from __future__ import annotations


class SeepError(Exception):
    """Anything that seep raises on purpose.

    ``history`` holds what led here, oldest first, one line each; reports print it below the message.

    >>> error = DataLoss("count/0: no checkpoint is valid", history=("checkpoint 8: wrong checksum",))
    >>> isinstance(error, SeepError), str(error), error.history
    (True, 'count/0: no checkpoint is valid', ('checkpoint 8: wrong checksum',))
    """

    def __init__(self, message: str, history: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.history = history


class Misuse(SeepError):
    """The flow or the call is wrong: change it. The message says what is wrong, where, and what to do.

    >>> import seep
    >>> try:
    ...     seep.tumbling("soon")
    ... except seep.Misuse as error:
    ...     print(error)  # doctest: +ELLIPSIS
    <...>:2: tumbling: duration 'soon': write a number and one of us, ms, s, m, h, d, such as '10s'
    """


class Retry(SeepError):
    """It did not work this time and nothing was changed: try again.

    >>> answers = [Retry("a savepoint is being taken"), "scaled"]
    >>> def ask():
    ...     answer = answers.pop(0)
    ...     if isinstance(answer, Retry):
    ...         raise answer
    ...     return answer
    >>> try:
    ...     done = ask()
    ... except Retry:
    ...     done = ask()
    >>> done
    'scaled'
    """


class Rebuild(SeepError):
    """What is in memory can no longer be trusted: drop it and restore from the newest checkpoint.

    Workers do so by themselves.

    >>> str(Rebuild("a row was taken half"))
    'a row was taken half'
    """


class Fenced(SeepError):
    """A newer generation has taken over: stop, write nothing more.

    >>> str(Fenced("count/0: generation 3 writes here now"))
    'count/0: generation 3 writes here now'
    """


class DataLoss(SeepError):
    """Something that was promised is gone or damaged: stop with a report, never go on silently.

    `Job.wait` raises it where a flow has stopped because of it.

    >>> str(DataLoss("sales: offset 17 is gone"))
    'sales: offset 17 is gone'
    """


class Bug(SeepError):
    """seep has broken one of its own rules: stop and report.

    >>> str(Bug("two partitions own bucket 7"))
    'two partitions own bucket 7'
    """


KINDS = {kind.__name__: kind for kind in (SeepError, Misuse, Retry, Rebuild, Fenced, DataLoss, Bug)}


def report_of(error: SeepError, text: str) -> str:
    """What travels in place of an error that ends a flow: one line that begins with its kind."""
    kind = next(one.__name__ for one in type(error).__mro__ if one in KINDS.values())
    return f"{kind}: {' '.join(text.split())}"


def error_of(report: str) -> SeepError:
    """The error that a report stands for; one that names no kind tells of a loss.

    >>> error_of("Misuse: count: no column 'x'")
    Misuse("count: no column 'x'")
    """
    kind, _, text = report.partition(": ")
    return KINDS[kind](text) if kind in KINDS else DataLoss(report)
