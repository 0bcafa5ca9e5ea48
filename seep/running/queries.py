"""SQL over what operators remember: a DuckDB that lives as long as the query, the state of one epoch its tables.

What is wrong with a query is said before anything of the flow is touched: it is parsed, and tried on tables without
rows. Only the operators that it names are loaded then. The DuckDB reaches no file, no network and no variable of this
process, which may be the one that runs the controller; hence one thread, too, and a limit to its memory and time.
"""

from __future__ import annotations

import json
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from seep.errors import Misuse, Retry
from seep.partition.contract import Graph
from seep.running.savepoint import Savepoint
from seep.running.state import state_table
from seep.state.checkpoint import Checkpoint

if TYPE_CHECKING:  # half a second that jobs which are never asked do without
    import duckdb

CONFIGURATION = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "memory_limit": "1GB",
    "threads": "1",
}
PATIENCE_SECONDS = 30.0
ROWS_AT_MOST = 100_000
"""Of an answer that travels as JSON."""


class Answer(NamedTuple):
    epoch: int
    table: pa.Table


class Query:
    """One SELECT, checked against the operators of a flow."""

    def __init__(self, graph: Graph, sql: str) -> None:
        if not isinstance(sql, str):
            raise Misuse(f"sql={sql!r}; give a text, such as 'select * from store_minute'")
        self._graph, self._sql = graph, sql
        with _database(PATIENCE_SECONDS) as database:
            self.tables = _meant(graph, _tables_named(database, sql))
            """By the name that the query uses: the operator."""
            for name, operator in self.tables.items():
                empty = state_table(graph, operator, [])
                if not empty.column_names:
                    raise Misuse(f"sql: {operator!r} keeps no state; tables are: {', '.join(_listed(graph)) or 'none'}")
                database.register(name, _in_sql(empty))
            with _said_in_one_line():
                database.sql(sql)  # bound, not run

    def on(self, epoch: int, checkpoints: Callable[[str], Sequence[Checkpoint]]) -> Answer:
        """Its answer, from every partition's checkpoint of this epoch; `checkpoints`: of an operator."""
        with _database(PATIENCE_SECONDS) as database:
            for name, operator in self.tables.items():
                database.register(name, _in_sql(state_table(self._graph, operator, checkpoints(operator))))
            with _said_in_one_line():
                return Answer(epoch, database.sql(self._sql).to_arrow_table())


def answer_of(graph: Graph, saved: Savepoint, sql: str) -> Answer:
    """What a savepoint of this flow answers."""
    query = Query(graph, sql)
    try:
        return query.on(int(saved.manifest["epoch"]), saved.checkpoints)
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        # Out of an operator that finds other columns in its state than its own.
        told = f"{type(error).__name__}: {error}"
        raise Misuse(f"savepoint {saved.path.name!r} is of another version of the flow: {told}") from error


def shown(flow: str, answer: Answer) -> dict[str, Any]:
    """An answer as JSON has it. Times are ISO 8601; what JSON has no word for is text."""
    table = answer.table
    if table.num_rows > ROWS_AT_MOST:
        raise Misuse(
            f"sql: {table.num_rows:,} rows are too many to show (at most {ROWS_AT_MOST:,}); ask for fewer, or read the"
            " state with job.query() or Spark"
        )
    rows = [{name: _plain(value) for name, value in row.items()} for row in table.to_pylist()]
    return {"flow": flow, "epoch": answer.epoch, "columns": table.column_names, "rows": rows}


# --- names -------------------------------------------------------------------------------------------------------


def _meant(graph: Graph, named: Sequence[str]) -> dict[str, str]:
    """The operator of each table. To SQL names that differ in upper case alone are one."""
    found: dict[str, tuple[str, str]] = {}
    for name in named:
        operator = _operator(graph, name)
        first, other = found.setdefault(name.casefold(), (name, operator))
        if other != operator:
            raise Misuse(f"sql: {first!r} and {name!r} are one name to SQL; ask for one of them at a time")
    return dict(found.values())


