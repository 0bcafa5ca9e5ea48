"""Compares the rows of a flow with those of a script.

Rows are compared as text, as the script has them, but for numbers with a fraction: those agree when they do to nine
digits, since seep's means and quotients are float64. Without an ORDER BY the order means nothing; with one, rows that
are equal in it may stand in any order.
"""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta
from typing import Any

from tests.foreign.relation import Relation
from tests.foreign.slt import Record


def difference(rows: list[dict[str, Any]], relation: Relation, order: list[Any], record: Record) -> str:
    """What is wrong with these rows; nothing if they are as the record says."""
    for one in reversed(order):
        known = [row for row in rows if row[one.physical] is not None]
        known.sort(key=lambda row: row[one.physical], reverse=one.descending)
        nulls = [row for row in rows if row[one.physical] is None]
        rows = [*nulls, *known] if one.nulls_first else [*known, *nulls]
    names = [column.physical for column in relation.columns]
    found = [[token for name in names for token in shown(row[name]).split()] for row in rows]
    wanted = [line.split() for line in record.rows]
    if record.sort == "valuesort":
        found, wanted = ([[token] for token in sorted(t for row in side for t in row)] for side in (found, wanted))
    if order and record.sort == "nosort":
        if not _same_in_order(rows, found, wanted, order):
            return f"{_text(found)} in this order, wanted {_text(wanted)}"
        return ""
    if not _same(sorted(found), sorted(wanted)) and not _matched(found, wanted):
        return f"{_text(sorted(found))}, wanted {_text(sorted(wanted))}"
    return ""


def _same_in_order(
    rows: list[dict[str, Any]], found: list[list[str]], wanted: list[list[str]], order: list[Any]
) -> bool:
    """Equal row by row, where rows of the same rank in the order may change places."""
    if len(found) != len(wanted):
        return False
    ranks = [tuple(row[one.physical] for one in order) for row in rows]
    start = 0
    while start < len(rows):
        end = start
        while end < len(rows) and ranks[end] == ranks[start]:
            end += 1
        if not _matched(found[start:end], wanted[start:end]):
            return False
        start = end
    return True


def _matched(found: list[list[str]], wanted: list[list[str]]) -> bool:
    """The same rows in any order."""
    left = list(wanted)
    for row in found:
        at = next((at for at, one in enumerate(left) if _same_row(row, one)), None)
        if at is None:
            return False
        del left[at]
    return not left


def _same(found: list[list[str]], wanted: list[list[str]]) -> bool:
    return len(found) == len(wanted) and all(_same_row(*pair) for pair in zip(found, wanted, strict=True))


def _same_row(found: list[str], wanted: list[str]) -> bool:
    return len(found) == len(wanted) and all(_same_token(*pair) for pair in zip(found, wanted, strict=True))


def _same_token(found: str, wanted: str) -> bool:
    if found == wanted.removesuffix("+00:00"):  # all times are UTC
        return True
    if not {".", "e", "E"} & {*found, *wanted}:
        return False
    try:
        return math.isclose(float(found), float(wanted), rel_tol=1e-9, abs_tol=1e-12)
    except ValueError:
        return False


def shown(value: Any) -> str:
    """A value as scripts write it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, datetime):
        digits = "microseconds" if value.microsecond % 1000 else "milliseconds" if value.microsecond else "seconds"
        return value.replace(tzinfo=None).isoformat(" ", digits)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return _span(value)
    if isinstance(value, str):
        return value or "(empty)"
    return str(value)


def _span(value: timedelta) -> str:
    days, rest = divmod(value, timedelta(days=1))
    words = [f"{days} day{'s' if days != 1 else ''}"] if days else []
    if rest or not days:
        hours, rest = divmod(rest, timedelta(hours=1))
        minutes, rest = divmod(rest, timedelta(minutes=1))
        fraction = f".{rest.microseconds:06}".rstrip("0") if rest.microseconds else ""
        words.append(f"{hours:02}:{minutes:02}:{rest.seconds:02}{fraction}")
    return " ".join(words)


def _text(rows: list[list[str]]) -> str:
    text = "; ".join(" ".join(row) for row in rows)
    return text if len(text) < 300 else text[:300] + "..."
