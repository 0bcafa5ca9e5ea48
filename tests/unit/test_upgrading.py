"""What can be upgraded in place: the code of operators, and nothing that others rely on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import seep
from seep.control import planner
from seep.errors import DataLoss
from seep.flow.compile import compile_flow
from seep.protocol.effects import SwapJournal
from seep.protocol.journal import Code
from seep.running.upgrading import planned
from seep.runtime.identity import differences, identity_of
from seep.runtime.job import CODES, JobDirectory

OUT = {"k": str, "held": int}


class Sums(seep.Operator):
    held = seep.ValueState(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> None:
        self.held.value += row.n
        ctx.emit({"k": row.k, "held": self.held.value})


class Doubled(Sums):
    def on_row(self, row: Any, ctx: Any) -> None:
        self.held.value += 2 * row.n
        ctx.emit({"k": row.k, "held": self.held.value})


class Marked(Sums):
    seen = seep.SetState(str)


class Renamed(seep.Operator):
    kept = seep.ValueState(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> None:
        ctx.emit({"k": row.k, "held": self.kept.value})


Build = Callable[[seep.Stream], Any]


def flow_of(build: Build, epoch: str = "50ms", rows: int = 3) -> seep.Flow:
    flow = seep.Flow("sales", epoch=epoch)
    table = pa.table({"k": ["a", "b", "c"][:rows], "n": [1, 2, 3][:rows]})
    build(flow.source("rows", seep.MemorySource(table)))
    return flow


def applying(operator: seep.Operator, out: Any = OUT, **more: Any) -> Build:
    return lambda rows: rows.key_by("k").apply(operator, out=out, **more).named("sums").collect("out")


def chained(first: seep.Operator, second: seep.Operator) -> Build:
    def build(rows: seep.Stream) -> None:
        sums = rows.key_by("k").apply(first, out={"k": str, "n": int}).named("first")
        sums.key_by("k").apply(second, out=OUT).named("second").collect("out")

    return build


@pytest.fixture
def job(tmp_path: Path) -> Callable[[seep.Flow], JobDirectory]:
    def make(flow: seep.Flow) -> JobDirectory:
        return JobDirectory.create(tmp_path / "job", compile_flow(flow), flow.settings)

    return make


Job = Callable[[seep.Flow], JobDirectory]


def test_one_operator_that_changed(job: Job) -> None:
    directory = job(flow_of(applying(Sums())))
    ((name, code),) = planned(directory, flow_of(applying(Doubled())))
    upgrade = JobDirectory(directory.path).upgrade(code)
    assert (name, upgrade.node.name) == ("sums", "sums")
    old, new = directory.code()[0].nodes["sums"].make(), upgrade.node.make()
    new.load(upgrade.fit(old.snapshot(True), 0))


def test_two_that_changed_and_one_that_was_asked_for(job: Job) -> None:
    directory = job(flow_of(chained(Renamed(), Sums())))
    new = flow_of(chained(Marked(), Doubled()))
    with pytest.raises(seep.Misuse, match=r"'first' has no place for 'kept'.*drop 'first.kept'"):
        planned(directory, new)
    assert [name for name, _ in planned(directory, new, drop=["first.kept"])] == ["first", "second"]
    assert [name for name, _ in planned(directory, new, ["second"])] == ["second"]
    with pytest.raises(seep.Misuse, match=r"'second' is the same in the new app; changed: first"):
        planned(directory, flow_of(chained(Marked(), Sums())), ["second"])
    with pytest.raises(seep.Misuse, match=r"no operator 'nobody'; there are: .*first, second"):
        planned(directory, new, ["nobody"])
    with pytest.raises(seep.Misuse, match=r"drop second.x|drop first.kept: give"):
        planned(directory, new, ["second"], drop=["first.kept"])


@pytest.mark.parametrize(
    ("build", "more", "what"),
    [
        (applying(Sums()), {}, "nothing to upgrade"),
        (applying(Doubled(), {**OUT, "more": int}), {}, "sink 'out' differs|sends other columns to 'out'"),
        (applying(Doubled()), {"epoch": "20ms"}, "settings differ"),
        (applying(Doubled()), {"rows": 2}, "source 'rows' differs"),
        (lambda rows: rows.key_by("n").apply(Sums(), out=OUT).named("sums").collect("out"), {}, "in place.*savepoint"),
        (lambda rows: rows.key_by("k").apply(Sums(), out=OUT).named("new").collect("out"), {}, "'new' is new"),
        (lambda rows: rows.key_by("k").table().named("sums").changes().collect("out"), {}, "in place|'sums' was"),
        (
            lambda rows: applying(Sums())(rows.filter(lambda row: row.n > 1)),
            {},
            "source 'rows' differs, or a step that runs inside it",
        ),
        (applying(Renamed()), {}, "has no place for 'held'"),
    ],
)  # fmt: skip
def test_what_is_refused(job: Job, build: Build, more: dict[str, Any], what: str) -> None:
    directory = job(flow_of(applying(Sums())))
    with pytest.raises(seep.Misuse, match=what):
        planned(directory, flow_of(build, **more))
    assert not (directory.path / CODES).exists(), "refused, and something was kept"


def test_which_app_runs_after_an_upgrade(job: Job) -> None:
    directory, new = job(flow_of(applying(Sums()))), flow_of(applying(Doubled()))
    graph = compile_flow(new)
    ((_, code),) = planned(directory, new)
    now = identity_of(graph, new.settings)
    assert differences(directory.app({}), now)[0] == ["sums"]
    codes = {"sums": (Code(7, code),)}
    assert differences(directory.app(codes), now)[0] == []
    assert type(directory.graph(codes).nodes["sums"].make().head) is type(graph.nodes["sums"].make().head)
    journal = with_fields(planner.first_journal(graph), codes=codes)
    directory.store().perform(SwapJournal(0, 0, journal))
    assert JobDirectory.resume(directory.path, graph, new.settings).codes() == codes
    with pytest.raises(seep.Misuse, match="different: sums"):
        JobDirectory.resume(directory.path, compile_flow(flow_of(applying(Sums()))), new.settings)
    with pytest.raises(seep.Misuse, match="nothing to upgrade"):
        planned(directory, new)


def test_code_that_the_plan_does_not_name_is_not_run(job: Job) -> None:
    directory = job(flow_of(applying(Sums())))
    ((_, code),) = planned(directory, flow_of(applying(Doubled())))
    kept = directory.path / CODES / code
    (directory.path / CODES / ("0" * 64)).write_bytes(kept.read_bytes())
    kept.write_bytes(kept.read_bytes() + b" ")
    for name in (code, "0" * 64, "1" * 64):
        with pytest.raises(DataLoss, match="not the code that the plan names"):
            JobDirectory(directory.path).upgrade(name)
