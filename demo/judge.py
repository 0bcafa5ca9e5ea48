"""The same questions put to DuckDB, over every line that was sold: it knows nothing of epochs, windows or partitions.

Each result is compared row by row. A line that was lost or counted twice shows in the numbers of its region; one at the
wrong place, in the sum in which each line weighs as much as its number among those of its product.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from demo.load import Plan
from demo.sales import NO_ITEM, Tape
from demo.shop import BEST, BEST_MINUTES, BEST_OF, EVERYWHERE, HOUR, HOURS, MINUTE, MINUTES, SO_FAR

_PLACED = f"""create table placed as
select store, region, coalesce(item, '{NO_ITEM}') as item, cents, epoch_us("at") as "at",
    row_number() over (partition by product order by number) as place
from lines left join items using (product) left join stores using (store)"""


def _pane(seconds: int, every: int) -> str:
    """Which of the steps in which windows begin."""
    return f'"at" // {every * 1_000_000} as pane'


def _windows(seconds: int, every: int) -> str:
    """The starts of all windows that a pane is in, in microseconds."""
    return f"unnest(range(pane - {seconds // every - 1}, pane + 1)) * {every * 1_000_000} as window_start"


QUESTIONS = {
    MINUTES: f"""select store, region, window_start, count(*) as items, sum(cents)::bigint as total,
        median(cents)::double as median, avg(cents)::double as mean
        from (select *, {_windows(*MINUTE)} from (select *, {_pane(*MINUTE)} from placed)) group by all""",
    BEST: f"""with scopes as (
            select 'store ' || store as scope, item, {_pane(*BEST_MINUTES)} from placed
            union all select 'region ' || region, item, {_pane(*BEST_MINUTES)} from placed
            union all select '{EVERYWHERE}', item, {_pane(*BEST_MINUTES)} from placed),
        panes as (select scope, item, pane, count(*) as sold from scopes group by all),
        hops as (select scope, item, sold, {_windows(*BEST_MINUTES)} from panes),
        summed as (select scope, item, window_start, sum(sold)::bigint as sold from hops group by all)
        select scope, window_start,
            row_number() over (partition by scope, window_start order by sold desc, item) as rank, item, sold
        from summed qualify rank <= {BEST_OF}""",
    HOURS: f"""with panes as (
            select region, {_pane(*HOUR)}, count(*) as n, sum(cents) as cents from placed group by all),
        hops as (select region, n, cents, {_windows(*HOUR)} from panes)
        select region, window_start, sum(n)::bigint as items, sum(cents)::bigint as revenue from hops group by all""",
    SO_FAR: """select region, count(*) as items, sum(cents)::bigint as revenue,
        sum(cents * place)::bigint as weighed, max("at") as newest from placed group by all""",
}
"""Times are whole microseconds in the answers, so that no time zone comes between them."""


class Verdict(NamedTuple):
    lines: int
    lost: int
    duplicated: int
    rows: Mapping[str, int]
    """Of each result, as it should be."""
    wrong: Mapping[str, int]
    """Rows that should be there and are not, or are and should not."""

    @property
    def exact(self) -> bool:
        return not (self.lost or self.duplicated or any(self.wrong.values()))


def judge(tape: Tape, plan: Plan, found: Mapping[str, pa.Table]) -> Verdict:
    """``found``: what the flow has collected."""
    total = plan.lines(tape)
    sold = pa.Table.from_batches([plan.read(tape, 0, total)])
    with duckdb.connect() as connection:
        connection.register("lines", sold.append_column("number", pa.array(range(total), pa.int64())))
        connection.register("items", pa.Table.from_batches([tape.items]))
        stores = tape.stores
        by_store = {"store": [one.store for one in stores], "region": [one.region for one in stores]}
        connection.register("stores", pa.table(by_store))
        connection.execute(_PLACED)
        rows, wrong = {}, {}
        for name, question in QUESTIONS.items():
            connection.register("found", _in_microseconds(found[name]))
            connection.execute(f"create or replace table expected as {question}")
            rows[name] = _count(connection, "from expected")
            wrong[name] = _differences(connection)
        return Verdict(total, *_lines(connection), rows, wrong)


def _differences(connection: duckdb.DuckDBPyConnection) -> int:
    columns = ", ".join(name for name, *_ in connection.execute("describe expected").fetchall())
    missing = _count(connection, f"from (select {columns} from expected except all select {columns} from found)")
    return missing + _count(connection, f"from (select {columns} from found except all select {columns} from expected)")


def _lines(connection: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    """Lost and duplicated, by the last question."""
    query = """select coalesce(sum(greatest(should - is_, 0)), 0), coalesce(sum(greatest(is_ - should, 0)), 0) from (
        select coalesce(e.items, 0) as should, coalesce(f.items, 0) as is_ from expected e
        full join found f on e.region is not distinct from f.region)"""
    [(lost, duplicated)] = connection.execute(query).fetchall()
    return int(lost), int(duplicated)


def _count(connection: duckdb.DuckDBPyConnection, what: str) -> int:
    [(count,)] = connection.execute(f"select count(*) {what}").fetchall()
    return int(count)


def _in_microseconds(table: pa.Table) -> pa.Table:
    columns: dict[str, Any] = {
        name: column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return pa.table(columns)
