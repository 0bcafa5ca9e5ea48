"""What is saved comes back as it was, cut or whole, alone or folded; and no damage to it goes unnoticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as with_fields
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from seep.model.arrow import BUCKET, DELETED, KEY, ArrowBatch, ArrowState
from seep.model.epoch import Progress
from seep.model.ids import BUCKETS, EVERYTHING, Generation, KeyRange, PartitionId
from seep.sim.directed.registry import demand, scenario
from seep.state import plain
from seep.state.checkpoint import Buffered, Checkpoint, Point
from seep.state.codec import (
    CHECKPOINT,
    RECORD,
    DamagedError,
    ForeignError,
    TruncatedError,
    decode_value,
    encode_parts,
    encode_value,
    seal,
    sealed_bytes,
    unseal,
)
from seep.state.folding import fold
from seep.state.ipc import read_record, write_record
from seep.state.saved import Saved, decode_checkpoint, encode_checkpoint, fold_saved

OURS, THEIRS = b"k" * 32, b"t" * 32
Keys = dict[int, int]


def _table(rows: Keys, gone: list[int] | None = None) -> pa.RecordBatch:
    """Of a number: its bucket, its key, its value; what is deleted has none."""
    numbers = [*(gone or ()), *rows]
    columns: dict[str, Any] = {
        BUCKET: pa.array([_bucket(n) for n in numbers], pa.uint16()),
        KEY: pa.array([n.to_bytes(4, "big") for n in numbers], pa.binary()),
        "value": pa.array([rows.get(n) for n in numbers], pa.int64()),
    }
    if gone is not None:
        columns[DELETED] = pa.array([n not in rows for n in numbers], pa.bool_())
    return pa.RecordBatch.from_pydict(columns)


def _bucket(number: int) -> int:
    return number * 2_654_435_761 % BUCKETS


def _content(state: Any) -> Keys:
    if state is None:
        return {}
    table = state.tables["rows"]
    keys = [int.from_bytes(key, "big") for key in table.column(KEY).to_pylist()]
    return dict(zip(keys, table.column("value").to_pylist(), strict=True))


def _batch(random: Random, rows: int) -> ArrowBatch:
    record = pa.RecordBatch.from_pydict({"n": [random.randrange(1000) for _ in range(rows)]})
    return ArrowBatch(record, np.array(sorted(random.randrange(BUCKETS) for _ in range(rows)), np.uint16))


def _entries(random: Random, first: int, count: int) -> tuple[Buffered, ...]:
    return tuple(
        Buffered(Progress(first + at, 7, 8, at), tuple(_batch(random, random.randint(1, 5)) for _ in range(at % 3)))
        for at in range(count)
    )


def _plain(buffers: Any) -> Any:
    return {
        edge: [
            (entry.progress, [(batch.record.to_pydict(), batch.buckets.tolist()) for batch in entry.batches])
            for entry in entries
        ]
        for edge, entries in buffers.items()
    }


def _chain(random: Random) -> tuple[list[Checkpoint], Keys]:
    """A full checkpoint and some increments; and all that is held in the end."""
    held: Keys = {n: random.randrange(100) for n in random.sample(range(5_000), random.randrange(1, 300))}
    chain: list[Checkpoint] = []
    for version in range(1, random.randint(2, 4)):
        gone = random.sample(sorted(held), len(held) // 3) if chain else None
        new = dict(held) if not chain else {n: random.randrange(100) for n in random.sample(range(5_000), 20)}
        for number in gone or ():
            held.pop(number)
        held.update(new)
        trimmed = Progress(10 * version, 1, 2, 3)
        chain.append(
            Checkpoint(
                PartitionId("a", 3),
                Generation(2, version),
                KeyRange(0, BUCKETS),
                version,
                version - 1,
                10 * version + 5,
                100 + version,
                200 + version,
                bool(version % 2),
                ArrowState({"rows": _table(new, gone)}),
                {"a->b": _entries(random, 10 * version - 3, 12)},
                {"a->b": trimmed},
                {"rows_in": version},
                not version % 2,
                Point(version, 4, (1, version)),
            )
        )
    return chain, held


def _bytes(checkpoint: Checkpoint, sectioned_bytes: int) -> bytes:
    return b"".join(map(bytes, encode_checkpoint(checkpoint, OURS, sectioned_bytes)))


def _open(data: bytes) -> Saved:
    return Saved(len(data), lambda offset, size: data[offset : offset + size], OURS)


def _checked(data: bytes) -> Checkpoint:
    return _open(data).check()


def _read_short(data: bytes) -> Checkpoint:
    """The first read gives less than it is asked for."""
    return Saved(len(data), lambda offset, size: data[offset : offset + size - (offset == 0)], OURS).check()


def _demand_same(found: Checkpoint, wanted: Checkpoint) -> None:
    bare = [with_fields(one, state=None, buffers={}) for one in (found, wanted)]
    demand(bare[0] == bare[1], "a checkpoint comes back with other words")
    demand(_content(found.state) == _content(wanted.state), "a checkpoint comes back with other state")
    demand(_plain(found.buffers) == _plain(wanted.buffers), "a checkpoint comes back with another buffer")


def _refused(kind: type[Exception], act: Callable[..., object], *given: Any) -> bool:
    try:
        act(*given)
    except kind:
        return True
    return False


@scenario
def saved_comes_back() -> None:
    """In one section or many, whole or some buckets of it, alone or as a chain that is folded."""
    for seed in range(12):
        random = Random(seed)
        chain, held = _chain(random)
        for sectioned_bytes in (1, 1 << 30):
            saved = [_bytes(checkpoint, sectioned_bytes) for checkpoint in chain]
            for data, checkpoint in zip(saved, chain, strict=True):
                _demand_same(decode_checkpoint(data, OURS), checkpoint)
                low = random.randrange(BUCKETS - 1)
                part = KeyRange(low, random.randint(low + 1, BUCKETS))
                cut = decode_checkpoint(data, OURS, part)
                _demand_same(cut, checkpoint.part(part))
                demand(all(_bucket(n) in part for n in _content(cut.state)), "a part holds keys of others")
                _demand_same(_open(data).buffered(), with_fields(checkpoint, state=None))
                opened = _open(data)
                demand((opened.version, opened.parent) == (checkpoint.version, checkpoint.parent), "another version")
            wanted = fold(chain)
            demand(_content(wanted.state) == held, "a folded chain holds something else")
            epochs = [entry.progress.epoch for entry in wanted.buffers["a->b"]]
            demand(epochs == sorted(set(epochs)), "a folded buffer repeats an epoch")
            demand(
                bool(epochs) and epochs[0] > chain[-1].trimmed["a->b"].epoch, "a folded buffer holds what is trimmed"
            )
            folded = b"".join(map(bytes, fold_saved([_open(data) for data in saved], OURS, sectioned_bytes)))
            _demand_same(decode_checkpoint(folded, OURS), wanted)


@scenario
def sections_begin_where_columns_can_be_read_in_place() -> None:
    """On 8-byte boundaries of the file, whatever length those before them have."""
    sizes = set()
    for seed in range(12):
        for checkpoint in _chain(Random(seed))[0]:
            opened = _open(_bytes(checkpoint, 1))
            sizes |= {section.size for section in opened.contents.sections}
    demand(len(sizes) > 20 and not any(size % 8 for size in sizes), f"{sorted(sizes)}")


@scenario
def damage_is_noticed() -> None:
    """A bit flipped anywhere, a tail torn off, more than was written, another key, another kind."""
    random = Random(5)
    chain, _ = _chain(random)
    for sectioned_bytes in (1, 1 << 30):
        data = _bytes(chain[0], sectioned_bytes)
        for place in [*random.sample(range(len(data)), 150), *range(len(data) - 120, len(data))]:
            flipped = bytearray(data)
            flipped[place] ^= 1 << random.randrange(8)
            bad = bytes(flipped)
            demand(_refused(DamagedError, _checked, bad), f"byte {place} of {len(data)}: flipped")
            demand(_refused(DamagedError, decode_checkpoint, bad, OURS), f"byte {place}: flipped")
        for size in [*range(20), *random.sample(range(len(data)), 40), len(data) - 1]:
            demand(_refused(DamagedError, _checked, data[:size]), f"torn after {size} bytes")
        demand(_refused(DamagedError, _checked, data[8:]), "its beginning is gone")
        demand(_refused(ForeignError, decode_checkpoint, data, THEIRS), "a foreign key is believed")
        demand(_refused(TruncatedError, _read_short, data), "a short read is believed")
    value = {"splits": {"1": [0, None, -5, True]}, "text": "ä", "bytes": b"\0\1"}
    sealed = encode_value(RECORD, value, OURS)
    demand(decode_value(RECORD, sealed, OURS) == value, "a value comes back as another")
    demand(sealed_bytes(sealed + b"more") == len(sealed), "an envelope does not know its size")
    demand(_refused(DamagedError, decode_value, CHECKPOINT, sealed, OURS), "a record is read as a checkpoint")
    demand(_refused(ForeignError, decode_value, RECORD, sealed, THEIRS), "a foreign key is believed")
    demand(_refused(DamagedError, decode_value, RECORD, sealed + b"x", OURS), "more than was written is read")
    demand(not _refused(TruncatedError, unseal, RECORD, sealed, OURS), "a whole one is said to be torn")
    for place in range(len(sealed)):
        flipped = bytearray(sealed)
        flipped[place] ^= 1 << random.randrange(8)
        demand(_refused(DamagedError, decode_value, RECORD, bytes(flipped), OURS), f"byte {place}: flipped")
        demand(_refused(TruncatedError, decode_value, RECORD, sealed[:place], OURS), f"torn at {place}")
    garbage = b"".join(map(bytes, seal(RECORD, [b"\xc1"], OURS)))
    demand(_refused(DamagedError, decode_value, RECORD, garbage, OURS), "what is no value is read")


@scenario
def values_fit_their_types() -> None:
    """Every kind of field comes back; whatever does not fit is refused, never passed on."""
    point = Point(3, 4, (1, 2))
    whole = Checkpoint(PartitionId("a", 0), Generation(1, 2), EVERYTHING, 1, 0, 5, 6, 7, False, None, before=point)
    progress = Progress(1, 2, 3, 4, ended=True, idle=False)
    for kind, value in ((Point, point), (Progress, progress), (PartitionId, whole.partition), (KeyRange, EVERYTHING)):
        packed = plain.pack(value)
        demand(plain.unpack(kind, packed) == value, f"a {kind.__name__} comes back as another")
        for wrong in (packed[:-1], [*packed, 0], None, "text", 7):
            demand(_refused(plain.MisfitError, plain.unpack, kind, wrong), f"{wrong} as {kind.__name__}")
        for at, own in enumerate(packed):
            other = [*packed[:at], {} if isinstance(own, list) else [], *packed[at + 1 :]]
            demand(_refused(plain.MisfitError, plain.unpack, kind, other), f"{other} is believed")
    floating = plain.form(float)
    demand(floating.unpack(2) == 2.0 and type(floating.unpack(2)) is float, "an int is no float")
    demand(_refused(plain.MisfitError, floating.unpack, "2"), "text is a float")
    maybe = plain.form(Point | None)
    demand(maybe.unpack(maybe.pack(None)) is None and maybe.unpack(maybe.pack(point)) == point, "an optional value")
    pair = plain.form(tuple[int, str])
    demand(pair.unpack(pair.pack((1, "a"))) == (1, "a"), "a pair comes back as another")
    demand(_refused(plain.MisfitError, pair.unpack, [1]), "one of a pair is believed")


@scenario
def parts_are_the_same_bytes() -> None:
    """What ends with many bytes is not copied; whoever reads it sees no difference."""
    many = bytes(range(256)) * 1_000
    for value in (
        many,
        [1, many],
        [1, [2, "a", [many]]],
        [many, 1],
        [[], many],
        [1, b"few"],
        {"a": 1},
        [],
        "text",
        None,
    ):
        parts = encode_parts(RECORD, value, OURS)
        demand(b"".join(map(bytes, parts)) == encode_value(RECORD, value, OURS), f"{str(value)[:40]} is other bytes")
        last: Any = value
        while isinstance(last, list) and last:
            last = last[-1]
        demand(any(part is many for part in parts) == (last is many), f"{str(value)[:40]} is copied, or is not")


@scenario
def record_batches_come_back_with_their_dictionaries() -> None:
    plain = pa.RecordBatch.from_pydict({"n": [1, 2, None]})
    words = pa.RecordBatch.from_pydict({"w": pa.array(["a", "b", "a"]).dictionary_encode(), "n": [1, 2, 3]})
    nested = pa.RecordBatch.from_pydict({"l": pa.array([["a"], []], pa.list_(pa.dictionary(pa.int8(), pa.utf8())))})
    for record in (plain, words, nested, plain.slice(1)):
        schema, message = write_record(record)
        demand(bool(schema) == (record.schema == plain.schema), "a schema with dictionaries stands apart from them")
        demand(read_record(schema, message).equals(record), f"{record.schema} comes back as another")
        demand(read_record(schema, bytes(message)).equals(record), f"{record.schema} comes back from bytes as another")
        demand(_refused(ValueError, read_record, schema, bytes(message)[:20]), "a torn one is believed")
