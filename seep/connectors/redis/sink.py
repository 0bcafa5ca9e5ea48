"""Rows in Redis by key, the newest of each: what a flow knows, to be looked up by others.

Each group of epochs goes out in one MULTI/EXEC that also writes a mark: the last of them. The mark is watched and read
first, and epochs up to it are left out; so an epoch changes something once, however often it is published and by whom,
and who looks sees whole epochs of a sink partition. Whatever fails, also when nobody knows whether the EXEC went
through, begins with the mark again. No script runs on the server, which may be one that allows none.
"""

from __future__ import annotations

import copy
import json
import secrets
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from seep.connectors.contract import AT_MOST_ONCE, Committed, Opening, Publish
from seep.connectors.redis.client import asked, check_url, connected, judged, library
from seep.connectors.rowtext import check_json, json_lines, text_of
from seep.errors import DataLoss, Misuse
from seep.model.arrow import BUCKET, CHANGE, DELETE

FORMATS = ("hash", "json")
KEEPS = {
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "maxmemory-policy": "noeviction",
}
"""Of a server that forgets nothing it has answered."""
NULL = b"\x00"
"""Stands for a key that is null."""
Value = Mapping[str, bytes] | bytes | None
"""Of a hash its fields, of a JSON text its bytes; None: deleted."""


class RedisSink:
    """The newest row of each key, under ``prefix`` and the key; a key that is deleted from a Table is deleted.

    ``key`` names the column (or columns: then a JSON array) that becomes the name; of a Table it is the Table's key.
    ``format`` is ``"hash"`` (a field for each column that is not null) or ``"json"`` (text, an object).

    >>> RedisSink("store:", url="redis://127.0.0.1:6379/0", key="store").kind
    'redis'
    """

    kind = "redis"

    def __init__(self, prefix: str, url: str, key: str | Sequence[str] | None = None, format: str = "hash") -> None:
        self._who = f"RedisSink {prefix!r}"
        if not prefix:
            raise Misuse(f"{self._who}: give what the names begin with, such as 'store:'")
        check_url(self._who, url)
        if format not in FORMATS:
            raise Misuse(f"{self._who}: format={format!r}; choose one of {', '.join(FORMATS)}")
        self.prefix, self.url, self.format = prefix, url, format
        self.key = (key,) if isinstance(key, str) else tuple(key or ())
        self._run = ""

    def check(self, schema: pa.Schema, table_keys: tuple[str, ...] | None) -> None:
        """Can rows of these columns be written?"""
        for column in self.key:
            if column not in schema.names:
                raise Misuse(f"{self._who}: unknown column {column!r}; there are {', '.join(schema.names)}")
        if table_keys is None and not self.key:
            raise Misuse(f"{self._who}: give key=, the column by which rows are kept")
        if table_keys is not None and not table_keys:
            raise Misuse(f"{self._who}: this Table has one row and no key; write its .changes(), with a key=")
        if table_keys is not None and self.key and set(self.key) != set(table_keys):
            raise Misuse(f"{self._who}: the key of this Table is {', '.join(table_keys)}; leave key= out")
        # Bytes are themselves as the field of a hash; inside of lists and records they would be JSON there, too.
        check_json(self._who, schema if self.format == "json" else pa.schema(filter(_is_nested, schema)))

    def prepared(self) -> RedisSink:
        """With a name that no other run has: epochs of another run are not ours to skip."""
        client = connected(self._who, self.url)
        try:
            asked(self._who, client.ping)
            self._warn(client)
        finally:
            client.close()
        found = copy.copy(self)
        found._run = secrets.token_hex(8)
        return found

    def _warn(self, client: Any) -> None:
        try:
            found = {name: client.config_get(name).get(name) for name in KEEPS}
        except library(self._who).exceptions.RedisError:
            return  # it does not say: some servers are not to be asked
        for name, wanted in KEEPS.items():
            if found[name] != wanted:
                print(
                    f"{self._who}: this server may forget what it has answered ({name} is {found[name]!r}, not"
                    f" {wanted!r}); what it forgets in a crash is not written again",
                    file=sys.stderr,
                )

    def open(self, opening: Opening) -> Publish:
        if not self._run:
            raise Misuse(f"{self._who}: it gets its name when a flow starts; run it in one")
        return _RedisPartition(
            self, self._who, f"seep:mark:{self._run}:{opening.name}:{opening.number}", opening
        ).publish


