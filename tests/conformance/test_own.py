"""A user's own source and sink: what seep makes of them, and what the checks for them find."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import polars as pl
import pyarrow as pa
import pytest

import seep
from seep.connectors.contract import Committed, Opening
from seep.connectors.own import OwnSink, connector_of
from seep.model.arrow import BUCKET
from seep.testing import check_sink, check_source
from tests.scenarios.conftest import Start
from tests.scenarios.conftest import begin as begin
from tests.scenarios.conftest import home as home
from tests.scenarios.oracles import until

COUNT = 230


class Row(NamedTuple):
    n: int
    text: str


class Number(NamedTuple):
    n: int


class Numbers(seep.Source):
    """Answers as many as it likes at once, as rows or as columns; positions are whatever it likes, too."""

    schema = Row
    partitions = 3

    def read(self, position: Any) -> tuple[Any, Any]:
        at = 0 if position is None else position["at"]
        size = random.choice((0, 1, 5, 40))
        numbers = range(at, min(at + size, COUNT))
        rows = [{"n": self.partition * 1000 + n, "text": f"row {n}"} for n in numbers]
        halves = [rows[: size // 2], pa.RecordBatch.from_pylist(rows[size // 2 :])] if len(rows) > 3 else [rows]
        after = {"at": at + len(rows), "why": ("tuple", 1)}
        return halves, after if at + len(rows) < COUNT else None


class Log(seep.Sink):
    """JSON lines; a line with the rows of some epochs says who has written up to where."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[int, list[Any]] = {}

    def write(self, epoch: int, batch: pa.RecordBatch) -> None:
        self.rows[epoch] = batch.to_pylist()

    def commit(self, epoch: int) -> None:
        mark = max((line["epoch"] for line in lines(self.path) if line["writer"] == self.writer), default=-1)
        new = [row for at, rows in sorted(self.rows.items()) if at > mark for row in rows]
        with self.path.open("a") as file:
            file.write(json.dumps({"writer": self.writer, "epoch": max(mark, epoch), "rows": new}) + "\n")
        self.rows = {}


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def rows_in(path: Path) -> list[Any]:
    return [row for line in lines(path) for row in line["rows"]]


@pytest.mark.parametrize("seed", [7])
def test_they_keep_the_contract(tmp_path: Path, seed: int) -> None:
    check_source(Numbers, seed=seed)
    check_sink(lambda: Log(tmp_path / "out"), lambda: rows_in(tmp_path / "out"), seed=seed)


def test_a_source_of_nothing_ends() -> None:
    flow = seep.Flow("nothing")
    flow.source("none", Given([([], None)])).collect("rows")
    assert seep.run(flow)["rows"].num_rows == 0


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_through_a_job_with_kills(begin: Start, tmp_path: Path) -> None:
    flow = seep.Flow("own", epoch="20ms", checkpoint="200ms")
    rows = flow.source("numbers", Slow(tmp_path / "gate")).scale(start=2)
    rows.key_by("n").dedupe("n", "text").named("once").sink("out", Log(tmp_path / "out"))
    job = begin(flow, workers=3)
    until(lambda: len(rows_in(tmp_path / "out")) > 100, "some rows")
    job.kill("numbers", 0)
    until(lambda: len(rows_in(tmp_path / "out")) > 200, "more rows")
    job.kill("out", 0)
    (tmp_path / "gate").touch()
    job.wait(40.0)
    found = sorted(row["n"] for row in rows_in(tmp_path / "out"))
    assert found == [part * 1000 + n for part in range(3) for n in range(COUNT)]


class Slow(Numbers):
    def __init__(self, gate: Path) -> None:
        self.gate = gate

    def read(self, position: Any) -> tuple[Any, Any]:
        if not self.gate.exists() and random.random() < 0.7:
            return [], position if position is not None else {"at": 0}
        return super().read(position)


class Given(seep.Source):
    schema = Number

    def __init__(self, answers: list[Any]) -> None:
        self.answers: Iterator[Any] = iter(answers)

    def read(self, position: Any) -> Any:
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Folder(seep.Source):
    """A partition for each file of a folder, also for those that are put there later; each is a line to a row."""

    schema = Number
    endless = True

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def partitions(self) -> int:  # type: ignore[override]
        return len(list(self.path.iterdir()))

    def read(self, position: Any) -> tuple[Any, Any]:
        at = position or 0
        found = (self.path / str(self.partition)).read_text().split()[at : at + 5]
        return [[{"n": int(n)} for n in found]], at + len(found)


