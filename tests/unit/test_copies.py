"""Copies of checkpoints in upstream memory: given, taken over, asked for, and never trusted beyond the store."""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from seep.model.arrow import BUCKET, KEY, ArrowState
from seep.model.ids import EVERYTHING, FOREVER, Generation, KeyRange, PartitionId
from seep.model.settings import Settings
from seep.partition import copies
from seep.partition.contract import Edge, Graph, Node
from seep.partition.copies import CHAIN_MAXIMUM, Holder, Protection, upstream_workers
from seep.partition.desk import Desk
from seep.partition.loader import LAST_RESORT_MS, PATIENCE_MS, Loader
from seep.protocol.effects import LoadCheckpoints, NewestVersion, Send, StoreReply
from seep.protocol.journal import LIVE, Entry, Journal
from seep.protocol.messages import Backup, Fetch, Held, Holding
from seep.state.checkpoint import Checkpoint

G = Generation(1, 3)
ME = PartitionId("a", 0)
GRAPH = Graph(
    {name: Node(name, kind, lambda: None) for name, kind in {"s": "source", "a": "operator"}.items()},
    (Edge("s>a", "s", "a", 0),),
)
Found = TypeVar("Found")


def entry(partition: PartitionId, worker: str) -> Entry:
    return Entry(partition, EVERYTHING, 1, FOREVER, LIVE, G, worker)


def desk(me: str, upstream: tuple[str, ...] = ("w1", "w2"), owner: str = "w9", **knobs: Any) -> Desk:
    made = Desk(me, Settings(**knobs))
    made.journal = journal(upstream, owner)
    return made


def journal(upstream: tuple[str, ...], owner: str = "w9") -> Journal:
    sources = [entry(PartitionId("s", i), worker) for i, worker in enumerate(upstream)]
    return Journal(1, 1, {e.partition: e for e in (*sources, entry(ME, owner))})


def checkpoint(version: int, parent: int = 0) -> Checkpoint:
    return Checkpoint(ME, G, EVERYTHING, version, parent, version * 10, 0, 0, False, None)


def sent(at: Desk, kind: type[Found]) -> list[tuple[str, Found]]:
    found = [(e.to, e.message) for e in at.effects if isinstance(e, Send) and isinstance(e.message, kind)]
    at.effects = [e for e in at.effects if not (isinstance(e, Send) and isinstance(e.message, kind))]
    return found


def test_holders_are_other_workers_that_send_to_the_operator() -> None:
    assert upstream_workers(desk("w1"), GRAPH, "a") == ["w2"]
    assert upstream_workers(desk("w9"), GRAPH, "a") == ["w1", "w2"]
    assert upstream_workers(desk("w9"), GRAPH, "s") == []


class TestProtection:
    def test_what_is_durable_goes_to_one_holder_until_it_says_so(self) -> None:
        at = desk("w9")
        protection = Protection(at, GRAPH, entry(ME, "w9"))
        protection.durable(checkpoint(1), 100)
        [(holder, backup)] = sent(at, Backup)
        assert holder in ("w1", "w2")
        assert backup.checkpoint is not None
        at.now_ms = 1000.0
        protection.tick()
        [(again, retried)] = sent(at, Backup)
        assert (again, retried.version, retried.checkpoint) == (holder, 1, None)
        protection.on_holding(Holding(ME, G, 1, True))
        at.now_ms = 9000.0
        protection.tick()
        assert sent(at, Backup) == []
        assert protection.unprotected_ms == 1000

    def test_a_holder_that_is_gone_is_replaced_at_once(self) -> None:
        at = desk("w9")
        protection = Protection(at, GRAPH, entry(ME, "w9"))
        protection.durable(checkpoint(1), 100)
        [(holder, _)] = sent(at, Backup)
        protection.on_holding(Holding(ME, G, 1, True))
        protection.adopt()
        assert sent(at, Backup) == []
        other = {"w1": "w2", "w2": "w1"}[holder]
        at.journal = journal((other, "w3" if other == "w1" else other))
        at.now_ms = 500.0
        protection.adopt()
        [(second, backup)] = sent(at, Backup)
        assert second != holder
        assert backup.checkpoint is None
        at.now_ms = 700.0
        protection.on_holding(Holding(ME, G, 1, True))
        assert protection.unprotected_ms == 200

    def test_what_changes_as_a_whole_is_not_copied(self, monkeypatch: pytest.MonkeyPatch) -> None:
        at = desk("w9")
        protection = Protection(at, GRAPH, entry(ME, "w9"))
        monkeypatch.setattr(copies, "size_bytes", lambda saved: 3 << 20)
        protection.durable(checkpoint(1), 100)
        [(_, backup)] = sent(at, Backup)
        assert backup.checkpoint is None, "its holder reads it from the store"
        protection.on_holding(Holding(ME, G, 1, True))
        protection.durable(checkpoint(2, 1), 100)
        at.now_ms = 9000.0
        protection.tick()
        assert sent(at, Backup) == []
        assert (protection.held, protection.unprotected_ms) == (0, 9000)

    def test_a_small_increment_of_a_state_that_fits_nowhere_is_not_copied(self) -> None:
        at = desk("w9")
        protection = Protection(at, GRAPH, entry(ME, "w9"))
        protection.durable(checkpoint(2, 1), at.settings.copies_bytes + 1)
        protection.tick()
        protection.adopt()
        assert sent(at, Backup) == []
        protection.durable(checkpoint(3, 2), at.settings.copies_bytes)
        assert len(sent(at, Backup)) == 1

    def test_one_without_room_is_not_asked_again_for_the_same(self) -> None:
        at = desk("w9")
        protection = Protection(at, GRAPH, entry(ME, "w9"))
        protection.durable(checkpoint(1), 100)
        protection.on_holding(Holding(ME, G, 1, False))
        sent(at, Backup)
        at.now_ms = 9000.0
        protection.tick()
        assert sent(at, Backup) == []
        assert protection.unprotected_ms == 9000


