"""One contract for every store: fences, checkpoints, logs, the journal; and what only files can suffer."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import secrets
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from seep.errors import Misuse
from seep.model.arrow import ArrowBatch, ArrowState
from seep.model.epoch import Progress
from seep.model.ids import EVERYTHING, FOREVER, Generation, KeyRange, PartitionId
from seep.protocol.effects import (
    Append,
    DropCheckpoints,
    FenceStore,
    FindCheckpoint,
    LoadCheckpoints,
    NewestVersion,
    PutCheckpoint,
    ReadJournal,
    ReadLog,
    StoreReply,
    SwapJournal,
    Truncate,
)
from seep.protocol.journal import LIVE, Entry, Journal, Replace
from seep.runtime.stores import checkpoints
from seep.runtime.stores.base import Store, StoreEffect
from seep.runtime.stores.directory import DirectoryStore
from seep.runtime.stores.files import Files
from seep.runtime.stores.log import REWRITE_BYTES
from seep.runtime.stores.memory import MemoryStore
from seep.runtime.stores.objects import ObjectStore
from seep.runtime.stores.objects import check as check_objects
from seep.runtime.stores.redis import RedisStore, check
from seep.state.checkpoint import Buffered, Checkpoint
from tests.servers import RedisServer

KEY = b"k" * 32
PART = PartitionId("count by ../store\u2192~.", 3)
OLD, NEW = Generation(1, 1), Generation(2, 1)


def checkpoint(version: int, parent: int = 0, generation: Generation = OLD, rows: int = 3) -> Checkpoint:
    table = pa.record_batch(
        {"__bucket": pa.array([7] * rows, pa.uint16()), "__key": [b"k"] * rows, "n": list(range(rows))}
    )
    batch = ArrowBatch(pa.record_batch({"a": list(range(rows))}), np.arange(rows, dtype=np.uint16))
    progress = Progress(version, 5, 6, 2**64 - 1)
    return Checkpoint(
        PART, generation, EVERYTHING, version, parent, version * 10, 1, 2, False,
        ArrowState({"t": table}), {"out": (Buffered(progress, (batch,)),)}, {"out": progress}, {"late": 1},
    )  # fmt: skip


def spread(version: int, parent: int = 0, rows: int = 20_000) -> Checkpoint:
    """One that is large enough to be saved in sections; increments add a few entries to it."""
    keys = np.arange(rows if not parent else 50) * (1 if not parent else version)
    columns = {
        "__bucket": pa.array(keys * 7 % 4096, pa.uint16()),
        "__key": pa.array([str(key).encode() for key in keys], pa.binary()),
        "n": pa.array([f"{version} {key}" + "x" * 250 for key in keys]),
    }
    if parent:
        columns["__deleted"] = pa.array([False] * len(keys))
    state = ArrowState({"t": pa.record_batch(columns)})
    return with_fields(checkpoint(version, parent), state=state)


def contents(saved: Checkpoint) -> list[dict[str, Any]]:
    assert isinstance(saved.state, ArrowState)
    return sorted(saved.state.tables["t"].to_pylist(), key=lambda row: (row["__bucket"], row["__key"]))


def merged(chain: list[Checkpoint]) -> dict[bytes, str]:
    return {row["__key"]: row["n"] for saved in chain for row in contents(saved)}


def ask(store: Store, effect: StoreEffect) -> StoreReply:
    reply = store.perform(effect)
    assert reply is not None
    assert reply.token == effect.token  # type: ignore[union-attr]
    return reply


def value(store: Store, effect: StoreEffect) -> Any:
    reply = ask(store, effect)
    assert reply.error == ""
    return reply.value


def log(store: Store) -> list[tuple[int, Any]]:
    return [tuple(r) for r in value(store, ReadLog(9, PART))]


def versions(store: Store, upto: int = 0) -> list[int]:
    return [saved.version for saved in value(store, LoadCheckpoints(9, PART, upto))]


def put(store: Store, *checkpoints: Checkpoint) -> None:
    for saved in checkpoints:
        value(store, PutCheckpoint(1, saved))


def disk_full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "no space left")


class Contract:
    """What every store must do."""

    @pytest.fixture
    def store(self) -> Store:
        raise pytest.UsageError("each store's class makes its own")

    @pytest.fixture(autouse=True)
    def fenced(self, store: Store) -> None:
        """Who writes has raised the fence before."""
        value(store, FenceStore(1, PART, OLD))

    def test_a_store_that_came_back_empty_says_so(self, store: Store) -> None:
        stranger = PartitionId("elsewhere", 1)
        assert ask(store, Append(1, stranger, OLD, 1, {})).error == "lost"
        assert ask(store, PutCheckpoint(1, with_fields(checkpoint(1), partition=stranger))).error == "lost"
        assert ask(store, FenceStore(1, stranger, OLD, 1)).error == "lost"
        value(store, SwapJournal(1, 0, Journal(1, 1)))
        value(store, FenceStore(1, stranger, OLD, 1))
        assert ask(store, FenceStore(1, stranger, OLD, 2)).error == "lost"
        value(store, Append(1, stranger, OLD, 1, {}))

    def test_a_note_is_found_by_whoever_comes_after(self, store: Store) -> None:
        """By its generation: what a zombie still notes is not taken for its successor's."""
        assert store.noted(PART, OLD) is None
        store.note(PART, OLD, [17, ["out.0/", 5, 31], 2])
        store.note(PART, OLD, [18, ["out.0/", 5, 0], 1])
        store.note(PART, NEW, [1, ["", 0, 0], 1])
        store.note(PART, OLD, None)
        store.note(PART, OLD, [9, ["x", 1, 1], 1])
        assert store.noted(PART, OLD) == [9, ["x", 1, 1], 1]
        store.note(PART, NEW, None)
        assert store.noted(PART, NEW) is None
        assert store.noted(PartitionId("elsewhere", 1), OLD) is None

    def test_an_empty_store_answers_with_nothing(self, store: Store) -> None:
        assert log(store) == []
        assert versions(store) == []
        assert value(store, ReadJournal(1)) is None
        assert value(store, FindCheckpoint(1, PART)) is None
        assert value(store, NewestVersion(1, PART)) == 0

    def test_a_checkpoint_comes_back_as_it_was(self, store: Store) -> None:
        put(store, checkpoint(1))
        [found] = value(store, LoadCheckpoints(2, PART))
        assert isinstance(found.state, ArrowState)
        saved = checkpoint(1).state
        assert isinstance(saved, ArrowState)
        assert found.state.tables["t"].equals(saved.tables["t"])
        [buffered] = found.buffers["out"]
        assert buffered.progress == checkpoint(1).buffers["out"][0].progress
        assert buffered.batches[0].record.to_pydict() == {"a": [0, 1, 2]}
        assert found.trimmed == checkpoint(1).trimmed
        assert found.counts == {"late": 1}

    def test_chains_newest_point_first_full_one_first(self, store: Store) -> None:
        put(store, checkpoint(1), checkpoint(2, 1), checkpoint(3), checkpoint(4, 3), checkpoint(5, 4))
        assert versions(store) == [3, 4, 5]
        assert versions(store, upto=4) == [3, 4]
        assert versions(store, upto=2) == [1, 2]
        assert versions(store, upto=9) == [3, 4, 5]
        assert tuple(value(store, FindCheckpoint(1, PART))) == (5, 50)
        assert value(store, NewestVersion(1, PART)) == 5

    def test_a_part_is_its_buckets_without_the_buffer(self, store: Store) -> None:
        put(store, spread(1), spread(2, 1))
        for part in (KeyRange(0, 2048), KeyRange(2048, 2112), KeyRange(0, 0)):
            found = value(store, LoadCheckpoints(2, PART, 0, part))
            assert [saved.version for saved in found] == [1, 2]
            for saved, whole in zip(found, value(store, LoadCheckpoints(2, PART)), strict=True):
                assert contents(saved) == contents(whole.part(part))
                assert saved.buffers == {}
                assert (saved.epoch, saved.trimmed, saved.counts) == (whole.epoch, whole.trimmed, whole.counts)

    def test_a_chain_that_is_folded_is_the_same(self, store: Store) -> None:
        put(store, spread(1), *(spread(version, version - 1) for version in range(2, 12)))
        before = merged(value(store, LoadCheckpoints(2, PART)))
        store.fold(PART, NEW)
        assert merged(value(store, LoadCheckpoints(2, PART))) == before
        put(store, spread(12, 11))
        assert versions(store)[-1] == 12

    def test_a_chain_without_its_parent_is_no_chain(self, store: Store) -> None:
        put(store, checkpoint(3, 2))
        assert ask(store, LoadCheckpoints(9, PART)).error == "damaged"
        put(store, checkpoint(1))
        assert versions(store) == [1]

    def test_drop(self, store: Store) -> None:
        put(store, checkpoint(1), checkpoint(2), checkpoint(3))
        assert store.perform(DropCheckpoints(PART, OLD, 3, (1,))) is None
        assert versions(store) == [3]
        store.perform(DropCheckpoints(PART, OLD, 2**62))
        assert versions(store) == []

    def test_a_lower_generation_is_fenced_from_everything(self, store: Store) -> None:
        put(store, checkpoint(1))
        value(store, Append(1, PART, OLD, 1, {"at": 5}))
        value(store, FenceStore(1, PART, NEW))
        value(store, FenceStore(1, PART, NEW))
        assert ask(store, FenceStore(1, PART, OLD)).error == "fenced"
        assert ask(store, PutCheckpoint(1, checkpoint(2))).error == "fenced"
        assert ask(store, Append(1, PART, OLD, 2, {})).error == "fenced"
        store.perform(DropCheckpoints(PART, OLD, 2**62))
        store.perform(Truncate(PART, OLD, 2**62))
        assert versions(store) == [1]
        assert log(store) == [(1, {"at": 5})]
        put(store, checkpoint(2, generation=NEW))
        value(store, Append(1, PART, NEW, 2, {}))

    def test_an_epoch_is_appended_once(self, store: Store) -> None:
        value(store, Append(1, PART, OLD, 5, {"at": [1, "x", None]}))
        assert ask(store, Append(1, PART, NEW, 5, {})).error == "exists"
        assert ask(store, Append(1, PART, NEW, 4, {})).error == "exists"
        value(store, Append(1, PART, NEW, 9, b"\x00rows"))
        assert log(store) == [(5, {"at": [1, "x", None]}), (9, b"\x00rows")]

    def test_truncate_forgets_all_but_the_newest(self, store: Store) -> None:
        for epoch in (1, 2, 3):
            value(store, Append(1, PART, OLD, epoch, epoch))
        store.perform(Truncate(PART, OLD, 3))
        assert log(store) == [(3, 3)]
        store.perform(Truncate(PART, OLD, 100))
        assert log(store) == [(3, 3)]
        assert ask(store, Append(1, PART, OLD, 3, 0)).error == "exists"
        value(store, Append(1, PART, OLD, 4, 4))
        assert log(store) == [(3, 3), (4, 4)]
        store.perform(Truncate(PART, OLD, FOREVER))
        assert log(store) == [(4, 4)]

    def test_the_journal_changes_only_from_what_was_seen(self, store: Store) -> None:
        entry = Entry(PART, KeyRange(0, 9), 1, FOREVER, LIVE, OLD, "w1", ((PART, 4),), 40)
        replace = Replace(1, "x", (PART,), (KeyRange(0, 4), KeyRange(4, 9)), True)
        first = Journal(1, 1, {PART: entry}, (replace,), {"x": 2})
        assert value(store, SwapJournal(1, 0, first)) == first
        assert value(store, ReadJournal(2)) == first
        assert value(store, SwapJournal(1, 0, Journal(1, 9))) == first
        second = Journal(2, 1, stopping="drain")
        assert value(store, SwapJournal(1, 1, second)) == second


