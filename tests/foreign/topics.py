"""Builds the flow of a record-at-a-time case: one source of all messages in their order, one message an epoch.

A topic is the part of the source with its messages; a table's are put in force by `table(deleted=)`. All that the
case's statements make is collected: of a stream its rows, of a table its changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import polars as pl
import pyarrow as pa
from sqlglot import exp

import seep
from tests.foreign import ksql
from tests.foreign.aggregates import aggregates_in, kept
from tests.foreign.expressions import Column, Scope, fingerprint
from tests.foreign.ksql import Case, Declared, Derived
from tests.foreign.relation import Names, polars_schema
from tests.foreign.sequences import coded
from tests.foreign.sources import conjuncts
from tests.foreign.verdicts import Differs, NotSaid

DAY = timedelta(days=1)
TOPIC, AT_MS, GONE = "topic", "at_ms", "gone"
EAGER = "an unmatched row of a join of streams comes when the watermark makes it final, not at once"


@dataclass(frozen=True)
class Feed:
    """A stream or table, its columns, and which of them are the message's key."""

    data: Any
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    is_table: bool
    formats: tuple[str, str] = ("KAFKA", "JSON")
    window: str = ""
    known: dict[str, str] | None = None
    regrouped: bool = False
    """Whether its rows are groups of a table's: they may lose all their rows."""
    candidates: tuple[str, ...] = ()
    """Columns that equal the key: the first that is selected stands for it."""

    @property
    def scope(self) -> Scope:
        return Scope(self.columns, polars_schema(self.data.schema), self.known, null_is_false=True)

    def extend(self, made: dict[str, pl.Expr]) -> Feed:
        return replace(self, data=self.data.with_columns(**made)) if made else self

    def column_of(self, made: pl.Expr, names: Names) -> tuple[Feed, str]:
        if made.meta.is_column():
            return self, made.meta.output_name()
        name = names.fresh("x")
        return self.extend({name: made}), name

    def seen_as(self, other: dict[str, str]) -> Feed:
        """The same with some columns looked up elsewhere."""
        columns = tuple(replace(one, physical=other.get(one.physical, one.physical)) for one in self.columns)
        candidates = tuple(other.get(one, one) for one in self.candidates)
        return replace(self, columns=columns, candidates=candidates)

    def renamed(self, qualifier: str, names: Names) -> Feed:
        fresh = {name: names.fresh(name.rsplit("_", 1)[0]) for name in self.data.schema.names}
        data = self.data.rename(**{new: old for old, new in fresh.items()})
        columns = tuple(Column(qualifier, one.name, fresh[one.physical]) for one in self.columns)
        return replace(self, data=data, columns=columns, key=tuple(fresh[one] for one in self.key))


