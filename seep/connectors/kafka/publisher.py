"""How epochs get into a topic once: each group of them in a transaction that also says how far it goes.

The mark is the committed offset of a group of our own, named like the transactional id; its "offset" is the last epoch
that was published. Messages and mark become visible together or not at all. So:

1. A publisher begins with `init_transactions` under the id of its sink partition. That fences whoever had the id before
   and ends what he left open, so readers of committed messages do not stand still until it times out.
2. Then it reads the mark. Until it is fenced itself nobody can move the mark, so what it says stays true.
3. Epochs up to the mark are skipped; the others go out in one transaction, with the new mark.
4. Whatever fails, also when nobody knows whether the commit went through: the client is dropped, and it starts at 1.
   So does one whose client was cut off from a broker meanwhile: it would wait for ever (`overdue` says why).

A fenced predecessor that wakes up and begins at 1 itself does no harm: it has nothing but committed epochs to publish,
and only those above the mark. The rightful one is fenced by that once, and begins at 1 in turn.

Without transactions (at least once) the mark follows the messages: what was written between the two is written again.
At most once there is no mark: each epoch comes here once, and what fails is given up. The client's own tries write no
message twice, since the broker knows their numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from seep.connectors.contract import AT_MOST_ONCE, Committed, Opening, Refused
from seep.connectors.kafka.client import Trouble, library, make, words
from seep.connectors.kafka.encoders import Encoder, Message, Unwritten
from seep.connectors.kafka.overdue import overdue
from seep.errors import DataLoss, Misuse
from seep.model.care import Spot

WAIT_SECONDS = 20.0
"""For one answer of the broker: then everything begins anew."""
QUEUE_SECONDS = 0.05
FLUSH_SECONDS = 0.1
UNKNOWN_SECONDS = 60.0
"""After so long a topic that no broker knows was deleted."""
FRESH_SECONDS = 86_400.0
"""Brokers forget the offsets of a group that is silent for a week: an old mark is written again."""
_PRODUCER = {
    "enable.idempotence": True,
    "linger.ms": 5,
    "partitioner": "murmur2_random",  # the one of Kafka's own clients: a key lies where they look for it
    "compression.type": "lz4",
    "retry.backoff.ms": 10,  # a transaction begun while the marks of the one before are written is refused for a moment
    "queue.buffering.max.kbytes": 262_144,
    "topic.metadata.propagation.max.ms": 5_000,  # after that a topic that nobody knows is said to be, before we give up
}
_MARKS = {"enable.auto.commit": False, "isolation.level": "read_committed"}


SHOWN_LETTERS = 10_000
"""Of a message that becomes a dead letter."""
Partitioner = Callable[[bytes | None, int], int]


BATCH_BYTES = 61
"""What a broker counts for a batch beside its messages."""
MESSAGE_BYTES = 36
"""What the client counts for a message beside its key, value and headers, at most."""


class UnknownTopic(ConnectionError):
    """One that was there when the flow started. Brokers that start may say so of any for a moment."""


class TooLarge(ConnectionError):
    """The broker has refused a message. It is known which, and left out the next time."""


class Publisher:
    """One partition of a sink. Used by one thread."""

    def __init__(
        self,
        who: str,
        topic: str,
        settings: Mapping[str, Any],
        name: str,
        opening: Opening,
        make_encoder: Callable[[pa.Schema], Encoder],
        partitioner: Partitioner | None = None,
        limit_bytes: int | None = None,
        compacted: bool = False,
    ) -> None:
        """`limit_bytes`: a batch that is larger is refused by the broker, as far as is known; `compacted`: so is a
        message without a key."""
        self._who, self._topic, self._settings, self._name = who, topic, dict(settings), name
        self._transactional = opening.guarantee == "exactly-once"
        self._marking = opening.guarantee != AT_MOST_ONCE
        self._table = opening.table_keys is not None
        self._forgotten, self._care, self._refuse = opening.forgotten, opening.care, opening.refuse
        self._partitioner, self._partitions = partitioner, 0
        self._limit_bytes, self._compacted = limit_bytes, compacted
        self._make_encoder = make_encoder
        self._encoder: Encoder | None = None
        self._trouble = Trouble(who)
        self._producer: Any = None
        self._marks: Any = None
        self._mark = -1
        self._marked_at = 0.0
        self._heard = 0
        """What its client had reported when it began."""
        self._failed: Any = None
        """The first error of a message that was not delivered."""
        self._unknown_since: float | None = None
        """When the broker first said that there is no such topic, and nothing went well since."""
        self._refused: list[tuple[int, Refused]] = []
        """By epoch: what is left out of the transaction that is open."""
        self._too_large: set[tuple[bytes | None, bytes]] = set()
        """Key and value of those that the broker has refused, until all else of their epochs is there."""

    def publish(self, commits: Sequence[Committed]) -> int:
        while True:
            known = len(self._too_large)
            try:
                return self._publish(commits)
            except TooLarge:
                # At most once nothing is tried again: what was written of the epoch would come twice.
                if not self._marking or len(self._too_large) == known:
                    self._too_large.clear()
                    raise

    def _publish(self, commits: Sequence[Committed]) -> int:
        kafka = library(self._who)
        try:
            self._begin()
            left = [commit for commit in commits if commit.epoch > self._mark]
            stale = self._marking and time.monotonic() - self._marked_at > FRESH_SECONDS
            if any(commit.record is not None or commit.ended for commit in left) or (left and stale):
                self._write(left)
        except kafka.KafkaException as problem:
            self._drop()
            raise self._given_up(self._judged(problem.args[0])) from problem
        except ConnectionError as problem:
            raise self._given_up(problem) from problem
        self._trouble.accepted()
        self._unknown_since = None
        return commits[-1].epoch

    def _given_up(self, problem: Exception) -> Exception:
        """What is to be tried again, but not for ever: nobody sees that it never gets better."""
        self._trouble.check()
        if isinstance(problem, UnknownTopic):
            self._unknown_since = self._unknown_since or time.monotonic()
            if time.monotonic() - self._unknown_since > UNKNOWN_SECONDS:
                return Misuse(f"{self._who}: there is no such topic any more; make it, and resume the flow")
        return problem

    def _begin(self) -> None:
        if self._producer is not None and not self._is_troubled():
            return
        self._drop()
        kafka = library(self._who)
        settings = {**_PRODUCER, **self._settings, "error_cb": self._trouble.hears}
        if self._limit_bytes is not None:
            # A batch of several messages then never is too large, so one that is refused is a single message. That it
            # is, only the broker can say: it counts what is left after compression.
            settings["batch.size"] = min(int(settings.get("batch.size", 1_000_000)), self._limit_bytes - BATCH_BYTES)
        if self._transactional:
            settings["transactional.id"] = self._name
        producer = make(self._who, kafka.Producer, settings)
        if self._transactional:
            producer.init_transactions(WAIT_SECONDS)
        if self._partitioner is not None:
            found = producer.list_topics(self._topic, WAIT_SECONDS).topics[self._topic]
            if found.error is not None:
                raise kafka.KafkaException(found.error)
            self._partitions = len(found.partitions)
        self._mark = self._marked(kafka) if self._marking else -1
        producer.poll(0)  # what it has to report from before all this went well is of no interest
        self._producer, self._heard = producer, self._trouble.heard

    def _marked(self, kafka: Any) -> int:
        reading = {**self._settings, **_MARKS, "group.id": self._name, "error_cb": self._trouble.hears}
        self._marks = make(self._who, kafka.Consumer, reading)
        found = self._marks.committed([kafka.TopicPartition(self._topic, 0)], WAIT_SECONDS)[0].offset
        if found < 0 and self._forgotten:
            raise DataLoss(
                f"{self._who}: the broker no longer has the mark of {self._name}, which says what was published;"
                " it forgets those of flows that stand still for longer than offsets.retention.minutes"
            )
        return max(int(found), -1)

    def _write(self, commits: Sequence[Committed]) -> None:
        """All of these and the mark, or nothing that anybody sees."""
        self._failed, self._refused = None, []
        if self._transactional:
            self._producer.begin_transaction()
        for commit in commits:
            shown = partial("{}: messages of epoch {}".format, self._who, commit.epoch)
            with self._care(commit.epoch).whole(Spot("messages", 0, 0), shown):
                self._send(commit)
        self._flush()
        if self._marking:
            self._commit(commits[-1].epoch)
        self._mark, self._marked_at = commits[-1].epoch, time.monotonic()
        self._too_large.clear()
        for epoch, refused in self._refused:
            self._refuse(epoch, refused)

    def _commit(self, epoch: int) -> None:
        mark = [library(self._who).TopicPartition(self._topic, 0, epoch)]
        producer, marks = self._producer, self._marks
        if self._transactional:
            group = marks.consumer_group_metadata()
            self._wait_for(lambda: producer.send_offsets_to_transaction(mark, group, WAIT_SECONDS))
            producer.commit_transaction(WAIT_SECONDS)
        else:
            self._wait_for(lambda: marks.commit(offsets=mark, asynchronous=False))

    def _wait_for(self, call: Callable[[], object]) -> None:
        if self._is_troubled() or overdue(call, self._producer.poll, self._trouble, WAIT_SECONDS):
            self._drop()
            raise ConnectionError(f"{self._who}: {self._trouble.latest or 'the broker does not take the mark'}")

    def _is_troubled(self) -> bool:
        """A client that was cut off from a broker is not to be trusted with marks: see `overdue`."""
        self._producer.poll(0)
        return self._trouble.heard > self._heard

    def _send(self, commit: Committed) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        kafka = library(self._who)
        for number, (key, value, headers) in enumerate(self._messages(commit)):
            if isinstance(value, Unwritten):
                self._refused.append((commit.epoch, Refused(value.text[:SHOWN_LETTERS], value.reason, number)))
                continue
            if key is None and self._compacted:
                reason = "has no key, and a compacted topic takes none without"
                self._refused.append((commit.epoch, _unsent(value, reason, number)))
                continue
            if self._too_large and (key, value) in self._too_large:
                reason = f"is more than the topic takes (max.message.bytes={self._limit_bytes})"
                self._refused.append((commit.epoch, _unsent(value, reason, number)))
                continue
            place = {} if self._partitioner is None else {"partition": self._place(self._partitioner, key)}
            while True:
                try:
                    self._producer.produce(
                        self._topic, value, key, headers=headers, on_delivery=self._delivered, **place
                    )
                    break
                except kafka.KafkaException as problem:
                    # The client takes nothing beyond its `message.max.bytes`, and never will. Nothing was sent.
                    if problem.args[0].code() != kafka.KafkaError.MSG_SIZE_TOO_LARGE:
                        raise
                    reason = "is more than message.max.bytes of the client"
                    self._refused.append((commit.epoch, _unsent(value, reason, number)))
                    break
                except BufferError:  # its queue is full: the broker is slower than we are
                    self._producer.poll(QUEUE_SECONDS)
                    if time.monotonic() > deadline:
                        self._drop()
                        raise ConnectionError(
                            f"{self._who}: {self._trouble.latest or 'the broker does not take it'}"
                        ) from None
            self._producer.poll(0)

    def _place(self, partitioner: Partitioner, key: bytes | None) -> int:
        try:
            found = partitioner(key, self._partitions)
        except Exception as problem:  # a user's function
            raise Misuse(f"{self._who}: its partitioner: {type(problem).__name__}: {problem}") from problem
        if type(found) is not int or not 0 <= found < self._partitions:
            raise Misuse(f"{self._who}: its partitioner gave {found!r:.100}; there are {self._partitions} partitions")
        return found

    def _messages(self, commit: Committed) -> Iterable[Message]:
        if commit.record is None:
            return ()
        if self._encoder is None:
            self._encoder = self._make_encoder(commit.record.schema)
        return self._encoder.messages(commit.record, self._table)

    def _flush(self) -> None:
        """Every message is with the broker, or it is known why not. Of a client in trouble nobody waits for messages:
        it is dropped before they are committed (`_wait_for`), and readers stand still meanwhile."""
        deadline = time.monotonic() + WAIT_SECONDS
        left = self._producer.flush(FLUSH_SECONDS)
        while left and self._failed is None and not self._is_troubled() and time.monotonic() < deadline:
            left = self._producer.flush(FLUSH_SECONDS)
        if self._failed is not None or left:
            failed, self._failed = self._failed, None
            self._drop()
            if failed is not None:
                raise self._judged(failed)
            why = self._trouble.latest or f"not within {WAIT_SECONDS:.0f} s"
            raise ConnectionError(f"{self._who}: {left} messages not written: {why}")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            return
        if error.code() == library(self._who).KafkaError.MSG_SIZE_TOO_LARGE and self._is_large(message):
            self._too_large.add((message.key(), message.value()))
        if self._failed is None:
            self._failed = error

    def _is_large(self, message: Any) -> bool:
        """Alone, as it is: else the topic takes less by now than it did."""
        parts = [message.key(), message.value(), *(part for header in message.headers() or () for part in header)]
        size = sum(len(part) for part in parts if part is not None)
        return self._limit_bytes is not None and size > self._limit_bytes - BATCH_BYTES - MESSAGE_BYTES

    def _judged(self, error: Any) -> Exception:
        """To be tried again, or not."""
        kinds = library(self._who).KafkaError
        never = (
            kinds.TOPIC_AUTHORIZATION_FAILED,
            kinds.GROUP_AUTHORIZATION_FAILED,
            kinds.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            kinds.CLUSTER_AUTHORIZATION_FAILED,
            kinds.INVALID_TRANSACTION_TIMEOUT,
            kinds.INVALID_RECORD,
        )
        if error.code() == kinds.MSG_SIZE_TOO_LARGE and self._too_large:
            return TooLarge(f"{self._who}: {words(error)}")
        if error.code() == kinds.MSG_SIZE_TOO_LARGE:
            how = "set message.max.bytes in config= to what the topic takes: what is larger becomes a dead letter"
            return Misuse(f"{self._who}: {words(error)}; {how}")
        if error.code() in (kinds.UNKNOWN_TOPIC_OR_PART, kinds._UNKNOWN_TOPIC, kinds._UNKNOWN_PARTITION):
            return UnknownTopic(f"{self._who}: {words(error)}")
        if error.code() in never:
            return Misuse(f"{self._who}: {words(error)}")
        return ConnectionError(f"{self._who}: {words(error)}")

    def _drop(self) -> None:
        """The next try begins anew. What is open is ended by its `init_transactions`."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None


def _unsent(value: bytes | None, reason: str, number: int) -> Refused:
    text = (value or b"")[:SHOWN_LETTERS].decode(errors="replace")
    return Refused(text, f"a message of {len(value or b'')} bytes {reason}", number)
