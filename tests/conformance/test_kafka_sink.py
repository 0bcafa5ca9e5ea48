"""A topic as a sink: whoever dies, wakes up or does not know, readers of committed messages see each epoch once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from random import Random
from string import ascii_letters, digits
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import seep
from benchmarks.servers.kafka import KafkaBroker
from seep.connectors.contract import Committed, Opening, Publish, Refused
from seep.connectors.kafka import publisher
from seep.connectors.kafka.publisher import WAIT_SECONDS, Publisher
from seep.model.arrow import BUCKET
from seep.model.schema import physical, schema_of
from tests.kafka import delete_topic, make_topic, read_all, write

pytestmark = pytest.mark.server
_NUMBERS = count()


@pytest.fixture
def topic(kafka: KafkaBroker) -> str:
    return make_topic(kafka.address, f"sink-{next(_NUMBERS)}")


class Lost(Exception):
    """The process ends here."""


class Faulty(Publisher):
    """Dies before its commit, or after it and before anybody has heard of it, or hears of a failure there."""

    fault = ""

    def _commit(self, epoch: int) -> None:
        fault, Faulty.fault = Faulty.fault, ""
        if fault == "before":
            raise Lost
        super()._commit(epoch)
        if fault == "after":
            raise Lost
        if fault == "unknown":
            self._drop()
            raise ConnectionError("no answer")


class FaultySink(seep.KafkaSink):
    publisher = Faulty


def epoch(number: int) -> Committed:
    """Two rows, or none."""
    rows = [f"{number}-{row}" for row in range(2 if number % 4 else 0)]
    columns = {"text": rows, BUCKET: pa.array([0] * len(rows), pa.uint16())}
    return Committed(number, pa.RecordBatch.from_pydict(columns) if rows else None, False)


def texts(numbers: Sequence[int]) -> list[str]:
    return [text for n in numbers if (r := epoch(n).record) is not None for text in r.column("text").to_pylist()]


def written(kafka: KafkaBroker, topic: str) -> list[str]:
    return [json.loads(message.value())["text"] for message in read_all(kafka.address, topic)]


def again(publish: Publish, commits: list[Committed]) -> int:
    """As the worker does it: what may work later is tried again."""
    for _ in range(5):
        try:
            return publish(commits)
        except ConnectionError:
            continue
    raise AssertionError("it does not get better")


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    groups=st.lists(st.integers(1, 3), min_size=2, max_size=4),
    faults=st.lists(st.sampled_from(["", "before", "after", "unknown", "zombie"]), min_size=4, max_size=4),
)
def test_each_epoch_is_there_once_whatever_fails(kafka: KafkaBroker, groups: list[int], faults: list[str]) -> None:
    topic = make_topic(kafka.address, f"sink-{next(_NUMBERS)}")
    sink = FaultySink(topic, servers=kafka.address).prepared()
    publish, first = sink.open(Opening("out")), 1
    log: list[Committed] = []
    for size, fault in zip(groups, faults, strict=False):
        commits = [epoch(number) for number in range(first, first + size)]
        first, log = first + size, log + commits
        zombie = publish
        Faulty.fault = "" if fault == "zombie" else fault
        try:
            assert again(publish, commits) == commits[-1].epoch
        except Lost:
            publish = sink.open(Opening("out"))
            assert again(publish, log) == log[-1].epoch  # all that the log still holds
        if fault == "zombie":
            publish = sink.open(Opening("out"))
            again(publish, log)
            again(zombie, log)
            more = [epoch(first)]
            first, log = first + 1, log + more
            again(publish, more)
    Faulty.fault = ""
    assert written(kafka, topic) == texts(range(1, first))


def test_a_successor_with_nothing_to_publish_ends_what_was_left_open(kafka: KafkaBroker, topic: str) -> None:
    sink = FaultySink(topic, servers=kafka.address).prepared()
    Faulty.fault = "before"
    with pytest.raises(Lost):
        sink.open(Opening("out"))([epoch(1)])
    write(kafka.address, topic, [b'{"text":"of another"}'])
    assert written(kafka, topic) == []
    sink.open(Opening("out"))([Committed(1, None, False)])
    assert written(kafka, topic) == ["of another"]


def test_another_run_and_another_partition_have_marks_of_their_own(kafka: KafkaBroker, topic: str) -> None:
    sink = seep.KafkaSink(topic, servers=kafka.address)
    for opened in (sink.prepared().open(Opening("out")), sink.prepared().open(Opening("out"))):
        opened([epoch(1)])
    run = sink.prepared()
    for number in range(2):
        run.open(Opening("out", number))([epoch(2)])
    assert written(kafka, topic) == texts([1, 1, 2, 2])


def test_a_mark_that_is_gone_is_not_guessed(kafka: KafkaBroker, topic: str) -> None:
    opened = seep.KafkaSink(topic, servers=kafka.address).prepared().open(Opening("out", forgotten=True))
    with pytest.raises(seep.DataLoss, match="no longer has the mark"):
        opened([epoch(1)])


def test_at_least_once_writes_again_what_it_did_not_mark(kafka: KafkaBroker, topic: str) -> None:
    sink = FaultySink(topic, servers=kafka.address).prepared()
    opening = Opening("out", guarantee="at-least-once")
    sink.open(opening)([epoch(1)])
    Faulty.fault = "before"
    with pytest.raises(Lost):
        sink.open(opening)([epoch(1), epoch(2)])
    sink.open(opening)([epoch(1), epoch(2)])
    assert written(kafka, topic) == texts([1, 2, 2])


def test_at_most_once_needs_neither_transactions_nor_marks(kafka: KafkaBroker, topic: str) -> None:
    sink = FaultySink(topic, servers=kafka.address).prepared()
    Faulty.fault = "before"  # in a commit of a mark, which there is none of
    opened = sink.open(Opening("out", guarantee="at-most-once", forgotten=True))
    opened([epoch(1), Committed(2, None, False)])
    opened([epoch(3)])
    Faulty.fault = ""
    assert written(kafka, topic) == texts([1, 3])


ROWS = [
    {"k": "a", "n": 1, "x": 1.5, "at": datetime(2024, 1, 2, 3, 4, 5, 6, UTC), "tags": ["x", "y"]},
    {"k": 'b\n"é', "n": None, "x": -0.0, "at": datetime(1969, 1, 1, tzinfo=UTC), "tags": []},
]
SCHEMA = {"k": str, "n": int | None, "x": float, "at": datetime, "tags": list[str]}


@pytest.mark.parametrize("format", ["json", "avro", "arrow"])
@pytest.mark.parametrize("key", [None, "k", ("k", "n")])
def test_what_is_written_is_read_again(kafka: KafkaBroker, topic: str, format: str, key: Any) -> None:
    out = seep.Flow("out")
    headers = {} if format == "arrow" and key is None else {"n": "n"}
    sink = seep.KafkaSink(topic, servers=kafka.address, key=key, format=format, headers=headers)
    out.source("rows", seep.MemorySource(ROWS, schema=SCHEMA)).sink("topic", sink)
    seep.run(out)
    back = seep.Flow("back")
    schema = physical(schema_of(SCHEMA))  # of what is written any column may be null
    source = seep.KafkaSource(topic, kafka.address, schema=schema, format=format, load="to-end", metadata=True)
    back.source("topic", source).collect("rows")
    found = seep.run(back)["rows"].to_pylist()
    assert [{name: row[name] for name in SCHEMA} for row in found] == ROWS
    keys = {None: [None, None], "k": [row["k"].encode() for row in ROWS]}  # type: ignore[union-attr, attr-defined]
    if key in keys:
        assert [row["_key"] for row in found] == keys[key]
    if format != "arrow":
        assert [message.headers() for message in read_all(kafka.address, topic)] == [[("n", b"1")], None]


def test_a_table_is_written_by_key_with_tombstones(kafka: KafkaBroker, topic: str) -> None:
    flow = seep.Flow("table")
    rows = [{"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "a", "n": -1}]
    read = flow.source("rows", seep.MemorySource(rows, per_epoch=1)).key_by("k").table(deleted=pl_negative())
    read.sink("topic", seep.KafkaSink(topic, servers=kafka.address))
    seep.run(flow)
    messages = [(message.key(), message.value()) for message in read_all(kafka.address, topic)]
    assert messages == [(b"a", b'{"k":"a","n":1}'), (b"b", b'{"k":"b","n":2}'), (b"a", None)]


def pl_negative() -> Any:
    import polars as pl

    return pl.col("n") < 0


def test_raw_messages_are_the_one_column_that_is_left(kafka: KafkaBroker, topic: str) -> None:
    flow = seep.Flow("raw")
    rows = flow.source("rows", seep.MemorySource([{"k": 7, "value": b"\xff\n"}, {"k": 8, "value": b""}]))
    rows.sink("topic", seep.KafkaSink(topic, servers=kafka.address, key="k", format="raw"))
    seep.run(flow)
    messages = [(message.key(), message.value()) for message in read_all(kafka.address, topic)]
    assert messages == [(b"7", b"\xff\n"), (b"8", b"")]


REFUSED: list[tuple[Callable[[Any], seep.KafkaSink], str]] = [
    (lambda make: make(key="other"), "unknown column 'other'"),
    (lambda make: make(headers={"h": "other"}), "unknown column 'other'"),
    (lambda make: make(format="xml"), "format='xml'"),
    (lambda make: make(format="raw"), "needs one column"),
    (lambda make: make(), "JSON has no bytes"),
    (lambda make: make(partitioner="murmur2"), "config={'partitioner'"),
    (lambda make: make(format="arrow", headers={"h": "k"}), "one Arrow message holds many rows"),
    (lambda make: make(config={"transactional.id": "x"}), "seep's own"),
    (lambda make: make(config={"plugin.library.paths": "x"}), "load or run code"),
]


@pytest.mark.parametrize(("made", "why"), REFUSED)
def test_what_cannot_be_written_is_refused_where_it_is_declared(made: Any, why: str) -> None:
    flow = seep.Flow("refused")
    rows = flow.source("rows", seep.MemorySource([{"k": "a", "value": b"", "price": Decimal(1)}]))
    with pytest.raises(seep.Misuse, match="KafkaSink 'topic'") as refused:
        rows.sink("out", made(lambda **options: seep.KafkaSink("topic", servers="127.0.0.1:1", **options)))
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def rows_of(texts: Sequence[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"text": texts, BUCKET: pa.array([0] * len(texts), pa.uint16())})


def test_a_message_that_is_too_large_is_a_dead_letter(kafka: KafkaBroker, topic: str) -> None:
    """Told once, when all else of the epoch is there."""
    refused: list[tuple[int, Refused]] = []
    sink = FaultySink(topic, servers=kafka.address).prepared()
    publish = sink.open(Opening("out", refuse=lambda epoch, one: refused.append((epoch, one))))
    commits = [Committed(1, rows_of(["a", "x" * (2 << 20), "b"]), False), Committed(2, rows_of(["c"]), False)]
    Faulty.fault = "unknown"
    with pytest.raises(ConnectionError):
        publish(commits)
    assert refused == [], "it is not known yet whether the rest is there"
    publish(commits[1:])
    publish([Committed(3, commits[0].record, False)])
    ((number, one),) = refused
    assert (number, one.position, one.text[:20]) == (3, 1, '{"text":"xxxxxxxxxxx')
    assert "message.max.bytes" in one.reason
    assert [json.loads(m.value())["text"] for m in read_all(kafka.address, topic)] == ["a", "b", "c", "a", "b"]


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_what_is_too_large_for_the_topic_is_a_dead_letter(kafka: KafkaBroker, guarantee: str) -> None:
    """Many small ones never are, whatever the client puts together; nor is one that is small once it is compressed."""
    topic = make_topic(kafka.address, f"sink-{next(_NUMBERS)}", config={"max.message.bytes": "2000"})
    refused: list[tuple[int, int, str]] = []
    noise, even = random_text(9_000), "x" * 9_000
    small = [random_text(size) for size in range(100, 1_800, 50)]
    rows = [*small, noise, even, random_text(9_001), "last"]
    sink = seep.KafkaSink(topic, servers=kafka.address).prepared()
    publish = sink.open(
        Opening("out", guarantee=guarantee, refuse=lambda epoch, one: refused.append((epoch, one.position, one.reason)))
    )
    publish([Committed(1, rows_of(rows), False), Committed(2, rows_of([noise, "later"]), False)])
    publish([Committed(3, rows_of(["end"]), False)])
    found = [json.loads(message.value())["text"] for message in read_all(kafka.address, topic)]
    given = [*small, even, "last", "later", "end"]
    if guarantee == "exactly-once":
        assert found == given
    else:
        assert list(dict.fromkeys(found)) == given, "some may come twice"
    first = len(small)
    assert [(epoch, place) for epoch, place, _ in refused] == [(1, first), (1, first + 2), (2, 0)]
    assert {reason.partition(" bytes ")[2] for _, _, reason in refused} == {
        "is more than the topic takes (max.message.bytes=2000)"
    }


def test_a_message_without_a_key_is_none_for_a_compacted_topic(kafka: KafkaBroker) -> None:
    """The broker refuses all that is sent with it: the sink stood still for ever."""
    topic = make_topic(kafka.address, f"sink-{next(_NUMBERS)}", config={"cleanup.policy": "compact,delete"})
    refused: list[tuple[int, int, str]] = []
    sink = seep.KafkaSink(topic, servers=kafka.address, key="text").prepared()
    opening = Opening("out", refuse=lambda epoch, one: refused.append((epoch, one.position, one.reason)))
    columns = {"text": pa.array(["a", None, "b"]), BUCKET: pa.array([0] * 3, pa.uint16())}
    commit = Committed(1, pa.RecordBatch.from_pydict(columns), False)
    sink.open(opening)([commit])
    assert written(kafka, topic) == ["a", "b"]
    assert refused == [(1, 1, "a message of 13 bytes has no key, and a compacted topic takes none without")]
    with pytest.raises(seep.Misuse, match="give key="):
        seep.KafkaSink(topic, servers=kafka.address).prepared().open(opening)
    sink._compacted = False  # it has become so since the flow began
    with pytest.raises(seep.Misuse, match="failed to validate record"):
        sink.open(Opening("other"))([commit])


def test_at_most_once_what_is_too_large_for_the_topic_is_given_up(kafka: KafkaBroker) -> None:
    topic = make_topic(kafka.address, f"sink-{next(_NUMBERS)}", config={"max.message.bytes": "2000"})
    publish = seep.KafkaSink(topic, servers=kafka.address).prepared().open(Opening("out", guarantee="at-most-once"))
    with pytest.raises(ConnectionError, match="too large"):
        publish([Committed(1, rows_of(["a", random_text(9_000)]), False)])
    publish([Committed(2, rows_of(["b"]), False)])
    assert written(kafka, topic)[-1:] == ["b"]


def test_a_topic_that_takes_less_than_it_did_stops_the_flow_with_a_report(kafka: KafkaBroker) -> None:
    topic = make_topic(kafka.address, f"sink-{next(_NUMBERS)}", config={"max.message.bytes": "2000"})
    sink = seep.KafkaSink(topic, servers=kafka.address).prepared()
    for known in (None, 100_000):
        sink._limit_bytes = known
        with pytest.raises(seep.Misuse, match=r"KafkaSink 'sink-.*: .*too large.*message\.max\.bytes"):
            sink.open(Opening("out"))([Committed(1, rows_of([random_text(9_000)]), False)])


def random_text(size: int) -> str:
    """Which no compression makes much smaller."""
    return "".join(Random(size).choices(ascii_letters + digits, k=size))


def test_functions_make_messages_and_choose_partitions(kafka: KafkaBroker) -> None:
    topic = make_topic(kafka.address, f"sink-{next(_NUMBERS)}", 3)
    refused: list[Refused] = []

    def encoded(row: dict[str, Any]) -> Any:
        return {"none": None, "text": "text"}[row["text"]] if len(row["text"]) == 4 else row["text"][::-1].encode()

    def chosen(key: bytes | None, partitions: int) -> int:
        return len(key or b"") % partitions

    sink = seep.KafkaSink(topic, servers=kafka.address, key="text", format=encoded, partitioner=chosen).prepared()
    publish = sink.open(Opening("out", refuse=lambda _, one: refused.append(one)))
    publish([Committed(1, rows_of(["ab", "abc", "none", "text", "oops"]), False)])
    found = {(m.partition(), m.key(), m.value()) for m in read_all(kafka.address, topic)}
    assert found == {(2, b"ab", b"ba"), (0, b"abc", b"cba"), (1, b"none", None)}
    assert [(one.position, one.reason) for one in refused] == [
        (3, "the function of format= gave a str, not bytes"),
        (4, "KeyError: 'oops'"),
    ]


@pytest.mark.parametrize("answer", [7, -1, True, "0"])
def test_a_partitioner_that_names_no_partition_is_reported(kafka: KafkaBroker, topic: str, answer: Any) -> None:
    sink = seep.KafkaSink(topic, servers=kafka.address, partitioner=lambda key, partitions: answer).prepared()
    with pytest.raises(seep.Misuse, match=r"its partitioner gave .*; there are 1 partitions"):
        sink.open(Opening("out"))([Committed(1, rows_of(["a"]), False)])


@pytest.mark.slow
def test_a_topic_that_was_deleted_stops_the_flow_with_a_report(
    kafka: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "UNKNOWN_SECONDS", 2.0)
    publish = seep.KafkaSink(topic, servers=kafka.address).prepared().open(Opening("out"))
    publish([Committed(1, rows_of(["a"]), False)])
    delete_topic(kafka.address, topic)
    deadline = time.monotonic() + 60.0

    def again_and_again() -> None:
        while time.monotonic() < deadline:
            with suppress(ConnectionError):
                publish([Committed(2, rows_of(["b"]), False)])

    with pytest.raises(seep.Misuse, match=f"'{topic}': there is no such topic any more") as report:
        again_and_again()
    assert "\n" not in str(report.value)


class Struck(Publisher):
    """Its broker dies when a transaction is open and nothing of it is written."""

    strike: Callable[[], None] | None = None

    def _send(self, commit: Committed) -> None:
        strike, Struck.strike = Struck.strike, None
        if strike is not None:
            strike()
        super()._send(commit)


class StruckSink(seep.KafkaSink):
    publisher = Struck


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_messages_of_a_client_in_trouble_are_not_waited_for(mortal_kafka: KafkaBroker) -> None:
    """It would be dropped before they are committed; readers stand still for as long as it is waited for."""
    topic = make_topic(mortal_kafka.address, "struck")
    publish = StruckSink(topic, servers=mortal_kafka.address).prepared().open(Opening("out"))
    publish([epoch(1)])
    Struck.strike = mortal_kafka.kill
    began = time.monotonic()
    with pytest.raises(ConnectionError, match="messages not written"):
        publish([epoch(2)])
    assert time.monotonic() - began < WAIT_SECONDS / 2
    mortal_kafka.start()
    again(publish, [epoch(2)])
    assert written(mortal_kafka, topic) == texts([1, 2])


@pytest.mark.timeout(60)  # the client's own call would wait for ever
def test_a_broker_that_was_killed_is_written_to_again(mortal_kafka: KafkaBroker) -> None:
    topic = make_topic(mortal_kafka.address, "restarted")
    publish = seep.KafkaSink(topic, servers=mortal_kafka.address).prepared().open(Opening("out"))
    publish([epoch(1)])
    mortal_kafka.kill()
    mortal_kafka.start()
    again(publish, [epoch(2)])
    again(publish, [epoch(3)])
    assert written(mortal_kafka, topic) == texts([1, 2, 3])
