"""Streams of Redis as a source: each stream is a split, and the id of its last entry that was taken is the position.

Redis lets entries go (`XTRIM`, `MAXLEN`, `XDEL`) without asking whether they were read. It counts them, though: how
many were ever added, and how many are left. So a position also holds the count at its entry, and a stream that has let
go of more than was read stops the flow instead of being skipped over.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from seep.connectors.contract import Refused, Rows
from seep.connectors.redis.client import asked, check_url, connected, judged, library
from seep.connectors.redis.fields import FieldDecoder
from seep.connectors.trouble import Trouble
from seep.errors import DataLoss, Misuse, Retry
from seep.model.schema import schema_of

AT_MOST = 10_000
"""Entries in one call."""
READ_SECONDS = 2.0
"""A server that hangs holds up the worker for so long, then it is left alone for a while."""
PAUSE_MS = 1_000
AGAIN_SECONDS = 120.0
"""For so long an epoch that is read again is waited for: who reads it cannot go on without."""
_SHOWN_LETTERS = 10_000
"""Of an entry that becomes a dead letter."""
Entry = tuple[bytes, dict[bytes, bytes]]


class Place(NamedTuple):
    """A position."""

    id: str
    """Of the last entry that was taken."""
    passed: int
    """Entries that were ever added up to it."""
    taken: int
    """Entries since the flow began."""


class Bounds(NamedTuple):
    start: Place
    end: str | None
    """The id of the last entry to read; None: there is none."""


class Known(NamedTuple):
    """What Redis says of a stream."""

    added: int
    length: int
    first: str
    last: str


class RedisStreamSource:
    """Entries of a stream (or of several, each a partition), the fields by name and decoded as ``schema`` says.

    ``start`` is ``"earliest"`` or ``"latest"``. ``load="to-end"`` ends where the stream ends when the flow starts, so a
    Table of it is loaded before other sources begin.

    >>> RedisStreamSource("sales", url="redis://127.0.0.1:6379/0", schema={"store": str, "amount": float}).schema.names
    ['store', 'amount']
    """

    def __init__(
        self, stream: str | Sequence[str], url: str, schema: Any, start: str = "earliest", load: str | None = None
    ) -> None:
        self.streams = (stream,) if isinstance(stream, str) else tuple(stream)
        self._who = f"RedisStreamSource {', '.join(map(repr, self.streams))}"
        if not self.streams or not all(self.streams):
            raise Misuse(f"{self._who}: give the name of a stream, or some")
        if len(set(self.streams)) < len(self.streams):
            raise Misuse(f"{self._who}: a stream is there twice; give each once")
        check_url(self._who, url)
        if start not in ("earliest", "latest"):
            raise Misuse(f"{self._who}: start={start!r}; give 'earliest' or 'latest'")
        if load not in (None, "to-end"):
            raise Misuse(f"{self._who}: load={load!r}; give 'to-end', or leave it out")
        self.url, self.start = url, start
        self.endless = load is None
        self._decoder = FieldDecoder(self._who, schema_of(schema))
        self._bounds: tuple[Bounds, ...] | None = None
        self._trouble = Trouble(self._who)
        self._client: Any = None
        self._not_before_ms = 0
        self._added: dict[int, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None, "_trouble": Trouble(self._who), "_added": {}, "_not_before_ms": 0}

    @property
    def schema(self) -> pa.Schema:
        return self._decoder.schema

    @property
    def splits(self) -> int:
        return len(self.streams)

    @property
    def split_names(self) -> list[str]:
        return list(self.streams)

    def prepared(self) -> RedisStreamSource:
        """The same with where its streams begin and end looked up."""
        client = connected(self._who, self.url)
        try:
            known = [asked(self._who, partial(_known, client, name)) for name in self.streams]
        finally:
            client.close()
        found = copy.copy(self)
        found._client = None
        found._bounds = tuple(self._bounds_of(one) for one in known)
        return found

    def _bounds_of(self, known: Known | None) -> Bounds:
        if known is None:
            known = Known(0, 0, "", "0-0")
        before = Place("0-0", known.added - known.length, 0)
        start = before if self.start == "earliest" else Place(known.last, known.added, 0)
        return Bounds(start, None if self.endless else known.last)

    def _known_bounds(self, split: int) -> Bounds:
        if self._bounds is None:
            raise Misuse(f"{self._who}: its streams are looked up when a flow starts; run it in one")
        return self._bounds[split]

    # --- reading ---------------------------------------------------------------------------------------------------

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Rows | None:
        start, end = self._known_bounds(split)
        place = start if position is None else Place(*position)
        if until is not None:
            entries = self._again(split, place, Place(*until))
            return self._rows(entries, Place(*until), end is not None and not _earlier(until[0], end))
        if end is not None and not _earlier(place.id, end):
            return self._rows([], place, True)
        if now_ms < self._not_before_ms:
            return None
        errors, count = library(self._who).exceptions, min(limit_rows, AT_MOST)
        try:
            entries, known = self._asked(split, place.id, end or "+", count)
        except errors.RedisError as problem:
            told = judged(self._who, problem)
            if told is not None:
                raise told from problem
            self._trouble.hears(problem)
            self._not_before_ms = now_ms + PAUSE_MS
            return None
        self._check(split, place, known)
        after = Place(place.id, place.passed + len(entries), place.taken + len(entries))
        if entries:
            after = after._replace(id=entries[-1][0].decode())
        if len(entries) < count and end is not None:
            return self._rows(entries, after._replace(id=end), True)
        if len(entries) < count and known is not None:
            # All that is there was read: what was deleted from its middle no longer counts.
            after = after._replace(passed=known.added)
        return self._rows(entries, after, False) if entries else None

    def behind(self, split: int, position: Any, now_ms: int) -> int | None:
        """As of the latest read."""
        place = self._known_bounds(split).start if position is None else Place(*position)
        added = self._added.get(split)
        return None if added is None else max(0, added - place.passed)

    def _asked(self, split: int, after: str, upto: str, count: int) -> tuple[list[Entry], Known | None]:
        """Entries, and what Redis said of the stream at that very moment."""
        if self._client is None:
            self._client = connected(self._who, self.url, READ_SECONDS)
        name = self.streams[split]
        with self._client.pipeline(transaction=True) as pipe:
            pipe.xrange(name, min=f"({after}", max=upto, count=count)
            pipe.xinfo_stream(name)
            entries, info = pipe.execute(raise_on_error=False)
        known = _stream_known(info)
        if isinstance(entries, Exception):
            raise entries
        if known is not None:
            self._added[split] = known.added
        return entries, known

    def _check(self, split: int, place: Place, known: Known | None) -> None:
        """Has it let go of what was not read?"""
        who = f"{self._who}, stream {self.streams[split]!r}"
        if known is None:
            if place.passed:
                raise DataLoss(f"{who}: it is not there any more, and what was not read of it is lost")
        elif known.added < place.passed:
            raise DataLoss(f"{who}: it was made anew: {place.passed} entries were read of it, {known.added} were added")
        elif not known.length or _earlier(place.id, known.first):
            lost = known.added - place.passed - known.length
            if lost > 0:
                raise DataLoss(
                    f"{who}: {lost} entries after {place.id} were trimmed before they were read; keep more of them"
                    " (MAXLEN, XTRIM). Start the flow anew, or from a savepoint that is still covered"
                )

    def _again(self, split: int, place: Place, until: Place) -> list[Entry]:
        """All entries between two positions, waited for."""
        errors = library(self._who).exceptions
        found: list[Entry] = []
        deadline, at, wanted = time.monotonic() + AGAIN_SECONDS, place.id, until.taken - place.taken
        while len(found) < wanted:
            try:
                entries, _ = self._asked(split, at, until.id, AT_MOST)
            except errors.RedisError as problem:
                told = judged(self._who, problem)
                if told is None and time.monotonic() > deadline:
                    told = Retry(f"{self._who}: entries after {at} could not be read again ({problem})")
                if told is not None:
                    raise told from problem
                self._trouble.hears(problem)
                time.sleep(0.2)
                continue
            if not entries:
                raise DataLoss(
                    f"{self._who}, stream {self.streams[split]!r}: {wanted - len(found)} entries after {at} are gone,"
                    " which are still needed; keep more of them (MAXLEN, XTRIM)"
                )
            found += entries
            at = entries[-1][0].decode()
        return found

    def _rows(self, entries: list[Entry], place: Place, ended: bool) -> Rows:
        record, bad = self._decoder.decode([fields for _, fields in entries])
        refused = (Refused(_shown(entries[number][1]), why, entries[number][0].decode()) for number, why in bad)
        return Rows(record, list(place), ended, tuple(refused))


def _known(client: Any, name: str) -> Known | None:
    with client.pipeline(transaction=False) as pipe:
        pipe.xinfo_stream(name)
        return _stream_known(pipe.execute(raise_on_error=False)[0])


def _stream_known(info: Any) -> Known | None:
    if isinstance(info, Exception):
        if "no such key" in str(info):
            return None
        raise info
    if "entries-added" not in info:
        raise Misuse("RedisStreamSource needs Redis 7: this one does not count what was added to a stream")
    first = info["first-entry"]
    return Known(
        info["entries-added"], info["length"], first[0].decode() if first else "", info["last-generated-id"].decode()
    )


def _earlier(one: str, other: str) -> bool:
    return _parts(one) < _parts(other)


def _parts(entry: str) -> tuple[int, int]:
    milliseconds, _, number = entry.partition("-")
    return int(milliseconds), int(number or 0)


def _shown(fields: dict[bytes, bytes]) -> str:
    some = {
        name.decode(errors="replace"): value[:_SHOWN_LETTERS].decode(errors="replace") for name, value in fields.items()
    }
    text = json.dumps(some, ensure_ascii=False)
    return text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}..."
