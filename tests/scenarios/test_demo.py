"""The demo as a stranger runs it, shortened: local processes, the whole story, an exact count, a readable screen."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import demo.story
from demo.screen import Screen, Step
from demo.story import Story
from demo.watch import Picture, Piece
from demo.words import build, judge

LINES_PER_SECOND = 500
LINES = 15 * LINES_PER_SECOND


@pytest.mark.timeout(200)
def test_the_story_ends_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEP_HOME", str(tmp_path))
    monkeypatch.setattr(demo.story, "CALM_SECONDS", 0.5)
    story = Story(build(LINES, LINES_PER_SECOND), "local")
    lines = StringIO()
    with Screen(Console(file=lines), "a word count", story.steps) as screen:
        rows = story.tell(screen)
    assert judge(LINES, rows).exact
    assert [step.title for step in story.steps if step.seconds is None] == []
    assert lines.getvalue().startswith("a word count\n")


def test_the_live_view_shows_numbers_partitions_and_steps() -> None:
    steps = [Step("start", 1.0, 2.5, "3 workers"), Step("split", 1.0), Step("merge")]
    pieces = (Piece("count/1", 0, 1024, "w1"), Piece("count/2", 1024, 4096, ""))
    console = Console(file=StringIO(), width=80)
    screen = Screen(console, "a word count", steps, Picture(703, 296_755, 15_012.4, (1.0, 2.0), pieces, 3))
    with console.capture() as captured:
        console.print(screen.render())
    text = captured.get()
    assert "296,755 words     15,012 words/s     epoch 703" in text
    assert "count/1  " + "━" * 8 + "─" * 24 + "  buckets 0–1023     worker w1" in text
    assert "✓  start    2.5 s  3 workers" in text
    assert "·  merge" in text


def test_a_wrong_count_is_not_exact() -> None:
    rows = [{"word": word, "n": 1, "lines": 0} for word in ("all", "the", "world's", "a")]
    assert judge(1, rows)[1:4] == (1, 0, 0)
    rows.append({"word": "stage", "n": 1, "lines": 7})
    assert judge(1, rows)[1:4] == (0, 0, 1)
