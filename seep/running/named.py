"""Something of a user's own by ``module:name``: a policy, a workload. Modules in the current directory count."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

from seep.errors import Misuse


def named(text: str, what: str) -> Any:
    """What the module has under this name. Raises Misuse, in one line.

    >>> named("datetime:date", "policy")
    <class 'datetime.date'>
    """
    module, _, name = text.partition(":")
    if not module or not name:
        raise Misuse(f"no {what} {text!r}; give one of your own as module:Class")
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)  # workers are told of it, too
    try:
        found = import_module(module)
        return getattr(found, name)
    except ImportError as error:
        raise Misuse(f"no {what} {text!r}: {error}; is {module}.py here, or installed?") from error
    except AttributeError:
        raise Misuse(f"no {what} {text!r}: {module} has no {name}") from None
    except (Exception, SystemExit) as error:
        raise Misuse(f"no {what} {text!r}: {module} raises {type(error).__name__}: {error}") from error


def policy_named(text: str) -> Any:
    """A policy by its name (rate, threshold, latency:250ms), or an object of a user's class."""
    from seep.control.policies import policy_of

    if ":" not in text or text.startswith("latency:"):
        policy_of(text)
        return text
    made = named(text, "policy")
    try:
        made = made() if isinstance(made, type) else made
    except (Exception, SystemExit) as error:
        raise Misuse(f"policy {text!r} cannot be made: {type(error).__name__}: {error}") from error
    policy_of(made)
    return made