def _is_nested(field: pa.Field) -> bool:
    return bool(pa.types.is_nested(field.type))


class _RedisPartition:
    """One partition of a sink. Used by one thread."""

    def __init__(self, sink: RedisSink, who: str, mark: str, opening: Opening) -> None:
        self._who, self._mark = who, mark
        self._prefix, self._format = sink.prefix.encode(), sink.format
        self._table = opening.table_keys is not None
        self._key = sink.key or tuple(dict.fromkeys(opening.table_keys or ()))
        self._forgotten = opening.forgotten and opening.guarantee != AT_MOST_ONCE
        self._client: Any = connected(who, sink.url)
        self._done = -1

    def publish(self, commits: Sequence[Committed]) -> int:
        errors = library(self._who).exceptions
        try:
            self._write(commits)
        except errors.WatchError as problem:
            raise ConnectionError(f"{self._who}: others write to its mark, or nobody knows what was done") from problem
        except errors.RedisError as problem:
            raise judged(self._who, problem) or ConnectionError(f"{self._who}: {problem}") from problem
        return commits[-1].epoch

    def _write(self, commits: Sequence[Committed]) -> None:
        with self._client.pipeline(transaction=True) as pipe:
            pipe.watch(self._mark)
            found = pipe.get(self._mark)
            mark = -1 if found is None else int(found)
            if mark < self._done or (found is None and self._forgotten):
                raise DataLoss(
                    f"{self._who}: the server no longer has what it had answered ({self._mark} is"
                    f" {'gone' if found is None else mark}); start the flow anew, or from a savepoint"
                )
            self._done, self._forgotten = mark, False
            left = [commit for commit in commits if commit.epoch > mark]
            values = self._values(left)
            if not values and (not left or found is not None):
                return
            pipe.multi()
            for name, value in values.items():
                if self._format == "hash" or value is None:
                    pipe.delete(name)
                if isinstance(value, bytes):
                    pipe.set(name, value)
                elif value:
                    pipe.hset(name, mapping=value)
            pipe.set(self._mark, left[-1].epoch)
            pipe.execute()
            self._done = left[-1].epoch

    def _values(self, commits: Sequence[Committed]) -> dict[bytes, Value]:
        """What each name holds after these epochs."""
        found: dict[bytes, Value] = {}
        for commit in commits:
            if commit.record is None or not commit.record.num_rows:
                continue
            rows = commit.record.drop_columns([BUCKET])
            gone = [False] * rows.num_rows
            if self._table:
                gone = [change == DELETE for change in rows.column(CHANGE).to_pylist()]
                rows = rows.drop_columns([CHANGE])
            names = self._names(rows)
            values: list[Any] = json_lines(rows) if self._format == "json" else _hashes(rows)
            for name, value, deleted in zip(names, values, gone, strict=True):
                found[name] = None if deleted else value
        return found

    def _names(self, rows: pa.RecordBatch) -> list[bytes]:
        columns = [rows.column(name).to_pylist() for name in self._key]
        if len(columns) == 1:
            return [self._prefix + (NULL if value is None else text_of(value) or b"") for value in columns[0]]
        several = (json.dumps(parts, default=str, ensure_ascii=False) for parts in zip(*columns, strict=True))
        return [self._prefix + text.encode() for text in several]


def _hashes(rows: pa.RecordBatch) -> list[dict[str, bytes]]:
    texts = ({name: text_of(value) for name, value in row.items()} for row in rows.to_pylist())
    return [{name: text for name, text in row.items() if text is not None} for row in texts]
