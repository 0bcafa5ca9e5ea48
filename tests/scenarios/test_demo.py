"""The demo, smaller and on local processes: the whole story, exact results, a readable screen, a picture."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from io import StringIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from benchmarks.servers.kafka import fetched
from demo.edges import Edges, InMemory, OnKafka
from demo.judge import Verdict, judge
from demo.load import Dial, Plan, Tills
from demo.picture import Event, draw
from demo.report import report
from demo.sales import Tape, record
from demo.screen import Screen, Step
from demo.shop import LOOKUP, SO_FAR, Size, build
from demo.story import Script, Story
from demo.watch import Picture, Sample
from seep.running.job import Job
from tests.scenarios.oracles import advance, until

SMALL = Script(
    lines_per_second=1_000,
    size=Size(line_seconds=0.001, most=6, epoch_rows=200),
    base_seconds=2.0,
    calm_seconds=0.5,
    enough_seconds=2.0,
    hold_seconds=2.0,
    least=4,
)
PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def tape(tmp_path_factory: pytest.TempPathFactory) -> Tape:
    return record(tmp_path_factory.mktemp("tape"))


@pytest.mark.timeout(200)
def test_the_story_ends_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story, _, said = told(tmp_path, monkeypatch, InMemory())
    assert "lookup: 2 -> " in said
    kinds = [event.kind for event in story.events]
    assert [kinds.count("load"), kinds.count("kill"), kinds.count("back")] == [2, 1, 1]
    counts = [sample.partitions for sample in story.watch.samples]
    assert max(counts) > 2
    assert story.watch.picture.partitions <= SMALL.least or "not yet" in said, "given back, or said why not"
    draw(tmp_path / "demo.png", "supermarkets", story.watch.samples, story.dial.rates, story.events)
    assert (tmp_path / "demo.png").read_bytes().startswith(PNG)


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.timeout(400)
def test_from_and_to_kafka_it_is_exact_for_who_reads_committed_messages(
    tape: Tape, begin: Callable[..., Job], tmp_path: Path
) -> None:
    """Without the controller's part of the story, which needs a machine that is not too busy."""
    if not fetched():
        pytest.skip("no Kafka: tools/setup kafka")
    with closing(OnKafka(tmp_path)) as edges:
        dial = Dial(tape, tmp_path / "plan.json")
        edges.open(tape, dial.path)
        job = begin(build(tape, dial.path, SMALL.size, edges), workers=4)
        dial.begin(1_000)
        for victim in (LOOKUP, SO_FAR):
            advance(job, 40, SO_FAR, 120)
            job.kill(victim, 0)
        advance(job, 40, SO_FAR, 120)
        dial.end()
        assert dial.plan is not None
        lines = dial.plan.lines(tape)
        until(lambda: edges.all_in(lines), "all lines in the output", 120)
        edges.finish(job)
        job.wait(120)
        verdict, repeated = judge(tape, dial.plan, edges.found(job)), edges.repeated()
    assert (verdict.exact, repeated) == (True, 0), verdict
    assert verdict.lines > 2_000
    said = StringIO()
    report(Console(file=said, width=200), verdict, "kafka")
    assert "as a consumer of committed messages has seen them" in said.getvalue()


def told(path: Path, monkeypatch: pytest.MonkeyPatch, edges: Edges) -> tuple[Story, Verdict, str]:
    monkeypatch.setenv("SEEP_HOME", str(path / "home"))
    story = Story(path / "demo", "local", SMALL, edges)
    lines = StringIO()
    with Screen(Console(file=lines), "supermarkets", "made up", story.steps) as screen:
        verdict = story.tell(screen)
    assert verdict.exact, verdict
    assert verdict.lines > 10_000
    assert [step.title for step in story.steps if step.seconds is None] == []
    said = lines.getvalue()
    assert said.startswith("supermarkets\n")
    return story, verdict, said


def test_the_year_is_whole(tape: Tape) -> None:
    assert (len(tape.times), len(tape.stores)) == (1_469_307, 457)
    assert (np.diff(tape.times) >= 0).all()
    assert len({one.region for one in tape.stores}) == 8


