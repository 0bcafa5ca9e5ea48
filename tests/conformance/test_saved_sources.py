"""Every kind of source is read on from where it was: saved, restored with another parallelism, killed as a whole twice,
saved and restored again, with more of it to read each time. Each row once, in order for each key."""

from __future__ import annotations

import json
import socket
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from redis import Redis

import seep
from tests.conformance.saved import Lives
from tests.scenarios.conftest import redis as redis
from tests.servers import RedisServer, free_port

KEYS, PARTS, COUNT = 8, 4, 120
SCHEMA = {"k": str, "n": int}
ENDINGS = {"text": "txt"}


def row(n: int) -> dict[str, Any]:
    return {"k": f"k{n % KEYS}", "n": n}


def part(numbers: Iterable[int], number: int) -> list[dict[str, Any]]:
    """Those of a file, stream or partition: all rows of some keys."""
    return [row(n) for n in numbers if n % PARTS == number]


def put(path: Path, form: str, given: list[dict[str, Any]]) -> None:
    """Append them (a Parquet file is written once)."""
    if form == "parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist(given), path, row_group_size=7)
        return
    made = {
        "csv": lambda one: f"{one['k']},{one['n']}",
        "jsonl": json.dumps,
        "text": lambda one: f"{one['k']} {one['n']}",
    }[form]
    head = ["k,n"] if form == "csv" and not path.exists() else []
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in [*head, *map(made, given)])


class Own(seep.Source):
    schema = SCHEMA
    partitions = PARTS

    def __init__(self, endless: bool) -> None:
        self.endless = endless

    def read(self, position: Any) -> Any:
        at, mine = position or 0, part(range(COUNT), self.partition)
        found = mine[at : at + 5]
        if self.endless:
            return [found] if found else [], at + len(found)
        return [found], at + 5 if at + 5 < len(mine) else None


class Growing(seep.Source):
    """A partition for each key, of which there are more and more."""

    schema = SCHEMA
    endless = True

    def __init__(self, there: list[int]) -> None:
        self.there = there

    @property
    def partitions(self) -> int:
        return self.there[-1]

    def read(self, position: Any) -> Any:
        at = position or 0
        found = [row(n) for n in range(self.partition, COUNT, KEYS)][at : at + 3]
        return [found] if found else [], at + len(found)


class Source:
    """One kind. `make()` in each life; `more(i)` happens before life `i`."""

    def __init__(
        self, make: Callable[[], Any], more: Callable[[int], object] = lambda life: None, splits: int = 1
    ) -> None:
        self.make, self.more, self.splits = make, more, splits


