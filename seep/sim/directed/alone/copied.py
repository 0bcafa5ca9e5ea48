"""Who holds copies of checkpoints in memory, what of, and for how long nobody does."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as with_fields
from typing import Any

from seep.model.ids import Generation, KeyRange, PartitionId, Place
from seep.partition.copies import CHAIN_MAXIMUM, HELD_BYTES_MAXIMUM, SENT_BYTES_MAXIMUM, Holder, Protection
from seep.partition.copies import size_bytes as size_of
from seep.partition.desk import Desk
from seep.protocol.effects import LoadCheckpoints, StoreReply
from seep.protocol.messages import Backup, Fetch, Held, Holding
from seep.sim.directed.alone.desks import A0, GRAPH, MINE, S0, S1, checkpoint_of, desk_of, done, entry_of, sent_to
from seep.sim.directed.registry import demand, scenario
from seep.sim.light import LightState
from seep.state.checkpoint import Checkpoint


def _protection(**knobs: Any) -> tuple[Desk, Protection]:
    desk = desk_of(**knobs)
    return desk, Protection(desk, GRAPH, entry_of(A0, "w1"))


@scenario
def newest_is_held_by_one_until_it_says_so() -> None:
    desk, protection = _protection()
    protection.durable(checkpoint_of(5, 10), 100)
    (holder,) = sent_to(desk)
    demand(holder in ("w2", "w3") and protection.holder == holder, holder)
    (asked,) = done(desk, Backup)
    demand(
        (asked.version, asked.worker, asked.generation) == (5, "w1", MINE) and asked.checkpoint is not None, f"{asked}"
    )
    for now_ms, again in ((99.0, 0), (100.0, 1), (150.0, 0), (200.0, 1)):
        desk.now_ms = now_ms
        protection.tick()
        found = done(desk, Backup)
        demand(len(found) == again and all(one.checkpoint is None for one in found), f"at {now_ms}: {found}")
    demand(protection.statistics() == {"held_version": 0, "unprotected_ms": 200}, f"{protection.statistics()}")
    protection.on_holding(Holding(A0, MINE, 5, True))
    desk.now_ms = 900.0
    protection.tick()
    demand(not desk.effects and protection.statistics() == {"held_version": 5, "unprotected_ms": 200}, "asked again")
    protection.on_holding(Holding(A0, MINE, 4, True))
    demand(protection.held == 5, "an older word counts")
    protection.durable(checkpoint_of(6, 11, 5), 100)
    done(desk, Backup)
    protection.on_holding(Holding(A0, MINE, 6, False))
    desk.now_ms = 2_000.0
    protection.tick()
    demand(not desk.effects and protection.unprotected_ms == 200, "one that has no room is asked again")
    protection.adopt()
    demand(not desk.effects, "its holder is there")
    desk.now_ms = 3_000.0
    desk.journal = with_fields(desk.journal, entries={A0: entry_of(A0, "w1"), S0: entry_of(S0, "w9")})
    protection.adopt()
    demand(sent_to(desk) == ["w9"] and done(desk, Backup)[0].checkpoint is None, "another holder")
    desk.now_ms = 3_050.0
    demand(protection.unprotected_ms == 250 and protection.held == 0, f"{protection.unprotected_ms}")
    protection.on_holding(Holding(A0, MINE, 6, True))
    desk.now_ms = 4_000.0
    demand(protection.unprotected_ms == 250, f"{protection.unprotected_ms}")
    desk.journal = with_fields(desk.journal, entries={A0: entry_of(A0, "w1")})
    protection.adopt()
    desk.now_ms = 4_010.0
    demand(not desk.effects and protection.unprotected_ms == 260, "nobody is left")
    alone, unheld = _protection()
    alone.journal = with_fields(alone.journal, entries={A0: entry_of(A0, "w1")})
    alone.now_ms = 70.0
    unheld.durable(checkpoint_of(5, 10), 100)
    alone.now_ms = 100.0
    demand(not alone.effects and unheld.unprotected_ms == 30, "nobody was ever there")
    large, small = _protection()
    small.durable(checkpoint_of(5, 10), 100)
    small.on_holding(Holding(A0, MINE, 5, True))
    large.now_ms = 70.0
    small.durable(checkpoint_of(6, 11), (64 << 20) + 1)
    large.now_ms = 100.0
    demand(small.unprotected_ms == 30, "it is too large by now")
    none, bare = _protection(copies_bytes=0)
    bare.durable(checkpoint_of(5, 10), 100)
    bare.tick()
    demand(not none.effects and bare.version == 0, "copies are not wanted")
    idle, nothing = _protection()
    nothing.adopt()
    nothing.tick()
    demand(not idle.effects, "before there is anything to hold")


@dataclass(frozen=True)
class _Sized:
    """State that is only so large."""

    size_bytes: int

    def part(self, key_range: KeyRange) -> _Sized:
        return self


@scenario
def large_ones_are_not_sent_and_larger_ones_not_held() -> None:
    demand(size_of(with_fields(checkpoint_of(5, 10), state=None)) == 0, "of nothing")
    for parent, size, state_bytes, asked, given in (
        (0, SENT_BYTES_MAXIMUM, 100, True, True),
        (0, SENT_BYTES_MAXIMUM + 1, 100, True, False),
        (4, SENT_BYTES_MAXIMUM, 100, True, True),
        (4, SENT_BYTES_MAXIMUM + 1, 100, False, False),
        (0, HELD_BYTES_MAXIMUM, 100, True, False),
        (0, HELD_BYTES_MAXIMUM + 1, 100, False, False),
        (0, 2, 64 << 20, True, True),
        (0, 2, (64 << 20) + 1, False, False),
    ):
        desk, protection = _protection()
        protection.durable(checkpoint_of(3, 9), 100)
        protection.on_holding(Holding(A0, MINE, 3, True))
        done(desk, Backup)
        protection.durable(with_fields(checkpoint_of(5, 10, parent), state=_Sized(size)), state_bytes)
        found = done(desk, Backup)
        demand(len(found) == asked, f"{size} bytes on {parent} of {state_bytes}: {found}")
        demand(all((one.checkpoint is not None) == given for one in found), f"{size} bytes on {parent}")
        demand(protection.held == (3 if asked else 0), f"{protection.held} is held")
        desk.now_ms = 5_000.0
        protection.tick()
        protection.adopt()
        demand(len(done(desk, Backup)) == asked, f"asked again for {size} bytes on {parent}")


@scenario
def holder_is_as_far_away_as_there_is_a_choice() -> None:
    here = Place("h1", "x1")
    for places, wanted in (
        ({"w2": Place("h2", "x1"), "w3": here}, "w2"),
        ({"w2": here, "w3": Place("h2", "x1")}, "w3"),
        ({"w2": Place("h1", "x2"), "w3": here}, "w2"),
        ({"w2": Place("h1", "x2"), "w3": Place("h2", "x1")}, "w3"),
    ):
        desk, protection = _protection()
        desk.place, desk.places = here, places
        protection.durable(checkpoint_of(5, 10), 100)
        demand(protection.holder == wanted, f"{protection.holder} of {places}")


def _holder(**knobs: Any) -> tuple[Desk, Holder]:
    desk = desk_of("w2", **knobs)
    return desk, Holder(desk)


def _backup(version: int, given: Checkpoint | None, generation: Generation = MINE) -> Backup:
    return Backup(A0, generation, version, "w1", given)


def _held(holder: Holder) -> list[int]:
    return [checkpoint.version for checkpoint in holder.chains.get(A0, ())]


@scenario
def holder_keeps_chains_that_fit_together() -> None:
    desk, holder = _holder()
    for version, parent, wanted in (
        (5, 0, [5]),
        (6, 5, [5, 6]),
        (7, 6, [5, 6, 7]),
        (9, 0, [9]),
        (9, 0, [9]),
        (8, 7, [9]),
    ):
        holder.on_backup(_backup(version, checkpoint_of(version, 10, parent)))
        (said,) = done(desk, Holding)
        demand(_held(holder) == wanted and (said.version, said.held) == (version, True), f"{version}: {said}")
    demand(not desk.effects and holder.bytes[A0] == 64, f"{holder.bytes}")
    holder.on_backup(_backup(12, checkpoint_of(12, 12, 11)))
    (load,) = done(desk, LoadCheckpoints)
    demand((load.partition, load.upto) == (A0, 12), f"{load}")
    holder.on_backup(_backup(13, None))
    demand(not desk.effects, "it is read twice at once")
    desk.answer(StoreReply(load.token, [checkpoint_of(10, 9), checkpoint_of(12, 12, 10)]))
    demand(_held(holder) == [10, 12] and done(desk, Holding)[0].version == 12, f"{_held(holder)}")
    for reply in ([checkpoint_of(12, 12)], []):
        holder.on_backup(_backup(13, None))
        (load,) = done(desk, LoadCheckpoints)
        desk.answer(StoreReply(load.token, reply))
        demand(_held(holder) == [10, 12] and not done(desk, Holding), "an older one stands for it")
    holder.on_backup(_backup(13, None))
    (load,) = done(desk, LoadCheckpoints)
    desk.answer(StoreReply(load.token, error="damaged"))
    demand(_held(holder) == [10, 12] and not desk.effects, "a damaged one")
    long, chain = _holder()
    for version in range(1, CHAIN_MAXIMUM + 1):
        chain.on_backup(_backup(version, checkpoint_of(version, 10, version - 1)))
    demand(len(_held(chain)) == CHAIN_MAXIMUM, f"{_held(chain)}")
    chain.on_backup(_backup(CHAIN_MAXIMUM + 1, checkpoint_of(CHAIN_MAXIMUM + 1, 10, CHAIN_MAXIMUM)))
    demand(len(done(long, LoadCheckpoints)) == 1, "a chain that is too long is not read anew")


@scenario
def holder_knows_room_and_generations() -> None:
    desk, holder = _holder(copies_bytes=128)
    other = PartitionId("b", 0)
    holder.chains[other], holder.bytes[other] = (), 64
    for version, rows, held in ((5, 2, True), (6, 3, False), (7, 2, True), (8, 1, True)):
        holder.on_backup(_backup(version, checkpoint_of(version, 10, rows=rows)))
        (said,) = done(desk, Holding)
        demand(said.held == held and bool(_held(holder)) == held, f"{version}: {said}")
        demand((A0 in holder.bytes) == held, "it is counted")
    for generation, known, taken in (
        (Generation(2, 3), True, True),
        (Generation(2, 2), True, False),
        (Generation(2, 4), True, True),
        (Generation(2, 5), False, True),
        (Generation(2, 4), False, False),
    ):
        desk, holder = _holder()
        if not known:
            desk.journal = with_fields(desk.journal, entries={S0: entry_of(S0, "w2")})
        holder.on_backup(_backup(5, checkpoint_of(5, 10), generation))
        demand(bool(_held(holder)) == taken and bool(desk.counts) != taken, f"{generation}: {_held(holder)}")
    desk, holder = _holder()
    holder.on_backup(_backup(5, None))
    (load,) = done(desk, LoadCheckpoints)
    desk.journal = with_fields(desk.journal, entries={A0: entry_of(A0, "w1", Generation(2, 4))})
    desk.answer(StoreReply(load.token, [checkpoint_of(5, 10)]))
    demand(not _held(holder), "of one that was replaced meanwhile")
    desk, holder = _holder()
    for who, based in ((A0, False), (PartitionId("a", 7), True), (PartitionId("a", 8), False)):
        holder.chains[who], holder.bytes[who] = (checkpoint_of(5, 10),), 64
        if based:
            shadow = with_fields(entry_of(PartitionId("a", 9), "w4"), base=((who, 5),))
            desk.journal = with_fields(desk.journal, entries={**desk.journal.entries, shadow.partition: shadow})
    holder.adopt()
    demand(sorted(holder.chains) == [A0, PartitionId("a", 7)] == sorted(holder.bytes), f"{holder.chains}")


@scenario
def holder_gives_what_it_is_asked_for() -> None:
    desk, holder = _holder()
    holder.chains[A0] = tuple(checkpoint_of(version, 10, version - 5, rows=9) for version in (5, 6, 8))
    for upto, part, wanted, rows in (
        (0, None, [5, 6, 8], 9),
        (8, None, [5, 6, 8], 9),
        (6, None, [5, 6], 9),
        (5, KeyRange(2, 5), [5], 3),
        (7, None, [], 0),
        (9, None, [], 0),
    ):
        holder.on_fetch(Fetch(A0, upto, part, S1, MINE, "w3"))
        demand(sent_to(desk) == ["w3"], f"{desk.effects}")
        (held,) = done(desk, Held)
        demand([one.version for one in held.chain] == wanted, f"up to {upto}: {held.chain}")
        demand(all(_rows(one) == rows for one in held.chain), f"of {part}: {held.chain}")
        demand((held.partition, held.asker, held.holder, held.generation) == (A0, S1, "w2", MINE), f"{held}")


def _rows(checkpoint: Checkpoint) -> int:
    assert isinstance(checkpoint.state, LightState)
    return len(checkpoint.state.entries)
