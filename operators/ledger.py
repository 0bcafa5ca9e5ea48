"""Where the rows of an operator went, kept as a merchant would: in accounts, each with two sides that must be equal.

An account says what happens at one place: ``+in`` and ``+added`` on the one side, ``-filtered`` and ``-passed`` on the
other. Each term is counted where it happens, a number for each batch; what leaves one account for another is a term of
the same name in both, so all accounts of an operator add up to one equation. Accounts of the state (``state:``) have
a term more, which nobody counts: what the saved state holds (`Accounted.holds`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from seep.model.arrow import BUCKET, DELETED, KEY, REPLICATED, ArrowState

TABLE = "accounts"
"""The state table."""
ROWS, SENT, RESULTS, EMITTED, LETTERS, DUE = "rows", "sent", "results", "emitted", "letters", "due"
"""Of an operator: what came in; what goes to edges and steps; rows it made; rows that users' code gave; dead letters of
calls; rows whose time has come."""
STATE = "state:"
HELD_ROWS, HELD_KEYS = STATE + "rows", STATE + "keys"
STEP = "step:"
"""Before the name of a fused step: its account."""
PENDING = "-pending"
"""What the saved state holds."""

_COUNTER = "="

Entry = tuple[str, str]
"""(account, term); a term begins with its side."""
Entries = dict[Entry, int]

_COLUMNS = pa.schema(
    [
        (BUCKET, pa.uint16()),
        (KEY, pa.binary()),
        ("account", pa.string()),
        ("term", pa.string()),
        ("count", pa.int64()),
    ]
)


class Accounted:
    """What every operator says of its rows besides its outputs."""

    carried: Mapping[str, str] = {}
    """Outputs whose rows are those of an account; all others the operator has made."""

    @cached_property
    def ledger(self) -> Ledger:
        """Where it enters what became of the rows of this epoch."""
        return Ledger()

    def holds(self, state: ArrowState) -> Mapping[Entry, int]:
        """What is pending in a saved state of this operator, read from its tables alone."""
        return {}


class Ledger:
    """The entries of one epoch, as an operator makes them."""

    def __init__(self) -> None:
        self._entries: Entries = {}

    def add(self, account: str, term: str, rows: int) -> None:
        if rows:
            self._entries[account, term] = self._entries.get((account, term), 0) + int(rows)

    def move(self, source: str, term: str, target: str, rows: int) -> None:
        """Out of one account, into another."""
        self.add(source, f"-{term}", rows)
        self.add(target, f"+{term}", rows)

    def take(self) -> Entries:
        """What was entered since the last call."""
        found, self._entries = self._entries, {}
        return found


def balances(entries: Mapping[Entry, int]) -> dict[str, int]:
    """By account: how many rows came in more than went out.

    >>> balances({("rows", "+in"): 5, ("rows", "-filtered"): 2, ("rows", "-passed"): 2})
    {'rows': 1}
    """
    found: dict[str, int] = {}
    for (account, term), rows in entries.items():
        found[account] = found.get(account, 0) + (rows if term[0] == "+" else -rows)
    return found


def equation(entries: Mapping[Entry, int]) -> tuple[dict[str, int], dict[str, int]]:
    """All accounts of rows as one: both sides, without what only moved from one account to another.

    >>> equation({("rows", "+in"): 5, ("rows", "-passed"): 5, ("sent", "+passed"): 5, ("sent", "-out"): 5})
    ({'in': 5}, {'out': 5})
    """
    net: dict[str, int] = {}
    for (account, term), rows in entries.items():
        if account != HELD_KEYS:
            net[term[1:]] = net.get(term[1:], 0) + (rows if term[0] == "+" else -rows)
    return (
        {term: rows for term, rows in net.items() if rows > 0},
        {term: -rows for term, rows in net.items() if rows < 0},
    )


class Accounts:
    """The entries since the beginning. They lie in one bucket of the partition, so that splits and merges keep the sums
    over all partitions; in which one means nothing."""

    def __init__(self) -> None:
        self._counts: dict[int, Entries] = {}
        self._home: int | None = None

    @property
    def home(self) -> int:
        assert self._home is not None, "rows are counted that came from nowhere"
        return self._home

    def settle(self, buckets: Iterable[Any]) -> None:
        """The buckets of some rows: one of them is ours."""
        for given in buckets:
            if self._home is None and len(given):
                self._home = int(given[0])

    def add(self, entries: Mapping[Entry, int]) -> None:
        if not entries:
            return
        own = self._counts.setdefault(self.home, {})
        for entry, rows in entries.items():
            own[entry] = own.get(entry, 0) + rows

    def snapshot(self, full: bool) -> pa.RecordBatch:
        if full and self._home is not None and len(self._counts) > 1:
            # What came from other partitions is ours now.
            self._counts = {self._home: total(self._counts.values())}
        rows = [(bucket, *entry, count) for bucket, own in self._counts.items() for entry, count in own.items()]
        table = table_of(rows)
        return table if full else table.append_column(DELETED, pa.array([False] * len(rows), pa.bool_()))

    def load(self, state: ArrowState) -> None:
        """All of an operator's state: wherever it has an entry, there is a bucket of ours."""
        own = (name for name in state.tables if not name.startswith(REPLICATED))
        self.settle(state.tables[name].column(BUCKET).to_numpy() for name in own)
        for row in state.tables[TABLE].to_pylist() if TABLE in state.tables else ():
            self._counts.setdefault(row[BUCKET], {})[row["account"], row["term"]] = row["count"]


def table_of(rows: Iterable[tuple[int, str, str, int]]) -> pa.RecordBatch:
    """``rows``: bucket, account, term, count."""
    found = [
        {BUCKET: bucket, KEY: f"{account}|{term}:{bucket}".encode(), "account": account, "term": term, "count": count}
        for bucket, account, term, count in rows
    ]
    return pa.RecordBatch.from_pylist(found, schema=_COLUMNS)


def entries_in(state: ArrowState) -> Entries:
    """What a saved state has in its accounts."""
    rows = state.tables[TABLE].to_pylist() if TABLE in state.tables else []
    return total({(row["account"], row["term"]): row["count"]} for row in rows)


def total(many: Iterable[Mapping[Entry, int]]) -> Entries:
    found: Entries = {}
    for entries in many:
        for entry, rows in entries.items():
            found[entry] = found.get(entry, 0) + rows
    return found


def named(entries: Mapping[Entry, int]) -> dict[str, int]:
    """As counters, where they are kept among others (by a source in its epoch log).

    >>> unnamed(named({("rows", "+in"): 5}) | {"filtered": 3})
    {('rows', '+in'): 5}
    """
    return {f"{_COUNTER}{account}|{term}": rows for (account, term), rows in entries.items()}


def unnamed(counters: Mapping[str, int]) -> Entries:
    """The entries among these counters."""
    found: Entries = {}
    for name, rows in counters.items():
        if name.startswith(_COUNTER):
            account, _, term = name.removeprefix(_COUNTER).rpartition("|")
            found[account, term] = rows
    return found


def held_rows(state: ArrowState, *tables: str) -> int:
    """How many entries these tables of a saved state have."""
    return sum(state.tables[name].num_rows for name in tables if name in state.tables)


def held_sum(state: ArrowState, table: str, column: str) -> int:
    """The sum of a column of a saved state."""
    if table not in state.tables or column not in state.tables[table].schema.names:
        return 0
    return int(pc.sum(state.tables[table].column(column)).as_py() or 0)
