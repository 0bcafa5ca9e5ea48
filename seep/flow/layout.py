"""What an operator's saved state is made of: by this a savepoint is matched with another version of its flow.

A state table alone does not say enough: its keys are bytes, a least and a greatest value look alike, and so do the
entries of windows of one minute and of five. So a layout also holds the key columns, what each aggregate is, the
columns that came in (one that nobody read was not saved; one that was not there is new), and every setting that the
entries depend on.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa

from operators.apply import Operator, states_of
from operators.content import state_type
from seep.flow.fused import OWN
from seep.model.schema import physical
from seep.partition.contract import Node

FREE = frozenset({"keys", "on_error", "ttl_ms", "names", "period_us", "time_column", "deleted"})
"""Arguments that may change, since nothing that is saved depends on them, and the keys, which are looked at apart."""
KIND = b"kind"
"""In the metadata of a field: which aggregate, which kind of state."""


@dataclass(frozen=True)
class Layout:
    """Of the state of one operator."""

    verb: str
    settings: Mapping[str, Any]
    """By name: what the entries depend on, such as the size of a window."""
    keys: pa.Schema
    columns: pa.Schema
    """Those that come in, of all inputs."""
    aggregates: pa.Schema
    """By name: the type that each reads."""
    states: pa.Schema
    """Of a user's Operator: by name, what each holds."""
    version: int
    """Of the states of a user's Operator (`Operator.state_version`)."""
    tables: Mapping[str, pa.Schema]

    def as_plain(self) -> dict[str, Any]:
        """For JSON."""
        schemas = {name: _text(getattr(self, name)) for name in ("keys", "columns", "aggregates", "states")}
        tables = {name: _text(schema) for name, schema in self.tables.items()}
        return {"verb": self.verb, "settings": self.settings, "version": self.version, **schemas, "tables": tables}

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> Layout:
        schemas = {name: _schema(plain[name]) for name in ("keys", "columns", "aggregates", "states")}
        tables = {name: _schema(text) for name, text in plain["tables"].items()}
        return cls(verb=plain["verb"], settings=plain["settings"], version=plain["version"], tables=tables, **schemas)


def layout_of(node: Node) -> Layout:
    """Of an operator as it is now."""
    subject, given = made_of(node.make.head)
    settings = {"verb": "", "columns": pa.schema([]), **(node.settings or {})}
    user = isinstance(subject, Operator)
    return Layout(
        verb=settings["verb"],
        settings={name: _plain(value) for name, value in given.items() if name not in FREE and _depends(value)},
        keys=_keys(given),
        columns=settings["columns"],
        aggregates=_aggregates(given),
        states=_states(subject) if user else pa.schema([]),
        version=subject.state_version if user else 0,
        tables={name: table.schema for name, table in node.make().snapshot(True).tables.items() if name not in OWN},
    )


def made_of(head: Any) -> tuple[Any, Mapping[str, Any]]:
    """What an operator is made of: its class or the user's object, and its arguments."""
    if isinstance(head, partial) and len(head.args) == 2 and isinstance(head.args[1], Mapping):
        return head.args[0], head.args[1]
    return None, {}


def _depends(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(isinstance(one, str | pl.Expr) for one in value)
    return value is None or isinstance(value, str | int | float)


def _plain(value: Any) -> Any:
    return [str(one) for one in value] if isinstance(value, tuple | list) else value


def _keys(given: Mapping[str, Any]) -> pa.Schema:
    if "left" in given:
        return _chosen(given["left"].schema, given["left"].keys)
    keys: Any = given.get("keys") or ()
    if keys and not isinstance(keys[0], str):
        keys = keys[0]
    schemas = [given["schema"]] if "schema" in given else given.get("inputs") or [given.get("rows")]
    return _chosen(schemas[0], keys) if isinstance(schemas[0], pa.Schema) else pa.schema([])


def _chosen(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    found = physical(schema)
    return pa.schema([found.field(name) for name in names])


def _aggregates(given: Mapping[str, Any]) -> pa.Schema:
    """What they compute of may change like any code, as long as what they remember of it stays the same."""
    schema = given.get("schema", given.get("rows"))
    fields = []
    for name, spec in given.get("aggregates", {}).items():
        kind = spec.aggregate if not spec.approx else f"{spec.aggregate}, approx"
        if spec.aggregate == "top":
            kind = str(spec)
        # Of what is counted, or kept whole, the type is not looked at, or stands in the state itself.
        read = None if spec.whole or spec.aggregate == "count" else spec.input_type(physical(schema))
        fields.append(pa.field(name, read or pa.null(), metadata={KIND: kind}))
    return pa.schema(fields)


def _states(operator: Operator) -> pa.Schema:
    return pa.schema(
        [
            pa.field(name, state_type(declared), metadata={KIND: type(declared).__name__})
            for name, declared in states_of(operator).items()
        ]
    )


def _text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


def _schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
