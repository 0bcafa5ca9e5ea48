"""The documentation is true: its examples run, its links lead somewhere, the files it names exist."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import cloudpickle
import pytest

from seep.control.governor import HELD

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
NAMED_FILE = re.compile(r"`((?:seep|operators|demo|benchmarks|tests|docs|tools|requirements|deploy)/[\w./-]*)`")
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
