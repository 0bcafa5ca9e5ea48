"""A user's own source and sink: the two classes to subclass, and what makes connectors of them.

`Source.read` answers whole batches and an opaque position; a flow needs any number of rows, and the same ones again. So
a position inside is four things: the user's position, how many rows behind it were taken, how many rows were taken in
all, and whether that was the end. What lies between two of them is a number of rows behind one, however it cuts them.
"""

from __future__ import annotations

import abc
import copy
import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import cloudpickle
import pyarrow as pa

from seep.connectors.complete import complete
from seep.connectors.contract import Committed, Opening, Publish, Refused, Rows
from seep.connectors.trouble import Trouble
from seep.errors import DataLoss, Misuse, Retry, SeepError
from seep.model.arrow import BUCKET
from seep.model.care import Spot
from seep.model.schema import normalise, physical, record_of, refuse_counted_times, schema_of

AGAIN_SECONDS = 30.0
"""An epoch that is read again is waited for: who reads it cannot go on without."""
GROWTH_SECONDS = 1.0
"""So often a source whose partitions may become more is asked for their number."""


class Source(abc.ABC):
    """Subclass it for a source of your own: say its `schema`, how many `partitions` it has, and `read`.

    ``self.partition`` is the number of the one to read: each partition is read by a copy of the object, in a worker.

    >>> class Countdown(Source):
    ...     schema = {"n": int}
    ...
    ...     def read(self, position):
    ...         n = 3 if position is None else position
    ...         return [[{"n": n}]], n - 1 if n > 1 else None
    >>> Countdown().read(None)
    ([[{'n': 3}]], 2)
    """

    schema: Any
    """A dataclass, NamedTuple, TypedDict, dict of types or `pyarrow.Schema`."""
    partitions: int = 1
    """However many processes read them. Of an endless source it may be a property that gives more of them later."""
    endless: bool = False
    """True: it never ends by itself."""
    partition: int = 0

    @abc.abstractmethod
    def read(self, position: Any) -> tuple[Iterable[Any], Any]:
        """What comes after `position` (None: the start) and is there now, as (batches, the position after them).

        A batch is a `pyarrow.RecordBatch` or a list of rows. No batches and the same position: nothing is there now.
        The position None: this was the end (of an endless one: nothing is there yet). A position is made of int, float,
        str, list, dict. Which rows follow one never changes; how many of them are answered at once may. It must not
        wait. An OSError is tried again, any other error stops the flow.
        """


class Sink(abc.ABC):
    """Subclass it for a sink of your own: `write` the rows of epochs, and make them visible in `commit`.

    After a crash both are called again, with the same rows for the same epochs, from an epoch on that may have been
    committed. Whoever keeps the last committed epoch with the rows, under ``self.writer``, and leaves out what is not
    above it, has every row once. ``self.writer`` names this partition of this sink in this run; no other has its name.
    Each partition is written by a copy of the object, in a worker. Of a Table the rows are its changes.

    >>> class Latest(Sink):
    ...     def write(self, epoch, batch):
    ...         self.rows = batch.to_pylist()
    ...
    ...     def commit(self, epoch):
    ...         print(epoch, self.rows[-1])
    """

    writer: str = ""

    @abc.abstractmethod
    def write(self, epoch: int, batch: pa.RecordBatch) -> None:
        """The rows of one epoch, in place of what was written for it before and not committed."""

    @abc.abstractmethod
    def commit(self, epoch: int) -> None:
        """All that was written up to this epoch is final. An OSError is tried again from the first write on that is
        not committed, any other error stops the flow."""


def connector_of(given: Any) -> Any:
    """What the compiler takes: of a user's own the one around it, any other as it is."""
    if isinstance(given, type):
        raise Misuse(f"{given.__name__} is a class; give one that is made, {given.__name__}(..)")
    if isinstance(given, Source):
        return OwnSource(given)
    return OwnSink(given) if isinstance(given, Sink) else given


class Place(NamedTuple):
    """A position of ours."""

    at: Any
    """The user's; None: the start."""
    skip: int
    """Rows behind it that were taken."""
    taken: int
    """Rows since the start."""
    ended: bool


START = Place(None, 0, 0, False)


class Chunk(NamedTuple):
    """An answer of the user's source."""

    parts: list[Any]
    rows: int
    after: Any
    """The user's position behind it; None: that was the end."""


class _Around:
    _is_theirs = True  # in the user's own process, where what the object was given may be looked at

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _is_theirs=False)

    def _copied(self, own: Any) -> Any:
        """For one partition. In a worker it shares nothing with the others: no list that `__init__` has made."""
        return copy.copy(own) if self._is_theirs else cloudpickle.loads(cloudpickle.dumps(own))


