"""Running flows: what is collected, what an operator's state looks like to its user, what is refused."""

from __future__ import annotations

import importlib
import signal
import socket
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import seep
from seep.errors import Bug, DataLoss, Misuse, Retry, SeepError, error_of, report_of
from seep.flow.compile import compile_flow
from seep.flow.logical import Vertex
from seep.model.epoch import Moment
from seep.model.ids import BEGINNING, EVERYTHING, Generation, PartitionId
from seep.running import Job
from seep.running.state import check_operator, saved_graph, state_table
from seep.running.witness import Witness
from seep.runtime.job import JobDirectory
from seep.state.checkpoint import Checkpoint
from seep.testing import chaos

ROOT = Path(__file__).parents[2]
ROWS = [
    {"store": "a", "amount": 5, "at": datetime(2024, 1, 1, 0, 0, 1, tzinfo=UTC)},
    {"store": "b", "amount": 7, "at": datetime(2024, 1, 1, 0, 0, 2, tzinfo=UTC)},
    {"store": "a", "amount": 1, "at": datetime(2024, 1, 1, 0, 1, 3, tzinfo=UTC)},
]


class Everything(seep.Operator):
    last = seep.ValueState(int, default=0)
    all = seep.ListState(int)
    by = seep.MapState(str, int)
    tags = seep.SetState(str)
    count = seep.CounterState()
    store = seep.ValueState(dict)

    def on_row(self, row: Any, ctx: Any) -> None:
        self.last.value = row.amount
        self.all.append(row.amount)
        self.by[row.store] = row.amount
        self.tags.add("x")
        self.count.add(2)
        self.store.value = {"odd": 1}


def flow_of_all() -> seep.Flow:
    flow = seep.Flow("all")
    rows = flow.source("rows", seep.MemorySource(ROWS), time="at")
    keyed = rows.key_by("store")
    keyed.aggregate(n=seep.count(), mean=seep.mean("amount")).named("count").collect("counts")
    keyed.window(seep.tumbling("1m"), revenue=seep.total("amount")).named("minute").collect("minutes")
    keyed.table().named("latest").select("store", "amount").named("narrow").collect("narrowed")
    keyed.apply(Everything, out={"x": int}).named("everything").collect("nothing")
    return flow


def states(parts: int = 1) -> dict[str, list[dict[str, Any]]]:
    """The state of each operator after one epoch of all rows, looked at as if it had so many partitions."""
    graph = compile_flow(flow_of_all())
    reading = graph.nodes["rows"].make().read(0, None, None, 100, 0)
    sent = dict(reading.outputs)
    found = {}
    for name, node in graph.nodes.items():
        if node.kind != "operator":
            continue
        logic = node.make()
        inputs = [(e.port, sent[e.name]) for e in graph.inputs(name) if e.name in sent]
        sent |= logic.take(Moment(1, 0, BEGINNING, BEGINNING), inputs)
        whole = logic.snapshot(True)
        saved = [
            Checkpoint(PartitionId(name, at), Generation(1, 1), cut, 1, 0, 1, 0, 0, False, whole.part(cut))
            for at, cut in enumerate(EVERYTHING.split(parts))
        ]
        found[name] = state_table(graph, name, reversed(saved)).to_pylist()
    return found


def test_state_is_a_table_its_user_understands() -> None:
    found = {name: sorted(rows, key=lambda row: (row["store"], str(row))) for name, rows in states().items()}
    assert found["count"] == [{"store": "a", "n": 2, "mean": 3.0}, {"store": "b", "n": 1, "mean": 7.0}]
    assert [(r["store"], r["window_start"].minute, r["window_end"].minute, r["revenue"]) for r in found["minute"]] == [
        ("a", 0, 1, 5),
        ("a", 1, 2, 1),
        ("b", 0, 1, 7),
    ]
    assert found["latest"] == [ROWS[2], ROWS[1]]
    assert found["narrow"] == [{"store": "a", "amount": 1}, {"store": "b", "amount": 7}]
    assert found["everything"][0] == {
        "store": "a",
        "last": 1,
        "all": [5, 1],
        "by": [("a", 1)],
        "tags": ["x"],
        "count": 4,
        "store_state": "{'odd': 1}",
    }