class TestMemory(Contract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


class TestObjects(Contract):
    """The bytes of checkpoints in a file system of pyarrow's, all else in a directory."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return self.again(tmp_path)

    @staticmethod
    def again(tmp_path: Path, key: bytes = KEY) -> ObjectStore:
        return ObjectStore(DirectoryStore(tmp_path / "store", key), f"file://{tmp_path}/objects", key)

    @staticmethod
    def objects(tmp_path: Path, pattern: str = "*") -> list[Path]:
        return sorted((tmp_path / "objects").glob(f"*/{pattern}"))

    def test_the_bytes_are_there_and_nowhere_else(self, store: ObjectStore, tmp_path: Path) -> None:
        put(store, spread(1))
        assert not list((tmp_path / "store").rglob("*.checkpoint"))
        assert len(self.objects(tmp_path, "1-*")) == 1
        assert versions(self.again(tmp_path)) == [1]
        put(store, spread(1), spread(2, 1))
        assert len(self.objects(tmp_path)) == 2, "put again, the bytes of before are gone"

    @pytest.mark.parametrize("change", ["cut", "flip", "empty", "gone"])
    def test_a_damaged_checkpoint_is_put_aside(self, store: ObjectStore, tmp_path: Path, change: str) -> None:
        put(store, checkpoint(1), checkpoint(2))
        [path] = self.objects(tmp_path, "2-*")
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data[:-9] if change == "cut" else b"" if change == "empty" else data)
        if change == "gone":
            path.unlink()
        assert versions(store) == [1]
        assert store.statistics()["damaged_checkpoints"] == (change != "gone")
        assert versions(self.again(tmp_path)) == [1]
        assert value(store, NewestVersion(1, PART)) == 2
        store.perform(DropCheckpoints(PART, OLD, 2))
        assert ask(store, LoadCheckpoints(1, PART)).error == "damaged"
        store.perform(DropCheckpoints(PART, OLD, 3))
        assert versions(store) == []
        assert self.objects(tmp_path) == []

    def test_what_a_kill_left_behind_is_no_checkpoint_and_goes(self, store: ObjectStore, tmp_path: Path) -> None:
        put(store, checkpoint(1))
        store._write(PART, 2, [b"half"])
        assert versions(store) == [1]
        put(store, checkpoint(3))
        store.perform(DropCheckpoints(PART, OLD, 3))
        assert [path.name.partition("-")[0] for path in self.objects(tmp_path)] == ["3"]

    def test_two_put_at_once_and_both_are_there(self, store: ObjectStore, tmp_path: Path) -> None:
        with ThreadPoolExecutor(2) as pool:
            stores = [self.again(tmp_path) for _ in range(2)]
            list(pool.map(lambda at: put(stores[at], *(checkpoint(n) for n in range(1 + at, 21, 2))), range(2)))
        assert sorted(store._catalogue(PART)[1]) == list(range(1, 21))

    def test_another_key_reads_nothing_and_moves_nothing(self, store: ObjectStore, tmp_path: Path) -> None:
        put(store, checkpoint(1))
        assert ask(self.again(tmp_path, b"x" * 32), LoadCheckpoints(1, PART)).error == "damaged"
        assert versions(store) == [1]

    def test_a_place_that_cannot_be_written_to_fails_and_comes_back(self, store: ObjectStore, tmp_path: Path) -> None:
        (tmp_path / "objects").write_text("in the way")
        assert ask(store, PutCheckpoint(1, checkpoint(1))).error == "failed"
        with pytest.raises(Misuse, match="cannot be written to"):
            check_objects(f"file://{tmp_path}/objects")
        (tmp_path / "objects").unlink()
        put(store, checkpoint(1))
        assert versions(store) == [1]
        check_objects(f"file://{tmp_path}/objects")
        store.forget()
        assert self.objects(tmp_path) == []
        for url in ("nonsense", "ftp://x/y", ""):
            with pytest.raises(Misuse, match="such as s3://BUCKET/FOLDER"):
                check_objects(url)


class TestDirectory(Contract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> DirectoryStore:
        return DirectoryStore(tmp_path / "store", KEY)

    @pytest.fixture
    def again(self, tmp_path: Path) -> Callable[[], DirectoryStore]:
        return lambda: DirectoryStore(tmp_path / "store", KEY)

    @staticmethod
    def file(tmp_path: Path, name: str) -> Path:
        [path] = (tmp_path / "store" / "partitions").glob(f"*/{name}")
        return path

    def test_an_onlooker_sees_each_record_once(self, store: DirectoryStore) -> None:
        tail, seen = store.tail(PART), []
        assert tail.more() == []
        for epoch in range(1, 10):
            value(store, Append(1, PART, OLD, epoch, [epoch, "x"]))
            if epoch % 2:
                seen += tail.more()
                tail = store.tail(PART, pickle.loads(pickle.dumps(tail.place)))  # noqa: S301 another one goes on
            if epoch % 4 == 0:
                seen += tail.more()
                store.perform(Truncate(PART, OLD, epoch))
        assert [(epoch, list(record)) for epoch, record in seen] == [(epoch, [epoch, "x"]) for epoch in range(1, 10)]
        assert log(store)[0][0] > 1, "it was truncated meanwhile"

    def test_another_process_sees_it_all(self, store: Store, again: Callable[[], DirectoryStore]) -> None:
        put(store, checkpoint(1))
        value(store, Append(1, PART, OLD, 1, "a"))
        other = again()
        assert versions(other) == [1]
        value(other, Append(1, PART, OLD, 2, "b"))
        assert ask(store, Append(1, PART, OLD, 2, "c")).error == "exists"
        assert log(store) == [(1, "a"), (2, "b")]

    @pytest.mark.parametrize("change", ["cut", "flip", "empty"])
    def test_a_damaged_checkpoint_is_put_aside(self, store: Store, tmp_path: Path, change: str) -> None:
        put(store, checkpoint(1), checkpoint(2))
        path = self.file(tmp_path, "2.checkpoint")
        data = bytearray(path.read_bytes())
        if change == "flip":
            data[len(data) // 2] ^= 1
        path.write_bytes(data[:-9] if change == "cut" else b"" if change == "empty" else data)
        assert versions(store) == [1]
        assert store.statistics()["damaged_checkpoints"] == 1
        assert versions(store) == [1]
        assert self.file(tmp_path, "2.checkpoint.damaged").exists()
        assert value(store, NewestVersion(1, PART)) == 2
        store.perform(DropCheckpoints(PART, OLD, 2))
        assert ask(store, LoadCheckpoints(1, PART)).error == "damaged"
        store.perform(DropCheckpoints(PART, OLD, 3))
        assert versions(store) == []

    def test_a_damaged_section_is_met_by_those_who_need_it(self, store: Store, tmp_path: Path) -> None:
        put(store, spread(1), spread(2))
        path = self.file(tmp_path, "2.checkpoint")
        data = bytearray(path.read_bytes())
        data[len(data) // 4] ^= 1  # among the entries of the first half of the buckets: β, at the end, is small
        path.write_bytes(data)
        other, needed = KeyRange(2048, 4096), KeyRange(0, 2048)
        assert [c.version for c in value(store, LoadCheckpoints(1, PART, 2, other))] == [2]
        assert store.statistics()["damaged_checkpoints"] == 0
        assert [c.version for c in value(store, LoadCheckpoints(1, PART, 2, needed))] == [1]
        assert store.statistics()["damaged_checkpoints"] == 1
        assert [c.version for c in value(store, LoadCheckpoints(1, PART, 2, other))] == [1]

    def test_a_torn_one_is_seen_by_everybody(self, store: Store, tmp_path: Path) -> None:
        put(store, spread(1), spread(2))
        path = self.file(tmp_path, "2.checkpoint")
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2] + data[len(data) // 2 + 64 :])
        assert [c.version for c in value(store, LoadCheckpoints(1, PART, 2, KeyRange(0, 64)))] == [1]

    def test_what_is_dropped_during_a_fold_stays_gone(
        self, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(store, spread(1), *(spread(version, version - 1) for version in range(2, 70)), spread(70))
        put(store, *(spread(version, version - 1) for version in range(71, 132)))
        real = checkpoints.fold_saved

        def drop_first(chain: Any, key: bytes) -> Any:
            yield from real(chain, key)
            store.perform(DropCheckpoints(PART, OLD, 200))

        monkeypatch.setattr(checkpoints, "fold_saved", drop_first)
        store.fold(PART, OLD)
        assert not list((tmp_path / "store").rglob("*.checkpoint*"))

    def test_what_a_kill_left_half_written_is_no_checkpoint(self, store: Store, tmp_path: Path) -> None:
        put(store, checkpoint(1))
        path = self.file(tmp_path, "1.checkpoint")
        data = path.read_bytes()
        path.with_name("1.checkpoint.77.88.tmp").write_bytes(data[: len(data) // 2])
        path.unlink()
        assert versions(store) == []
        assert value(store, FindCheckpoint(1, PART)) is None

    def test_another_key_reads_nothing_and_moves_nothing(self, store: Store, tmp_path: Path) -> None:
        put(store, checkpoint(1))
        value(store, Append(1, PART, OLD, 1, "a"))
        value(store, SwapJournal(1, 0, Journal(1)))
        other = DirectoryStore(tmp_path / "store", b"x" * 32)
        assert ask(other, LoadCheckpoints(1, PART)).error == "damaged"
        assert ask(other, ReadLog(1, PART)).error == "damaged"
        assert ask(other, ReadJournal(1)).error == "damaged"
        assert versions(store) == [1]

    @pytest.mark.parametrize("tail", [b"SEEP", b"\x00" * 40, b"SEEP" + b"\xff" * 60])
    def test_a_torn_tail_is_cut(
        self, store: Store, again: Callable[[], DirectoryStore], tmp_path: Path, tail: bytes
    ) -> None:
        value(store, Append(1, PART, OLD, 1, "a"))
        with self.file(tmp_path, "log").open("ab") as file:
            file.write(tail)
        for store_now in (again(), store):
            assert log(store_now) == [(1, "a")]
        value(store, Append(1, PART, OLD, 2, "b"))
        assert log(again()) == [(1, "a"), (2, "b")]

    def test_every_cut_of_the_last_record_is_torn(self, store: Store, tmp_path: Path) -> None:
        value(store, Append(1, PART, OLD, 1, "a"))
        path = self.file(tmp_path, "log")
        whole = path.stat().st_size
        value(store, Append(1, PART, OLD, 2, "b"))
        data = path.read_bytes()
        for end in range(whole, len(data)):
            path.write_bytes(data[:end])
            assert log(DirectoryStore(tmp_path / "store", KEY)) == [(1, "a")]
            assert path.stat().st_size == whole

    def test_damage_before_a_whole_record_is_reported_never_skipped(
        self, store: Store, again: Callable[[], DirectoryStore], tmp_path: Path
    ) -> None:
        for epoch in (1, 2, 3):
            value(store, Append(1, PART, OLD, epoch, "a"))
        path = self.file(tmp_path, "log")
        data = path.read_bytes()
        size = len(data) // 3
        for at in (size + 9, size + 22, 2 * size - 3):
            path.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
            assert ask(again(), ReadLog(1, PART)).error == "damaged"
            assert ask(again(), Append(1, PART, OLD, 4, "x")).error == "damaged"

    def test_a_fence_that_a_power_cut_left_empty_is_raised_anew(self, store: Store, tmp_path: Path) -> None:
        """It is not waited for on the disk; whoever it kept out is gone with the machine."""
        value(store, Append(1, PART, OLD, 1, "a"))
        path = self.file(tmp_path, "fence")
        whole = path.read_bytes()
        for left in (0, 9, len(whole) - 1):
            path.write_bytes(whole[:left])
            value(store, FenceStore(1, PART, NEW))
            assert ask(store, Append(1, PART, OLD, 2, "x")).error == "fenced"
        path.write_bytes(whole[:30] + bytes([whole[30] ^ 1]) + whole[31:])
        assert ask(store, FenceStore(1, PART, NEW)).error == "damaged"

    def test_names_are_on_the_disk_though_the_first_write_failed(
        self, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        flushed: list[Path] = []
        monkeypatch.setattr(Files, "flush_directory", lambda self, path: flushed.append(path))
        with monkeypatch.context() as full:
            full.setattr(Files, "flush", disk_full)
            assert ask(store, Append(1, PART, OLD, 1, "a")).error == "failed"
        for epoch in (1, 2):
            value(store, Append(1, PART, OLD, epoch, "a"))
        home = self.file(tmp_path, "log").parent
        assert flushed == [home, home.parent]

    def test_what_a_killed_process_was_writing_goes_with_what_is_dropped(self, store: Store, tmp_path: Path) -> None:
        put(store, *map(checkpoint, (1, 2, 3)))
        home = self.file(tmp_path, "3.checkpoint").parent
        killed, ours, later = (
            home / name
            for name in ("2.checkpoint.1.9.tmp", f"2.checkpoint.{os.getpid()}.9.tmp", "4.checkpoint.1.9.tmp")
        )
        for path in (killed, ours, later):
            path.write_bytes(b"half")
        store.perform(DropCheckpoints(PART, OLD, 3, (2,)))
        assert [path.exists() for path in (killed, ours, later)] == [False, True, True]
        assert versions(store) == [3]

    def test_a_mostly_dead_log_is_rewritten(self, store: Store, tmp_path: Path) -> None:
        big = b"x" * (REWRITE_BYTES // 4)
        for epoch in range(1, 7):
            value(store, Append(1, PART, OLD, epoch, big))
        store.perform(Truncate(PART, OLD, 6))
        assert self.file(tmp_path, "log").stat().st_size < REWRITE_BYTES // 2
        assert log(store) == [(6, big)]
        assert ask(store, Append(1, PART, OLD, 6, 0)).error == "exists"
        value(store, Append(1, PART, OLD, 7, 7))
        assert log(DirectoryStore(tmp_path / "store", KEY)) == [(6, big), (7, 7)]

    def test_disk_full_keeps_what_was_there(
        self, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(store, checkpoint(1))
        value(store, Append(1, PART, OLD, 1, "a"))
        real = os.writev

        def full(descriptor: int, parts: list[Any]) -> int:
            real(descriptor, [bytes(memoryview(parts[0])[:3])])
            raise OSError(errno.ENOSPC, "No space left on device")

        def full_there(descriptor: int, part: Any, offset: int) -> int:
            os.lseek(descriptor, offset, os.SEEK_SET)
            return full(descriptor, [part])

        monkeypatch.setattr(os, "writev", full)
        monkeypatch.setattr(os, "pwrite", full_there)
        assert ask(store, PutCheckpoint(1, checkpoint(2))).error == "failed"
        assert ask(store, Append(1, PART, OLD, 2, "b")).error == "failed"
        monkeypatch.undo()
        assert versions(store) == [1]
        assert not list((tmp_path / "store").rglob("*.tmp"))
        value(store, Append(1, PART, OLD, 2, "b"))
        assert log(store) == [(1, "a"), (2, "b")]

    @pytest.mark.parametrize("call", ["replace", "open"])
    def test_a_checkpoint_that_gets_no_place_leaves_nothing(
        self, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
    ) -> None:
        put(store, checkpoint(1))
        real = getattr(os, call)

        def full(path: Any, *others: Any) -> Any:
            if call == "replace" or str(path).endswith("lock"):
                raise OSError(errno.EMFILE, "Too many open files")
            return real(path, *others)

        monkeypatch.setattr(os, call, full)
        assert ask(store, PutCheckpoint(1, checkpoint(2))).error == "failed"
        monkeypatch.undo()
        assert versions(store) == [1]
        assert not list((tmp_path / "store").rglob("*.tmp"))

    def test_directories_are_private(self, store: Store, tmp_path: Path) -> None:
        put(store, checkpoint(1))
        for path in [tmp_path / "store", *(tmp_path / "store").rglob("*")]:
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path

    def test_two_processes_never_append_one_epoch_twice(self, store: Store, tmp_path: Path) -> None:
        context = multiprocessing.get_context("spawn")
        with context.Pool(2) as pool:
            won = pool.starmap(race, [(str(tmp_path / "store"), name) for name in ("a", "b")])
        assert sorted(won[0] + won[1]) == list(range(60))
        assert [epoch for epoch, _ in log(store)] == list(range(60))


def race(path: str, name: str) -> list[int]:
    store = DirectoryStore(path, KEY, fsync=False)
    return [e for e in range(60) if ask(store, Append(1, PART, OLD, e, name)).error == ""]


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[RedisServer]:
    """One that may be killed."""
    made = RedisServer(tmp_path / "redis")
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    made = RedisServer(tmp_path_factory.mktemp("redis"))
    made.start()
    yield made
    made.stop()


def appended(store: Store) -> list[int]:
    return [epoch for epoch in range(60) if not ask(store, Append(1, PART, OLD, epoch, 0)).error]


@pytest.mark.slow
@pytest.mark.server
class TestObjectsOverRedis(Contract):
    @pytest.fixture
    def store(self, server: RedisServer, tmp_path: Path) -> ObjectStore:
        below = RedisStore(server.url, f"seep:{secrets.token_hex(4)}:", KEY)
        return ObjectStore(below, f"file://{tmp_path}/objects", KEY)


@pytest.mark.server
class TestRedis(Contract):
    @pytest.fixture
    def store(self, server: RedisServer) -> RedisStore:
        return RedisStore(server.url, f"seep:{secrets.token_hex(4)}:", KEY)

    @staticmethod
    def again(store: RedisStore, server: RedisServer, key: bytes = KEY) -> RedisStore:
        return RedisStore(server.url, store._prefix, key)

    def test_an_onlooker_sees_each_record_once(self, store: RedisStore) -> None:
        tail, seen = store.tail(PART), []
        assert tail.more() == []
        for epoch in range(1, 10):
            value(store, Append(1, PART, OLD, epoch, [epoch, "x"]))
            if epoch % 2:
                seen += tail.more()
                tail = store.tail(PART, pickle.loads(pickle.dumps(tail.place)))  # noqa: S301 another one goes on
            if epoch % 4 == 0:
                seen += tail.more()
                store.perform(Truncate(PART, OLD, epoch))
        assert [(epoch, list(record)) for epoch, record in seen] == [(epoch, [epoch, "x"]) for epoch in range(1, 10)]
        assert log(store)[0][0] > 1, "it was truncated meanwhile"

    def test_another_process_sees_it_all(self, store: RedisStore, server: RedisServer) -> None:
        put(store, checkpoint(1))
        value(store, Append(1, PART, OLD, 1, "a"))
        other = self.again(store, server)
        assert versions(other) == [1]
        value(other, Append(1, PART, OLD, 2, "b"))
        assert ask(store, Append(1, PART, OLD, 2, "c")).error == "exists"
        assert log(store) == [(1, "a"), (2, "b")]

    def test_a_damaged_checkpoint_is_put_aside(self, store: RedisStore) -> None:
        put(store, spread(1), spread(2))
        [name] = [n for n in store._client.keys(f"{store._prefix}bytes:*") if b":2:" in n]
        portion = bytearray(store._client.hget(name, "2"))
        portion[len(portion) // 2] ^= 1
        store._client.hset(name, "2", bytes(portion))
        assert versions(store) == [1]
        assert store.statistics()["damaged_checkpoints"] == 1
        assert versions(store) == [1]
        store.perform(DropCheckpoints(PART, OLD, 2))
        assert ask(store, LoadCheckpoints(1, PART)).error == "damaged"
        store.perform(DropCheckpoints(PART, OLD, 3))
        assert versions(store) == []
        assert not store._client.keys(f"{store._prefix}bytes:*")

    def test_what_a_kill_left_half_written_is_no_checkpoint_and_goes(self, store: RedisStore) -> None:
        put(store, checkpoint(1))
        store._saved(PART)._write(2, [b"half"])
        assert versions(store) == [1]
        put(store, checkpoint(3))
        store.perform(DropCheckpoints(PART, OLD, 3))
        assert len(store._client.keys(f"{store._prefix}bytes:*")) == 1

    def test_another_key_reads_nothing_and_moves_nothing(self, store: RedisStore, server: RedisServer) -> None:
        put(store, checkpoint(1))
        value(store, Append(1, PART, OLD, 1, "a"))
        other = self.again(store, server, b"x" * 32)
        assert ask(other, LoadCheckpoints(1, PART)).error == "damaged"
        assert ask(other, ReadLog(1, PART)).error == "damaged"
        assert versions(store) == [1]
        assert log(store) == [(1, "a")]

    def test_two_never_append_one_epoch_twice(self, store: RedisStore, server: RedisServer) -> None:
        with ThreadPoolExecutor(2) as pool:
            stores = [self.again(store, server) for _ in range(2)]
            won = list(
                pool.map(lambda one: [e for e in range(60) if not ask(one, Append(1, PART, OLD, e, 0)).error], stores)
            )
        assert sorted(won[0] + won[1]) == list(range(60))
        assert [epoch for epoch, _ in log(store)] == list(range(60))

    def test_a_server_that_is_gone_fails_and_one_that_comes_back_knows(self, mortal: RedisServer) -> None:
        server = mortal
        store = RedisStore(server.url, "seep:x:", KEY)
        value(store, FenceStore(1, PART, OLD))
        put(store, spread(1))
        value(store, Append(1, PART, OLD, 1, "a"))
        server.kill()
        assert ask(store, Append(1, PART, OLD, 2, "b")).error == "failed"
        assert ask(store, LoadCheckpoints(1, PART)).error == "failed"
        server.start()
        assert versions(store) == [1]
        value(store, Append(1, PART, OLD, 2, "b"))
        assert log(store) == [(1, "a"), (2, "b")]
        server.empty()
        server.start()
        assert ask(store, Append(1, PART, OLD, 3, "c")).error == "lost"
        assert ask(store, PutCheckpoint(1, checkpoint(2))).error == "lost"

    def test_a_server_that_may_forget_is_refused(self, server: RedisServer) -> None:
        check(server.url)
        client = RedisStore(server.url, "x", KEY)._client
        client.config_set("appendfsync", "everysec")
        with pytest.raises(Misuse, match="appendfsync is 'everysec'; set it to 'always'"):
            check(server.url)
        client.config_set("appendfsync", "always")
        client.config_set("no-appendfsync-on-rewrite", "yes")
        with pytest.raises(Misuse, match="no-appendfsync-on-rewrite is 'yes'; set it to 'no'"):
            check(server.url)
        client.config_set("no-appendfsync-on-rewrite", "no")
        with pytest.raises(Misuse, match="does not answer"):
            check("redis://127.0.0.1:1/0")
        with pytest.raises(Misuse, match="such as redis://"):
            check("nonsense")
