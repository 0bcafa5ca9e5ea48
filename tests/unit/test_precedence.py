"""A worker of a session of its own gives way and takes it back; one that shares its session changes nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from seep.runtime.precedence import AUTOGROUP, SHADOW_NICENESS

LOOK = """
import time
from pathlib import Path
from seep.runtime.precedence import PATIENCE_MS, Precedence

def niceness():
    # Empty for who has been in no session of its own since the system started.
    return (Path("/proc/self/autogroup").read_text().split() or ["none"])[-1]

precedence, found = Precedence(), [niceness()]
for gives, at_ms in STEPS:
    deadline = time.monotonic() + 10
    while True:
        precedence.give_way(gives, at_ms)
        found.append(niceness())
        if found[-1] != found[-2] or time.monotonic() > deadline:
            break
        found.pop()
        time.sleep(0.02)  # the system allows some changes a second
print(*found)
"""


STEPS = "(True, 0), (False, 9)"
TIRED = "(True, 0), (True, PATIENCE_MS)"


def seen(own_session: bool, steps: str = STEPS) -> list[str]:
    look = LOOK.replace("STEPS", f"({steps})")
    command = [sys.executable, "-c", look if own_session else look.replace("+ 10", "+ 0.3")]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, start_new_session=own_session)
    return run.stdout.split()


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this system does not share processors out between sessions")
def test_it_gives_way_and_takes_it_back() -> None:
    assert seen(own_session=True) == ["0", str(SHADOW_NICENESS), "0"]


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this system does not share processors out between sessions")
def test_it_does_not_give_way_for_ever() -> None:
    """On a machine that has too much to do it would never catch up."""
    assert seen(own_session=True, steps=TIRED) == ["0", str(SHADOW_NICENESS), "0"]


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this system does not share processors out between sessions")
def test_others_of_its_session_are_left_alone() -> None:
    assert len(set(seen(own_session=False))) == 1
