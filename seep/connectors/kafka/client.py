"""The client library: loaded when it is needed, its settings checked, a topic looked up, what went wrong in one line.

A flow comes from people who may not be trusted with the machine it runs on, so settings by which the client would load
a library, run a command or call code are refused. So are those that seep's promises rest on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from seep.connectors import trouble
from seep.errors import Misuse, Retry, SeepError

CONNECT_SECONDS = 20.0
"""For so long a broker that does not answer is asked again, when a flow starts."""
APPEAR_SECONDS = 3.0
"""A topic that was made just now is not known everywhere at once."""
ASK_SECONDS = 5.0
REFUSED_SECONDS = 15.0
"""For so long credentials that were good once are tried again."""

LOADS_CODE = (
    "plugin.library.paths",
    "ssl.engine.location",
    "ssl.engine.id",
    "ssl.providers",
    "sasl.kerberos.kinit.cmd",
    "oauth_cb",
    "logger",
)
_IN_COMMAND = ("sasl.kerberos.principal", "sasl.kerberos.keytab")
"""The client puts them into the command by which it logs in, and has a shell run that."""
_HARMLESS = re.compile(r"[\w.@/+:][\w.@/+:-]*", re.ASCII)
_OURS = (
    "bootstrap.servers",
    "metadata.broker.list",
    "group.id",
    "isolation.level",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "auto.offset.reset",
    "enable.partition.eof",
    "transactional.id",
    "enable.idempotence",
    "enable.gapless.guarantee",
    "acks",
    "request.required.acks",
    "max.in.flight",
    "max.in.flight.requests.per.connection",
    "allow.auto.create.topics",
)


_TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")


def check_config(who: str, config: Any) -> dict[str, Any]:
    """The user's settings of the client, if they are only settings."""
    if not isinstance(config, Mapping | None):
        raise Misuse(f"{who}: config={config!r}; give a dict from names of settings to values")
    for name, value in (config or {}).items():
        if not isinstance(name, str):
            raise Misuse(f"{who}: {name!r} is no name of a setting; give text, such as 'client.id'")
        plain = name.removeprefix("topic.")  # the client takes those of topics with it, too
        if plain in LOADS_CODE or name.endswith("_cb") or callable(value):
            raise Misuse(f"{who}: the setting {name!r} makes the client load or run code; leave it out")
        if name in _IN_COMMAND and not _HARMLESS.fullmatch(str(value)):
            raise Misuse(
                f"{who}: the setting {name!r} is part of a command that a shell runs;"
                " give letters, digits and . @ / + : - _ alone"
            )
        if plain in _OURS:
            raise Misuse(f"{who}: the setting {name!r} is seep's own to choose; leave it out")
        if not isinstance(value, str | int | float | bool):
            raise Misuse(f"{who}: the setting {name!r} is a {type(value).__name__}; give text, a number or True/False")
    return dict(config or {})


def check_headers(who: str, headers: Any) -> dict[str, str]:
    """Names of headers and the columns that they are read from."""
    if not isinstance(headers, Mapping | None):
        raise Misuse(f"{who}: headers={headers!r}; give a dict from names of headers to columns")
    for name, column in (headers or {}).items():
        if not isinstance(name, str) or not isinstance(column, str):
            raise Misuse(f"{who}: headers: {name!r}: {column!r}; give the name of a header and that of a column")
    return dict(headers or {})


def check_place(who: str, topic: Any, servers: Any) -> None:
    if not isinstance(topic, str) or not topic or is_pattern(topic):
        raise Misuse(f"{who}: {topic!r} is no topic; give the name of one")
    if not _TOPIC.fullmatch(topic):
        raise Misuse(f"{who}: no topic can have this name; up to 249 letters, digits, dots, _ and - make one")
    check_servers(who, servers)


def check_servers(who: str, servers: Any) -> None:
    if not isinstance(servers, str) or not servers.strip():
        raise Misuse(f"{who}: servers={servers!r}; give 'host:port', several with commas")


def is_pattern(topic: Any) -> bool:
    """As Kafka's own clients have it: what begins with ^ is a regular expression."""
    return isinstance(topic, str) and topic.startswith("^")


def library(who: str) -> Any:
    """The module confluent_kafka."""
    try:
        import confluent_kafka
    except ImportError as problem:
        raise Misuse(f"{who} needs the package confluent-kafka: pip install 'seep[kafka]'") from problem
    return confluent_kafka


