"""A topic as a source: each of its partitions is a split, and an offset is a position.

Where a flow begins is decided once, where it is started, and kept with the job: so ``start="latest"`` means the end as
it was then, for every restart. The partitions that there are then are numbered through, by topic and partition. Those
that appear later are read from their first message on; their numbers do not depend on when that was.

A position is an offset; of a pattern ``topic:partition:offset``, so that a log or a savepoint says which one is meant.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from seep.connectors.contract import Refused, Rows
from seep.connectors.kafka.careful import decode_carefully
from seep.connectors.kafka.client import (
    ASK_SECONDS,
    Trouble,
    asked,
    check_config,
    check_place,
    check_servers,
    is_pattern,
    library,
    make,
    partitions_of,
    topics_like,
)
from seep.connectors.kafka.decoders import Decoded, Decoder, ManyDecoder, decoder_of
from seep.connectors.kafka.discovery import REFRESH, REFRESH_MS, Discovery, Place, number_of
from seep.connectors.kafka.reader import PartitionReader, consumer_settings
from seep.errors import Misuse
from seep.model.care import CAREFREE, Care
from seep.model.schema import TIMESTAMP, physical

METADATA = {"_key": pa.binary(), "_partition": pa.int64(), "_offset": pa.int64(), "_timestamp": TIMESTAMP}
UNREAD_MS = 60_000
DELETED = 2**63 - 1
"""The offset after everything: up to here there is nothing any more, since the topic was deleted."""
_SHOWN_LETTERS = 10_000
"""Of a message that becomes a dead letter."""


class Bounds(NamedTuple):
    """Of a partition: the offset of the first message that is read, and with an end that of the first that is not."""

    topic: str
    partition: int
    start: int
    end: int | None
    first: int = 0
    """Of the first message that there was."""


class KafkaSource:
    """Messages of a topic, each a row (``format="arrow"``: each some rows).

    ``topic`` is a name, or, beginning with ``^``, a regular expression: then all topics of such names are read. Topics
    and partitions that appear while the flow runs are read, too.
    ``schema`` is a dataclass or the like. ``format`` is ``"json"``, ``"avro"``, ``"arrow"``, ``"raw"`` (one column,
    `value`), or a function from the bytes of a message to a row. ``start`` is ``"earliest"``, ``"latest"``, a datetime
    (messages from then on) or a dict from partition to offset (those it does not name: from the earliest).
    ``metadata=True`` adds the columns `_key`, `_partition`, `_offset` and `_timestamp`, of a pattern also `_topic`.
    ``load="to-end"`` ends where the topic ends when the flow starts, so a Table of it is loaded before other sources
    begin. ``gone`` says what to do about messages that the topic has dropped before they were read, and about a topic
    that was deleted: ``"stop"``, or ``"skip"`` (a dead letter says what). ``config``: settings of the client.

    >>> KafkaSource("sales", servers="127.0.0.1:9092", schema={"store": str, "amount": float}).schema.names
    ['store', 'amount']
    """

    def __init__(
        self,
        topic: str,
        servers: str,
        schema: Any = None,
        format: str | Callable[[bytes], Any] = "json",
        start: str | datetime | Mapping[int, int] = "earliest",
        metadata: bool = False,
        load: str | None = None,
        config: Mapping[str, Any] | None = None,
        gone: str = "stop",
    ) -> None:
        self._who = f"KafkaSource {topic!r}"
        self._several = is_pattern(topic)
        if self._several:
            _check_pattern(self._who, topic, start)
            check_servers(self._who, servers)
        else:
            check_place(self._who, topic, servers)
        if load not in (None, "to-end"):
            raise Misuse(f"{self._who}: load={load!r}; give 'to-end', or leave it out")
        if gone not in ("stop", "skip"):
            raise Misuse(f"{self._who}: gone={gone!r}; give 'stop' or 'skip'")
        self._skips = gone == "skip"
        self.topic, self.servers, self.metadata = topic, servers, metadata
        self.start = _checked_start(self._who, start)
        self.endless = load is None
        self._config = check_config(self._who, config)
        self._decoder: Decoder = decoder_of(self._who, format, schema)
        fields = list(self._decoder.schema)
        if metadata:
            fields += [pa.field(name, kind) for name, kind in METADATA.items()]
            fields += [pa.field("_topic", pa.string())] * self._several
        self._schema = physical(pa.schema(fields))
        if len(set(self._schema.names)) < len(fields):
            raise Misuse(f"{self._who}: a column of the schema is named like one of {', '.join(METADATA)}")
        self.care: Care = CAREFREE
        self._bounds: tuple[Bounds, ...] | None = None
        self._readers: dict[int, PartitionReader] = {}
        self._discovery: Discovery | None = None
        self._looked_ms = 0
        self._rows_of_message = 1
        self._refresh_ms = _checked_refresh(self._who, self._config)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_readers": {}, "_discovery": None, "care": CAREFREE}

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def splits(self) -> int:
        return len(self._known())

    def prepared(self) -> KafkaSource:
        """The same with its partitions and their bounds looked up."""
        kafka, trouble = library(self._who), Trouble(self._who)
        client = make(self._who, kafka.Consumer, consumer_settings(self.servers, self._config, trouble))
        try:
            named = topics_like(self._who, client, self.topic, trouble) if self._several else [self.topic]
            bounds = [bound for topic in named for bound in self._bounds_of(client, topic, trouble)]
        finally:
            client.close()
        found = copy.copy(self)
        found._bounds, found._readers, found._discovery = tuple(bounds), {}, None
        return found

    # --- its splits ------------------------------------------------------------------------------------------------

    def warm(self) -> None:
        if isinstance(self._decoder, ManyDecoder):
            self._decoder.warm()

    def begins(self, split: int) -> Any:
        bound = self._known()[split]
        return self._position(bound.topic, bound.partition, bound.start)

    @property
    def grows(self) -> bool:
        return self.endless and self._refresh_ms > 0

    def appeared(self, now_ms: int) -> dict[int, Any]:
        """Partitions that were not there when the flow started, and their first messages."""
        found = self._looking().look()
        return {self._later(place): self._position(*place, first) for place, first in found.items()}

    def _looking(self) -> Discovery:
        if self._discovery is None:
            known = [Place(bound.topic, bound.partition) for bound in self._known()]
            every_ms = self._refresh_ms if self._refresh_ms > 0 else REFRESH_MS
            self._discovery = Discovery(self._who, self.servers, self._config, self.topic, known, every_ms)
        return self._discovery

    def _later(self, place: Place) -> int:
        """The number of one that was not there at the start."""
        return number_of(place) if self._several else place.partition

    @property
    def split_names(self) -> list[str] | None:
        """Of a pattern the positions say it."""
        return None if self._several else [self.topic] * self.splits

    def taken_up(self, saved: Mapping[int, Any]) -> dict[int, tuple[int | None, Any]]:
        """The splits of a savepoint by the numbers they have here, and those that it does not have: these appeared
        after it was taken, and begin with their first message. Answers (number in the savepoint, position)."""
        numbers = {Place(bound.topic, bound.partition): number for number, bound in enumerate(self._known())}
        placed: dict[int, tuple[int | None, Any]] = {}
        for split, position in saved.items():
            topic, partition, _ = self._parsed(split, position)
            place = Place(topic, partition)
            if place not in numbers and not self._skips:
                raise Misuse(
                    f"{self._who}: partition {partition} of {topic!r} was read when the savepoint was taken, and is not"
                    " there any more; what was not read of it is lost: gone='skip' goes on without it"
                )
            placed[numbers.get(place, self._later(place))] = (split, position)
        for number, bound in enumerate(self._known()):
            placed.setdefault(number, (None, self._position(bound.topic, bound.partition, bound.first)))
        return placed

    def _position(self, topic: str, partition: int, offset: int) -> Any:
        return f"{topic}:{partition}:{offset}" if self._several else offset

    def _parsed(self, split: int, position: Any) -> tuple[str, int, int]:
        """Topic, partition and offset."""
        if self._several and position is not None:
            topic, partition, offset = position.split(":")
            return topic, int(partition), int(offset)
        if split < len(self._known()):
            bound = self._known()[split]
            return bound.topic, bound.partition, bound.start if position is None else position
        return self.topic, split, position

    def _end(self, split: int) -> int | None:
        return self._known()[split].end if split < len(self._known()) else None

    def _bounds_of(self, client: Any, topic: str, trouble: Trouble) -> list[Bounds]:
        count = partitions_of(self._who, client, topic, trouble)
        places = [library(self._who).TopicPartition(topic, number) for number in range(count)]
        held = [
            asked(self._who, client, trouble, partial(client.get_watermark_offsets, p, ASK_SECONDS)) for p in places
        ]
        starts = self._starts(held, lambda times: self._at_times(client, topic, trouble, times))
        ends = [None if self.endless else high for _, high in held]
        firsts = [low for low, _ in held]
        return [Bounds(topic, number, *bound) for number, bound in enumerate(zip(starts, ends, firsts, strict=True))]

    def _starts(self, held: list[tuple[int, int]], at_times: Callable[[list[int]], list[int]]) -> list[int]:
        match self.start:
            case "earliest":
                return [low for low, _ in held]
            case "latest":
                return [high for _, high in held]
            case datetime() as moment:
                found = at_times([round(moment.timestamp() * 1000)] * len(held))
                return [high if at < 0 else at for at, (_, high) in zip(found, held, strict=True)]
        assert isinstance(self.start, dict)
        for partition, offset in self.start.items():
            if partition >= len(held):
                raise Misuse(f"{self._who}: start names partition {partition}; the topic has {len(held)}")
            low, high = held[partition]
            if not low <= offset <= high:
                raise Misuse(f"{self._who}: start={offset} of partition {partition}; it holds {low} to {high}")
        return [self.start.get(number, low) for number, (low, _) in enumerate(held)]

    def _at_times(self, client: Any, topic: str, trouble: Trouble, times: list[int]) -> list[int]:
        kafka = library(self._who)
        places = [kafka.TopicPartition(topic, number, at) for number, at in enumerate(times)]

        def found() -> list[int]:
            answered = client.offsets_for_times(places, ASK_SECONDS)
            for place in answered:
                if place.error is not None:  # of this partition alone; it is no word about what lies in it
                    raise kafka.KafkaException(place.error)
            return [place.offset for place in answered]

        offsets: list[int] = asked(self._who, client, trouble, found)
        return offsets

    def _known(self) -> tuple[Bounds, ...]:
        if self._bounds is None:
            raise Misuse(f"{self._who}: its partitions are looked up when a flow starts; run it in one")
        return self._bounds

    # --- reading ---------------------------------------------------------------------------------------------------

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Rows | None:
        topic, partition, at = self._parsed(split, position)
        end, reader = self._end(split), self._reader(split, topic, partition)
        reader.read_ms = now_ms
        self._let_go(now_ms)
        is_gone = partial(self._looking().is_gone, Place(topic, partition))
        if until is not None:
            last = self._parsed(split, until)[2]
            messages = [] if last == DELETED else reader.between(at, last, is_gone)
            return self._rows(reader, messages, at, last, last in (end, DELETED))
        if end is not None and at >= end:
            return self._rows(reader, [], at, at, True)
        messages = reader.take(at, max(1, limit_rows // self._rows_of_message))
        ended = False
        if end is not None:
            # What ends there may be no message: a transaction's mark, or messages of one that was aborted.
            passed = bool(messages) and messages[-1].offset() >= end - 1
            ended = passed or (not messages and reader.end >= end)
        if not messages and not ended:
            if reader.end > at:  # what came last is no message
                return self._rows(reader, [], at, reader.end, False)
            if not is_gone():
                return None
            if not self._skips:
                raise reader.deleted(at)
            return self._rows(reader, [], at, DELETED, True)
        after = end if ended and end is not None else messages[-1].offset() + 1
        if messages and messages[-1].offset() >= after:
            messages = [message for message in messages if message.offset() < after]
        return self._rows(reader, messages, at, after, ended)

    def _gap(self, reader: PartitionReader, at: int, until: int) -> tuple[Refused, ...]:
        """What was skipped where this read began."""
        where = self._position(reader.topic, reader.partition, at)
        if until == DELETED:
            reason = f"offsets from {at} on are gone: the topic was deleted; one of that name made anew is not read"
            return (Refused("", reason, where),)
        gap = reader.gap
        if gap is None or gap.start != at:
            return ()
        last = min(gap.end, until) - 1
        reason = f"{last + 1 - at} offsets, {at} to {last}, are gone: the topic did not keep them, they were skipped"
        return (Refused("", reason, where),)

    def caught_up(self, split: int, position: Any) -> bool:
        reader = self._readers.get(split)
        return reader is not None and reader.caught_up(self._parsed(split, position)[2])

    def behind(self, split: int, position: Any, now_ms: int) -> int | None:
        """In offsets, which is in messages unless they were written in transactions."""
        at, end, reader = self._parsed(split, position)[2], self._end(split), self._readers.get(split)
        left = None if reader is None else reader.behind(at)
        return left if end is None or left is None else min(left, end - at)

    def _reader(self, split: int, topic: str, partition: int) -> PartitionReader:
        if split not in self._readers:
            who = f"{self._who}, {topic!r}" if self._several else self._who
            self._readers[split] = PartitionReader(who, self.servers, self._config, topic, partition, self._skips)
        return self._readers[split]

    def _let_go(self, now_ms: int) -> None:
        """Of partitions that somebody else reads by now."""
        if now_ms - self._looked_ms > UNREAD_MS:
            self._looked_ms = now_ms
            for split in [split for split, reader in self._readers.items() if now_ms - reader.read_ms > UNREAD_MS]:
                self._readers.pop(split).close()

    def _rows(self, reader: PartitionReader, messages: list[Any], at: int, after: int, ended: bool) -> Rows:
        values = reader.values(messages)
        where = (reader.topic, reader.partition)
        if self.care.needed:
            place = f"{reader.topic}:{reader.partition}"
            decoded = decode_carefully(self._decoder, self.care, reader.who, place, messages, values)
        else:
            decoded = self._decoder.decode(values)
        refused = self._gap(reader, at, after) + tuple(
            Refused(_shown(values[number]), reason, self._position(*where, messages[number].offset()))
            for number, reason in decoded.refused
        )
        if messages:
            self._rows_of_message = max(1, decoded.record.num_rows // len(messages))
        record = self._with_metadata(decoded, messages) if self.metadata else decoded.record
        return Rows(record, self._position(*where, after), ended, refused)

    def _with_metadata(self, decoded: Decoded, messages: list[Any]) -> pa.RecordBatch:
        columns = [
            pa.array([message.key() for message in messages], pa.binary()),
            pa.array([message.partition() for message in messages], pa.int64()),
            pa.array([message.offset() for message in messages], pa.int64()),
            pa.array([_microseconds(message) for message in messages], pa.int64()).cast(TIMESTAMP),
        ]
        columns += [pa.array([message.topic() for message in messages], pa.string())] * self._several
        of_row = pa.array(decoded.messages, pa.int64())
        arrays = [*decoded.record.columns, *(column.take(of_row) for column in columns)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _microseconds(message: Any) -> int | None:
    kind, milliseconds = message.timestamp()
    return milliseconds * 1000 if kind and milliseconds >= 0 else None


def _shown(value: bytes | None) -> str:
    text = "" if value is None else value[: 4 * _SHOWN_LETTERS].decode(errors="replace")
    return text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}..."


def _check_pattern(who: str, pattern: str, start: Any) -> None:
    try:
        re.compile(pattern)
    except re.error as problem:
        raise Misuse(f"{who}: this is no regular expression: {problem}") from problem
    if isinstance(start, Mapping):
        raise Misuse(f"{who}: start names partitions, of which each topic has its own; give a datetime or 'latest'")


def _checked_refresh(who: str, config: Mapping[str, Any]) -> int:
    every_ms = config.get(REFRESH, REFRESH_MS)
    if type(every_ms) is not int or not (every_ms == -1 or every_ms >= 10):
        raise Misuse(f"{who}: {REFRESH}={every_ms!r}; give milliseconds, 10 or more, or -1 to look for nothing new")
    return every_ms


def _checked_start(who: str, start: Any) -> Any:
    if start in ("earliest", "latest"):
        return start
    if isinstance(start, datetime):
        return start.replace(tzinfo=UTC) if start.tzinfo is None else start
    if isinstance(start, Mapping) and all(type(n) is int and n >= 0 for pair in start.items() for n in pair):
        return dict(start)
    raise Misuse(f"{who}: start={start!r}; give 'earliest', 'latest', a datetime, or a dict from partition to offset")
