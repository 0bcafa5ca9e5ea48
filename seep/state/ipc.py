"""Record batches as Arrow IPC messages, with the schema kept apart.

A stream's batches share one schema, so its bytes are made once and parsed once (both are cached), and a batch is the
bare message after it: reading it copies nothing. A schema with dictionary columns needs the dictionaries too, so
those batches travel as a whole IPC stream, marked by empty schema bytes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa

Bytes: TypeAlias = bytes | bytearray | memoryview
"""Anything that holds bytes (also a pyarrow.Buffer, which has no stubs)."""


def write_record(record: pa.RecordBatch) -> tuple[bytes, pa.Buffer]:
    """(schema bytes, message)."""
    schema = _write_schema(record.schema)
    if schema:
        return schema, record.serialize()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, record.schema) as writer:
        writer.write_batch(record)
    return b"", sink.getvalue()


def read_record(schema: bytes, message: Bytes) -> pa.RecordBatch:
    """The batch, over the bytes of `message` (which must stay as they are). Raises ValueError when it is not one."""
    buffer = message if isinstance(message, pa.Buffer) else pa.py_buffer(message)
    try:
        if schema:
            record = pa.ipc.read_record_batch(buffer, _read_schema(bytes(schema)))
        else:
            with pa.ipc.open_stream(buffer) as reader:
                record = reader.read_next_batch()
        record.validate()
    except (pa.ArrowException, StopIteration, OSError) as error:
        raise ValueError(f"not an Arrow batch: {error}") from error
    return record


@lru_cache(maxsize=1024)
def _write_schema(schema: pa.Schema) -> bytes:
    if any(_has_dictionary(field.type) for field in schema):
        return b""
    return bytes(schema.serialize())


@lru_cache(maxsize=1024)
def _read_schema(data: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(data))


def _has_dictionary(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    return any(_has_dictionary(kind.field(i).type) for i in range(kind.num_fields))
