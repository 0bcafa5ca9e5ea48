"""What becomes of a row that a partition accuses of killing its process.

It is condemned only if nobody has ever got past it: where its epoch was taken before, others have seen what came of
it, and to leave it out now would make a replay differ from what was announced. Then the flow stops with a report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as with_fields

from seep.control import planner
from seep.control.deaths import Deaths
from seep.model.ids import PartitionId
from seep.partition.contract import Graph
from seep.protocol.journal import SHADOW, Entry, Journal, Poison
from seep.protocol.messages import Status

POISONS_AT_MOST = 1_000
"""In one flow. They stay in the journal: whatever may be replayed must be replayed without them."""


def condemn(
    graph: Graph, journal: Journal, statuses: Mapping[PartitionId, Status], deaths: Deaths
) -> tuple[Journal, list[str]]:
    """The journal with every row that is accused now, and what to note."""
    notes: list[str] = []
    for partition, status in statuses.items():
        entry, poison = journal.entries.get(partition), status.accused
        if poison is None or entry is None or entry.generation != status.generation:
            continue
        if journal.stopping not in ("", "drain"):
            break
        shown = journal.shown(partition)
        if entry.role == SHADOW:
            replace = next(r for r in journal.replaces if partition in r.new)
            notes.append(f"Replace {replace.number} of {replace.operator} given up: {shown} dies on {poison}")
            journal = planner.abort(journal, replace)
            continue
        why_not = _why_not(graph, journal, statuses, entry, poison, deaths)
        if why_not:
            report = f"SeepError: {shown} dies again and again on {poison}, and it cannot be left out: {why_not}"
            journal = with_fields(journal, stopping=report)
            continue
        deaths.found(entry)
        journal = planner.condemn(journal, partition, poison)
        notes.append(f"POISON: {shown} died again and again on {poison}; it is left out from now on")
    return journal, notes


def _why_not(
    graph: Graph,
    journal: Journal,
    statuses: Mapping[PartitionId, Status],
    entry: Entry,
    poison: Poison,
    deaths: Deaths,
) -> str:
    if len(journal.poisons) >= POISONS_AT_MOST:
        return f"{POISONS_AT_MOST} rows are left out already; fix the function"
    # A source runs a row before its epoch has a number: nobody can have taken it.
    after = {edge.target for edge in graph.outputs(entry.partition.operator)}
    taken = [deaths.reached(entry), *(s.epoch for p, s in statuses.items() if p.operator in after)]
    if not poison.after and max(taken) >= poison.epoch:
        return "the epoch was taken before without harm; is there too little memory?"
    return ""
