"""A flow to try a deployment with: lines without end, their words counted by an operator that is scaled out soon.

With KAFKA (a broker's address) lines come from the topic `lines` and counts go to the topic `counts`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import seep

LINES_PER_SECOND = 250
SLEEP_SECONDS = 0.001
OUTPUT = Path(os.environ.get("SEEP_HOME", ".seep")).absolute() / "output"
SERVERS = os.environ.get("KAFKA", "")
LINES = ("to be or not to be", "that is the question", "whether it is nobler in the mind to suffer")


class Word(NamedTuple):
    word: str


class Count(seep.Operator):
    """Counts words, and sleeps over each: two partitions can just take what comes, so there will be three."""

    count = seep.ValueState(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> None:
        time.sleep(SLEEP_SECONDS)
        self.count.value += 1
        ctx.emit({"word": row.word, "n": self.count.value})


flow = seep.Flow("words")
made_up = seep.GeneratorSource(lambda i: {"line": LINES[i % len(LINES)]}, rate=LINES_PER_SECOND)
topic = seep.KafkaSource("lines", servers=SERVERS, schema={"line": str}) if SERVERS else None
lines = flow.source("lines", topic or made_up)
words = lines.flat_map(lambda row: [Word(word) for word in row.line.split()], schema=Word)
counted = words.key_by("word").apply(Count(), out={"word": str, "n": int}).named("count")
written = seep.KafkaSink("counts", servers=SERVERS, key="word") if SERVERS else seep.FileSink(OUTPUT, format="jsonl")
counted.scale(start=2, max=6, policy="rate").sink("counts", written)
