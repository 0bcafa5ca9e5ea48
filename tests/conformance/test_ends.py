"""One contract for every source and every sink that is built in: the checks of `seep.testing`, run over all of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import seep
from benchmarks.servers.kafka import KafkaBroker
from seep.testing import check_sink, check_source
from tests.kafka import make_topic, read_all, write

ROWS: list[dict[str, Any]] = [{"n": n, "text": f'"{n}",\nand é' if n % 3 else None} for n in range(120)]
SCHEMA = {"n": int, "text": str | None}
_NUMBERS = count()


def batch(first: int, n: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": np.arange(first, first + n)})


def written(folder: Path, ending: str) -> Path:
    path = folder / f"a.{ending}"
    if ending == "parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=7)
    elif ending == "csv":
        texts = ['"' + (row["text"] or "").replace('"', '""') + '"' for row in ROWS]
        path.write_text("n,text\n" + "".join(f"{n},{text}\n" for n, text in enumerate(texts)) + "x,broken\n")
    elif ending == "jsonl":
        path.write_text("\n".join([*map(json.dumps, ROWS[:50]), "broken", *map(json.dumps, ROWS[50:])]))
    else:
        path.write_text("".join(f"{row['n']}\r\n" for row in ROWS) + "end")
    return path


SOURCES: dict[str, Callable[[Path], Any]] = {
    "memory": lambda folder: seep.MemorySource(ROWS),
    "memory per epoch": lambda folder: seep.MemorySource(ROWS, per_epoch=3),
    "generator": lambda folder: seep.GeneratorSource(lambda i: {"n": i}, rows=2500),
    "paced": lambda folder: seep.GeneratorSource(lambda i: {"n": i}, rows=300, rate=20_000),
    "batches": lambda folder: seep.GeneratorSource(fn_batch=batch, rows=9_345),
    "parquet": lambda folder: seep.FileSource(written(folder, "parquet")),
    "csv": lambda folder: seep.FileSource(written(folder, "csv"), schema=SCHEMA),
    "jsonl": lambda folder: seep.FileSource(written(folder, "jsonl"), schema=SCHEMA),
    "text": lambda folder: seep.FileSource(written(folder, "txt")),
    "followed": lambda folder: seep.FileSource(written(folder, "txt"), follow=True),
}


@pytest.mark.parametrize("name", SOURCES)
def test_sources(name: str, tmp_path: Path) -> None:
    check_source(lambda: SOURCES[name](tmp_path))


@pytest.mark.server
@pytest.mark.parametrize("format", ["json", "raw"])
def test_kafka_source(kafka: KafkaBroker, format: str) -> None:
    topic = make_topic(kafka.address, f"ends-{next(_NUMBERS)}", partitions=2)
    for partition in range(2):
        write(kafka.address, topic, [*(json.dumps(row).encode() for row in ROWS), b"broken"], partition=partition)
    schema = None if format == "raw" else SCHEMA
    check_source(lambda: seep.KafkaSource(topic, kafka.address, schema=schema, format=format, load="to-end"))


@pytest.mark.parametrize("format", ["parquet", "csv", "jsonl"])
def test_file_sink(format: str, tmp_path: Path) -> None:
    def visible() -> list[dict[str, Any]]:
        paths = sorted((tmp_path / "out").glob(f"*.{format}"))
        if format == "parquet":
            return [row for path in paths for row in pyarrow.parquet.read_table(path).to_pylist()]
        found = [seep.FileSource(path).read(0, None, None, 10_000, 0) for path in paths]
        return [row for rows in found if rows is not None for row in rows.record.to_pylist()]

    check_sink(lambda: seep.FileSink(tmp_path / "out", format=format), visible)
    assert not list((tmp_path / "out").glob(".*"))


@pytest.mark.slow  # of its own tests in test_kafka_sink.py the like is quick
@pytest.mark.server
@pytest.mark.timeout(60)
def test_kafka_sink(kafka: KafkaBroker) -> None:
    topic = make_topic(kafka.address, f"ends-{next(_NUMBERS)}")

    def visible() -> list[dict[str, Any]]:
        return [json.loads(message.value()) for message in read_all(kafka.address, topic)]

    check_sink(lambda: seep.KafkaSink(topic, servers=kafka.address), visible)
