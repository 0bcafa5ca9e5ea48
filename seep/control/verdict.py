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

Statuses = Mapping[PartitionId, Status]


def verdict(
    graph: Graph, journal: Journal, status: Status, statuses: Statuses, deaths: Deaths, late: bool
) -> tuple[Journal, str]:
    """The journal after it (the same one: not yet), and what to note. ``status`` accuses a row; ``late``: it has done
    so for so long that those of whose end nothing is known have not died."""
    entry, poison = journal.entries[status.partition], status.accused
    assert poison is not None
    shown = journal.shown(status.partition)
    if entry.role == SHADOW:
        replace = next(r for r in journal.replaces if status.partition in r.new)
        return planner.abort(journal, replace), f"Replace {replace.number} given up: {shown} dies on {poison}"
    if not deaths.certain(entry):
        if not late:
            return journal, ""
        again = planner.suspect(journal, with_fields(entry, heir_of=None))
        return planner.restart(again, status.partition, entry.worker), f"{shown}: nobody is known to have died"
    why_not = _why_not(graph, journal, statuses, entry, poison, deaths)
    if why_not:
        report = f"SeepError: {shown} dies again and again on {poison}, and it cannot be left out: {why_not}"
        return with_fields(journal, stopping=report), report
    deaths.found(entry)
    condemned = planner.condemn(journal, status.partition, poison)
    return condemned, f"POISON: {shown} died again and again on {poison}; it is left out from now on"


def _why_not(graph: Graph, journal: Journal, statuses: Statuses, entry: Entry, poison: Poison, deaths: Deaths) -> str:
    if len(journal.poisons) >= POISONS_AT_MOST:
        return f"{POISONS_AT_MOST} rows are left out already; fix the function"
    # A source runs a row before its epoch has a number: nobody can have taken it.
    after = {edge.target for edge in graph.outputs(entry.partition.operator)}
    taken = [deaths.reached(entry), *(s.epoch for p, s in statuses.items() if p.operator in after)]
    if not poison.after and max(taken) >= poison.epoch:
        return "the epoch was taken before without harm; is there too little memory?"
    return ""
