"""What every source and every sink must do, whoever wrote it: run against the built-in ones and against users' own.

A source is read in pieces of many sizes, by copies as other workers have them, and what lies between two positions must
be the same whenever it is read. A sink is killed between its writes, woken up again and told the same epochs twice, and
what others see must be every row once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import cloudpickle
import pyarrow as pa

from seep.connectors.contract import Committed, Opening, Rows, Sink, Source
from seep.connectors.own import connector_of
from seep.model.arrow import BUCKET, CHANGE, DELETE, INSERT, UPDATE
from seep.model.schema import physical

WAIT_SECONDS = 30.0
"""For a source that has not ended and gives nothing."""
QUIET_SECONDS = 1.0
"""An endless source that gives nothing for so long has given all there is."""
LOOKS = 12
"""Ranges of each split that are read again."""
EPOCHS = 60
EVERYTHING = 2**62


class Piece(NamedTuple):
    before: Any
    rows: Rows


def check_source(make: Callable[[], Any], seed: int = 7) -> None:
    """Does this source keep the contract? Raises AssertionError with what it does not do.

    ``make()`` gives the source, with some rows to read behind it. Of an endless one all that comes is read.

    >>> import seep
    >>> check_source(lambda: seep.MemorySource([{"n": n} for n in range(100)]))
    """
    random = Random(seed)
    source = _started(make())
    assert physical(source.schema) == source.schema, f"its schema is not in physical form: {source.schema}"
    assert source.splits >= 1, "it has no partitions"
    total = 0
    for split in range(source.splits):
        pieces = _drained(source, split, [random.choice((1, 2, 7, 50, 1000)) for _ in range(5)])
        total += sum(_size(piece.rows) for piece in pieces)
        _check_positions(pieces, split)
        whole = _drained(_elsewhere(source), split, [EVERYTHING])
        _same("read in other pieces", split, _content(pieces), _content(whole))
        for _ in range(LOOKS):
            _check_again(random.choice((source, _elsewhere(source))), split, pieces, random)
        _check_goes_on(_elsewhere(source), split, pieces, random)
        _check_behind(source, split, pieces)
    assert total, "it gave no rows: put some behind it, or nothing is tried"


def _started(given: Any) -> Any:
    """As a job keeps it."""
    connector = connector_of(given)
    ready = getattr(connector, "prepared", None)
    return connector if ready is None else ready()


def _elsewhere(connector: Any) -> Any:
    """As another worker gets it."""
    return cloudpickle.loads(cloudpickle.dumps(connector))


def _read(source: Source, split: int, position: Any, limit: int) -> Rows | None:
    """The next rows, when they have come; None: there will be no more."""
    endless = getattr(source, "endless", False)
    deadline = time.monotonic() + (QUIET_SECONDS if endless else WAIT_SECONDS)
    while time.monotonic() < deadline:
        found = source.read(split, position, None, limit, time.time_ns() // 1_000_000)
        if found is not None:
            return found
        time.sleep(0.002)
    assert endless, f"partition {split}: nothing for {WAIT_SECONDS:.0f} s, and it has not ended"
    return None


def _drained(source: Source, split: int, limits: list[int]) -> list[Piece]:
    pieces: list[Piece] = []
    position: Any = None
    while True:
        found = _read(source, split, position, limits[len(pieces) % len(limits)])
        if found is None:
            return pieces
        pieces.append(Piece(position, found))
        position = found.position
        if found.ended:
            return pieces


def _size(rows: Rows) -> int:
    return int(rows.record.num_rows) + len(rows.refused)


def _content(pieces: list[Piece]) -> tuple[list[Any], list[Any]]:
    rows = [row for piece in pieces for row in piece.rows.record.to_pylist()]
    return rows, [(bad.text, bad.reason) for piece in pieces for bad in piece.rows.refused]


def _same(when: str, split: int, found: tuple[list[Any], list[Any]], expected: tuple[list[Any], list[Any]]) -> None:
    for what, one, other in zip(("rows", "refused rows"), found, expected, strict=True):
        pairs = enumerate(zip(one, other, strict=False))
        # NaN is not equal to itself.
        differing = next((n for n, (a, b) in pairs if a != b and repr(a) != repr(b)), None)
        assert differing is None, f"partition {split}, {when}: {what} differ: {one[differing]}, {other[differing]}"
        assert len(one) == len(other), f"partition {split}, {when}: {len(one)} {what}, {len(other)} the other time"


def _kept(position: Any) -> Any:
    """As the epoch log gives it back."""
    return json.loads(json.dumps(position))


def _check_positions(pieces: list[Piece], split: int) -> None:
    for before, rows in pieces:
        assert _kept(rows.position) == rows.position, f"partition {split}: {rows.position!r} is no plain position"
        moved = rows.position != before
        assert moved or not _size(rows), f"partition {split}: rows came, and the position stayed {before!r}"


def _check_again(source: Source, split: int, pieces: list[Piece], random: Random) -> None:
    chosen = [number for number, piece in enumerate(pieces) if piece.before != piece.rows.position]
    if not chosen:
        return
    first = random.choice(chosen)
    last = random.randrange(first, min(len(pieces), first + 20))
    until = pieces[last].rows
    again = source.read(split, _kept(pieces[first].before), _kept(until.position), EVERYTHING, 0)
    assert again is not None, f"partition {split}: nothing between {pieces[first].before!r} and {until.position!r}"
    _same("read again", split, _content([Piece(None, again)]), _content(pieces[first : last + 1]))
    assert again.position == until.position, f"partition {split}: read up to {until.position!r}: {again.position!r}"
    assert again.ended == until.ended, f"partition {split}: at {until.position!r} it ended once, and once not"


def _check_goes_on(source: Source, split: int, pieces: list[Piece], random: Random) -> None:
    """Another worker takes over in the middle, after it has read the last epoch again."""
    if len(pieces) < 2:
        return
    at = random.randrange(1, len(pieces))
    before = pieces[at - 1]
    if before.before != before.rows.position:
        source.read(split, _kept(before.before), _kept(before.rows.position), EVERYTHING, 0)
    found = _read(source, split, _kept(before.rows.position), EVERYTHING)
    rows, bad = _content([Piece(None, found)] if found is not None else [])
    expected_rows, expected_bad = _content(pieces[at:])
    _same("taken over", split, (rows, bad), (expected_rows[: len(rows)], expected_bad[: len(bad)]))


def _check_behind(source: Any, split: int, pieces: list[Piece]) -> None:
    ask = getattr(source, "behind", None)
    if ask is not None and pieces:
        for position in (None, pieces[-1].rows.position):
            left = ask(split, position, time.time_ns() // 1_000_000)
            assert left is None or left >= 0, f"partition {split}: it is {left} rows behind"


# --- sinks ---------------------------------------------------------------------------------------------------------

SCHEMA = pa.schema([("key", pa.string()), ("n", pa.int64())])


def check_sink(
    make: Callable[[], Any], read: Callable[[], list[dict[str, Any]]], upserts: bool = False, seed: int = 7
) -> None:
    """Does this sink keep the contract? Raises AssertionError with what it does not do.

    ``make()`` gives the sink, ``read()`` the rows that others see by now, with the columns `key` and `n`: every row
    that was written, those of a key in their order; or, of a sink that ``upserts``, the rows of a Table by `key`.

    >>> import json, seep, tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> def read():
    ...     files = sorted(folder.iterdir())
    ...     return [json.loads(line) for file in files for line in file.read_text().splitlines()]
    >>> check_sink(lambda: seep.FileSink(folder, format="jsonl"), read)
    """
    random = Random(seed)
    sink: Sink = _started(make())
    keys = ("key",) if upserts else None
    history = _history(random, upserts)
    check = getattr(sink, "check", None)
    if check is not None:
        check(_schema(upserts), keys)
    opening = Opening("out", table_keys=keys)
    publish, first, log = sink.open(opening), 0, list[Committed]()
    forgotten = [-1, -1]
    while first < len(history):
        group = history[first : first + random.randrange(1, 5)]
        first, log = first + len(group), log + group
        fault = random.choice(("", "", "killed before", "killed after", "asked twice", "zombie"))
        zombie, told = publish, log
        if fault == "killed before":
            publish = _elsewhere(sink).open(opening)
        else:
            upto, told = publish(group), group
        if fault in ("killed after", "zombie"):
            publish, told = _elsewhere(sink).open(opening), log
        if fault:
            upto = publish(told)
        if fault == "zombie":
            zombie(log)
        # What need not be kept is forgotten a while later.
        forgotten = [forgotten[1], upto]
        log = [commit for commit in log if commit.epoch > forgotten[0]]
        if random.random() < 0.2:
            _compare(read(), history[:first], upserts, whole=False)
    publish([Committed(history[-1].epoch + 1, None, True)])
    _compare(read(), history, upserts, whole=True)
    another = _started(make()).open(opening)
    another([_epoch(1, [("other", 1, INSERT)], upserts), Committed(2, None, True)])
    assert any(row["key"] == "other" for row in read()), "another run has written epoch 1, and it is not there"


def _schema(upserts: bool) -> pa.Schema:
    return SCHEMA.append(pa.field(CHANGE, pa.string())) if upserts else SCHEMA


def _epoch(number: int, rows: list[tuple[str, int, str]], upserts: bool) -> Committed:
    if not rows:
        return Committed(number, None, False)
    columns = {"key": [row[0] for row in rows], "n": [row[1] for row in rows], CHANGE: [row[2] for row in rows]}
    record = pa.RecordBatch.from_pydict({name: columns[name] for name in _schema(upserts).names})
    return Committed(number, record.append_column(BUCKET, pa.array([0] * len(rows), pa.uint16())), False)


def _history(random: Random, upserts: bool) -> list[Committed]:
    """Epochs with some rows or none; of a Table at most one change for each key, and deletes among them."""
    found: list[Committed] = []
    there: set[str] = set()
    for number in range(1, EPOCHS):
        rows: list[tuple[str, int, str]] = []
        for key in random.sample(["a", "b", "c", "d é", 'e"'], random.choice((0, 1, 3))):
            gone = upserts and key in there and random.random() < 0.3
            rows.append((key, number, DELETE if gone else UPDATE if key in there else INSERT))
            there = there - {key} if gone else there | {key}
        found.append(_epoch(number, rows, upserts))
    return found


def _compare(seen: list[dict[str, Any]], history: list[Committed], upserts: bool, whole: bool) -> None:
    """Of a sink that holds rows back for a while: what is there is the beginning of what was written."""
    rows = [row for commit in history if commit.record is not None for row in commit.record.to_pylist()]
    if upserts:
        wanted: dict[str, int] = {}
        for row in rows:
            if row[CHANGE] == DELETE:
                wanted.pop(row["key"], None)
            else:
                wanted[row["key"]] = row["n"]
        found = {row["key"]: row["n"] for row in seen}
        assert len(found) == len(seen), f"a key is there twice: {seen}"
        assert found == wanted or not whole, f"it holds {found}; written was {wanted}"
        return
    for key in sorted({row["key"] for row in [*rows, *seen]}):
        written = [row["n"] for row in rows if row["key"] == key]
        visible = [row["n"] for row in seen if row["key"] == key]
        expected = written if whole else written[: len(visible)]
        assert visible == expected, f"the rows of {key!r} that others see are {visible}; written was {written}"
