"""Partitions that a topic gets, and topics that come to match a pattern, while a flow reads them.

Looked for now and then, beside the reading: asking a broker may take seconds, and a source must never wait. Every
worker looks for itself; the number of what it finds follows from topic and partition alone, so all of them agree on it.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from seep.connectors.kafka.client import ASK_SECONDS, Trouble, is_pattern, library, like, make
from seep.connectors.kafka.reader import consumer_settings

REFRESH = "topic.metadata.refresh.interval.ms"
"""The client's own setting says how often; -1: never."""
REFRESH_MS = 10_000
_LATER = 1 << 32
"""Numbers below it are of those that were there when the flow started."""


class Place(NamedTuple):
    topic: str
    partition: int


def number_of(place: Place) -> int:
    """Of a partition of a topic that a pattern found later: neighbours in a topic, far from those of other topics.

    >>> number_of(Place("sales", 1)) - number_of(Place("sales", 0))
    1
    """
    return _LATER + int.from_bytes(hashlib.blake2b(place.topic.encode(), digest_size=7).digest()) + place.partition


class Discovery:
    def __init__(
        self, who: str, servers: str, config: Mapping[str, Any], topic: str, known: Iterable[Place], every_ms: int
    ) -> None:
        self._who, self._servers, self._config, self._topic = who, servers, config, topic
        self._known = frozenset(known)
        self._every_seconds = every_ms / 1000
        self._due_at = 0.0
        self._looking = False
        self._trouble = Trouble(who)
        self.found: dict[Place, int] = {}
        """Where its first message was when it was found. Never changed: there is a new one when something was found."""

    def look(self) -> Mapping[Place, int]:
        """What is known by now; looks again when it is time, without waiting."""
        if not self._looking and time.monotonic() >= self._due_at:
            self._looking = True
            threading.Thread(target=self._look, name="seep-kafka-discovery", daemon=True).start()
        return self.found

    def _look(self) -> None:
        kafka = library(self._who)
        try:
            client = make(self._who, kafka.Consumer, consumer_settings(self._servers, self._config, self._trouble))
            try:
                self._ask(client)
            finally:
                client.close()
        except kafka.KafkaException as problem:
            self._trouble.hears(problem.args[0])
        finally:
            self._due_at = time.monotonic() + self._every_seconds
            self._looking = False

    def _ask(self, client: Any) -> None:
        several = is_pattern(self._topic)
        listed = client.list_topics(None if several else self._topic, ASK_SECONDS).topics
        for topic in like(self._topic, listed) if several else [self._topic]:
            for partition in sorted(listed[topic].partitions):
                place = Place(topic, partition)
                if place not in self._known and place not in self.found:
                    first, _ = client.get_watermark_offsets(library(self._who).TopicPartition(*place), ASK_SECONDS)
                    self.found = {**self.found, place: first}
