"""Every change of the journal, as a function from one journal to the next.

Replace in four changes, each a compare-and-set, each safe to stop after:

    begin    the intent: old partitions pin a checkpoint (or stop cutting, in a hand-over)
    shadow   new partitions start from it and catch up
    commit   old lives end at E-1, new lives begin at E
    retire   a sealed partition that nobody needs is gone
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace as with_fields

from seep.model.ids import EVERYTHING, FOREVER, Generation, KeyRange, PartitionId
from seep.partition.contract import Graph
from seep.protocol.journal import LIVE, SEALED, SHADOW, Code, Entry, Journal, Poison, Replace
from seep.protocol.messages import Status


def unplaced(term: int) -> Generation:
    """Of a partition that is yet to be placed, and gets a generation of its own then: nobody acts under this one."""
    return Generation(term, 0)


def first_journal(graph: Graph, term: int = 1, after: int = 0) -> Journal:
    """The journal of a flow that starts after this epoch with no state: every operator at its starting size."""
    entries: dict[PartitionId, Entry] = {}
    for node in graph.nodes.values():
        for number, key_range in enumerate(EVERYTHING.split(node.start)):
            partition = PartitionId(node.name, number)
            entries[partition] = Entry(partition, key_range, after + 1, FOREVER, LIVE, unplaced(term), "", (), after)
    numbers = {node.name: node.start for node in graph.nodes.values()}
    turns = max((node.turn for node in graph.nodes.values()), default=0)
    return Journal(1, term, entries, (), numbers, begins=(FOREVER,) * turns)


def open_waiting(graph: Graph, journal: Journal, statuses: Mapping[PartitionId, Status]) -> Journal:
    """Tables first: once every source that loads one, and whose turn was earlier, has ended, those of the next turn
    begin, in no earlier epoch."""
    if FOREVER not in journal.begins:
        return journal
    turn = journal.begins.index(FOREVER) + 1
    loads = [node.name for node in graph.nodes.values() if node.loads and node.turn < turn]
    loading = [entry.partition for name in loads for entry in journal.of(name) if entry.last == FOREVER]
    ends = [statuses[p].epoch for p in loading if p in statuses and statuses[p].ended]
    if len(ends) < len(loading):
        return journal
    return with_fields(journal, begins=(*journal.begins[: turn - 1], max(ends), *journal.begins[turn:]))


def has_ended(graph: Graph, journal: Journal, statuses: Mapping[PartitionId, Status]) -> bool:
    sinks = [e.partition for n in graph.nodes.values() if n.kind == "sink" for e in journal.live(n.name)]
    return bool(sinks) and all(p in statuses and statuses[p].ended for p in sinks)


def begin(
    journal: Journal,
    operator: str,
    old: Iterable[PartitionId],
    ranges: Iterable[KeyRange],
    at: int,
    handover: bool,
    code: str = "",
) -> Journal:
    replace = Replace(journal.next_replace, operator, tuple(old), tuple(ranges), handover, at, code=code)
    return with_fields(journal, replaces=(*journal.replaces, replace), next_replace=journal.next_replace + 1)


def decide_epoch(journal: Journal, replace: Replace, at: int) -> Journal:
    """A merge's checkpoint epoch, or a hand-over's last epoch of the old ones."""
    return _swap(journal, replace, with_fields(replace, at=at))


def start_shadows(journal: Journal, replace: Replace, fixed: dict[PartitionId, tuple[int, int]]) -> Journal:
    """`fixed`: the pinned checkpoint (version, epoch) of each old partition."""
    entries = dict(journal.entries)
    number = journal.next_number[replace.operator]
    new: list[PartitionId] = []
    for key_range in replace.ranges:
        base = [p for p in replace.old if entries[p].key_range.overlaps(key_range)]
        partition = PartitionId(replace.operator, number)
        epoch = fixed[base[0]][1]
        entries[partition] = Entry(
            partition,
            key_range,
            epoch + 1,
            FOREVER,
            SHADOW,
            unplaced(journal.term),
            "",
            tuple((p, fixed[p][0]) for p in base),
            epoch,
        )
        new.append(partition)
        number += 1
    numbers = {**journal.next_number, replace.operator: number}
    journal = with_fields(journal, entries=entries, next_number=numbers)
    return _swap(journal, replace, with_fields(replace, new=tuple(new)))


def commit(journal: Journal, replace: Replace, first: int) -> Journal:
    """Old lives end at first-1, new lives begin at `first`."""
    entries = dict(journal.entries)
    for partition in replace.old:
        entries[partition] = with_fields(entries[partition], last=first - 1, role=SEALED)
    for partition in replace.new:
        entries[partition] = with_fields(entries[partition], first=first, role=LIVE)
    return _drop(with_fields(journal, entries=entries), replace)


def commit_handover(journal: Journal, replace: Replace) -> Journal:
    """The old ones have finished epoch E-1: the new ones begin at E."""
    journal = start_shadows(journal, replace, dict.fromkeys(replace.old, (0, replace.at)))
    return commit(journal, next(r for r in journal.replaces if r.number == replace.number), replace.at + 1)


def commit_upgrade(journal: Journal, replace: Replace) -> Journal:
    """They have finished epoch E-1: from E on all of the operator's partitions run the new code."""
    before = journal.codes.get(replace.operator, ())
    codes = {**journal.codes, replace.operator: (*before, Code(replace.at + 1, replace.code))}
    return _drop(with_fields(journal, codes=codes), replace)


