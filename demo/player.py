"""`python -m demo.player DIRECTORY PLAN SERVERS TOPIC`: plays the tape of sales into a topic, by the plan.

A process of its own, as tills would be: each line is sent when it is sold, to the partition of its product, so that the
lines of a product keep their order. It ends with the plan, or with whoever started it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from confluent_kafka import Producer

from demo.load import read_plan
from demo.sales import Tape

LOOK_SECONDS = 0.01
PATIENCE_SECONDS = 60.0


def main(directory: str, plan_path: str, servers: str, topic: str) -> int:
    tape, started_by, sent = Tape(Path(directory)), os.getppid(), 0
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})
    while os.getppid() == started_by:
        now_us, plan = time.time_ns() // 1000, read_plan(Path(plan_path))
        there = 0 if plan is None else plan.released(tape, now_us)
        if plan is not None and there > sent:
            for key, value in messages(plan.read(tape, sent, there)):
                _produce(producer, topic, key, value)
            sent = there
        elif plan is not None and plan.end_us is not None and now_us >= plan.start_us + plan.end_us:
            return producer.flush(PATIENCE_SECONDS)
        producer.poll(0)
        time.sleep(LOOK_SECONDS)
    return 1


def _produce(producer: Any, topic: str, key: bytes, value: bytes) -> None:
    while True:
        try:
            producer.produce(topic, value, key)
            return
        except BufferError:
            producer.poll(0.1)  # the broker is behind


def messages(lines: pa.RecordBatch) -> Iterator[tuple[bytes, bytes]]:
    """(product, line as JSON) of each.

    >>> sold = pa.record_batch({"product": [7], "cents": [199]})
    >>> list(messages(sold))
    [(b'7', b'{"product":7,"cents":199}')]
    """
    frame = pl.from_arrow(lines)
    assert isinstance(frame, pl.DataFrame)
    values = frame.write_ndjson().encode().splitlines()
    yield from zip((str(product).encode() for product in lines.column("product").to_pylist()), values, strict=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
