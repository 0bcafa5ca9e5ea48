"""What the connectors of Kafka are given: refused in one line while the flow is built, if it cannot be meant."""

from __future__ import annotations

from typing import Any

import pytest

import seep

BOTH: list[tuple[str, dict[str, Any], str]] = [
    ("sales", {"config": {1: 1}}, "1 is no name of a setting"),
    ("sales", {"config": "x"}, "config='x'; give a dict"),
    ("sales", {"config": [("client.id", "x")]}, "give a dict from names of settings"),
    ("sales", {"config": {"topic.acks": 0}}, "'topic.acks' is seep's own to choose"),
    ("sales", {"config": {"topic.auto.offset.reset": "latest"}}, "is seep's own to choose"),
    ("sales", {"config": {"sasl.kerberos.principal": "x; touch y"}}, "part of a command that a shell runs"),
    ("sales", {"config": {"sasl.kerberos.keytab": "$(touch y)"}}, "part of a command that a shell runs"),
    ("sales", {"config": {"sasl.kerberos.principal": "-V"}}, "part of a command that a shell runs"),
    ("sales", {"config": {"logger": "x"}}, "load or run code"),
    ("a b/c", {}, "no topic can have this name"),
    ("..", {}, "no topic can have this name"),
    ("a\n", {}, "no topic can have this name"),
    ("x" * 250, {}, "no topic can have this name"),
]


def refused(why: str, make: Any, topic: str, options: dict[str, Any]) -> None:
    with pytest.raises(seep.Misuse, match=why) as problem:
        make(topic, servers="127.0.0.1:1", **options)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize(("topic", "options", "why"), BOTH)
def test_what_is_no_setting_and_no_topic(topic: str, options: dict[str, Any], why: str) -> None:
    refused(why, seep.KafkaSource, topic, {"schema": {"n": int}, **options})
    refused(why, seep.KafkaSink, topic, options)


@pytest.mark.parametrize("headers", [["a"], "a", {"a": 1}, {1: "a"}])
def test_what_are_no_headers(headers: Any) -> None:
    refused("headers", seep.KafkaSink, "sales", {"headers": headers})


def test_names_of_topics() -> None:
    for topic in ("a", "...", "x" * 249, "Sales_2.v-1"):
        assert seep.KafkaSink(topic, servers="127.0.0.1:1").topic == topic


def test_settings_that_look_like_refused_ones_are_taken() -> None:
    config = {
        "topic.metadata.refresh.interval.ms": 1_000,
        "sasl.kerberos.principal": "seep/host-1.example@EXAMPLE",
        "sasl.kerberos.keytab": "/etc/security/seep_1.keytab",
    }
    seep.KafkaSource("sales", servers="127.0.0.1:1", schema={"n": int}, config=config)
    seep.KafkaSink("sales", servers="127.0.0.1:1", config=config)