class OwnSource(_Around):
    """`seep.connectors.contract.Source` around a user's."""

    def __init__(self, source: Source) -> None:
        self._who = f"source {type(source).__name__}"
        declared = getattr(source, "schema", None)
        if declared is None:
            raise Misuse(f"{self._who} does not say its schema; give it an attribute `schema`")
        if type(source.partitions) is not int or source.partitions < 1:
            raise Misuse(f"{self._who}: partitions={source.partitions!r}; give a number, at least 1")
        self._source = source
        self._first = self._count = source.partitions
        self._asked_at = 0.0
        self.grows = source.endless and isinstance(getattr(type(source), "partitions", None), property)
        self._declared = schema_of(declared)
        self._schema = physical(self._declared)
        self._trouble = Trouble(self._who)
        self._readers: dict[int, Source] = {}
        self._latest: dict[int, tuple[Any, Chunk]] = {}
        """By split: an answer of which rows are left, and the position it was for."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_readers": {}, "_latest": {}, "_trouble": Trouble(self._who)}

    def __fingerprint__(self) -> tuple[Any, ...]:
        """Partitions that one has got since make no other app of it."""
        return self._source, self._declared, None if self.grows else self._first

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def splits(self) -> int:
        return self._first

    def appeared(self, now_ms: int) -> dict[int, None]:
        """Those that it has got since the flow began, each from its start."""
        if time.monotonic() - self._asked_at >= GROWTH_SECONDS:
            self._asked_at = time.monotonic()
            try:
                count = _called(self._who, "partitions", lambda: self._source.partitions)
            except OSError as problem:
                self._trouble.hears(problem)
                count = self._count
            if type(count) is not int or count < self._count:
                raise DataLoss(
                    f"{self._who}: partitions={count!r}, and it had {self._count}; they may only become more"
                )
            self._count = count
        return dict.fromkeys(range(self._first, self._count))

    @property
    def endless(self) -> bool:
        return self._source.endless

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Rows | None:
        place = START if position is None else Place(*position)
        if until is not None:
            return self._again(split, place, Place(*until))
        if place.ended:
            return self._rows([], place)
        try:
            found = self._chunk(split, place)
        except OSError as problem:
            self._trouble.hears(problem)
            return None
        if found is None:
            return None
        place, chunk = found
        count = min(chunk.rows - place.skip, limit_rows)
        parts, after = _cut(chunk.parts, place.skip, count), _after(place, chunk, count)
        if after.skip == 0:
            self._latest.pop(split, None)
        return self._rows(parts, after)

    def _again(self, split: int, place: Place, until: Place) -> Rows:
        """As many rows as were taken between the two, waited for."""
        parts: list[Any] = []
        deadline = time.monotonic() + AGAIN_SECONDS
        while place.taken < until.taken:
            try:
                found, why = self._chunk(split, place), "it answers nothing"
            except OSError as problem:
                found, why = None, str(problem)
            if found is not None:
                place, chunk = found
                count = min(chunk.rows - place.skip, until.taken - place.taken)
                parts += _cut(chunk.parts, place.skip, count)
                place = _after(place, chunk, count)
                if place.ended and place.taken < until.taken:
                    raise DataLoss(f"{self._who}: partition {split} ends before what it has given already")
                continue
            if time.monotonic() > deadline:
                raise Retry(f"{self._who}: rows {place.taken} to {until.taken} could not be read again ({why})")
            time.sleep(0.02)
        self._latest.pop(split, None)
        return self._rows(parts, until)

    def _chunk(self, split: int, place: Place) -> tuple[Place, Chunk] | None:
        """An answer with rows that were not taken yet, or with the end or another position behind those that were, and
        where in it to go on; None: nothing is there now."""
        known = self._latest.get(split)
        if known is not None and known[0] == place.at and known[1].rows > place.skip:
            return place, known[1]
        while True:
            chunk = self._asked(split, place.at)
            self._latest[split] = (place.at, chunk)
            is_end = chunk.after is None and not self.endless
            if chunk.rows > place.skip or (chunk.rows == place.skip and (is_end or chunk.after != place.at)):
                return place, chunk
            if chunk.after == place.at and not is_end:
                return None
            if is_end:
                raise DataLoss(f"{self._who}: partition {split} ends before what it has given already")
            # Fewer than it gave the last time: the others follow.
            place = Place(chunk.after, place.skip - chunk.rows, place.taken, False)

    def _asked(self, split: int, at: Any) -> Chunk:
        reader = self._readers.get(split)
        if reader is None:
            reader = self._readers[split] = self._copied(self._source)
            reader.partition = split
        answer = _called(self._who, f"read({at!r})", partial(reader.read, at))
        try:
            batches, after = answer
            flat = [part if isinstance(part, pa.RecordBatch) else self._rows_in(part) for part in batches]
        except (TypeError, ValueError):
            raise Misuse(f"{self._who}: read({at!r}) answers {answer!r:.100}; give (batches, position)") from None
        rows, after = sum(len(part) for part in flat), self._plain(after)
        if rows and after == at and (after is not None or self.endless):
            raise Misuse(f"{self._who}: read({at!r}) answers rows and the same position; give the one behind them")
        if after is None and at is not None and self.endless:
            raise Misuse(f"{self._who}: read({at!r}) answers the end, and it says that it is endless")
        return Chunk(flat, rows, after)

    def _rows_in(self, part: Any) -> list[Any]:
        """Of anything else the parts, which are no rows, would be taken for rows that do not fit."""
        rows = list(part)
        if not isinstance(part, list | Iterator):
            found = type(part).__name__
            raise Misuse(f"{self._who}: a batch is a {found}; give each as a list of rows or a pyarrow.RecordBatch")
        return rows

    def _plain(self, position: Any) -> Any:
        """As the epoch log gives it back."""
        try:
            return json.loads(json.dumps(position, allow_nan=False))
        except (TypeError, ValueError):
            raise Misuse(
                f"{self._who}: the position {position!r:.100} cannot be kept; make it of int, float, str, list, dict"
            ) from None

    def _rows(self, parts: Iterable[Any], place: Place) -> Rows:
        records = [pa.RecordBatch.from_pylist([], schema=self._schema)]
        refused: list[Refused] = []
        for part in parts:
            if isinstance(part, pa.RecordBatch):
                record, bad = complete(self._ordered(normalise(part)), self._declared)
                bad = [one._replace(position=None) for one in bad]
            else:
                record, bad = self._of_rows(part)
            records.append(record)
            refused += bad
        return Rows(pa.concat_batches(records), list(place), place.ended, tuple(refused))

    def _ordered(self, record: pa.RecordBatch) -> pa.RecordBatch:
        if sorted(record.schema.names) != sorted(self._schema.names):
            found, said = ", ".join(record.schema.names), ", ".join(self._schema.names)
            raise Misuse(f"{self._who}: a batch has the columns {found}; its schema says {said}")
        try:
            refuse_counted_times(record.schema, self._schema)
            return record.select(self._schema.names).cast(self._schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, Misuse) as problem:
            raise Misuse(f"{self._who}: a batch does not fit its schema: {problem}") from problem

    def _of_rows(self, rows: list[Any]) -> tuple[pa.RecordBatch, list[Refused]]:
        try:
            return record_of(rows, self._declared), []
        except Misuse:
            records, refused = [record_of([], self._declared)], []
            for row in rows:
                try:
                    records.append(record_of([row], self._declared))
                except Misuse as problem:
                    refused.append(Refused(_text(row), str(problem)))
            return pa.concat_batches(records), refused


def _after(place: Place, chunk: Chunk, count: int) -> Place:
    taken, skip = place.taken + count, place.skip + count
    if skip < chunk.rows:
        return Place(place.at, skip, taken, False)
    return Place(chunk.after, 0, taken, chunk.after is None)


def _cut(parts: Sequence[Any], skip: int, count: int) -> list[Any]:
    found = []
    for part in parts:
        low, high = min(skip, len(part)), min(skip + count, len(part))
        if low < high:
            found.append(part.slice(low, high - low) if isinstance(part, pa.RecordBatch) else part[low:high])
        skip, count = skip - low, count - (high - low)
    return found


def _text(row: Any) -> str:
    try:
        return json.dumps(row, default=str)
    except (TypeError, ValueError):
        return repr(row)


def _called(who: str, what: str, call: Callable[[], Any]) -> Any:
    """Of a user's code: what may work later is raised as it is, a defect is a report and not the end of a worker."""
    try:
        return call()
    except (OSError, SeepError):
        raise
    except Exception as problem:
        raise Misuse(f"{who}: {what} raises {type(problem).__name__}: {problem}") from problem


