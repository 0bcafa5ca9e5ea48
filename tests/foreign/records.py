"""Runs record-at-a-time cases, and compares what was sent with the messages that were wanted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import seep
from seep.testing import Driver
from tests.foreign import ksql
from tests.foreign.ksql import Case
from tests.foreign.sequences import Shape, difference
from tests.foreign.topics import Feed, Topics
from tests.foreign.verdicts import Differs, NotSaid, Verdict, verdict_of


def judge(path: Path, name: str) -> Iterator[Verdict]:
    """Run every case of a file."""
    for case in ksql.cases(path):
        yield verdict_of(f"{name}/{path.stem}: {case.name}", partial(_run, case))


def _run(case: Case) -> str:
    """What is wrong; nothing if nothing is."""
    if case.unsaid:
        raise NotSaid(case.unsaid)
    built = Topics(case)
    if not case.inputs:
        raise NotSaid("a case without messages")
    built.build()
    wanted = sorted({message.topic for message in case.outputs} or set(built.topics))
    if not set(wanted) <= set(built.topics):
        raise NotSaid("a topic that nothing declares")
    for topic in wanted:
        feed = built.feeds[built.topics[topic]]
        (feed.data.changes() if feed.is_table else feed.data).collect(topic)
    result = _sent(built, wanted)
    for topic in wanted:
        feed = built.feeds[built.topics[topic]]
        shape = Shape(feed.columns, feed.key, feed.is_table, feed.formats, _bounds(feed))
        shape = replace(
            shape, regrouped=feed.regrouped, final=any(one.final for one in built.derived), nears=bool(built.nears)
        )
        messages = [message for message in case.outputs if message.topic == topic]
        found = difference(result[topic], shape, messages)
        if found and feed.window and re.search("(earliest|latest)_by_offset", " ".join(case.statements), re.IGNORECASE):
            raise Differs("first and last of a window go by event time, not by arrival")
        if found:
            return f"{topic}: {found}"
    return ""


def _sent(built: Topics, topics: list[str]) -> dict[str, list[dict[str, Any]]]:
    """The rows of each topic. The end of a bounded source closes everything, which the other engine does not know:
    where rows come at a close the messages are fed by hand, and no end follows."""
    at_close = any(one.final or (one.within and one.grace is not None) for one in built.derived)
    if not at_close:
        result = seep.run(built.flow, on="inline")
        return {topic: result[topic].to_pylist() for topic in topics}
    driver = Driver(built.flow)
    for row in built.rows:
        driver.feed("messages", [row])
    return {topic: driver.output(topic) for topic in topics}


def _bounds(feed: Feed) -> tuple[str, str] | None:
    if not feed.window:
        return None
    names = [name for name in feed.data.schema.names if name.startswith("window_")]
    return names[-2], names[-1]
