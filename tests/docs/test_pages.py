"""The documentation is true: its examples run, its links lead somewhere, the files it names exist."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

import seep
from seep.cli.main import app
from seep.control.governor import HELD
from seep.flow.stream import Stream
from seep.flow.table import Table
from seep.running.job import Job
from seep.testing import Driver

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
NAMED_FILE = re.compile(r"`((?:seep|operators|demo|benchmarks|tests|docs|tools|requirements|deploy)/[\w./-]*)`")
INSIDE = {"keys_behind", "stream_only", "query_shown", "unwaiting", "upgrade_to"}
"""For other parts of seep; users need not know them."""
FOREIGN = re.compile(r"/(?:tmp|work|home|root)/|://(?:localhost|\d)")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [p for p in PAGES if EXAMPLE.search(p.read_text())], ids=name_of)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page's blocks run one after the other, in one module, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    module = ModuleType("page_" + re.sub(r"\W", "_", name_of(page)))
    monkeypatch.setitem(sys.modules, module.__name__, module)  # annotations are resolved through it
    # Workers get a page's functions by value, as they would get those of a script.
    cloudpickle.register_pickle_by_value(module)
    text = page.read_text()
    for block in EXAMPLE.finditer(text):
        line = text.count("\n", 0, block.start(1))
        # Blank lines in front make a traceback point at the page's own line.
        exec(compile("\n" * line + block.group(1), str(page), "exec"), module.__dict__)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    targets = [target for target in LINK.findall(page.read_text()) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_named_exist(page: Path) -> None:
    assert [name for name in NAMED_FILE.findall(page.read_text()) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_machine_shows(page: Path) -> None:
    assert FOREIGN.search(page.read_text()) is None


def test_every_reason_to_hold_a_wish_back_is_explained() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|", (ROOT / "docs" / "guide" / "scaling.md").read_text(), re.MULTILINE)
    assert rows == list(HELD)


@pytest.mark.parametrize("face", [Stream, Table, Job, Driver, seep], ids=lambda face: face.__name__)
def test_every_name_is_in_the_guide(face: Any) -> None:
    guide = "\n".join(page.read_text() for page in [ROOT / "README.md", *(ROOT / "docs" / "guide").glob("*.md")])
    kinds = [seep] if face is seep else [kind for kind in face.__mro__ if kind is not object]
    names = {name for kind in kinds for name in (kind.__all__ if face is seep else vars(kind)) if name[0] != "_"}
    missing = {name for name in names - INSIDE if not re.search(rf"[.`(/\s]{name}\b", guide)}
    assert missing == set()


def test_every_verb_of_the_command_line_is_on_its_page() -> None:
    page = (ROOT / "docs" / "guide" / "command-line.md").read_text()
    verbs = [command.callback.__name__ for command in app.registered_commands if command.callback is not None]
    assert [verb for verb in verbs if f"`seep {verb}" not in page] == []


def test_requirements_name_no_host() -> None:
    for path in (ROOT / "requirements").glob("*.txt"):
        lines = [line for line in path.read_text().splitlines() if line]
        assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[\w.+!]+( ;.*)?", line)] == [], path


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    folders = {"decisions"} if "decisions/*" in index else set()
    pages = [p.relative_to(ROOT / "docs") for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts]
    missing = [p for p in pages if str(p.with_suffix("")) not in index and p.parts[0] not in folders]
    assert missing == [Path("index.md")]