def numbers_of(life: int) -> range:
    return range(COUNT * life // 3, COUNT * (life + 1) // 3)


def files(folder: Path, form: str, follow: bool) -> Source:
    def more(life: int) -> None:
        folder.mkdir(exist_ok=True)
        if life == 0 or follow:
            for number in range(PARTS):
                given = part(numbers_of(life) if follow else range(COUNT), number)
                put(folder / f"{number}.{ENDINGS.get(form, form)}", form, given)
        if life == 1 and follow:
            put(folder / f"00.{ENDINGS.get(form, form)}", form, [])  # it stands before the others

    schema = SCHEMA if follow and form != "text" else None
    return Source(lambda: seep.FileSource(folder, follow=follow, schema=schema), more, PARTS)


def generated(rate: float | None) -> Source:
    return Source(lambda: seep.GeneratorSource(row, rate=rate, rows=COUNT), splits=KEYS)


def growing() -> Source:
    there = [1]
    return Source(lambda: Growing(there), lambda life: there.append((1, 5, KEYS)[life]))


KINDS: dict[str, Callable[[Path], Source]] = {
    "memory": lambda folder: Source(lambda: seep.MemorySource(map(row, range(COUNT)), per_epoch=4)),
    "generator": lambda folder: generated(None),
    "generator-rate": lambda folder: generated(100),
    **{f"file-{form}": lambda folder, form=form: files(folder, form, False)
       for form in ("parquet", "csv", "jsonl", "text")},
    **{f"follow-{form}": lambda folder, form=form: files(folder, form, True) for form in ("csv", "jsonl", "text")},
    "own": lambda folder: Source(lambda: Own(False), splits=PARTS),
    "own-endless": lambda folder: Source(lambda: Own(True), splits=PARTS),
    "own-growing": lambda folder: growing(),
}  # fmt: skip


def flow_of(connector: Any, parts: int) -> seep.Flow:
    flow = seep.Flow("sources", epoch="20ms")
    rows = flow.source("rows", connector).scale(start=parts)
    if "line" in rows.schema.names:
        words = pl.col("line").str.split(" ").list
        rows = rows.select(k=words.get(0), n=words.get(1).cast(pl.Int64))
    rows.collect("plain")
    rows.key_by("k").aggregate(count=seep.count(), sum=seep.total("n")).named("op").changes().collect("out")
    return flow


def through(lives: Lives, source: Source, waits: bool = False) -> None:
    """`waits`: what is sent has to be read before a life is over, and is not there in virtual time."""
    splits = source.splits > 1

    def live(life: int) -> None:
        if waits:
            lives.until(lambda: lives.read("rows") == COUNT * (life + 1) // 3, "all that was sent")

    source.more(0)
    lives.begin(flow_of(source.make(), 1))
    live(0)
    lives.advance(2)
    if splits:
        lives.scale("rows", 2)
    saved = lives.save()
    source.more(1)
    lives.begin(flow_of(source.make(), 1 + splits), saved)
    live(1)
    for _ in range(2):
        lives.advance(1)
        lives.resume()
    saved = lives.save()
    source.more(2)
    lives.begin(flow_of(source.make(), 1 + 2 * splits), saved)
    live(2)
    if getattr(source.make(), "endless", False) or waits:
        lives.until(lambda: lives.read("rows") == COUNT, "every row")
        lives.drain()
    check(lives.end())


def check(found: dict[str, list[dict[str, Any]]], count: int = COUNT) -> None:
    of_key: dict[str, list[int]] = defaultdict(list)
    for one in found["plain"]:
        of_key[one["k"]].append(one["n"])
    assert of_key == {row(n)["k"]: list(range(n, count, KEYS)) for n in range(min(count, KEYS))}
    sums = {one["k"]: (one["count"], one["sum"]) for one in found["out"]}
    assert sums == {key: (len(numbers), sum(numbers)) for key, numbers in of_key.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_source_in_many_lives(kind: str, tmp_path: Path) -> None:
    through(Lives(tmp_path / "lives", epoch_rows=4), KINDS[kind](tmp_path / "in"))


@pytest.mark.parametrize("kind", ["http", "socket"])
def test_what_is_sent_to_a_source(kind: str, tmp_path: Path) -> None:
    """It listens for as long as a life lasts; what came after a savepoint comes again from the log."""
    port = free_port()
    lives = Lives(tmp_path / "lives", epoch_rows=4)

    def make() -> Any:
        return (seep.HttpSource if kind == "http" else seep.SocketSource)(port, schema=SCHEMA)

    def send(life: int) -> None:
        lives.on_look = lambda: deliver(kind, port, numbers_of(life))

    through(lives, Source(make, send), waits=True)


_CLIENT = httpx.Client(headers={"Connection": "close"})
"""One for all: each has to read the certificates of the machine first."""


def deliver(kind: str, port: int, numbers: range) -> bool:
    sent = b"".join(json.dumps(row(n)).encode() + b"\n" for n in numbers)
    try:
        if kind == "http":
            return _CLIENT.post(f"http://127.0.0.1:{port}/", content=sent).status_code == 200
        with socket.create_connection(("127.0.0.1", port), 1.0) as opened:
            opened.sendall(sent)
        return True
    except (httpx.HTTPError, OSError):
        return False


@pytest.mark.server
@pytest.mark.parametrize("load", [None, "to-end"])
def test_streams_of_redis(redis: RedisServer, tmp_path: Path, load: str | None) -> None:
    """With an end: it is where the streams end when the flow is started, or restored."""
    client = Redis.from_url(redis.url)
    names = [f"s{number}" for number in range(PARTS)]

    def more(life: int) -> None:
        for number, name in enumerate(names):
            for one in part(numbers_of(life), number):
                client.xadd(name, one)

    def make() -> Any:
        return seep.RedisStreamSource(names, url=redis.url, schema=SCHEMA, load=load)

    through(Lives(tmp_path / "lives", epoch_rows=4), Source(make, more, 1 if load else PARTS))
    client.close()


# --- a source that had ended -----------------------------------------------------------------------------------------


def beside(connector: Any) -> seep.Flow:
    """Another source goes on when this one has ended."""
    flow = flow_of(connector, 1)
    flow.source("long", seep.GeneratorSource(row, rate=100, rows=COUNT)).collect("long-out")
    return flow


def lines(folder: Path, upto: int, first: int = 0, follow: bool = False) -> seep.FileSource:
    put(folder / "a.jsonl", "jsonl", [row(n) for n in range(first, upto)])
    return seep.FileSource(folder / "a.jsonl", schema=SCHEMA, follow=follow)


AGAIN: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "file": (lambda folder: lines(folder, 20), lambda folder: lines(folder, 30, 20)),
    "followed": (lambda folder: lines(folder, 20), lambda folder: lines(folder, 30, 20, follow=True)),
    "memory": (lambda _: seep.MemorySource(map(row, range(20))), lambda _: seep.MemorySource(map(row, range(30)))),
    "generator": (lambda _: seep.GeneratorSource(row, rows=20), lambda _: seep.GeneratorSource(row, rows=30)),
}


@pytest.mark.parametrize("kind", AGAIN)
@pytest.mark.parametrize("drained", [False, True])
def test_a_source_that_had_ended_is_asked_whether_there_is_more(kind: str, drained: bool, tmp_path: Path) -> None:
    """What it has got since was never read, and nobody was told: a table of stores that had grown, a flow saved while
    it was drained."""
    before, after = AGAIN[kind]
    lives = Lives(tmp_path / "lives")
    lives.begin(beside(before(tmp_path)))
    lives.until(lambda: lives.read("rows") == 20, "the first rows")
    lives.advance(2)
    if drained:
        lives.drain()
    saved = lives.save()
    lives.begin(beside(after(tmp_path)), saved)
    lives.until(lambda: lives.read("rows") == 30 and lives.read("long") == COUNT, "the next ones")
    lives.drain()
    check(lives.end(), 30)
