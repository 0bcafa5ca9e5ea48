"""Committed rows in a topic, each epoch's exactly once: `seep.connectors.kafka.publisher` says how."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from seep.connectors.contract import Opening, Publish
from seep.connectors.kafka.client import (
    Trouble,
    check_config,
    check_headers,
    check_place,
    library,
    make,
    partitions_of,
    rules_of,
    settings_of,
)
from seep.connectors.kafka.encoders import FORMATS, Encoder, Format
from seep.connectors.kafka.publisher import Partitioner, Publisher
from seep.connectors.kafka.reader import consumer_settings
from seep.errors import Misuse
from seep.model.arrow import BUCKET, CHANGE


class KafkaSink:
    """A message for each row; of a Table, one for each change, without a value (a tombstone) for a delete.

    ``key`` names the column (or columns) that becomes the message's key; of a Table it is by itself the Table's key.
    ``format`` is ``"json"``, ``"avro"``, ``"arrow"`` (without a key one message holds many rows) or ``"raw"`` (the one
    column besides key and headers), or a function from a row, a dict, to bytes (None: a message without a value).
    ``headers`` maps names of headers to columns. ``partitioner`` is a function from a message's key (bytes or None) and
    the number of partitions to the partition, always the same for a key. ``config``: settings of the client.

    >>> KafkaSink("per-store", servers="127.0.0.1:9092", key="store").kind
    'kafka'
    """

    kind = "kafka"
    publisher: Callable[..., Publisher] = Publisher
    """What it publishes with; tests put one in its place that hesitates."""

    def __init__(
        self,
        topic: str,
        servers: str,
        key: str | Sequence[str] | None = None,
        format: Format = "json",
        headers: Mapping[str, str] | None = None,
        config: Mapping[str, Any] | None = None,
        partitioner: Partitioner | None = None,
    ) -> None:
        self._who = f"KafkaSink {topic!r}"
        check_place(self._who, topic, servers)
        if not callable(format) and format not in FORMATS:
            raise Misuse(f"{self._who}: format={format!r}; choose one of {', '.join(FORMATS)}, or give a function")
        if partitioner is not None and not callable(partitioner):
            raise Misuse(
                f"{self._who}: partitioner={partitioner!r}; give a function of key and number of partitions,"
                " or name one of the client's own: config={'partitioner': 'consistent_random'}"
            )
        self.topic, self.servers, self.format = topic, servers, format
        self.key = (key,) if isinstance(key, str) else tuple(key or ())
        self.headers = check_headers(self._who, headers)
        self._config = check_config(self._who, config)
        self._partitioner = partitioner
        self._run = ""
        self._limit_bytes: int | None = None
        self._compacted = False

    def check(self, schema: pa.Schema, table_keys: tuple[str, ...] | None) -> None:
        """Can rows of these columns be written?"""
        for column in (*self.key, *self.headers.values()):
            if column not in schema.names:
                raise Misuse(f"{self._who}: unknown column {column!r}; there are {', '.join(schema.names)}")
        if table_keys is not None and not table_keys:
            raise Misuse(f"{self._who}: this Table has one row and no key; write its .changes()")
        if table_keys is not None and self.key and set(self.key) != set(table_keys):
            raise Misuse(f"{self._who}: the key of this Table is {', '.join(table_keys)}; leave key= out")
        if self.headers and self.format == "arrow" and not (self.key or table_keys):
            raise Misuse(f"{self._who}: without key= one Arrow message holds many rows, and has no headers of each")
        self.encoder(schema, table_keys)

    def prepared(self) -> KafkaSink:
        """With a name that no other run has: epochs of another run are not ours to skip."""
        kafka, trouble = library(self._who), Trouble(self._who)
        client = make(self._who, kafka.Consumer, consumer_settings(self.servers, self._config, trouble))
        try:
            partitions_of(self._who, client, self.topic, trouble)
        finally:
            client.close()
        found = copy.copy(self)
        found._run = secrets.token_hex(8)
        rules = rules_of(self._who, settings_of(self.servers, self._config), self.topic)
        found._limit_bytes, found._compacted = rules
        return found

    def open(self, opening: Opening) -> Publish:
        if not self._run:
            raise Misuse(f"{self._who}: it gets its name when a flow starts; run it in one")
        if self._compacted and not (self.key or opening.table_keys):
            raise Misuse(f"{self._who}: the topic is compacted and takes no message without a key; give key=")
        settings = settings_of(self.servers, self._config)
        name = f"seep-{self._run}-{opening.name}-{opening.number}"
        make_encoder = partial(self.encoder, table_keys=opening.table_keys)
        given = (self._who, self.topic, settings, name, opening, make_encoder, self._partitioner)
        return self.publisher(*given, self._limit_bytes, self._compacted).publish

    def encoder(self, schema: pa.Schema, table_keys: tuple[str, ...] | None) -> Encoder:
        aside = (BUCKET,) if table_keys is None else (BUCKET, CHANGE)
        columns = pa.schema([field for field in schema if field.name not in aside])
        key = self.key or tuple(dict.fromkeys(table_keys or ()))
        return Encoder(self._who, self.format, key, self.headers, columns)
