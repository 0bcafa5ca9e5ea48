"""Calls that never return are left behind; the others are waited for."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import KafkaError

from seep.connectors.kafka import overdue
from seep.connectors.kafka.client import Trouble


def test_what_a_call_raises_is_raised_and_a_call_that_returns_is_not_late() -> None:
    trouble = Trouble("test")
    assert not overdue.overdue(lambda: None, lambda _seconds: None, trouble, 60.0)
    with pytest.raises(ConnectionError, match="gone"):
        overdue.overdue(lambda: _fails("gone"), lambda _seconds: None, trouble, 60.0)


def _fails(why: str) -> None:
    raise ConnectionError(why)


@pytest.mark.parametrize("reported", [True, False])
def test_a_call_that_hangs_is_given_up_sooner_when_the_client_reports(
    reported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overdue, "TROUBLED_SECONDS", 0.05)
    trouble, release = Trouble("test"), threading.Event()

    def poll(_seconds: float) -> None:
        if reported:
            trouble.hears(KafkaError(KafkaError._ALL_BROKERS_DOWN))

    try:
        assert overdue.overdue(release.wait, poll, trouble, 600.0 if reported else 0.1)
    finally:
        release.set()