class Topics:
    """Builds the flow of a case, statement by statement."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.names = Names()
        self.feeds: dict[str, Feed] = {}
        self.old_keys: tuple[str, ...] = ()
        """What was the key before PARTITION BY: it is shown last."""
        self.topics: dict[str, str] = {}
        """Of which name each topic is."""
        statements = [one for one in map(ksql.parsed, case.statements) if one is not None]
        self.declared = {one.topic: one for one in statements if isinstance(one, Declared)}
        self.derived = [one for one in statements if isinstance(one, Derived)]
        graces = {_grace(one) for one in self.derived if one.window or one.within}
        if len(graces) > 1:
            raise NotSaid("several grace periods in one flow")
        self.lateness = next(iter(graces), None)
        self.flow = seep.Flow("foreign")
        self.rows: list[dict[str, Any]] = []
        self.nears = {join.side for one in self.derived if one.within for join in one.select.args["joins"]} - {""}
        """Of joins of streams, those that keep unmatched rows."""

    def build(self) -> None:
        """All that the statements make."""
        source = self._source()
        for one in self.declared.values():
            self.feeds[one.name] = self._declared(source, one)
        for made in self.derived:
            feed = self._derived(made)
            formats = tuple((given or old).upper() for given, old in zip(made.formats, feed.formats, strict=True))
            self.feeds[made.name] = replace(feed, formats=(formats[0], formats[1]))
            self.topics[made.topic] = made.name

    # --- what comes in -------------------------------------------------------------------------------------------

    def _source(self) -> Any:
        fields = [pa.field(TOPIC, pa.string()), pa.field(AT_MS, pa.int64()), pa.field(GONE, pa.bool_())]
        for one in self.declared.values():
            fields += [each.with_name(f"{one.name}.{each.name}") for each in one.fields]
        schema = pa.schema(fields)
        rows = []
        for message in self.case.inputs:
            one = self.declared.get(message.topic)
            if one is None:
                raise NotSaid("a topic that nothing declares")
            if message.window is not None:
                raise NotSaid("a topic with its own timestamps, windows or wrapping")
            if message.value is None and not one.is_table:
                raise NotSaid("a stream with messages without a value")
            row: dict[str, Any] = dict.fromkeys(schema.names)
            row |= {TOPIC: message.topic, AT_MS: message.at_ms, GONE: message.value is None}
            row |= {f"{one.name}.{name}": value for name, value in coded(one, message).items()}
            if not (one.is_table and message.key is None):  # a table takes no message without a key
                rows.append(row)
        self.rows = rows
        table = pa.Table.from_pylist(rows, schema=schema)
        if self.lateness is None:
            return self.flow.source("messages", seep.MemorySource(table, per_epoch=1))
        source = seep.MemorySource(table, per_epoch=1)
        return self.flow.source("messages", source, time=(AT_MS, "ms"), lateness=self.lateness)

    def _declared(self, source: Any, one: Declared) -> Feed:
        physical = {each.name: self.names.fresh(each.name) for each in one.fields}
        at = self.names.fresh("rowtime")
        columns = {new: pl.col(f"{one.name}.{old}") for old, new in physical.items()}
        mine = source.filter(pl.col(TOPIC) == one.topic).select(
            **columns, **{at: pl.col(AT_MS)}, **{GONE: pl.col(GONE)}
        )
        shown = tuple(Column("", name, new) for name, new in physical.items())
        keys = tuple(physical[name] for name in one.keys)
        if not one.is_table:
            return Feed(mine, shown, keys, False, one.formats)
        if any(pa.types.is_floating(mine.schema.field(key).type) for key in keys):
            raise NotSaid("float and nested keys")
        table = mine.key_by(*keys).table(deleted=pl.col(GONE)).drop(GONE, at)
        return Feed(table, shown, keys, True, one.formats)

    # --- queries -------------------------------------------------------------------------------------------------

    def _derived(self, made: Derived) -> Feed:
        select = made.select
        feed = self._from(made)
        where = select.args.get("where")
        if where is not None:
            feed = replace(feed, data=feed.data.filter(feed.scope.make(where.this)))
        functions = [found for one in [*select.expressions, *self._having(select)] for found in aggregates_in(one)]
        if select.args.get("group") is not None:
            feed = self._grouped(feed, made, functions)
            for one in self._having(select):
                feed = replace(feed, data=feed.data.filter(feed.scope.make(one)))
        elif functions or made.window:
            raise NotSaid("an aggregate without a group")
        if made.partition:
            keys = []
            for one in made.partition:
                value = feed.scope.make(one)
                feed, name = feed.column_of(value, self.names)
                feed = replace(feed, known={**(feed.known or {}), fingerprint(one): name})
                keys.append(name)
            self.old_keys = feed.key
            feed = replace(feed, key=tuple(keys))
        return self._projected(feed, made)

    def _having(self, select: exp.Select) -> list[exp.Expression]:
        having = select.args.get("having")
        return [having.this] if having is not None else []

    def _named(self, node: exp.Expression) -> Feed:
        name = node.name.lower()
        if not isinstance(node, exp.Table) or name not in self.feeds:
            raise NotSaid("a topic that nothing declares")
        return self.feeds[name].renamed(node.alias_or_name.lower(), self.names)

    def _from(self, made: Derived) -> Feed:
        select = made.select
        if select.args.get("from_") is None:
            raise NotSaid("a query without FROM")
        feed = self._named(select.args["from_"].this)
        within = list(made.within)
        for join in select.args.get("joins") or []:
            feed = self._joined(feed, self._named(join.this), join, within, made)
        return feed

    def _joined(
        self, left: Feed, right: Feed, join: exp.Join, within: list[tuple[timedelta, timedelta]], made: Derived
    ) -> Feed:
        how = (join.side or "inner").lower()
        on = join.args.get("on")
        conditions = conjuncts(on) if on is not None else []
        if len(conditions) != 1 or not isinstance(conditions[0], exp.EQ) or left.window or right.window:
            raise NotSaid("a join on more than one equality")
        one, other = conditions[0].left, conditions[0].right
        if not left.scope.sees(one) or not right.scope.sees(other):
            one, other = other, one
        left, left_key = left.column_of(left.scope.make(one), self.names)
        right, right_key = right.column_of(right.scope.make(other), self.names)
        if left.data.schema.field(left_key).type != right.data.schema.field(right_key).type:
            raise NotSaid("a join of different types")
        if pa.types.is_floating(left.data.schema.field(left_key).type):
            raise NotSaid("float and nested keys")
        earlier = left.candidates if left_key in (*left.candidates, *left.key) else ()
        candidates = tuple(dict.fromkeys((*earlier, left_key, right_key)))
        both = Feed(None, (*left.columns, *right.columns), (left_key,), left.is_table, left.formats)
        alike = [each for each in (one, other) if how == "inner" and not isinstance(each, exp.Column)]
        known = {"rowkey": left_key, **{fingerprint(each): left_key for each in alike}}
        both = replace(both, known=known, candidates=candidates)
        if not left.is_table and not right.is_table:
            if how != "inner" and made.grace is None:
                raise Differs(EAGER)
            return self._near(left, right, (left_key, right_key), both, within.pop(0), how)
        if right.key != (right_key,) or not right.is_table:
            raise NotSaid("a join with a table by another column than its key")
        found = self.names.fresh("found")
        right = right.extend({found: pl.lit(True)})
        if not left.is_table:
            keyed = left.data.filter(pl.col(left_key).is_not_null()).key_by(left_key)
            data = keyed.join_table(right.data, how=how)
        elif left.key != (left_key,):
            data = left.data.join(right.data, on=left_key, how=how)
            both = replace(both, key=left.key, known={}, candidates=())
        elif how == "full":
            own, there = self.names.fresh("key"), self.names.fresh("found")
            data = left.extend({there: pl.lit(True)}).data.join(right.data, how=how)
            data = data.with_columns(**{own: pl.when(pl.col(there)).then(pl.col(left_key))})
            both = replace(both.seen_as({left_key: own}), candidates=())
        else:
            data = left.data.join(right.data, how=how)
        matched = pl.col(left_key) if how == "right" else pl.when(pl.col(found)).then(pl.col(left_key))
        return replace(both, data=data.with_columns(**{right_key: matched}))

    def _near(
        self,
        left: Feed,
        right: Feed,
        keys: tuple[str, str],
        both: Feed,
        within: tuple[timedelta, timedelta],
        how: str,
    ) -> Feed:
        """Two streams; each keeps a copy of its key, which the other side's unmatched rows do not have."""
        copies = {name: self.names.fresh("key") for name in keys}
        left, right = (side.extend({copies[key]: pl.col(key)}) for side, key in zip((left, right), keys, strict=True))
        data = left.data.key_by(keys[0]).join(right.data.key_by(keys[1]), within=(-within[0], within[1]), how=how)
        both = replace(both, data=data)
        if how == "full":
            return replace(both.seen_as(copies), candidates=())
        return both.seen_as({keys[1]: copies[keys[1]]}) if how != "right" else both.seen_as({keys[1]: keys[0]})

    def _grouped(self, feed: Feed, made: Derived, functions: list[exp.Expression]) -> Feed:
        keys: list[str] = []
        known: dict[str, str] = {}
        columns: list[Column] = []
        nodes = made.select.args["group"].expressions
        for one in [each for node in nodes for each in (node.expressions if isinstance(node, exp.Tuple) else [node])]:
            feed, name = feed.column_of(feed.scope.make(one), self.names)
            if pa.types.is_floating(feed.data.schema.field(name).type):
                raise NotSaid("float and nested keys")
            keys.append(name)
            known[fingerprint(one)] = name
            columns += [column for column in feed.columns if column.physical == name]
        specs: dict[str, Any] = {}
        values: dict[str, pl.Expr] = {}
        for function in functions:
            name = self.names.fresh("agg")
            needed = kept(feed.scope, function, name)
            specs |= needed.specs
            shown = self.names.fresh("agg")
            values[shown] = needed.value
            known[fingerprint(function)] = shown
        specs = specs or {self.names.fresh("n"): seep.count()}
        keyed = feed.data
        for name in keys:  # a message without the group's key belongs to no group there
            keyed = keyed.filter(pl.col(name).is_not_null())
        keyed = keyed.key_by(*keys)
        if made.window is None:
            data = keyed.aggregate(**specs)
            data = data.with_columns(**values) if values else data
            made_of = Feed(data, tuple(columns), tuple(keys), True, feed.formats, known=known)
            return replace(made_of, regrouped=feed.is_table)
        if feed.is_table:
            raise NotSaid("a window over a table")
        kind, size, advance = made.window
        windows = {
            "tumbling": lambda: seep.tumbling(size),
            "hopping": lambda: seep.sliding(size, every=advance),
            "session": lambda: seep.session(size, inclusive=True),
        }
        bounds = self.names.fresh("window_start"), self.names.fresh("window_end")
        emit = "close" if made.final else "update"
        data = keyed.window(windows[kind](), emit=emit, names=bounds, **specs)
        data = data.with_columns(**values) if values else data
        ms = {name: self.names.fresh(name) for name in bounds}
        gap = int(size.total_seconds() * 1000) if kind == "session" else 0
        data = data.with_columns(
            **{
                ms[bounds[0]]: pl.col(bounds[0]).dt.epoch("ms"),
                ms[bounds[1]]: pl.col(bounds[1]).dt.epoch("ms") - gap,
            }
        )
        known |= {"windowstart": ms[bounds[0]], "windowend": ms[bounds[1]]}
        return Feed(data, tuple(columns), tuple(keys), not made.final, feed.formats, kind, known)

    def _projected(self, feed: Feed, made: Derived) -> Feed:
        select = made.select
        joined = bool(select.args.get("joins"))
        owners: dict[str, set[str]] = {}
        for one in feed.columns:
            owners.setdefault(one.name, set()).add(one.qualifier)
        columns: list[Column] = []
        fresh: dict[str, pl.Expr] = {}
        unnamed = 0
        for one in select.expressions:
            inner = one.unalias()
            if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
                wanted = inner.table.lower() if isinstance(inner, exp.Column) else ""
                olds = set(self.old_keys) if made.partition else set()
                if olds and joined:
                    raise NotSaid("all columns of a join, partitioned")
                for each in sorted(feed.columns, key=lambda column: column.physical in olds):
                    if wanted in ("", each.qualifier):
                        name = f"{each.qualifier}_{each.name}" if joined else each.name
                        columns.append(Column("", name, each.physical))
                continue
            value = feed.scope.make(inner)
            name = one.alias.lower() if isinstance(one, exp.Alias) else ""
            if not name and isinstance(inner, exp.Column):
                name = inner.name.lower()
                if joined and len(owners.get(name, ())) > 1 and inner.table:
                    name = f"{inner.table.lower()}_{name}"
            elif not name:
                while f"ksql_col_{unnamed}" in owners:
                    unnamed += 1
                name = f"ksql_col_{unnamed}"
                unnamed += 1
            if value.meta.is_column():
                columns.append(Column("", name, value.meta.output_name()))
                continue
            physical = self.names.fresh(name)
            fresh[physical] = value
            columns.append(Column("", name, physical))
        shown = [one.physical for one in columns]
        wider = feed.extend(fresh)
        for name in shown:
            if pa.types.is_temporal(wider.data.schema.field(name).type):
                raise NotSaid("type timestamp")
        if feed.candidates and not set(feed.key) & set(shown):
            stands = next((name for name in shown if name in feed.candidates), None)
            columns = [replace(one, physical=feed.key[0]) if one.physical == stands else one for one in columns]
        return replace(wider, columns=tuple(columns), known=None, candidates=())


def _grace(made: Derived) -> timedelta:
    if made.grace is not None:
        return made.grace
    return timedelta(0) if made.final else DAY