class TestHolder:
    def backup(self, holder: Holder, version: int, saved: Checkpoint | None, generation: Generation = G) -> None:
        holder.on_backup(Backup(ME, generation, version, "w9", saved))

    def fetched(self, holder: Holder, upto: int) -> list[int]:
        holder.on_fetch(Fetch(ME, upto, None, ME, G, "w9"))
        [(_, held)] = sent(holder.desk, Held)
        return [c.version for c in held.chain]

    def test_increments_are_added_to_what_they_build_on(self) -> None:
        holder = Holder(desk("w1"))
        self.backup(holder, 1, checkpoint(1))
        self.backup(holder, 2, checkpoint(2, 1))
        assert [(to, h.version, h.held) for to, h in sent(holder.desk, Holding)] == [("w9", 1, True), ("w9", 2, True)]
        assert self.fetched(holder, 0) == [1, 2]
        assert self.fetched(holder, 1) == [1]
        assert self.fetched(holder, 7) == []

    def test_one_who_needs_a_part_gets_that_part_without_the_buffer(self) -> None:
        holder = Holder(desk("w1"))
        table = pa.record_batch({BUCKET: pa.array([1, 3000], pa.uint16()), KEY: pa.array([b"a", b"b"], pa.binary())})
        self.backup(holder, 1, with_fields(checkpoint(1), state=ArrowState({"t": table}), buffers={"out": ()}))
        holder.on_fetch(Fetch(ME, 1, KeyRange(2048, 4096), ME, G, "w9"))
        [(_, held)] = sent(holder.desk, Held)
        [part] = held.chain
        assert isinstance(part.state, ArrowState)
        assert part.state.tables["t"].column(KEY).to_pylist() == [b"b"]
        assert part.buffers == {}

    def test_what_is_missing_is_read_from_the_store(self) -> None:
        holder = Holder(desk("w1"))
        self.backup(holder, 5, checkpoint(5, 4))
        [load] = [e for e in holder.desk.effects if isinstance(e, LoadCheckpoints)]
        assert load.upto == 5
        holder.desk.answer(StoreReply(load.token, [checkpoint(4), checkpoint(5, 4)]))
        assert self.fetched(holder, 0) == [4, 5]
        assert [h.version for _, h in sent(holder.desk, Holding)] == [5]

    def test_a_store_that_has_it_not_yields_no_copy(self) -> None:
        holder = Holder(desk("w1"))
        self.backup(holder, 5, None)
        [load] = [e for e in holder.desk.effects if isinstance(e, LoadCheckpoints)]
        holder.desk.answer(StoreReply(load.token, [checkpoint(4)]))
        assert self.fetched(holder, 0) == []
        assert sent(holder.desk, Holding) == []

    def test_a_long_chain_is_read_again(self) -> None:
        holder = Holder(desk("w1"))
        self.backup(holder, 1, checkpoint(1))
        for version in range(2, CHAIN_MAXIMUM + 2):
            self.backup(holder, version, checkpoint(version, version - 1))
        assert [e.upto for e in holder.desk.effects if isinstance(e, LoadCheckpoints)] == [CHAIN_MAXIMUM + 1]

    def test_a_fenced_generation_is_refused(self) -> None:
        holder = Holder(desk("w1"))
        self.backup(holder, 1, checkpoint(1), Generation(1, 2))
        assert self.fetched(holder, 0) == []
        assert holder.desk.counts == {"dropped_fenced": 1}

    def test_the_copies_of_one_that_is_gone_go(self) -> None:
        holder = Holder(desk("w1"))
        self.backup(holder, 1, checkpoint(1))
        gone = holder.desk.journal
        holder.desk.journal = with_fields(gone, entries={p: e for p, e in gone.entries.items() if p != ME})
        holder.adopt()
        assert self.fetched(holder, 0) == []


