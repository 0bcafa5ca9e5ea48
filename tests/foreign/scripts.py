"""Runs sqllogictest scripts: each statement that changes tables is an epoch, each query a flow over all epochs so far.

A table is a source of changes, put in force by `table(deleted=)`; without a primary key its rows are keyed by all
columns that can be keys and a counter, which tells equal rows apart. Views are written into the flows that read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import sqlglot
from sqlglot import exp

import seep
from seep.connectors.contract import Rows
from tests.foreign import slt
from tests.foreign.casts import cast, literal_as
from tests.foreign.compared import difference
from tests.foreign.design import reason_for
from tests.foreign.expressions import Column, Scope
from tests.foreign.queries import Queries
from tests.foreign.relation import GONE, Names, Relation, polars_schema
from tests.foreign.types import arrow_type
from tests.foreign.verdicts import DIFFERS, FAILED, Differs, NotSaid, Verdict, verdict_of

COUNTER = "counter"
EMPTY_GROUP = "SQL has one row for an aggregate over nothing, a Table has no row for a group without rows"


class Epochs:
    """A source that gives one prepared record in each epoch."""

    splits = 1

    def __init__(self, chunks: list[list[dict[str, Any]]], schema: pa.Schema) -> None:
        self.schema = schema
        self.chunks = [pa.RecordBatch.from_pylist(chunk, schema=schema) for chunk in chunks]

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Rows | None:
        at = position or 0
        if at < len(self.chunks) and (until is None or at < until):
            return Rows(self.chunks[at], at + 1, at + 1 == len(self.chunks))
        return Rows(pa.RecordBatch.from_pylist([], schema=self.schema), at, True)


@dataclass
class BaseTable:
    """A table as the script has changed it so far."""

    schema: pa.Schema
    primary: tuple[str, ...]
    rows: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)
    log: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    unsaid: str = ""
    defaults: dict[str, exp.Expression] = field(default_factory=dict)

    @property
    def wire(self) -> pa.Schema:
        counter = [] if self.primary else [pa.field(COUNTER, pa.int64())]
        return pa.schema([*self.schema, *counter, pa.field(GONE, pa.bool_())])

    @property
    def keys(self) -> tuple[str, ...]:
        plain = [
            one.name for one in self.schema if not pa.types.is_floating(one.type) and not pa.types.is_nested(one.type)
        ]
        return self.primary or (*plain, COUNTER)

    def put(self, epoch: int, row: dict[str, Any]) -> None:
        if not self.primary:
            number = 0
            while tuple({**row, COUNTER: number}[name] for name in self.keys) in self.rows:
                number += 1
            row = {**row, COUNTER: number}
        key = tuple(row[name] for name in self.keys)
        self.rows[key] = row
        self.log.setdefault(epoch, []).append({**row, GONE: False})

    def delete(self, epoch: int, key: tuple[Any, ...]) -> None:
        self.log.setdefault(epoch, []).append({**self.rows.pop(key), GONE: True})

    def scope(self, name: str) -> Scope:
        columns = tuple(Column(name, one, one) for one in self.schema.names)
        return Scope(columns, polars_schema(self.schema))

    def frame(self) -> pl.DataFrame:
        rows = [{name: row[name] for name in self.schema.names} for row in self.rows.values()]
        made = pl.from_arrow(pa.Table.from_pylist(rows, schema=self.schema))
        assert isinstance(made, pl.DataFrame)
        return made


class Script:
    """The state of a script between its statements."""

    def __init__(self) -> None:
        self.tables: dict[str, BaseTable] = {}
        self.views: dict[str, exp.Expression] = {}
        self.unsaid: dict[str, str] = {}
        """Names that stand for something without a verb, and what it was."""
        self.epoch = 0

    # --- statements ----------------------------------------------------------------------------------------------

    def execute(self, sql: str) -> None:
        """Put a statement in force; what cannot be said taints the names that it makes or changes."""
        text = re.sub(r"\bappend\s+only\b|\bon\s+conflict\s+overwrite\b", "", sql, flags=re.I)
        named = re.match(
            r"\s*(?:create|alter|insert\s+into|delete\s+from|update|drop)\s+(?:or\s+replace\s+)?(?:materialized\s+)?"
            r"(?:table|view|source|sink|index|function)?\s*(?:if\s+(?:not\s+)?exists\s+)?\"?(\w+)",
            text, flags=re.I,
        )  # fmt: skip
        name = named.group(1).lower() if named else ""
        try:
            self._execute(text)
        except (NotSaid, sqlglot.errors.SqlglotError) as error:
            reason = str(error) if isinstance(error, NotSaid) else f"statement {' '.join(text.split()[:2]).lower()}"
            if name:
                self.unsaid[name] = reason

    def _execute(self, text: str) -> None:
        words = text.lower().split()
        fed = re.match(r"\s*create\s+sink\s+(?:if\s+not\s+exists\s+)?\w+\s+into\s+(\w+)", text, flags=re.I)
        if fed:
            self.unsaid[fed.group(1).lower()] = "a table that a sink fills"
            raise NotSaid("create sink")
        if "emit on window close" in " ".join(words):
            raise NotSaid("emit on window close")
        if not words or words[0] in ("set", "flush", "flush;", "explain", "show", "comment", "wait", "begin", "commit"):
            return
        node = sqlglot.parse_one(text, read="risingwave")
        if isinstance(node, exp.Create):
            self._create(node)
        elif isinstance(node, exp.Insert):
            self._insert(node)
        elif isinstance(node, exp.Delete):
            table, keys = self._matching(node)
            for key in keys:
                table.delete(self.epoch, key)
            self.epoch += 1
        elif isinstance(node, exp.Update):
            self._update(node)
        elif isinstance(node, exp.Drop):
            for one in filter(None, [node.this, *node.expressions]):
                for named in (self.tables, self.views, self.unsaid):
                    named.pop(one.name.lower(), None)
        elif words[0] not in ("select", "drop"):
            raise NotSaid(f"statement {words[0]} {words[1] if len(words) > 1 else ''}".strip())

    def _create(self, node: exp.Create) -> None:
        kind = (node.args.get("kind") or "").lower()
        name = (node.this.this if isinstance(node.this, exp.Schema) else node.this).name.lower()
        if kind == "index":
            return
        self.unsaid.pop(name, None)
        if kind == "view" and node.expression is not None:
            names = [one.name.lower() for one in node.this.expressions] if isinstance(node.this, exp.Schema) else []
            alias = exp.TableAlias(this=exp.to_identifier(name), columns=[exp.to_identifier(one) for one in names])
            self.views[name] = exp.Subquery(this=node.expression, alias=alias)
            return
        if kind != "table" or not isinstance(node.this, exp.Schema) or node.expression is not None:
            raise NotSaid(f"create {kind}")
        if node.args.get("properties") is not None:
            raise NotSaid("a table with a connector or properties")
        fields, primary, defaults = [], [], {}
        for one in node.this.expressions:
            if isinstance(one, exp.ColumnDef):
                fields.append(pa.field(one.name.lower(), arrow_type(one.args.get("kind"))))
                for constraint in (each.kind for each in one.constraints):
                    if isinstance(constraint, exp.PrimaryKeyColumnConstraint):
                        primary.append(one.name.lower())
                    elif isinstance(constraint, exp.DefaultColumnConstraint):
                        defaults[one.name.lower()] = constraint.this
                    elif not isinstance(constraint, exp.NotNullColumnConstraint):
                        raise NotSaid("generated columns")
            elif isinstance(one, exp.PrimaryKey):
                primary += [each.name.lower() for each in one.expressions]
            else:
                raise NotSaid("watermarks and constraints of a table")
        schema = pa.schema(fields)
        if any(pa.types.is_floating(schema.field(key).type) for key in primary):
            raise NotSaid("float and nested keys")
        self.tables[name] = BaseTable(schema, tuple(primary), defaults=defaults)

    def _table(self, name: str) -> BaseTable:
        if name in self.unsaid:
            raise NotSaid(self.unsaid[name])
        if name not in self.tables:
            raise NotSaid("a table that was made elsewhere")
        return self.tables[name]

    def _insert(self, node: exp.Insert) -> None:
        target = node.this.this if isinstance(node.this, exp.Schema) else node.this
        table = self._table(target.name.lower())
        names = [one.name.lower() for one in node.this.expressions] if isinstance(node.this, exp.Schema) else []
        names = names or table.schema.names
        for row in self._rows(node.expression, [table.schema.field(name) for name in names]):
            filled = {one.name: row.get(one.name, self._default(table, one)) for one in table.schema}
            table.put(self.epoch, filled)
        self.epoch += 1

    def _default(self, table: BaseTable, one: pa.Field) -> Any:
        given = table.defaults.get(one.name)
        return None if given is None else self._constant(given, one)

    def _rows(self, node: exp.Expression, fields: list[pa.Field]) -> Iterator[dict[str, Any]]:
        if isinstance(node, exp.Values):
            for one in node.expressions:
                values = one.expressions if isinstance(one, exp.Tuple) else [one]
                yield {field.name: self._constant(value, field) for field, value in zip(fields, values, strict=False)}
            return
        rows, relation, _ = self.run(node)
        physical = [one.physical for one in relation.columns]
        for row in rows:
            yield {field.name: row[name] for field, name in zip(fields, physical, strict=False)}

    def _constant(self, node: exp.Expression, to: pa.Field) -> Any:
        kind = polars_schema(pa.schema([to]))[to.name]
        if isinstance(node, exp.Literal) and node.is_string:
            return pl.select(literal_as(node, kind).cast(kind)).item()
        scope = Scope((), {})
        made = scope.make(node)
        return pl.select(cast(made, scope.type_of(made), kind)).item()

    def _matching(self, node: exp.Expression) -> tuple[BaseTable, list[tuple[Any, ...]]]:
        name = node.this.name.lower()
        table = self._table(name)
        where = node.args.get("where")
        keys = list(table.rows)
        if where is not None and keys:
            predicate = table.scope(node.this.alias_or_name.lower()).make(where.this)
            held = table.frame().with_columns(predicate.alias("__held"))["__held"]  # a constant holds for every row
            keys = [key for key, one in zip(keys, held.to_list(), strict=True) if one]
        return table, keys

    def _update(self, node: exp.Update) -> None:
        table, keys = self._matching(node)
        name = node.this.name.lower()
        scope = table.scope(name)
        frame = table.frame()
        new = {}
        for one in node.expressions:
            column, made = one.left.name.lower(), one.right
            kind = frame.schema[column]
            text = isinstance(made, exp.Literal) and made.is_string
            value = literal_as(made, kind) if text else scope.make(made)
            new[column] = frame.with_columns(value.cast(kind).alias(column))[column].to_list()
        places = {key: at for at, key in enumerate(table.rows)}
        rows = [({**table.rows[key]}, key, places[key]) for key in keys]
        for _, key, _ in rows:
            if not table.primary or set(new) & set(table.primary):
                table.delete(self.epoch, key)
        for row, _, at in rows:
            changed = {column: values[at] for column, values in new.items()}
            table.put(self.epoch, {one: changed.get(one, row[one]) for one in table.schema.names})
        self.epoch += 1

    # --- queries -------------------------------------------------------------------------------------------------

    def run(self, node: exp.Expression) -> tuple[list[dict[str, Any]], Relation, list[Any]]:
        """The rows that a query has now, by physical names; the relation, and the order asked for."""
        flow = seep.Flow("foreign")
        names = Names()
        made: dict[str, Relation] = {}

        def base(name: str) -> Relation:
            if name in self.unsaid:
                raise NotSaid(self.unsaid[name])
            if name in self.views and name not in made:
                view = self.views[name]
                columns = [one.name for one in view.args["alias"].args.get("columns") or []]
                made[name] = queries.fresh().query(view.this).renamed(name, columns)
            if name not in made:
                made[name] = self._source(flow, name, names)
            return made[name]

        def constant(rows: list[list[exp.Expression]], columns: list[str]) -> Relation:
            return self._constants(flow, rows, columns, names)

        queries = Queries(base, constant)
        relation, order = queries.ordered(node)
        relation.table.collect("result")
        return seep.run(flow, on="inline")["result"].to_pylist(), relation, order

    def _constants(
        self, flow: seep.Flow, rows: list[list[exp.Expression]], columns: list[str], names: Names
    ) -> Relation:
        scope = Scope((), {})
        kinds = [next((one for one in map(scope.type_of, map(scope.make, column)) if one != pl.Null), pl.String())
                 for column in zip(*rows, strict=True)]  # fmt: skip
        schema = pl.DataFrame(schema=dict(zip(columns, kinds, strict=True))).to_arrow().schema
        plain = pa.schema(
            [(one.name, pa.string() if pa.types.is_large_string(one.type) else one.type) for one in schema]
        )
        table = BaseTable(plain, ())
        for row in rows:
            table.put(0, {field.name: self._constant(value, field) for field, value in zip(plain, row, strict=True)})
        return self._read(flow, f"constants {names.fresh()}", "", table, [table.log.get(0, [])], names)

    def _source(self, flow: seep.Flow, name: str, names: Names) -> Relation:
        table = self._table(name)
        chunks = [table.log.get(epoch, []) for epoch in range(max(1, self.epoch))]
        return self._read(flow, f"table {name}", name, table, chunks, names)

    def _read(
        self,
        flow: seep.Flow,
        source: str,
        name: str,
        table: BaseTable,
        chunks: list[list[dict[str, Any]]],
        names: Names,
    ) -> Relation:
        stream = flow.source(source, Epochs(chunks, table.wire))
        made = stream.key_by(*table.keys).table(deleted=pl.col(GONE)).drop(GONE)
        return Relation(made, tuple(Column(name, one, one) for one in table.schema.names), names)


def judge(path: Path, name: str) -> Iterator[Verdict]:
    """Run a script; a verdict for each of its queries."""
    script = Script()
    refused = ""
    for record in slt.records(path):
        if record.kind == "statement":
            executed = verdict_of(f"{name}:{record.place}", partial(_executed, script, record.sql))
            if executed.outcome == FAILED:
                yield executed
        elif record.kind == "refused":
            refused = record.sql
        else:
            verdict = verdict_of(f"{name}:{record.place}", partial(_difference, script, record, refused))
            listed = reason_for(verdict.case) if verdict.outcome == FAILED else ""
            yield Verdict(verdict.case, DIFFERS, listed) if listed else verdict


def _executed(script: Script, sql: str) -> str:
    script.execute(sql)
    return ""


def _difference(script: Script, record: slt.Record, refused: str) -> str:
    """What is wrong; nothing if nothing is."""
    if record.kind == "error":
        raise NotSaid("an error is expected")
    if refused and "$" in record.sql:
        raise NotSaid(refused)
    try:
        node = sqlglot.parse_one(record.sql, read="risingwave")
    except sqlglot.errors.SqlglotError as error:
        raise NotSaid("syntax that sqlglot does not read") from error
    if not isinstance(node, exp.Query):
        script.execute(record.sql)
        raise NotSaid(f"query {record.sql.split()[0].lower()}")
    rows, relation, order = script.run(node)
    found = difference(rows, relation, order, record)
    if found and relation.global_aggregate and len(rows) < len(record.rows):
        raise Differs(EMPTY_GROUP)
    return found
