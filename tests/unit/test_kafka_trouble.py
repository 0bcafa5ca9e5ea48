"""Credentials that were good once: tried again for some seconds, then the flow stops."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

import seep
from seep.connectors.kafka import client
from seep.connectors.kafka.client import Trouble


def test_credentials_that_are_refused_for_long_end_the_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(client.time, "monotonic", lambda: now[0])
    trouble = Trouble("KafkaSource 'topic', partition 0")
    away, refused = KafkaError(KafkaError._TRANSPORT), KafkaError(KafkaError._AUTHENTICATION, "wrong\npassword")
    for seconds, problem in ((0, away), (100, away), (1, refused), (client.REFUSED_SECONDS - 1, refused)):
        now[0] += seconds
        trouble.hears(problem)
        trouble.check()
    trouble.accepted()
    now[0] += client.REFUSED_SECONDS
    trouble.check()
    trouble.hears(refused)
    now[0] += client.REFUSED_SECONDS + 1
    trouble.hears(away)
    with pytest.raises(seep.Misuse, match=r"partition 0: .* accept these credentials any more: wrong password"):
        trouble.check()
