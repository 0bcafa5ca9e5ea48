"""A topic as a source: what lies between two offsets is the same whenever it is read."""

from __future__ import annotations

import json
import pickle
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import seep
from benchmarks.servers.kafka import KafkaBroker, fetched, free_ports
from seep.connectors.contract import Rows
from seep.connectors.kafka import client, discovery
from tests.kafka import PATIENCE_SECONDS, delete_topic, make_topic, more_partitions, write, write_in_transactions

pytestmark = pytest.mark.server
_NUMBERS = count()


@pytest.fixture
def topic(kafka: KafkaBroker) -> str:
    return make_topic(kafka.address, f"source-{next(_NUMBERS)}", partitions=2)


def rows(numbers: Any) -> list[bytes]:
    return [json.dumps({"n": n, "text": f"row {n}"}).encode() for n in numbers]


def source_of(kafka: KafkaBroker, topic: str, **options: Any) -> seep.KafkaSource:
    schema = {"n": int, "text": str | None}
    return seep.KafkaSource(topic, **{"servers": kafka.address, "schema": schema, "load": "to-end", **options})


def read(source: seep.KafkaSource, split: int, position: Any, limit: int = 1_000) -> Rows:
    """The next rows, when they have come."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        found = source.read(split, position, None, limit, 0)
        if found is not None:
            return found
        time.sleep(0.01)
    raise AssertionError("nothing came")


def drain(source: seep.KafkaSource, split: int, limits: list[int]) -> list[tuple[Any, Rows]]:
    """Everything up to the end, as (position before, what was read)."""
    found: list[tuple[Any, Rows]] = []
    position = None
    for turn in range(10_000):
        piece = read(source, split, position, limits[turn % len(limits)])
        found.append((position, piece))
        position = piece.position
        if piece.ended:
            return found
    raise AssertionError("it never ended")


def numbers_of(pieces: list[tuple[Any, Rows]]) -> list[int]:
    return [n for _, piece in pieces for n in piece.record.column("n").to_pylist()]


@pytest.fixture(scope="module")
def gapped(kafka: KafkaBroker) -> seep.KafkaSource:
    """Transactions, some of them aborted, and broken messages between them; the last thing in it is no message."""
    topic = make_topic(kafka.address, "gapped")
    groups = [(n % 3 != 1, rows(range(10 * n, 10 * n + 10)) + [b"broken"] * (n in (0, 4, 8))) for n in range(11)]
    write_in_transactions(kafka.address, topic, groups)
    return source_of(kafka, topic).prepared()


COMMITTED = [10 * n + i for n in range(11) if n % 3 != 1 for i in range(10)]


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(limits=st.lists(st.integers(1, 40), min_size=1, max_size=3), data=st.data())
def test_reading_again_gives_the_same_rows(gapped: seep.KafkaSource, limits: list[int], data: st.DataObject) -> None:
    pieces = drain(gapped, 0, limits)
    assert numbers_of(pieces) == COMMITTED
    assert sum(len(piece.refused) for _, piece in pieces) == 2
    for before, piece in data.draw(st.permutations(pieces))[:3]:
        again = gapped.read(0, before, piece.position, 2**62, 0)
        assert again is not None
        assert (again.record, again.refused) == (piece.record, piece.refused)
        assert again.position == piece.position
    low, high = sorted(data.draw(st.tuples(*[st.integers(0, len(pieces) - 1)] * 2)))
    longer = gapped.read(0, pieces[low][0], pieces[high][1].position, 2**62, 0)
    assert longer is not None
    assert longer.record.column("n").to_pylist() == numbers_of(pieces[low : high + 1])


def test_where_a_flow_begins_is_decided_once(kafka: KafkaBroker, topic: str) -> None:
    write(kafka.address, topic, rows(range(5)), partition=0, timestamp=1_000)
    write(kafka.address, topic, rows(range(5, 8)), partition=0, timestamp=9_000)
    write(kafka.address, topic, rows(range(100, 103)), partition=1, timestamp=1_000)
    starts: list[tuple[Any, list[int], list[int]]] = [
        ("earliest", [*range(8)], [100, 101, 102]),
        ("latest", [], []),
        (datetime.fromtimestamp(5, UTC), [5, 6, 7], []),
        ({1: 2}, [*range(8)], [102]),
    ]
    prepared = [source_of(kafka, topic, start=start).prepared() for start, *_ in starts]
    write(kafka.address, topic, rows([999]), partition=0)
    for source, (_, *expected) in zip(prepared, starts, strict=True):
        assert source.splits == 2
        assert [numbers_of(drain(source, split, [3])) for split in range(2)] == expected
    endless = source_of(kafka, topic, start="latest", load=None).prepared()
    write(kafka.address, topic, rows([1000]), partition=0)
    assert numbers_of([(None, read(endless, 0, None))]) == [1000]
    assert endless.behind(0, 8, 0) == 2
    assert endless.read(1, None, None, 10, 0) is None


def test_a_partition_of_which_nothing_is_known_yet_is_asked_for_again(kafka: KafkaBroker, topic: str) -> None:
    """A broker that answers for one partition and not for the other has not said that the other has nothing."""

    class Stuttering:
        answers = 0

        def offsets_for_times(self, places: list[TopicPartition], timeout: float) -> list[Any]:
            self.answers += 1
            error = None if self.answers > 2 else KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)
            return [SimpleNamespace(offset=3, error=None), SimpleNamespace(offset=-1001 if error else 5, error=error)]

        def poll(self, timeout: float) -> None:
            pass

    source, stuttering = source_of(kafka, topic), Stuttering()
    assert source._at_times(stuttering, topic, client.Trouble("me"), [1, 1]) == [3, 5]
    assert stuttering.answers == 3


def test_metadata_and_dead_letters_of_a_flow(kafka: KafkaBroker, topic: str) -> None:
    write(kafka.address, topic, rows([1]), partition=1, key=b"k", timestamp=7_000)
    write(kafka.address, topic, [b"broken", *rows([2])], partition=1, timestamp=8_000)
    flow = seep.Flow("read")
    found = flow.source("topic", source_of(kafka, topic, metadata=True), time="_timestamp")
    found.collect("rows")
    found.errors.collect("errors")
    result = seep.run(flow)
    at = [datetime.fromtimestamp(second, UTC) for second in (7, 8)]
    assert [tuple(row.values()) for row in result["rows"].to_pylist()] == [
        (1, "row 1", b"k", 1, 0, at[0]),
        (2, "row 2", None, 1, 2, at[1]),
    ]
    (letter,) = result["errors"].to_pylist()
    assert (letter["row"], letter["error"], letter["position"]) == ("broken", "not a JSON object", "1:1")


def test_a_table_is_loaded_to_the_end_before_others_begin(kafka: KafkaBroker, topic: str) -> None:
    write(kafka.address, topic, rows(range(50)), partition=0)
    flow = seep.Flow("loaded")
    names = flow.source("names", source_of(kafka, topic)).key_by("n").table()
    flow.source("asked", seep.MemorySource([{"n": n} for n in (49, 7)])).key_by("n").join_table(names).collect("found")
    assert Counter(row["text"] for row in seep.run(flow)["found"].to_pylist()) == Counter(["row 49", "row 7"])


def test_retention_that_overtakes_stops_with_a_report(kafka: KafkaBroker, topic: str) -> None:
    write(kafka.address, topic, rows(range(20)), partition=0)
    source = source_of(kafka, topic).prepared()
    position = read(source, 0, None, 5).position
    delete_before(kafka, topic, 12)
    again = source_of(kafka, topic, start={0: 12}).prepared()
    with pytest.raises(seep.DataLoss, match="partition 0: offset 5 is gone, it holds 12 to 20"):
        read(again, 0, position)
    assert numbers_of(drain(source_of(kafka, topic).prepared(), 0, [100])) == [*range(12, 20)]


def test_what_retention_took_is_skipped_where_that_is_asked_for(kafka: KafkaBroker, topic: str) -> None:
    write(kafka.address, topic, rows(range(20)), partition=0)
    source = source_of(kafka, topic, gone="skip").prepared()
    position = read(source, 0, None, 5).position
    delete_before(kafka, topic, 12)
    for again in (source_of(kafka, topic, gone="skip", start={0: 12}).prepared() for _ in range(2)):
        piece = read(again, 0, position)
        assert piece.record.column("n").to_pylist() == [*range(12, 20)]
        reason = "7 offsets, 5 to 11, are gone: the topic did not keep them, they were skipped"
        assert [(one.text, one.reason, one.position) for one in piece.refused] == [("", reason, 5)]
        reread = source_of(kafka, topic, gone="skip", start={0: 12}).prepared().read(0, 5, piece.position, 2**62, 0)
        assert reread is not None
        assert (reread.record, reread.refused) == (piece.record, piece.refused)
    made_anew = source_of(kafka, topic, gone="skip", load=None).prepared()
    with pytest.raises(seep.DataLoss, match="offset 99 is gone, it holds 12 to 20"):
        read(made_anew, 0, 99)


def delete_before(kafka: KafkaBroker, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.address})
    for done in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        done.result(PATIENCE_SECONDS)


def test_what_ends_with_the_marks_of_transactions_loses_nothing_by_retention(kafka: KafkaBroker, topic: str) -> None:
    """A topic that stands still keeps nothing in the end, and begins behind the mark of its last transaction."""
    write_in_transactions(kafka.address, topic, [(True, rows(range(3))), (False, rows(range(3, 6)))])
    source = source_of(kafka, topic, load=None).prepared()
    piece = read(source, 0, None)
    behind = read(source, 0, piece.position)
    assert (numbers_of([(None, piece)]), behind.record.num_rows, behind.refused) == ([0, 1, 2], 0, ())
    assert (piece.position, behind.position) == (3, 8)
    assert (source.read(0, 8, None, 10, 0), source.caught_up(0, 8), source.behind(0, 8, 0)) == (None, True, 0)
    again = source.read(0, 3, 8, 2**62, 0)
    assert again is not None
    assert again.record.num_rows == 0
    delete_before(kafka, topic, 8)
    late = source_of(kafka, topic, load=None).prepared()
    assert late.read(0, 8, None, 10, 0) is None
    write(kafka.address, topic, rows([6]), partition=0)
    for reader in (late, source):
        assert numbers_of([(None, read(reader, 0, 8))]) == [6]


def test_topics_of_a_pattern_are_read_as_one_source(kafka: KafkaBroker) -> None:
    for name, partitions in (("like-b", 2), ("like-a", 1), ("unlike-c", 1)):
        make_topic(kafka.address, name, partitions)
    write(kafka.address, "like-a", rows([1]), partition=0)
    write(kafka.address, "like-b", [*rows([2]), b"broken"], partition=1)
    write(kafka.address, "unlike-c", rows([3]), partition=0)
    flow = seep.Flow("read")
    found = flow.source("topics", source_of(kafka, "^like-.*", metadata=True))
    found.select("n", "_topic", "_partition").collect("rows")
    found.errors.collect("errors")
    source = source_of(kafka, "^like-.*").prepared()
    make_topic(kafka.address, "like-aa")  # later
    assert source.splits == 3
    assert [numbers_of(drain(source, split, [3])) for split in range(3)] == [[1], [], [2]]
    result = seep.run(flow)
    assert sorted(tuple(row.values()) for row in result["rows"].to_pylist()) == [(1, "like-a", 0), (2, "like-b", 1)]
    assert [letter["position"] for letter in result["errors"].to_pylist()] == ["3:like-b:1:1"]


def found_later(source: seep.KafkaSource, count: int) -> dict[int, Any]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(source.appeared(0)) < count:
        assert time.monotonic() < deadline, f"found {source.appeared(0)}"
        time.sleep(0.05)
    return source.appeared(0)


def sent(source: seep.KafkaSource) -> seep.KafkaSource:
    """As another worker has it."""
    found = pickle.loads(pickle.dumps(source))  # noqa: S301
    assert isinstance(found, seep.KafkaSource)
    return found


def again(source: seep.KafkaSource, split: int, begins: Any, piece: Rows) -> None:
    """Another worker, which has never looked for new partitions, reads the same by what the log says."""
    reread = sent(source).read(split, begins, piece.position, 2**62, 0)
    assert reread is not None
    assert (reread.record, reread.position) == (piece.record, piece.position)


QUICKLY = {"topic.metadata.refresh.interval.ms": 100}


def test_partitions_that_a_topic_gets_later_are_found(kafka: KafkaBroker, topic: str) -> None:
    source = source_of(kafka, topic, load=None, start="latest", config=QUICKLY).prepared()
    assert source.grows
    assert source.appeared(0) == {}
    more_partitions(kafka.address, topic, 4)
    write(kafka.address, topic, rows([1, 2]), partition=3)
    assert found_later(source, 2) == {2: 0, 3: 0}
    piece = read(source, 3, 0)
    assert piece.record.column("n").to_pylist() == [1, 2]
    again(source, 3, 0, piece)
    for fixed in (source_of(kafka, topic), source_of(kafka, topic, load=None, config={next(iter(QUICKLY)): -1})):
        assert not fixed.prepared().grows


def test_topics_that_match_a_pattern_later_are_found(kafka: KafkaBroker) -> None:
    make_topic(kafka.address, "late-m", 1)
    source = source_of(kafka, "^late-.*", load=None, config=QUICKLY).prepared()
    assert (source.splits, source.begins(0)) == (1, "late-m:0:0")
    make_topic(kafka.address, "late-a", 2)
    more_partitions(kafka.address, "late-m", 2)
    write(kafka.address, "late-a", rows([7]), partition=1)
    later = found_later(source, 3)
    assert sorted(later.values()) == ["late-a:0:0", "late-a:1:0", "late-m:1:0"]
    assert found_later(sent(source), 3) == later  # another worker gives them the same numbers
    (split,) = [split for split, begins in later.items() if begins == "late-a:1:0"]
    piece = read(source, split, later[split])
    assert (piece.record.column("n").to_pylist(), piece.position) == ([7], "late-a:1:1")
    again(source, split, later[split], piece)


def test_looking_for_new_partitions_survives_a_broker_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "ASK_SECONDS", 0.3)
    (port,) = free_ports(1)
    looking = discovery.Discovery("nobody", f"127.0.0.1:{port}", {}, "topic", [], every_ms=50)
    for _ in range(2):
        assert looking.look() == {}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while looking._looking:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.06)


def test_a_savepoint_names_topics_and_not_numbers(kafka: KafkaBroker) -> None:
    """What was read of each is found again although the numbers are others by then; what appeared in between begins
    with its first message, also with ``start="latest"``."""
    make_topic(kafka.address, "kept-m", 1)
    before = source_of(kafka, "^kept-.*", load=None, start="latest").prepared()
    make_topic(kafka.address, "kept-a", 1)
    write(kafka.address, "kept-a", rows([7]), partition=0)
    now = source_of(kafka, "^kept-.*", load=None, start="latest").prepared()
    assert now.begins(0) == "kept-a:0:1"
    assert now.taken_up({0: before.begins(0)}) == {0: (None, "kept-a:0:0"), 1: (0, "kept-m:0:0")}
    with pytest.raises(seep.Misuse, match=r"partition 3 of 'kept-m' was read .* not there any more") as refused:
        now.taken_up({0: "kept-m:3:9"})
    assert "\n" not in str(refused.value)
    skipping = source_of(kafka, "^kept-.*", load=None, gone="skip").prepared()
    number = discovery.number_of(discovery.Place("kept-m", 3))
    assert skipping.taken_up({0: "kept-m:3:9"})[number] == (0, "kept-m:3:9")


def test_a_topic_that_was_deleted_stops_with_a_report(kafka: KafkaBroker) -> None:
    """Also when it is read again; one that was read to its end before is not missed."""
    topic = make_topic(kafka.address, "deleted")
    write(kafka.address, topic, rows(range(5)))
    source = source_of(kafka, topic, load=None, config=QUICKLY).prepared()
    whole = source_of(kafka, topic).prepared()
    assert read(source, 0, None).position == 5
    assert read(whole, 0, None).ended
    delete_topic(kafka.address, topic)
    report = "'deleted', partition 0: the topic was deleted while it was read, .* from offset 5 on is lost. Start"
    one_line(lambda: read(source, 0, 5), seep.DataLoss, report)
    with pytest.raises(seep.DataLoss, match="from offset 2 on is lost"):
        sent(source).read(0, 2, 4, 2**62, 0)
    assert read(whole, 0, 5).ended


def test_a_deleted_topic_ends_where_that_is_asked_for(kafka: KafkaBroker) -> None:
    for name in ("vanishing-a", "vanishing-b"):
        write(kafka.address, make_topic(kafka.address, name), rows(range(3)))
    source = source_of(kafka, "^vanishing-.*", load=None, gone="skip", config=QUICKLY).prepared()
    assert read(source, 0, source.begins(0)).position == "vanishing-a:0:3"
    delete_topic(kafka.address, "vanishing-a")
    piece = read(source, 0, "vanishing-a:0:3")
    assert (piece.record.num_rows, piece.ended) == (0, True)
    reason = "offsets from 3 on are gone: the topic was deleted; one of that name made anew is not read"
    assert [(one.text, one.reason, one.position) for one in piece.refused] == [("", reason, "vanishing-a:0:3")]
    reread = sent(source).read(0, "vanishing-a:0:3", piece.position, 2**62, 0)
    assert reread == piece
    assert read(source, 1, None).record.column("n").to_pylist() == [0, 1, 2]
    write(kafka.address, make_topic(kafka.address, "vanishing-a"), rows(range(9)))
    assert source_of(kafka, "^vanishing-.*", load=None).prepared().taken_up({7: piece.position})[0] == (
        7,
        piece.position,
    )


def test_a_broker_that_dies_is_waited_for(mortal_kafka: KafkaBroker) -> None:
    topic = make_topic(mortal_kafka.address, "waited")
    write(mortal_kafka.address, topic, rows(range(10)))
    source = source_of(mortal_kafka, topic, load=None, config=QUICKLY).prepared()
    assert numbers_of([(None, read(source, 0, None))]) == [*range(10)]
    mortal_kafka.kill()
    deadline = time.monotonic() + 1.5 * discovery.GONE_SECONDS
    while time.monotonic() < deadline:  # long enough for a topic to be given up, if somebody said that it is not there
        assert source.read(0, 10, None, 100, 0) is None
        time.sleep(0.05)
    mortal_kafka.start()
    write(mortal_kafka.address, topic, rows(range(10, 12)))
    assert numbers_of([(None, read(source, 0, 10))]) == [10, 11]
    again = source.read(0, 3, 11, 2**62, 0)
    assert again is not None
    assert again.record.column("n").to_pylist() == [*range(3, 11)]


def one_line(made: Callable[[], object], kind: type[seep.SeepError], why: str) -> None:
    with pytest.raises(kind, match=why) as refused:
        made()
    assert "\n" not in str(refused.value)


def test_what_is_not_there_is_said_in_one_line(kafka: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "CONNECT_SECONDS", 2.0)
    monkeypatch.setattr(client, "APPEAR_SECONDS", 0.2)
    one_line(source_of(kafka, "nowhere").prepared, seep.Misuse, "there is no topic 'nowhere'")
    (port,) = free_ports(1)
    nobody = source_of(kafka, topic, servers=f"127.0.0.1:{port}")
    one_line(nobody.prepared, seep.Retry, "no answer for 2 s .*; is the broker up")
    one_line(
        source_of(kafka, topic, config={"no.such": 1}).prepared, seep.Misuse, 'No such configuration property: "no'
    )
    one_line(source_of(kafka, "^nothing-.*").prepared, seep.Misuse, r"no topic matches '\^nothing-\.\*'")
    one_line(lambda: source_of(kafka, "^(a"), seep.Misuse, "no regular expression")
    one_line(lambda: source_of(kafka, "^a", start={0: 1}), seep.Misuse, "start names partitions")
    never = {"topic.metadata.refresh.interval.ms": 0}
    one_line(lambda: source_of(kafka, topic, config=never), seep.Misuse, "interval.ms=0; give milliseconds")
    one_line(lambda: source_of(kafka, topic, gone="hide"), seep.Misuse, "gone='hide'")
    one_line(source_of(kafka, topic, start={7: 0}).prepared, seep.Misuse, "names partition 7; the topic has 2")
    one_line(source_of(kafka, topic, start={0: 9}).prepared, seep.Misuse, "start=9 of partition 0; it holds 0 to 0")


GUARDED = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' username="broker" password="right" user_broker="right" user_me="right";'
    ),
}


@pytest.mark.slow
def test_wrong_credentials_are_said_in_one_line(tmp_path: Path) -> None:
    if not fetched():
        pytest.skip("no Kafka: tools/setup kafka")
    with KafkaBroker(tmp_path / "guarded", GUARDED) as broker:
        config = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "me"}
        wrong, right = ({**config, "sasl.password": password} for password in ("wrong", "right"))
        source = source_of(broker, "topic", config=wrong)
        sink = seep.KafkaSink("topic", servers=broker.address, config=wrong)
        for connector in (source, sink):
            one_line(connector.prepared, seep.Misuse, "does not accept these credentials: .*uthentication failed")
        one_line(source_of(broker, "topic", config=right).prepared, seep.Misuse, "there is no topic 'topic'")