def _operator(graph: Graph, name: str) -> str:
    """By its own name, or that without dashes, each in whatever case: the nearest."""
    operators = _operators(graph)
    folded = name.casefold()
    for there in (
        [one for one in operators if one == name],
        [one for one in operators if sql_name(one) == name],
        [one for one in operators if one.casefold() == folded],
        [one for one in operators if sql_name(one).casefold() == folded],
    ):
        if len(there) > 1:
            raise Misuse(
                f"sql: {name!r} may be {' or '.join(map(repr, there))}; give the name as it is, in double quotes"
            )
        if there:
            return there[0]
    raise Misuse(f"sql: no table {name!r}; tables are: {', '.join(_listed(graph)) or 'none'}")


def _operators(graph: Graph) -> list[str]:
    return [node.name for node in graph.nodes.values() if node.kind == "operator"]


def _listed(graph: Graph) -> list[str]:
    """Of those that there is something to see of; as they are, where two would look alike."""
    operators = _operators(graph)
    names = Counter(sql_name(name).casefold() for name in operators)
    shown = {name: sql_name(name) if names[sql_name(name).casefold()] == 1 else f'"{name}"' for name in operators}
    return [shown[name] for name in operators if state_table(graph, name, []).column_names]


def sql_name(name: str) -> str:
    """
    >>> sql_name("store-minute")
    'store_minute'
    """
    return name.replace("-", "_")


def _in_sql(table: pa.Table) -> pa.Table:
    names = [sql_name(name) for name in table.column_names]
    return table.rename_columns(names) if len({name.casefold() for name in names}) == len(names) else table


def _tables_named(database: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    """The tables that a query reads, as it spells them."""
    [(found,)] = database.execute("select json_serialize_sql(?)", [sql]).fetchall()
    tree = json.loads(found)
    if tree.get("error_type") == "not implemented":  # of all that is no SELECT
        raise Misuse(f"sql: {_one_line(sql)!r} is no select; state can only be read: give one select")
    if tree.get("error"):
        raise Misuse(f"sql: {_one_line(str(tree['error_message']))}")
    if len(tree["statements"]) != 1:
        raise Misuse(f"sql: {len(tree['statements'])} statements; give one select")
    nodes = list(_nodes(tree))
    own = {entry["key"].casefold() for node in nodes for entry in node.get("cte_map", {}).get("map", ())}
    named = [
        node["table_name"]
        for node in nodes
        if node.get("type") == "BASE_TABLE" and node["schema_name"].casefold() in ("", "main")
    ]
    return [name for name in dict.fromkeys(named) if name.casefold() not in own]


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Of a parsed query, every object."""
    if isinstance(tree, dict):
        yield tree
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _nodes(part)


# --- DuckDB ------------------------------------------------------------------------------------------------------


@contextmanager
def _database(seconds: float) -> Iterator[duckdb.DuckDBPyConnection]:
    import duckdb

    with duckdb.connect(":memory:", config={**CONFIGURATION}) as database:
        database.execute("set TimeZone = 'UTC'")
        database.execute("set lock_configuration = true")
        timer = threading.Timer(seconds, database.interrupt)
        timer.start()
        try:
            yield database
        finally:
            timer.cancel()


@contextmanager
def _said_in_one_line() -> Iterator[None]:
    import duckdb

    try:
        yield
    except duckdb.InterruptException:
        raise Retry(f"sql: no answer within {PATIENCE_SECONDS:.0f} s; ask for less, or read it with Spark") from None
    except duckdb.OutOfMemoryException:
        needed = f"more than {CONFIGURATION['memory_limit']} of memory is needed"
        raise Retry(f"sql: {needed}; ask for less, or read it with Spark") from None
    except duckdb.Error as error:
        raise Misuse(f"sql: {_one_line(str(error))}") from None


def _one_line(text: str) -> str:
    """Without the query, which DuckDB repeats below what it says."""
    return " ".join(text.split("\n\n")[0].split())


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Decimal():
            return int(value) if value.as_tuple().exponent == 0 else str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case bytes():
            return value.hex()
        case dict():
            return {str(name): _plain(one) for name, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
        case _:
            return str(value)