def test_a_line_is_the_same_at_every_read_and_there_at_its_time(tape: Tape, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    start_us = 1_700_000_000_000_000
    tills = Tills(tape, path, 10_000_000)
    assert tills.read(0, None, None, 1_000, start_us // 1000) is None

    Plan(start_us, ((0, 100_000),)).write(path)
    first = tills.read(0, None, None, 10_000_000, start_us // 1000 + 1_000)
    assert first is not None
    assert 1_000 < first.position < 10_000
    assert first.record["at"].cast(pa.int64())[-1].as_py() <= start_us + 1_000_000

    # The load changes and ends: what was read before stays as it was.
    plan = Plan(start_us, ((0, 100_000), (2_000_000, 300_000)), 3_000_000)
    plan.write(path)
    again = tills.read(0, 0, first.position, 1, 0)
    assert again is not None
    assert again.record.equals(first.record)
    assert tills.behind(0, first.position, start_us // 1000 + 2_000) > 0
    rest = tills.read(0, first.position, None, 10_000_000, start_us // 1000 + 10_000)
    assert rest is not None
    assert (rest.position, rest.ended) == (plan.lines(tape), True)
    assert rest.record["at"].cast(pa.int64())[-1].as_py() < start_us + 3_000_000


def test_the_tape_begins_again_at_its_end(tape: Tape) -> None:
    plan = Plan(0, ((0, tape.length_us // 1_000_000),), 2_000_000)
    lines = len(tape.times)
    assert abs(plan.lines(tape) - 2 * lines) < lines // 1_000
    rows = plan.read(tape, lines - 2, lines + 2)
    assert rows.column("product")[2:].equals(tape.lines.column("product")[:2])
    times = rows.column("at").cast(pa.int64()).to_numpy()
    assert (np.diff(times) >= 0).all()


def test_a_wrong_sum_is_not_exact(tape: Tape) -> None:
    plan = Plan(0, ((0, 100_000),), 1_000_000)
    names = {"store": pa.int64(), "region": pa.string(), "window_start": pa.int64(), "scope": pa.string()}
    numbers = ("items", "total", "rank", "sold", "revenue", "weighed", "newest")
    schema = pa.schema({**names, "item": pa.string(), **dict.fromkeys(numbers, pa.int64())})
    schema = schema.append(pa.field("median", pa.float64())).append(pa.field("mean", pa.float64()))
    nothing = dict.fromkeys(("minutes", "best", "hours", SO_FAR), schema.empty_table())
    verdict = judge(tape, plan, nothing)
    assert (verdict.lost, verdict.duplicated) == (plan.lines(tape), 0)
    assert verdict.wrong == verdict.rows
    assert not verdict.exact


def test_the_live_view_shows_numbers_tables_and_steps() -> None:
    steps = [Step("start", 1.0, 2.5, "3 workers"), Step("scale out", 1.0), Step("scale in")]
    best = ({"rank": 1, "item": "bananas", "sold": 1_234},)
    regions = ({"region": "North", "revenue": 1_234_500, "item": "milk"},)
    stores = ({"store": 367, "items": 99, "total": 25_000, "median": 199.0, "mean": 252.5},)
    picture = Picture(296_755, 91_234_567, 0.4, 3, True, 7, 12, best, regions, stores)
    console = Console(file=StringIO(), width=100)
    screen = Screen(console, "supermarkets", "made up", steps, picture, (1.0, 15_012.4))
    with console.capture() as captured:
        console.print(screen.render())
    text = captured.get()
    assert "296,755 lines   $912,346 sold   15,012 lines/s   0.4 s behind the tills" in text
    assert "■ ■ ■ partitions of the lookup, 7 workers; changing" in text
    assert "1  bananas" in text
    assert "median 1.99" in text
    assert "North  $12,345  milk" in text
    assert "✓  start        2.5 s  3 workers" in text
    assert "·  scale in" in text


def test_a_picture_of_a_short_run_is_drawn(tmp_path: Path) -> None:
    samples = [Sample(1.0, 10.0, 0.1, 2), Sample(2.0, 30.0, 0.5, 3)]
    draw(tmp_path / "one.png", "short", samples, [(0.0, 10.0), (1.0, 30.0)], [Event(1.0, "load", "load triples")])
    assert (tmp_path / "one.png").read_bytes().startswith(PNG)
