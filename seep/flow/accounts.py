"""The accounts of every node of a flow at one epoch: what came in is what went out, is held, or was put aside.

An operator enters where its rows went (`operators.ledger`), by epoch and since the beginning; what its state holds is
read here, from the saved state itself. A source keeps its entries in the epoch log, by split.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from operators.ledger import (
    DUE,
    EMITTED,
    HELD_KEYS,
    HELD_ROWS,
    LETTERS,
    RESULTS,
    ROWS,
    SENT,
    STATE,
    STEP,
    TABLE,
    balances,
    entries_in,
    equation,
    table_of,
    total,
    unnamed,
)
from operators.ledger import Entries as Entries
from seep.flow.fused import FusedLogic
from seep.model.arrow import BUCKET, ArrowState
from seep.model.batch import DIGESTS

Offs = dict[str, dict[int, int]]
"""By account and epoch: how many rows came in more than went out."""

_PLACES = {
    ROWS: "input",
    SENT: "sending",
    RESULTS: "results",
    EMITTED: "what its code emitted",
    LETTERS: "dead letters",
    DUE: "rows that were due",
    HELD_ROWS: "rows in state",
    HELD_KEYS: "keys in state",
}


def account_of(entries: Entries) -> dict[str, Any]:
    """Of one node, for the answer: all its accounts as one equation, and each of them."""
    came, went = equation(entries)
    off = balances(entries)
    accounts = [
        {
            "account": _place(account),
            "in": _side(entries, account, "+"),
            "out": _side(entries, account, "-"),
            "off": rows,
        }
        for account, rows in off.items()
    ]
    return {"balanced": not any(off.values()), "in": came, "out": went, "accounts": accounts}


def problems_of(name: str, entries: Entries, offs: Offs, since: int | None, epoch: int) -> list[str]:
    """Each account that does not balance, and when. ``since``: the first epoch that is remembered; ``epoch``: of the
    audit."""
    found = []
    for account, rows in balances(entries).items():
        epochs = {at: off for at, off in sorted(offs.get(account, {}).items()) if off}
        if not rows and not epochs:
            continue
        sides = f"{_sum(_side(entries, account, '+'))} = {_sum(_side(entries, account, '-'))}"
        when = _when(account, epochs, since, epoch)
        found.append(f"node {name}, {_place(account)}: {sides} does not add up: {_difference(rows)}; {when}")
    return found


def _when(account: str, epochs: Mapping[int, int], since: int | None, epoch: int) -> str:
    if epochs:
        first = next(iter(epochs))
        return f"first in epoch {first}: {_difference(epochs[first])}"
    if account.startswith(STATE):
        return f"by epoch {epoch}"
    return "no epoch of it is remembered" if since is None else f"before epoch {since}"


def _difference(rows: int) -> str:
    if rows == 0:
        return "as many too few as too many"
    return f"{abs(rows)} {'missing' if rows > 0 else 'too many'}"


def _side(entries: Entries, account: str, side: str) -> dict[str, int]:
    chosen = {term[1:]: rows for (at, term), rows in entries.items() if at == account and term[0] == side and rows}
    if account.startswith(STEP):  # to a step, what it is sent is what comes in
        chosen = {"in" if term == "steps" else term: rows for term, rows in chosen.items()}
    return chosen


def _sum(terms: Mapping[str, int]) -> str:
    return " + ".join(f"{rows} {term}" for term, rows in terms.items()) or "0"


def _place(account: str) -> str:
    return f"step {account.removeprefix(STEP)}" if account.startswith(STEP) else _PLACES.get(account, account)


def in_words(found: Mapping[str, Any]) -> str:
    """The equation of a node.

    >>> in_words({"in": {"in": 5}, "out": {"out": 3, "filtered": 2}})
    '5 in = 3 out + 2 filtered'
    """
    return f"{_sum(found['in'])} = {_sum(found['out'])}"


# --- where they come from --------------------------------------------------------------------------------------------


def together(many: Iterable[Entries]) -> Entries:
    """Of all partitions."""
    return total(many)


def of_state(logic: FusedLogic, state: ArrowState) -> Entries:
    """Of one partition: what it has entered, and what its state holds."""
    return total([entries_in(state), logic.holds(state)])


def opened(logic: FusedLogic, state: ArrowState) -> ArrowState:
    """State that is made of something else now, or was saved when there were no accounts of it: they begin with what it
    holds."""
    rows = state.tables[TABLE].to_pylist() if TABLE in state.tables else []
    given = [(row[BUCKET], row["account"], row["term"], row["count"]) for row in rows]
    kept = [row for row in given if not row[1].startswith(STATE)]
    bucket = next((table.column(BUCKET)[0].as_py() for table in state.tables.values() if table.num_rows), 0)
    held = [(bucket, account, "+before", count) for (account, _), count in logic.holds(state).items() if count]
    return ArrowState({**state.tables, TABLE: table_of([*kept, *held])})


def of_sink(taken: int, committed: int) -> Entries:
    return {(ROWS, "+in"): taken, (ROWS, "-committed"): committed}


def of_splits(splits: Mapping[str, Any]) -> Entries:
    """The entries of a source, where its splits stood."""
    return total(unnamed(known[5]) for known in splits.values())


def cut_wrong(before: Mapping[str, Any], record: Mapping[str, Any]) -> tuple[dict[str, int], str]:
    """Two records of an epoch log, one after the other: the accounts that are off by this epoch, and whether what the
    record says of its rows is what its splits have read."""
    read, entries = 0, []
    for split, known in record["splits"].items():
        earlier = before["splits"][split][5] if split in before["splits"] else {}
        more = {name: (number - earlier.get(name, 0)) % DIGESTS for name, number in known[5].items()}
        read += more.get("read", 0)
        entries.append(unnamed(more))
    both = total(entries)
    handed = both.get((ROWS, "+read"), 0)
    wrong = f"{record['rows']} rows logged, {read} read, {handed} handed over by the connector"
    return {at: off for at, off in balances(both).items() if off}, "" if record["rows"] == read == handed else wrong