def abort(journal: Journal, replace: Replace) -> Journal:
    """Forget it: nothing of an uncommitted Replace was ever visible."""
    entries = {p: e for p, e in journal.entries.items() if p not in replace.new}
    return _drop(with_fields(journal, entries=entries), replace)


def let_go(journal: Journal, statuses: Mapping[PartitionId, Status]) -> Journal:
    """Sealed partitions of which nothing is needed any more, and bases of those that have checkpoints of their own."""
    for partition, entry in list(journal.entries.items()):
        status = statuses.get(partition)
        if status is None or entry.generation != status.generation:
            continue
        if entry.role == SEALED and status.drained and status.journal_version == journal.version:
            journal = retire(journal, partition)
        elif entry.role == LIVE and entry.base and status.own_checkpoints >= 2:
            journal = free_base(journal, partition)
    return journal


def retire(journal: Journal, partition: PartitionId) -> Journal:
    return with_fields(journal, entries={p: e for p, e in journal.entries.items() if p != partition})


def restart(journal: Journal, partition: PartitionId, worker: str) -> Journal:
    """The same partition somewhere else, one generation later."""
    entry = with_fields(
        journal.entries[partition], worker=worker, generation=Generation(journal.term, journal.next_generation)
    )
    return with_fields(
        journal, entries={**journal.entries, partition: entry}, next_generation=journal.next_generation + 1
    )


def suspect(journal: Journal, entry: Entry) -> Journal:
    """As `seep.control.deaths` knows it."""
    return with_fields(journal, entries={**journal.entries, entry.partition: entry})


def condemn(journal: Journal, partition: PartitionId, poison: Poison) -> Journal:
    """Nobody runs this row any more; who found it starts again where it is. What was to take its operator's place may
    have run the row, and is forgotten."""
    for replace in journal.replaces:
        if replace.operator == partition.operator:
            journal = abort(journal, replace)
    entry = with_fields(journal.entries[partition], heir_of=None)
    entries = {**journal.entries, partition: entry}
    journal = with_fields(journal, entries=entries, poisons=(*journal.poisons, poison))
    return restart(journal, partition, entry.worker)


def recover_in_parts(
    journal: Journal, partition: PartitionId, version: int, epoch: int, ranges: Iterable[KeyRange]
) -> Journal:
    """A dead partition comes back as several, from its newest checkpoint; a sealed ghost of it serves its buffer."""
    dead = journal.entries[partition]
    first = max(epoch + 1, dead.first)
    for replace in journal.replaces:
        if replace.operator == partition.operator or partition in replace.old:
            journal = abort(journal, replace)
    replace = Replace(journal.next_replace, partition.operator, (partition,), tuple(ranges), False)
    journal = with_fields(journal, replaces=(*journal.replaces, replace), next_replace=journal.next_replace + 1)
    journal = start_shadows(journal, replace, {partition: (version, epoch)})
    journal = commit(journal, journal.replaces[-1], first)
    return retire(journal, partition) if first - 1 < dead.first else journal


def free_base(journal: Journal, partition: PartitionId) -> Journal:
    """It has checkpoints of its own: what it started from may go."""
    entry = with_fields(journal.entries[partition], base=())
    return with_fields(journal, entries={**journal.entries, partition: entry})


def _swap(journal: Journal, old: Replace, new: Replace) -> Journal:
    return with_fields(journal, replaces=tuple(new if r.number == old.number else r for r in journal.replaces))


def _drop(journal: Journal, replace: Replace) -> Journal:
    return with_fields(journal, replaces=tuple(r for r in journal.replaces if r.number != replace.number))
