"""Partitions that a topic gets, topics that come to match a pattern or are deleted, while a flow reads them.

Looked for now and then, beside the reading: asking a broker may take seconds, and a source must never wait. Every
worker looks for itself; the number of what it finds follows from topic and partition alone, so all of them agree on it.

The client does not tell of a deleted topic: it looks for it again, for ever. So what is read is looked for here, too. A
broker that gives no answer says nothing; one that has just started, or has not heard of everything yet, may say for a
moment that a topic is unknown. Several such answers in a row, over some seconds, are believed.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from seep.connectors.kafka.client import ASK_SECONDS, Trouble, is_pattern, library, like, make
from seep.connectors.kafka.reader import consumer_settings

REFRESH = "topic.metadata.refresh.interval.ms"
"""The client's own setting says how often; -1: never."""
REFRESH_MS = 10_000
GONE_ANSWERS, GONE_SECONDS = 5, 5.0
"""So many answers in a row, over so long, that it is unknown: then it was deleted."""
AGAIN_SECONDS = 1.0
"""Between two questions while something is missed."""
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


class Missed:
    """What brokers do not know of, for how long and by how many answers."""

    def __init__(self) -> None:
        self._since: dict[Place, tuple[float, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._since)

    def answered(self, unknown: Collection[Place], now: float) -> frozenset[Place]:
        """An answer came, and left these out; those that are gone for good."""
        before = self._since
        heard = {place: before.get(place, (now, 0)) for place in unknown}
        self._since = {place: (since, answers + 1) for place, (since, answers) in heard.items()}
        long_ago = now - GONE_SECONDS
        return frozenset(p for p, (since, count) in self._since.items() if count >= GONE_ANSWERS and since <= long_ago)

    def unanswered(self) -> None:
        """No broker was there to say anything: whoever comes back may have to learn it all again."""
        self._since = {}


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
        self._read: frozenset[Place] = frozenset()
        self._missed = Missed()
        self._gone: frozenset[Place] = frozenset()

    def look(self) -> Mapping[Place, int]:
        """What is known by now; looks again when it is time, without waiting."""
        if not self._looking and time.monotonic() >= self._due_at:
            self._looking = True
            threading.Thread(target=self._look, name="seep-kafka-discovery", daemon=True).start()
        return self.found

    def is_gone(self, place: Place) -> bool:
        """This one is read: is it certain that it was deleted? Answers at once, by what is known so far."""
        if place not in self._read:
            self._read |= {place}
        self.look()
        return place in self._gone

    def _look(self) -> None:
        kafka = library(self._who)
        try:
            client = make(self._who, kafka.Consumer, consumer_settings(self._servers, self._config, self._trouble))
            try:
                self._ask(client)
            finally:
                client.close()
        except kafka.KafkaException as problem:
            self._missed.unanswered()
            self._trouble.hears(problem.args[0])
        finally:
            every = min(AGAIN_SECONDS, self._every_seconds) if self._missed else self._every_seconds
            self._due_at = time.monotonic() + every
            self._looking = False

    def _ask(self, client: Any) -> None:
        several = is_pattern(self._topic)
        listed = client.list_topics(None if several else self._topic, ASK_SECONDS).topics
        self._gone |= self._missed.answered(self._unknown(client, listed), time.monotonic())
        for topic in like(self._topic, listed) if several else [self._topic]:
            for partition in sorted(listed[topic].partitions):
                place = Place(topic, partition)
                if place not in self._known and place not in self.found:
                    first, _ = client.get_watermark_offsets(library(self._who).TopicPartition(*place), ASK_SECONDS)
                    self.found = {**self.found, place: first}

    def _unknown(self, client: Any, listed: Mapping[str, Any]) -> set[Place]:
        """What is read, and is not there by the word of a broker."""
        read, unknown = self._read - self._gone, set()
        for topic in {place.topic for place in read}:
            # Topics that we have no right to see are left out of the list, too: only asked by name are they told apart.
            found = listed[topic] if topic in listed else client.list_topics(topic, ASK_SECONDS).topics[topic]
            if found.error is None or found.error.code() == library(self._who).KafkaError.UNKNOWN_TOPIC_OR_PART:
                unknown |= {place for place in read if place.topic == topic and place.partition not in found.partitions}
        return unknown
