"""Addresses of servers as messages, logs and status may show them: without what is secret in them."""

from __future__ import annotations

import re

_SIGNED_IN = re.compile(r"(?<=://)([^/?#@]*?)(:[^/?#]*)?@")
_SECRET = re.compile(r"(?<=[?&])((?:[a-z_]*(?:password|secret|token|access_key)[a-z_]*)=)[^&#]*", re.IGNORECASE)


def shown(url: object) -> str:
    """The address; dots stand for passwords and keys.

    >>> shown("redis://me:wonderful@127.0.0.1:6379/0"), shown("redis://:p@ss@localhost/1?password=x&db=2")
    ('redis://me:...@127.0.0.1:6379/0', 'redis://:...@localhost/1?password=...&db=2')
    >>> shown("s3://id:key@bucket/folder?region=x"), shown("redis://127.0.0.1:6379/0"), shown(7)
    ('s3://id:...@bucket/folder?region=x', 'redis://127.0.0.1:6379/0', '7')
    """
    signed_in = _SIGNED_IN.sub(lambda found: f"{found[1]}{':...' if found[2] else ''}@", str(url), count=1)
    return _SECRET.sub(r"\1...", signed_in)
