"""The client library: loaded when it is needed, connected with short timeouts, what went wrong in one line."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from seep.errors import Misuse, Retry, SeepError
from seep.runtime.addresses import shown
from seep.runtime.stores.redisurl import SUCH_AS, client_of, url_problem

CONNECT_SECONDS = 20.0
"""For so long a server that does not answer is asked again, when a flow starts."""
TIMEOUT_SECONDS = 5.0
Found = TypeVar("Found")


def library(who: str) -> Any:
    """The module redis."""
    try:
        import redis
    except ImportError as problem:
        raise Misuse(f"{who} needs the package redis: pip install 'seep[redis]'") from problem
    return redis


def check_url(who: str, url: Any) -> None:
    if problem := url_problem(url):
        raise Misuse(f"{who}: url={shown(url)!r}: {problem}; {SUCH_AS}")


def connected(who: str, url: str, timeout_seconds: float = TIMEOUT_SECONDS) -> Any:
    """A client, which connects when it is first used. What fails is ours to do again: it may be half done."""
    library(who)
    from redis.backoff import NoBackoff
    from redis.retry import Retry as Attempts

    return client_of(
        who,
        url,
        socket_timeout=timeout_seconds,
        socket_connect_timeout=timeout_seconds,
        retry=Attempts(NoBackoff(), 0),
    )


def judged(who: str, problem: Exception) -> SeepError | None:
    """What trying again does not help; None: it may."""
    errors = library(who).exceptions
    if isinstance(problem, errors.AuthenticationError | errors.AuthorizationError | errors.NoPermissionError):
        return Misuse(f"{who}: the server does not accept these credentials: {problem}")
    passing = errors.BusyLoadingError | errors.ReadOnlyError | errors.TryAgainError | errors.OutOfMemoryError
    if isinstance(problem, errors.ResponseError) and not isinstance(problem, passing):
        # It cannot write to its own disk now, or has too few replicas.
        return None if str(problem).startswith(("MISCONF", "NOREPLICAS")) else Misuse(f"{who}: {problem}")
    return None


def asked(who: str, question: Callable[[], Found]) -> Found:
    """The server's answer to something; asked again until it comes, or for long enough."""
    errors = library(who).exceptions
    began = time.monotonic()
    while True:
        try:
            return question()
        except errors.RedisError as problem:
            told = judged(who, problem)
            if told is None and time.monotonic() - began > CONNECT_SECONDS:
                told = Retry(f"{who}: no answer for {CONNECT_SECONDS:.0f} s ({problem}); is Redis up?")
            if told is not None:
                raise told from problem
            time.sleep(0.2)