class TestLoader:
    def begin(self, upto: int, **knobs: Any) -> tuple[Desk, Loader, list[StoreReply]]:
        at = desk("w9", **knobs)
        loader, found = Loader(at, entry(ME, "w9"), GRAPH), list[StoreReply]()
        if upto:
            loader.base(ME, upto, found.append, at.call)
        else:
            loader.newest(found.append, at.call)
        return at, loader, found

    def stored(self, at: Desk, newest: int) -> None:
        [call] = [e for e in at.effects if isinstance(e, NewestVersion)]
        at.answer(StoreReply(call.token, newest))

    def loads(self, at: Desk) -> list[int]:
        return [e.upto for e in at.effects if isinstance(e, LoadCheckpoints)]

    def held(self, holder: str, *chain: Checkpoint) -> Held:
        return Held(ME, ME, G, holder, chain)

    def test_a_copy_as_new_as_the_stores_newest_is_taken(self) -> None:
        at, loader, found = self.begin(0)
        self.stored(at, 2)
        assert sorted(to for to, _ in sent(at, Fetch)) == ["w1", "w2"]
        loader.on_held(self.held("w1"))
        loader.on_held(self.held("w2", checkpoint(1), checkpoint(2, 1)))
        [reply] = found
        assert [c.version for c in reply.value] == [1, 2]
        assert loader.from_memory
        assert self.loads(at) == []

    def test_an_older_copy_is_not(self) -> None:
        at, loader, found = self.begin(0)
        self.stored(at, 3)
        loader.on_held(self.held("w1"))
        loader.on_held(self.held("w2", checkpoint(2)))
        assert (found, self.loads(at)) == ([], [0])

    def test_nobody_waits_long_for_the_dead(self) -> None:
        at, loader, found = self.begin(4)
        at.now_ms = PATIENCE_MS
        loader.tick()
        loader.on_held(self.held("w1", checkpoint(4)))
        assert (found, self.loads(at)) == ([], [4])

    def give_up(self, at: Desk, loader: Loader) -> None:
        """The first patience is over; the store is asked, and has nothing that can be used."""
        at.now_ms = PATIENCE_MS
        loader.tick()
        [call] = [e for e in at.effects if isinstance(e, LoadCheckpoints)]
        at.effects.clear()
        at.answer(StoreReply(call.token, [], "damaged"))

    @pytest.mark.parametrize(("held", "taken"), [(5, True), (4, True), (3, False)])
    def test_where_the_store_has_nothing_copies_are_asked_for_again(self, held: int, taken: bool) -> None:
        at, loader, found = self.begin(0)
        self.stored(at, 5)
        self.give_up(at, loader)
        assert sorted(to for to, _ in sent(at, Fetch)) == ["w1", "w2"]
        at.now_ms += LAST_RESORT_MS - 1
        loader.tick()
        assert found == []
        loader.on_held(self.held("w1", checkpoint(held)))
        loader.on_held(self.held("w2"))
        [reply] = found
        assert [c.version for c in reply.value] == ([held] if taken else [])
        assert reply.error == ("" if taken else "damaged")
        assert loader.from_memory == taken

    def test_the_last_resort_ends_too(self) -> None:
        at, loader, found = self.begin(4)
        self.give_up(at, loader)
        at.now_ms += LAST_RESORT_MS
        loader.tick()
        assert [reply.error for reply in found] == ["damaged"]
        assert self.loads(at) == []

    def test_where_there_is_nothing_nobody_is_asked(self) -> None:
        at, _, found = self.begin(0)
        self.stored(at, 0)
        assert (sent(at, Fetch), self.loads(at)) == ([], [])
        assert [reply.value for reply in found] == [[]]

    def test_without_copies_only_the_store_is_asked(self) -> None:
        at, _, _ = self.begin(0, copies_bytes=0)
        assert (sent(at, Fetch), self.loads(at)) == ([], [0])