class OwnSink(_Around):
    """`seep.connectors.contract.Sink` around a user's."""

    kind = "own"

    def __init__(self, sink: Sink) -> None:
        self._who = f"sink {type(sink).__name__}"
        self._sink = sink
        self._run = ""

    def prepared(self) -> OwnSink:
        """With a name that no other run has: its epochs begin with 1 again."""
        found = copy.copy(self)
        found._run, found._is_theirs = secrets.token_hex(8), self._is_theirs
        return found

    def open(self, opening: Opening) -> Publish:
        sink = self._copied(self._sink)
        sink.writer = f"{self._run}-{opening.name}-{opening.number}"

        def shown(call: str, epoch: int) -> str:
            return f"sink {opening.name!r}: {call} of epoch {epoch}"

        def publish(commits: Sequence[Committed]) -> int:
            written = -1
            for epoch, record, _ in commits:
                if record is not None and record.num_rows:
                    rows, written = record.drop_columns([BUCKET]), epoch
                    with opening.care(epoch).whole(Spot("write", 0, 0), partial(shown, "write", epoch)):
                        _called(self._who, f"write({epoch}, ..)", partial(sink.write, epoch, rows))
            if written >= 0:
                with opening.care(written).whole(Spot("commit", 0, 0), partial(shown, "commit", written)):
                    _called(self._who, f"commit({written})", partial(sink.commit, written))
            return commits[-1].epoch

        return publish