@pytest.mark.parametrize("parts", [2, 5])
def test_how_it_is_partitioned_does_not_show(parts: int) -> None:
    assert states(parts) == states()


def test_what_has_no_state_is_refused() -> None:
    graph = compile_flow(flow_of_all())
    check_operator(graph, "count")
    with pytest.raises(seep.Misuse, match="'rows' is a source and keeps no state; operators are: count, minute"):
        check_operator(graph, "rows")
    with pytest.raises(seep.Misuse, match="no operator 'x'"):
        check_operator(graph, "x")


def test_run_gives_a_table_for_each_name() -> None:
    result = seep.run(flow_of_all(), on="inline", workers=2)
    assert set(result) == {"counts", "minutes", "narrowed", "nothing"}
    assert isinstance(result["counts"], pa.Table)
    with pytest.raises(KeyError, match="collected are: counts"):
        result["x"]
    assert "counts: 2 rows" in repr(result)


def test_an_inline_run_tells_of_dead_letters_that_nobody_takes(capsys: pytest.CaptureFixture[str]) -> None:
    flow = seep.Flow("letters")
    rows = flow.source("rows", seep.MemorySource([{"n": n} for n in (0, 1, 0)], per_epoch=1))
    rows.map(lambda row: 1 // row.n, schema=int).collect("out")
    taken = rows.map(lambda row: 1 // row.n, schema=int).named("taken")
    taken.collect("other")
    taken.errors.collect("errors")
    result = seep.run(flow)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("2 rows became dead letters at rows.map: ZeroDivisionError: ")
    assert result.dead_letters == 2
    assert "dead letters: 2" in repr(result)
    assert seep.run(flow_of_all()).dead_letters == 0


def test_what_cannot_run_is_refused() -> None:
    with pytest.raises(seep.Misuse, match="no option 'spare'"):
        seep.run(flow_of_all(), spare=2)
    with pytest.raises(seep.Misuse, match="workers=0; give a whole number"):
        seep.run(flow_of_all(), workers=0)
    with pytest.raises(seep.Misuse, match=r"no job to hold; call seep.run\(flow\)"):
        seep.start(flow_of_all(), on="inline")
    with pytest.raises(seep.Misuse, match="there are 'inline', 'local', 'spark' and 'ray'"):
        seep.start(flow_of_all(), on="moon")
    with pytest.raises(seep.Misuse, match="belongs to on='spark'"):
        seep.start(flow_of_all(), on="local", master="x")
    with pytest.raises(seep.Misuse, match="nothing to resume"):
        seep.start(flow_of_all(), resume=True)


@pytest.mark.parametrize("wrong", ["10s", -1, True, float("nan")])
def test_what_is_no_number_of_seconds_is_refused(wrong: Any) -> None:
    job: Any = SimpleNamespace(host=SimpleNamespace(wait=pytest.fail))
    with pytest.raises(Misuse, match=f"^timeout_seconds={wrong!r}; give a number of seconds, such as 30$"):
        Job.wait(job, wrong)
    with pytest.raises(Misuse, match=f"^seconds={wrong!r}; give a number of seconds, such as 30$"):
        chaos(job, "kill every 1s", wrong)


def test_a_port_that_is_taken_is_refused_while_an_earlier_run_is_still_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEEP_HOME", str(tmp_path))
    kept = tmp_path / "all" / "store" / "kept"
    kept.parent.mkdir(parents=True)
    kept.touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("SEEP_API_PORT", str(taken.getsockname()[1]))
        with pytest.raises(Misuse, match="each flow needs a port of its own"):
            seep.start(flow_of_all(), workers=1)
    assert kept.exists()


def test_a_sink_nobody_feeds_is_refused_before_anything_starts() -> None:
    flow = seep.Flow("alone")
    rows = flow.source("rows", seep.MemorySource(ROWS))
    rows.collect("all")
    flow.add(Vertex("sink", "sink", "here", {}, seep.MemorySink(), settings={"schema": rows.schema}, name="alone"))
    for start in (seep.run, seep.start):
        with pytest.raises(seep.Misuse, match="nobody feeds the sink 'alone'"):
            start(flow)


@pytest.fixture(autouse=True)
def home(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEP_HOME", str(tmp_path))


def failing_flow() -> seep.Flow:
    flow = seep.Flow("failing")
    rows = flow.source("rows", seep.MemorySource(ROWS))
    rows.map(lambda row: {"n": 1 // (row.amount - 7)}, schema={"n": int}, on_error="fail").collect("all")
    return flow


@pytest.mark.parametrize("on", ["inline", "local"])
def test_a_users_failure_is_the_users_to_mend(on: str) -> None:
    with pytest.raises(seep.Misuse, match="ZeroDivisionError"):
        seep.run(failing_flow(), on=on)


def test_what_cannot_be_sent_to_workers_is_named() -> None:
    lock = threading.Lock()
    flow = seep.Flow("locked")
    rows = flow.source("rows", seep.MemorySource(ROWS)).shuffle().named("spread")
    rows.filter(lambda row: not lock.locked()).named("mine").collect("all")
    with pytest.raises(seep.Misuse, match=r"operator 'spread' cannot be sent to workers: cannot pickle '_thread.lock'"):
        seep.start(flow, on="local")


def test_reports_carry_their_kind() -> None:
    class Special(Misuse):
        pass

    assert report_of(Special("x"), "count:\n  no") == "Misuse: count: no"
    for kind in (SeepError, Misuse, Retry, DataLoss, Bug):
        assert type(error_of(report_of(kind("x"), "x"))) is kind
    assert type(error_of("count/0: its base is gone")) is DataLoss
    assert str(error_of("count/0: its base is gone")) == "count/0: its base is gone"


def test_an_inline_run_of_what_never_ends_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    sources = (seep.GeneratorSource(lambda i: {"n": i}, rate=10), seep.FileSource(tmp_path / "a.txt", follow=True))
    for source in sources:
        flow = seep.Flow("endless")
        flow.source("rows", source).collect("all")
        with pytest.raises(seep.Misuse, match="source 'rows' never ends"):
            seep.run(flow)


INTERRUPTED = """
import seep
from seep.connectors.contract import Rows

class Slow(seep.GeneratorSource):
    endless = False  # as a source that cannot say

    def read(self, *arguments):
        print("reading", flush=True)
        return super().read(*arguments)

flow = seep.Flow("slow")
flow.source("rows", Slow(lambda i: {"n": i}, rate=10)).collect("all")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_an_inline_run_without_a_traceback(tmp_path: Path, number: int) -> None:
    (tmp_path / "app.py").write_text(INTERRUPTED)
    call = [sys.executable, "-c", "from seep.cli.main import main; main()", "run", str(tmp_path / "app.py")]
    process = subprocess.Popen(
        [*call, "--on", "inline"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "reading\n"
    process.send_signal(number)
    _, problem = process.communicate(timeout=30)
    assert (process.returncode, problem) == (130, "")


def test_who_reads_a_job_finds_the_modules_beside_its_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app, before = tmp_path / "app", list(sys.path)
    app.mkdir()
    (app / "beside_it.py").write_text("def twice(row): return {'n': 2 * row.n}")
    monkeypatch.setattr(sys, "path", [str(app), *before])
    flow = seep.Flow("beside")
    numbers = flow.source("numbers", seep.MemorySource([{"n": 1}]))
    numbers.map(importlib.import_module("beside_it").twice, schema={"n": int}).key_by("n").aggregate(
        c=seep.count()
    ).collect("out")
    directory = JobDirectory.create(tmp_path / "job", compile_flow(flow), flow.settings)
    for read in (lambda: saved_graph(directory.path), lambda: Witness(directory).close()):
        monkeypatch.setattr(sys, "path", list(before))
        monkeypatch.delitem(sys.modules, "beside_it")
        read()
        assert sys.path[: len(before)] == before, "what this process has comes first"
