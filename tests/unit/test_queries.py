"""SQL over state: what it may name and do, and what it answers, by operators that were run without any machinery."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest

import seep
from seep.errors import Misuse, Retry
from seep.flow.compile import compile_flow
from seep.model.ids import EVERYTHING, Generation, PartitionId
from seep.partition.contract import Graph
from seep.running import queries
from seep.running.queries import Answer, Query, shown
from seep.running.state import state_table
from seep.state.checkpoint import Checkpoint
from tests.unit.conftest import run_graph

ROWS = [{"word": f"w{i % 7}", "even": i % 2 == 0, "n": i} for i in range(100)]
PARTITIONS = 3


def counting() -> seep.Flow:
    flow = seep.Flow("words")
    words = flow.source("words", seep.MemorySource(ROWS, per_epoch=10))
    words.key_by("word").aggregate(times=seep.count(), sum=seep.total("n")).named("by-word").collect("out")
    words.key_by("even").aggregate(times=seep.count()).named("by_even").collect("evens")
    words.shuffle().map(lambda row: {"n": row.n}, schema={"n": int}).collect("more")
    return flow


class Ran:
    """A flow at its end; it counts what is loaded."""

    def __init__(self, flow: seep.Flow) -> None:
        self.graph = compile_flow(flow)
        self.made = run_graph(self.graph, PARTITIONS)["made"]
        self.loaded: Counter[str] = Counter()

    def checkpoints(self, operator: str) -> list[Checkpoint]:
        self.loaded[operator] += 1
        ranges = EVERYTHING.split(PARTITIONS)
        return [
            Checkpoint(
                PartitionId(operator, number),
                Generation(0, 0),
                ranges[number],
                1,
                0,
                7,
                0,
                0,
                False,
                logic.snapshot(True),
            )
            for number, logic in enumerate(self.made[operator])
        ]

    def ask(self, sql: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = Query(self.graph, sql).on(7, self.checkpoints).table.to_pylist()
        return rows


@pytest.fixture(scope="module")
def ran() -> Ran:
    return Ran(counting())


def test_rows_are_those_of_plain_python(ran: Ran) -> None:
    times, sums = Counter(r["word"] for r in ROWS), Counter[str]()
    for row in ROWS:
        sums[row["word"]] += row["n"]
    found = ran.ask("select * from by_word where sum > 700 order by word")
    assert found == [{"word": w, "times": times[w], "sum": sums[w]} for w in sorted(times) if sums[w] > 700]
    assert 0 < len(found) < 7


def test_several_operators_in_one_query_and_only_those_are_loaded(ran: Ran) -> None:
    ran.loaded.clear()
    assert ran.ask(
        "with w as (select sum(times) a from by_word) select a, sum(times) b from w, by_even group by a"
    ) == [{"a": 100, "b": 100}]
    assert ran.loaded == {"by-word": 1, "by_even": 1}
    ran.loaded.clear()
    assert ran.ask("""select count(*) n from BY_EVEN x join "by_even" y on x.even = y.even where x.even""") == [
        {"n": 1}
    ]
    assert ran.loaded == {"by_even": 1}
    ran.loaded.clear()
    assert ran.ask("""select count(*) n from "by-word" where word <> 'by_even'""") == [{"n": 7}]
    assert ran.loaded == {"by-word": 1}


def test_the_number_of_rows_is_bounded_where_they_travel_as_json(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Query(ran.graph, "select * from by_word").on(7, ran.checkpoints)
    monkeypatch.setattr(queries, "ROWS_AT_MOST", 6)
    with pytest.raises(Misuse, match="7 rows are too many to show"):
        shown("words", found)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select * from nowhere", "sql: no table 'nowhere'; tables are: by_word, by_even"),
        ("select * from words", "sql: no table 'words'; tables are: by_word, by_even"),
        ("select * from shuffle", "sql: 'shuffle' keeps no state; tables are: by_word, by_even"),
        ("select * from ran", "sql: no table 'ran'; tables are: by_word, by_even"),
        ("selec 1", 'sql: syntax error at or near "selec"'),
        ("select 1; select 2", "sql: 2 statements; give one select"),
        ("", "sql: 0 statements; give one select"),
        (7, "sql=7; give a text, such as 'select * from store_minute'"),
        ("select wrod from by_word", 'sql: Binder Error: Referenced column "wrod" not found'),
        ("select sum(word) from by_word", "sql: Binder Error: "),
        ("select * from '/etc/passwd'", "sql: no table '/etc/passwd'"),
        ("select * from read_csv('/etc/passwd')", "sql: Permission Error: "),
        ("select * from read_text('/etc/passwd')", "sql: Permission Error: "),
        ("select * from glob('/*')", "sql: Permission Error: "),
        ("select * from read_parquet('https://127.0.0.1/x')", "sql: "),
        ("drop table by_word", "sql: 'drop table by_word' is no select; state can only be read: give one select"),
        ("copy (select 1) to '/tmp/seep-must-not-exist'", "sql: "),
        ("attach '/tmp/seep-must-not-exist.db'", "sql: "),
        ("create table x as select 1", "sql: "),
        ("set enable_external_access = true", "sql: "),
        ("install httpfs", "sql: "),
        ("load '/tmp/seep-must-not-exist'", "sql: "),
        ("pragma database_list", "sql: "),
        ("call pragma_version()", "sql: "),
    ],
)
def test_what_is_wrong_is_said_in_one_line_before_anything_is_loaded(ran: Ran, sql: Any, said: str) -> None:
    ran.loaded.clear()
    with pytest.raises(Misuse) as refused:
        ran.ask(sql)
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)
    assert not ran.loaded


def test_what_only_shows_when_it_runs_is_said_in_one_line_too(ran: Ran) -> None:
    with pytest.raises(Misuse, match=r"^sql: Conversion Error: .*w\d") as refused:
        ran.ask("select cast(word as integer) from by_word")
    assert "\n" not in str(refused.value)


def test_a_query_that_takes_too_long_or_too_much_is_ended(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "PATIENCE_SECONDS", 0.2)
    with pytest.raises(Retry, match="sql: no answer within"):
        ran.ask("select sum(a.range * b.range) from range(1000000) a, range(10000000) b")
    monkeypatch.setattr(queries, "PATIENCE_SECONDS", 30.0)
    monkeypatch.setitem(queries.CONFIGURATION, "memory_limit", "16MB")
    with pytest.raises(Retry, match="sql: more than 16MB of memory is needed"):
        ran.ask("select list(range) from range(100000000)")


def test_every_value_has_a_form_in_json(ran: Ran) -> None:
    query = """select sum(sum) as whole, 1.5::decimal(4, 2) as exact, 'nan'::float as none, 'x'::blob as raw,
        null as empty, timestamptz '2026-01-02 03:04:05+00' as at, date '2026-01-02' as day, interval 2 seconds as took,
        {'a': [1, 2]} as nested, 0.5::double as half, true as yes from by_word"""
    [row] = shown("words", Query(ran.graph, query).on(7, ran.checkpoints))["rows"]
    assert row.pop("took")
    assert row == {
        "whole": sum(range(100)),
        "exact": "1.50",
        "none": "nan",
        "raw": "78",
        "empty": None,
        "at": "2026-01-02T03:04:05+00:00",
        "day": "2026-01-02",
        "nested": {"a": [1, 2]},
        "half": 0.5,
        "yes": True,
    }


def every_kind() -> seep.Flow:
    """Each operator that remembers something."""
    at = datetime(2026, 1, 1)
    rows = [{"k": i % 3, "v": i, "odd-name": i, "at": at + timedelta(seconds=i)} for i in range(20)]
    flow = seep.Flow("kinds")
    left = flow.source("left", seep.MemorySource(rows), time="at").key_by("k")
    right = flow.source("right", seep.MemorySource(rows), time="at").key_by("k")
    table = left.table()
    table.collect("table")
    table.join(right.table(), how="full").collect("joined-tables")
    right.join_table(table).collect("looked-up")
    right.join_table(flow.source("few", seep.MemorySource(rows)).key_by("k").broadcast()).collect("broadcast")
    left.join(right, within="5s", how="full").collect("interval")
    left.window(seep.tumbling("5s"), n=seep.count(), middle=seep.median("v")).collect("window")
    left.window(seep.session("5s"), n=seep.count(), all=seep.rows()).collect("session")
    left.window(seep.count_window(3), n=seep.count()).collect("counted")
    left.dedupe("v", ttl="1h").collect("dedupe")
    left.reduce(lambda a, b: {**a.as_dict(), "v": a.v + b.v}).collect("reduce")
    left.top(2, by="v").collect("top")
    flow.source("odd", seep.MemorySource(rows)).key_by("odd-name").aggregate(n=seep.count()).collect("odd-names")
    return flow


def test_the_state_of_every_kind_of_operator_can_be_asked_for() -> None:
    graph: Graph = compile_flow(every_kind())
    names = [node.name for node in graph.nodes.values() if node.kind == "operator"]
    assert len(names) >= 12
    for name in names:
        columns = state_table(graph, name, []).column_names
        found = Query(graph, f'from "{name}"').on(1, lambda _: []) if columns else Answer(1, None)
        assert found.table is None or found.table.column_names == [column.replace("-", "_") for column in columns]


def test_names_that_look_alike_are_told_apart() -> None:
    """To SQL, upper case does not count, and there is no dash in a name."""
    flow = seep.Flow("alike")
    words = flow.source("words", seep.MemorySource(ROWS, per_epoch=10)).key_by("word")
    for name, aggregate in {
        "Sales": seep.count(),
        "sales": seep.total("n"),
        "a-b": seep.minimum("n"),
        "a_b": seep.maximum("n"),
    }.items():
        words.aggregate(x=aggregate).named(name).collect(f"{name}-out")
    ran = Ran(flow)

    def answer(table: str) -> list[int]:
        return sorted(row["x"] for row in ran.ask(f"select x from {table}"))

    groups = [[n for n in range(100) if n % 7 == word] for word in range(7)]
    assert answer("Sales") == answer('"Sales"') == sorted(map(len, groups))
    assert answer("sales") == sorted(map(sum, groups))
    assert answer('"a-b"') == answer('"A-B"') == sorted(map(min, groups))
    assert answer("a_b") == answer("A_b") == sorted(map(max, groups))
    for table, said in {
        "SALES": "'SALES' may be 'Sales' or 'sales'; give the name as it is",
        "Sales join sales using (word)": "'Sales' and 'sales' are one name to SQL",
        "other": 'tables are: "Sales", "sales", "a-b", "a_b"$',
    }.items():
        with pytest.raises(Misuse, match=said):
            ran.ask(f"select * from {table}")
