"""One partition of a topic, read by a client of its own.

The client's own threads fetch ahead, so asking it for what has come never waits. One client for each partition and not
one for all: then each has its own queue, a partition that is not read holds up no other, and going back to an earlier
offset disturbs nobody.

A position is the offset after the last message taken. Offsets have gaps (the marks of transactions, aborted messages),
which lie before the next message. At the end of a topic the position is behind them as soon as the broker has said so:
else one that stands still would seem to have lost them once the topic keeps nothing from before its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from seep.connectors.kafka.client import ASK_SECONDS, Trouble, library, make, settings_of, words
from seep.errors import DataLoss, Misuse, Retry

AT_MOST = 100_000
"""Messages in one call."""
DOUBT_SECONDS = 1.0
"""So long a broker that was never away may take to say once more that there is nothing."""
AGAIN_SECONDS = 120.0
"""For so long an epoch that is read again is waited for: who reads it cannot go on without."""
_SETTINGS = {
    "group.id": "seep",  # never joined, nothing is committed to it
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
}
_TUNING = {
    "fetch.wait.max.ms": 50,  # going back to an earlier offset waits for the fetch that is under way
    "fetch.queue.backoff.ms": 10,
    "queued.max.messages.kbytes": 32_768,
    "check.crcs": True,
}


def consumer_settings(servers: str, config: Mapping[str, Any], trouble: Trouble) -> dict[str, Any]:
    return {**_TUNING, **settings_of(servers, config), **_SETTINGS, "error_cb": trouble.hears}


class Gap(NamedTuple):
    """Offsets that were not there any more when they were to be read, and were passed over: up to before `end`."""

    start: int
    end: int


class PartitionReader:
    def __init__(
        self, who: str, servers: str, config: Mapping[str, Any], topic: str, partition: int, skips: bool
    ) -> None:
        self._kafka = library(who)
        self.who = f"{who}, partition {partition}"
        self.topic, self.partition = topic, partition
        self._trouble = Trouble(self.who)
        self._client = make(who, self._kafka.Consumer, consumer_settings(servers, config, self._trouble))
        self._next: int | None = None
        """Where the client goes on; None: nowhere yet."""
        self._skips = skips
        self.gap: Gap | None = None
        """The latest."""
        self.read_ms = 0
        """When it was last read, as its source is told."""
        self.end = -1
        """Up to here everything was read, and nothing more was there."""
        self._heard = 0
        """Reports of the client up to which the end is known."""
        self._doubted = (-1, 0.0)
        """An end that is asked for anew, and since when."""

    def take(self, position: int, limit: int) -> list[Any]:
        """Messages from this offset on, if some are here."""
        if self._trouble.heard > self._heard:
            self._doubt()
        self._go_to(position)
        return self._received(limit, 0.0)

    def between(self, start: int, until: int, is_gone: Callable[[], bool]) -> list[Any]:
        """All messages from one offset to before another, waited for; not if the topic is gone."""
        self._doubted = (-1, 0.0)
        self._go_to(start)
        found: list[Any] = []
        deadline, at = time.monotonic() + AGAIN_SECONDS, start
        while at < until and self.end < until:
            messages = self._received(until - at, 0.2)
            if messages:
                at = messages[-1].offset() + 1
                found += messages
            elif is_gone():
                raise self.deleted(at)
            elif time.monotonic() > deadline:
                why = self._trouble.latest or "no answer"
                raise Retry(f"{self.who}: offsets {start} to {until} could not be read again ({why})")
        if at > until:  # the last of them is gone; what came instead is not lost
            self._next = None
        return [message for message in found if message.offset() < until]

    def values(self, messages: list[Any]) -> list[bytes | None]:
        return list(map(self._kafka.Message.value, messages))

    def deleted(self, at: int) -> DataLoss:
        return DataLoss(
            f"{self.who}: the topic was deleted while it was read, and what was to come from offset {at} on is lost."
            " Start the flow anew, or from a savepoint with gone='skip' to go on without it"
        )

    def caught_up(self, position: int) -> bool:
        """Was nothing there after this position, by a recent word of the broker?"""
        end, since = self._doubted
        return self.end >= position or (end >= position and time.monotonic() - since < DOUBT_SECONDS)

    def _doubt(self) -> None:
        """A broker was away, perhaps ours: what it has by now nobody knows. The client says only once that the end is
        reached, so it is made to begin here anew. An answer at once means that it was another broker."""
        self._heard = self._trouble.heard
        if self._next is not None and self.end >= self._next:
            self._doubted, self._next = (self.end, time.monotonic()), None

    def behind(self, position: int) -> int | None:
        """Offsets from here to the end of the partition, as of the latest fetch."""
        if self._next is None:
            return None
        high: int = self._client.get_watermark_offsets(self._place(position), cached=True)[1]
        return max(0, high - position) if high >= 0 else None

    def close(self) -> None:
        self._client.close()

    def _go_to(self, position: int) -> None:
        start = self.gap.end if self.gap is not None and self.gap.start == position else position
        if self._next is not None and self._next < start == self.end:
            self._next = start  # nothing lies between: the client is there already
        if self._next != start:
            self._next, self.end = start, -1
            self._client.assign([self._place(start)])

    def _place(self, offset: int) -> Any:
        return self._kafka.TopicPartition(self.topic, self.partition, offset)

    def _received(self, limit: int, seconds: float) -> list[Any]:
        found: list[Any] = self._client.consume(min(limit, AT_MOST), seconds)
        if any(map(self._kafka.Message.error, found)):
            for message in found:
                if message.error() is not None:
                    self._judge(message)
            found = [message for message in found if message.error() is None]
        if found:
            self._next = found[-1].offset() + 1
            self._trouble.accepted()
        self._trouble.check()
        return found

    def _judge(self, message: Any) -> None:
        """What the client could not do. It tries again by itself; some things do not get better by that."""
        kinds, code = self._kafka.KafkaError, message.error().code()
        if code == kinds._PARTITION_EOF:
            self.end = message.offset()
            self._trouble.accepted()
        elif code in (kinds._AUTO_OFFSET_RESET, kinds.OFFSET_OUT_OF_RANGE):
            self._overtaken()
        elif code in (kinds.TOPIC_AUTHORIZATION_FAILED, kinds.GROUP_AUTHORIZATION_FAILED):
            raise Misuse(f"{self.who}: {message.error().str()}")
        else:
            self._trouble.hears(message.error())

    def _overtaken(self) -> None:
        """The topic has dropped what was to be read next."""
        try:
            low, high = self._client.get_watermark_offsets(self._place(0), ASK_SECONDS)
            kept = f"it holds {low} to {high}"
        except self._kafka.KafkaException as problem:
            low, kept = -1, f"what it holds is not known: {words(problem)}"
        if self._skips and self._next is not None and self._next < low:
            self.gap = Gap(self._next, low)
            self._go_to(self._next)
            return
        raise DataLoss(
            f"{self.who}: offset {self._next} is gone, {kept}; the topic keeps its messages for too short a time,"
            " or was made anew. Start the flow anew, or from a savepoint that is still covered"
        )
