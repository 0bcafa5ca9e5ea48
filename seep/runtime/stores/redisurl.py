"""Addresses of a Redis, of the store and of the connectors: what the client would take for something else is refused.

It reads a database that is no number as none at all, and finds an option that it does not know when it connects, which
is in the middle of a run.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from seep.errors import Misuse

SUCH_AS = "such as redis://127.0.0.1:6379/0"
SCHEMES = ("redis", "rediss", "unix")


def url_problem(url: Any) -> str:
    """What is wrong with it as an address; empty: nothing, as far as one sees without the client.

    >>> url_problem("redis://127.0.0.1:6379/sales")
    "the database 'sales' is no number"
    """
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        _ = parts.port  # which raises, if there is none of this number
    except ValueError as problem:
        return str(problem)
    if parts.scheme not in SCHEMES:
        return "it is no address of a Redis"
    database = parts.path.strip("/")
    if parts.scheme != "unix" and database and not re.fullmatch(r"[0-9]+", database):
        return f"the database {database!r} is no number"
    return ""


def client_of(who: str, url: str, **settings: Any) -> Any:
    """A client, which connects when it is first used."""
    import redis

    if problem := url_problem(url):
        raise Misuse(f"{who}: {problem}; {SUCH_AS}")
    try:
        client = redis.Redis.from_url(url, **settings)
        client.connection_pool.make_connection()  # only this looks at the options; nothing is sent yet
    except (TypeError, ValueError, AttributeError, redis.RedisError) as problem:
        unknown = re.search(r"unexpected keyword argument '(.+)'", str(problem))
        why = f"there is no option {unknown[1]!r}" if unknown else str(problem)
        raise Misuse(f"{who}: {why}; {SUCH_AS}") from None
    return client
