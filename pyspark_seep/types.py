"""Columns of seep as columns of Spark. What Spark has no type for is widened, or shown as text."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import DataType, StringType, StructField, StructType

WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
}


def spark_schema(schema: pa.Schema) -> StructType:
    """
    >>> spark_schema(pa.schema({"n": pa.uint16(), "t": pa.time32("s")})).simpleString()
    'struct<n:int,t:string>'
    """
    return StructType([StructField(field.name, _type(field.type)) for field in schema])


def _type(kind: pa.DataType) -> DataType:
    try:
        return from_arrow_type(WIDER.get(kind, kind))
    except PySparkTypeError:
        return StringType()


def batches(table: pa.Table, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The rows as Spark takes them: to the letter of its own Arrow schema, or it refuses them."""
    wanted = to_arrow_schema(schema, timezone="UTC")
    columns = [_cast(table.column(field.name), field.type) for field in wanted]
    yield from pa.Table.from_arrays(columns, schema=wanted).to_batches()


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    try:
        return column.cast(kind)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        if not pa.types.is_string(kind):
            raise
        return pa.chunked_array([[None if value is None else str(value) for value in column.to_pylist()]], kind)