def settings_of(servers: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """What every client has. The log level leaves out what `Trouble` is told anyway."""
    return {"log_level": 2, "reconnect.backoff.max.ms": 1000, **config, "bootstrap.servers": servers}


def make(who: str, kind: Any, settings: Mapping[str, Any]) -> Any:
    """A client; a setting that there is not, or a value it cannot have, is refused in one line."""
    kafka = library(who)
    try:
        return kind(dict(settings))
    except kafka.KafkaException as problem:
        raise Misuse(f"{who}: {words(problem)}") from problem


def words(problem: Any) -> str:
    """What the client says, in one line and without its ornaments."""
    error = problem.args[0] if isinstance(problem, Exception) and problem.args else problem
    text = error.str() if hasattr(error, "str") else str(error)
    return " ".join(str(text).split())


class Trouble(trouble.Trouble):
    """What a client's own threads report while it works."""

    def __init__(self, who: str) -> None:
        super().__init__(who)
        self.heard = 0
        """How often."""
        self.refused = ""
        """Not to be helped by trying again: the broker does not accept who we say we are."""
        self._refused_at = 0.0

    def hears(self, problem: Any) -> None:
        kinds = library(self._who).KafkaError
        super().hears(words(problem))
        self.heard += 1
        if problem.code() in (kinds._AUTHENTICATION, kinds.SASL_AUTHENTICATION_FAILED):
            self._refused_at = self._refused_at if self.refused else time.monotonic()
            self.refused = self.latest

    def accepted(self) -> None:
        """A broker has answered."""
        self.refused = ""

    def check(self) -> None:
        """While a flow runs, one that starts again may not know everybody yet: it is asked for some seconds more."""
        if self.refused and time.monotonic() - self._refused_at > REFUSED_SECONDS:
            raise Misuse(f"{self._who}: the broker does not accept these credentials any more: {self.refused}")


def partitions_of(who: str, client: Any, topic: str, trouble: Trouble) -> int:
    """How many partitions a topic has. Asks until the broker answers, or for long enough."""
    kafka = library(who)
    began = time.monotonic()
    while True:
        try:
            found = client.list_topics(topic, timeout=ASK_SECONDS).topics[topic]
        except kafka.KafkaException as problem:
            _may_ask_again(who, client, problem, trouble, began)
            continue
        if found.error is None:
            return len(found.partitions)
        code, waited = found.error.code(), time.monotonic() - began
        if code == kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise Misuse(f"{who}: no right to read the topic {topic!r}")
        if code == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART and waited > APPEAR_SECONDS:
            raise Misuse(f"{who}: there is no topic {topic!r}; make it first")
        if waited > CONNECT_SECONDS:
            raise Retry(f"{who}: {words(found.error)}")
        time.sleep(0.2)


class Rules(NamedTuple):
    """What a topic takes, as far as it is ours to know."""

    limit_bytes: int | None
    """Of a batch."""
    compacted: bool
    """No message without a key."""


def rules_of(who: str, settings: Mapping[str, Any], topic: str) -> Rules:
    kafka, admin = library(who), import_module("confluent_kafka.admin")
    wanted = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, topic)
    client = make(who, admin.AdminClient, settings)
    try:
        answer = client.describe_configs([wanted], request_timeout=ASK_SECONDS)[wanted].result()
    except kafka.KafkaException:  # no right to ask, or it cannot tell: what it does not take then stops the flow
        return Rules(None, False)
    limit, policy = (getattr(answer.get(name), "value", None) for name in ("max.message.bytes", "cleanup.policy"))
    return Rules(int(limit) if limit else None, "compact" in (policy or ""))


def like(pattern: str, topics: Iterable[str]) -> list[str]:
    """The topics whose whole name matches, in order; Kafka's own are never among them."""
    return sorted(name for name in topics if not name.startswith("__") and re.fullmatch(pattern, name))


def topics_like(who: str, client: Any, pattern: str, trouble: Trouble) -> list[str]:
    """The topics that match now, in order. Asks until there is one, or for long enough."""
    began = time.monotonic()
    while True:
        known = asked(who, client, trouble, lambda: client.list_topics(timeout=ASK_SECONDS)).topics
        found = like(pattern, known)
        if found:
            return found
        if time.monotonic() - began > APPEAR_SECONDS:
            raise Misuse(f"{who}: no topic matches {pattern!r}; make one first")
        time.sleep(0.2)


def asked(who: str, client: Any, trouble: Trouble, question: Callable[[], Any]) -> Any:
    """The broker's answer to something; asked again until it comes, or for long enough."""
    kafka = library(who)
    began = time.monotonic()
    while True:
        try:
            return question()
        except kafka.KafkaException as problem:
            _may_ask_again(who, client, problem, trouble, began)


def _may_ask_again(who: str, client: Any, problem: Exception, trouble: Trouble, began: float) -> None:
    client.poll(0)  # only then does it report: above all that it was turned away
    told: SeepError | None = None
    if trouble.refused:
        told = Misuse(f"{who}: the broker does not accept these credentials: {trouble.refused}")
    elif time.monotonic() - began > CONNECT_SECONDS:
        why = trouble.latest or words(problem)
        told = Retry(f"{who}: no answer for {CONNECT_SECONDS:.0f} s ({why}); is the broker up?")
    if told is not None:
        raise told from problem
    time.sleep(0.2)
