"""A message that kills whoever decodes it is found after a few deaths, left out and told of; one that is too large to
be written is told of. All others are exact."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

import seep
from benchmarks.servers.kafka import KafkaBroker
from seep.runtime.deadletters import NAME
from seep.runtime.home import job_path
from tests.kafka import make_topic, read_all, write
from tests.scenarios.conftest import Start
from tests.scenarios.test_poison import poisons

pytestmark = pytest.mark.server
MESSAGES, BAD = 60, 37


def deadly(value: bytes) -> dict[str, int]:
    if int(value) == BAD:
        os._exit(3)
    return {"n": int(value)}


def deadly_row(row: Any) -> dict[str, int]:
    if row.n == BAD:
        os._exit(3)
    return {"n": row.n}


@pytest.mark.timeout(120)
def test_a_message_that_kills_its_decoder_is_found(begin: Start, kafka: KafkaBroker) -> None:
    """Though each start hears nothing of the broker for some epochs: those are no progress."""
    topic = make_topic(kafka.address, "kills-its-decoder")
    write(kafka.address, topic, [str(n).encode() for n in range(MESSAGES)])
    flow = seep.Flow("kills-decoder", epoch="20ms", checkpoint="200ms")
    source = seep.KafkaSource(topic, servers=kafka.address, schema={"n": int}, format=deadly, load="to-end")
    rows = flow.source("rows", source)
    rows.collect("out")
    rows.errors.collect("refused")
    job = begin(flow, workers=2)
    result = job.wait(100)
    assert sorted(result["out"].column("n").to_pylist()) == [n for n in range(MESSAGES) if n != BAD]
    (letter,) = result["refused"].to_pylist()
    assert (letter["position"], letter["row"]) == (f"0:{BAD}", str(BAD))
    assert letter["error"] == "the process died on this message, again and again"
    (told,) = poisons(job)
    assert f"partition 0: the message at offset {BAD}" in told


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_row_that_kills_the_step_behind_a_topic_is_found(begin: Start, kafka: KafkaBroker) -> None:
    topic = make_topic(kafka.address, "kills-a-step")
    write(kafka.address, topic, [json.dumps({"n": n}).encode() for n in range(MESSAGES)])
    flow = seep.Flow("kills-step", epoch="20ms", checkpoint="200ms")
    source = seep.KafkaSource(topic, servers=kafka.address, schema={"n": int}, load="to-end")
    mapped = flow.source("rows", source).map(deadly_row, schema={"n": int}).named("deadly")
    mapped.collect("out")
    mapped.errors.collect("refused")
    result = begin(flow, workers=2).wait(100)
    assert sorted(result["out"].column("n").to_pylist()) == [n for n in range(MESSAGES) if n != BAD]
    assert [json.loads(letter["row"])["n"] for letter in result["refused"].to_pylist()] == [BAD]


@pytest.mark.timeout(60)
def test_a_result_that_is_too_large_is_a_dead_letter(begin: Start, kafka: KafkaBroker) -> None:
    """No stream comes behind a sink, so it is in the file of the job, and the flow goes on."""
    topic = make_topic(kafka.address, "takes-little")
    flow = seep.Flow("too-large", epoch="20ms", checkpoint="200ms")
    texts = ["a", "x" * 5_000, "b"]
    rows = flow.source("rows", seep.MemorySource([{"text": text} for text in texts]))
    rows.sink("told", seep.KafkaSink(topic, servers=kafka.address, config={"message.max.bytes": 2_000}))
    begin(flow, workers=1).wait(50)
    assert [json.loads(message.value())["text"] for message in read_all(kafka.address, topic)] == ["a", "b"]
    (letter,) = map(json.loads, (job_path("too-large") / NAME).read_text().splitlines())
    assert (letter["operator"], letter["position"]) == ("told", "0:1")
    assert "message.max.bytes" in letter["error"]
