"""Values of one type as another, as SQL understands it; literals take the type of what they stand beside."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
from sqlglot import exp

from tests.foreign.types import INTERVAL_UNITS
from tests.foreign.verdicts import NotSaid


def literal_as(node: exp.Expression, kind: pl.DataType) -> pl.Expr:
    """A text literal beside something of another type."""
    if kind == pl.String:
        return pl.lit(node.name)
    made = cast(pl.lit(node.name), pl.String(), kind)
    try:
        pl.select(made)
    except pl.exceptions.PolarsError as error:
        raise NotSaid("a literal that does not fit its type") from error
    return made


def cast(made: pl.Expr, old: pl.DataType, new: pl.DataType) -> pl.Expr:
    if old == new:
        return made
    if old == pl.String and isinstance(new, pl.Datetime):
        return _moment(made)
    if old == pl.String and new == pl.Date:
        return made.str.slice(0, 10).str.to_date("%Y-%m-%d")
    if old == pl.String and new == pl.Boolean:
        true, false = (made.str.to_lowercase().is_in(words) for words in (["t", "true", "1"], ["f", "false", "0"]))
        return pl.when(true).then(True).when(false).then(False)
    if old == pl.String and new.is_numeric():
        return made.str.strip_chars().cast(new)
    if old == pl.Boolean and new == pl.String:
        return pl.when(made).then(pl.lit("true")).when(~made).then(pl.lit("false"))
    if isinstance(old, pl.Datetime) and new == pl.String:
        return made.dt.strftime("%Y-%m-%d %H:%M:%S")
    if old.is_float() and new.is_integer():
        return made.round(mode="half_to_even").cast(new)
    if old.is_float() and new == pl.String:
        raise NotSaid("text of a float")
    return made.cast(new)


def _moment(made: pl.Expr) -> pl.Expr:
    """A time as SQL writes it: with or without seconds, or a day alone; only UTC."""
    text = made.str.strip_chars().str.replace("T", " ").str.replace(r"(Z|\+00(:?00)?)$", "")
    full = pl.when(text.str.len_chars() <= 10).then(text + " 00:00:00").otherwise(text)
    full = pl.when(full.str.len_chars() == 16).then(full + ":00").otherwise(full)
    return full.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", time_zone="UTC")


def duration(node: exp.Expression) -> timedelta:
    """The length of an interval; months have none."""
    if isinstance(node, exp.Interval) and node.this is not None:
        words = node.this.name.split() if isinstance(node.this, exp.Literal) else []
        unit = node.unit.name if node.unit is not None else words[1] if len(words) > 1 else "second"
        per = INTERVAL_UNITS.get(unit.lower().rstrip("s"))
        if words and per is not None and words[0].lstrip("+-").replace(".", "", 1).isdigit():
            return per * float(words[0])
    raise NotSaid("an interval of months or of parts")