def test_partitions_that_a_source_gets_later_are_read_from_their_start(begin: Start, tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()

    def put(number: int) -> None:
        aside = tmp_path / str(number)
        aside.write_text(" ".join(str(100 * number + n) for n in range(50)))
        aside.replace(folder / str(number))

    def numbers() -> list[int]:
        return sorted(row["n"] for row in rows_in(out))

    put(0)
    flow = seep.Flow("grows", epoch="20ms", checkpoint="200ms")
    flow.source("files", Folder(folder)).scale(start=2).sink("out", Log(out))
    job = begin(flow, workers=2)
    until(lambda: len(numbers()) == 50, "the first file", 60.0)
    for number in (1, 2):
        put(number)
    job.kill("files", 1)
    until(lambda: len(numbers()) == 150, "the others", 60.0)
    (folder / "2").unlink()
    with pytest.raises(seep.DataLoss, match="source Folder: partitions=2, and it had 3; they may only become more"):
        job.wait(60.0)
    assert numbers() == [100 * number + n for number in range(3) for n in range(50)]


def test_a_row_that_does_not_fit_is_a_dead_letter_and_what_fails_is_tried_again() -> None:
    flow = seep.Flow("bad")
    answers = [ConnectionError("away"), ([[{"n": 1}, {"n": "x"}, {}]], "a"), OSError(), ([[(2,)]], None)]
    rows = flow.source("given", Given(answers))
    rows.collect("rows")
    rows.errors.collect("errors")
    result = seep.run(flow)
    assert result["rows"].to_pylist() == [{"n": 1}, {"n": 2}]
    assert [(row["row"], row["position"][:2]) for row in result["errors"].to_pylist()] == [
        ('{"n": "x"}', "0:"),
        ("{}", "0:"),
    ]


WRONG: list[tuple[Any, str]] = [
    (KeyError("x"), "read(None) raises KeyError: 'x'"),
    (7, "read(None) answers 7; give (batches, position)"),
    (([7], 1), "read(None) answers ([7], 1); give (batches, position)"),
    (([{"n": 1}], 1), "a batch is a dict; give each as a list of rows"),
    (([Number(1)], 1), "a batch is a Number"),
    (([pa.table({"n": [1]})], 1), "a batch is a Table"),
    (([pl.DataFrame({"n": [1]})], 1), "a batch is a DataFrame"),
    ((pa.RecordBatch.from_pydict({"n": [1]}), 1), "a batch is a Int64Array"),
    (([pa.RecordBatch.from_arrays([pa.array([1])] * 2, ["n", "n"])], 1), "a batch has the columns n, n; its"),
    (([[{"n": 1}]], b"x"), "the position b'x' cannot be kept"),
    (([pa.RecordBatch.from_pydict({"m": [1]})], 1), "a batch has the columns m; its schema says n"),
    (([pa.RecordBatch.from_pydict({"n": ["x"]})], 1), "a batch does not fit its schema"),
    (
        ([pa.RecordBatch.from_pydict({"n": [datetime(2024, 1, 1)]})], 1),
        "a batch does not fit its schema: column 'n' is a time",
    ),
]


@pytest.mark.parametrize(("answer", "why"), WRONG)
def test_a_wrong_answer_stops_the_flow_in_one_line(answer: Any, why: str) -> None:
    flow = seep.Flow("wrong")
    flow.source("given", Given([answer])).collect("rows")
    with pytest.raises(seep.Misuse) as refused:
        seep.run(flow)
    assert f"source Given: {why}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_is_no_source_is_refused_where_it_is_declared() -> None:
    flow = seep.Flow("refused")

    class Silent(seep.Source):
        def read(self, position: Any) -> Any:
            return [], None

    class Empty(Silent):
        schema = Number
        partitions = 0

    with pytest.raises(seep.Misuse, match="Silent does not say its schema"):
        flow.source("a", Silent())
    with pytest.raises(seep.Misuse, match="Empty: partitions=0"):
        flow.source("b", Empty())
    with pytest.raises(TypeError, match="abstract"):
        seep.Source()  # type: ignore[abstract]


# --- the checks find what is wrong -----------------------------------------------------------------------------------


class Shifting(Numbers):
    def read(self, position: Any) -> tuple[Any, Any]:
        at = position or 0
        return [[(at + random.randrange(3), "")]], at + 1 if at < 30 else None


class Moving(Numbers):
    """Says the same position for different rows."""

    def read(self, position: Any) -> tuple[Any, Any]:
        at = position or 0
        return [[(n, "") for n in range(at, at + random.randrange(1, 4))]], at + 2 if at < 30 else None


@pytest.mark.parametrize("make", [Shifting, Moving])
def test_a_source_that_breaks_the_contract_is_found(make: Callable[[], Any]) -> None:
    with pytest.raises(AssertionError, match=r"rows differ|rows, "):
        check_source(make)


def test_a_source_without_rows_is_not_tried() -> None:
    with pytest.raises(AssertionError, match="it gave no rows"):
        check_source(lambda: seep.MemorySource([], schema={"n": int}))


class Careless(Log):
    """Keeps no epoch."""

    def commit(self, epoch: int) -> None:
        with self.path.open("a") as file:
            rows = [row for _, found in sorted(self.rows.items()) for row in found]
            file.write(json.dumps({"writer": "", "epoch": 0, "rows": rows}) + "\n")
        self.rows = {}


class Nameless(Log):
    """Keeps the epoch under a name that another run has, too."""

    def commit(self, epoch: int) -> None:
        self.writer = "me"
        super().commit(epoch)


class Late(Log):
    """Forgets the last commit."""

    def commit(self, epoch: int) -> None:
        if epoch < 58:
            super().commit(epoch)


@pytest.mark.parametrize(("kind", "why"), [(Careless, "others see"), (Nameless, "another run"), (Late, "others see")])
def test_a_sink_that_breaks_the_contract_is_found(tmp_path: Path, kind: type[Log], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        check_sink(lambda: kind(tmp_path / "out"), lambda: rows_in(tmp_path / "out"))


class Refusing(seep.Sink):
    def write(self, epoch: int, batch: pa.RecordBatch) -> None:
        raise ValueError("it takes no such rows")

    def commit(self, epoch: int) -> None: ...


def test_a_sink_that_refuses_the_last_rows_is_no_end(home: Path) -> None:
    """All there is comes in one epoch, so what is refused is also the end of the input."""
    flow = seep.Flow("refused")
    flow.source("rows", seep.MemorySource([{"n": 1}])).sink("out", Refusing())
    with pytest.raises(seep.SeepError, match="it takes no such rows"):
        seep.run(flow, on="local")


class Down(seep.Sink):
    """Its outside is away for some commits."""

    def __init__(self, commits: int, problem: Exception) -> None:
        self.left, self.problem = [problem] * commits, problem
        self.shown: list[int] = []

    def __copy__(self) -> Down:
        return self

    def write(self, epoch: int, batch: pa.RecordBatch) -> None: ...

    def commit(self, epoch: int) -> None:
        if self.left:
            raise self.left.pop()
        self.shown.append(epoch)


def inline_into(sink: seep.Sink, guarantee: str = "exactly-once") -> None:
    flow = seep.Flow("down", guarantee=guarantee)
    flow.source("rows", seep.MemorySource([{"n": n} for n in range(3)], per_epoch=1)).sink("out", sink)
    seep.run(flow)


def test_inline_an_outside_that_is_down_is_tried_again_in_order_and_not_without_end() -> None:
    away = Down(3, OSError("no\nserver"))
    inline_into(away)
    assert away.shown == [1, 2, 3]
    gone = Down(100, OSError("no\nserver"))
    with pytest.raises(seep.Retry, match=r"^out/0: cannot publish, tried 20 times .*: no server$"):
        inline_into(gone)
    assert not gone.shown, "what comes after it is not shown without it"


def test_inline_what_a_sink_may_show_once_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    away = Down(1, OSError("no\nserver"))
    inline_into(away, "at-most-once")
    assert away.shown == [2, 3]
    assert capsys.readouterr().err == "out/0: cannot publish, epoch 1 may be lost (at most once): no server\n"


def test_inline_a_sink_that_raises_is_the_users_to_mend() -> None:
    with pytest.raises(seep.Misuse, match=r"^out: sink Down: commit\(1\) raises RuntimeError: boom x$"):
        inline_into(Down(1, RuntimeError("boom\nx")))


class Buffers(seep.Sink):
    """As in the guide: what it is given is kept in a dict that `__init__` has made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[int, list[int]] = {}

    def write(self, epoch: int, batch: pa.RecordBatch) -> None:
        self.rows[epoch] = batch.column("n").to_pylist()

    def commit(self, epoch: int) -> None:
        with self.path.open("a") as file:
            file.writelines(f"{n}\n" for numbers in self.rows.values() for n in numbers)
        self.rows = {}


def test_partitions_of_a_sink_in_one_worker_share_nothing(tmp_path: Path) -> None:
    """Rows of one were overwritten by those of another, or written by both."""
    there = cloudpickle.loads(cloudpickle.dumps(OwnSink(Buffers(tmp_path / "out")).prepared()))
    first, second = (there.open(Opening("out", number)) for number in (0, 1))

    def epoch(at: int, n: int) -> Committed:
        return Committed(at, pa.record_batch({"n": [n], BUCKET: pa.array([0], pa.uint16())}), False)

    first([epoch(1, 10), epoch(2, 20), epoch(3, 30)])
    second([epoch(1, 11)])
    second([epoch(2, 21), epoch(3, 31)])
    assert sorted(map(int, (tmp_path / "out").read_text().split())) == [10, 11, 20, 21, 30, 31]


class Reads(seep.Source):
    schema = {"n": int}  # noqa: RUF012
    partitions = 2

    def __init__(self) -> None:
        self.given: list[int] = []

    def read(self, position: Any) -> Any:
        self.given.append(self.partition)
        return [[(self.partition,) for _ in self.given]], None


def test_partitions_of_a_source_in_one_worker_share_nothing() -> None:
    there = cloudpickle.loads(cloudpickle.dumps(connector_of(Reads())))
    found = [there.read(split, None, None, 10, 0).record.num_rows for split in range(2)]
    assert found == [1, 1]
