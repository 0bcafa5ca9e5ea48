"""What executors on other hosts get: seep and the flow's own modules, nothing installed, with what was compiled."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from seep.backends.shipping import own_modules, ship

COMPILED = """
from numba import njit

@njit(cache=True)
def double(number):
    return 2 * number

double(1)
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package and a module of a user's, both loaded."""
    home = tmp_path / "user"
    (home / "shop" / "prices").mkdir(parents=True)
    (home / "shop" / "__init__.py").write_text("")
    (home / "shop" / "prices" / "list.txt").write_text("apples 3")
    (home / "shop" / ".git").mkdir()
    (home / "loops_of_mine.py").write_text(COMPILED)
    monkeypatch.syspath_prepend(home)
    for name in ("shop", "loops_of_mine"):
        importlib.import_module(name)
        monkeypatch.delitem(sys.modules, name)
        sys.modules[name] = importlib.import_module(name)
    return home


def test_seep_and_what_the_user_wrote_is_shipped(modules: Path, tmp_path: Path) -> None:
    found = own_modules()
    assert {"seep", "operators", "shop", "loops_of_mine"} <= found.keys()
    assert not {"numpy", "pyarrow", "pytest", "json", "__main__"} & found.keys()
    library = ship(tmp_path)
    assert (library / "shop" / "prices" / "list.txt").read_text() == "apples 3"
    assert not (library / "shop" / ".git").exists()
    assert (library / "seep" / "backends" / "slot.py").is_file()


def test_what_was_compiled_is_not_compiled_again(modules: Path, tmp_path: Path) -> None:
    library = ship(tmp_path)
    code = "import loops_of_mine as m; print(m.__file__, m.double.stats.cache_hits, m.double.stats.cache_misses)"
    call = [sys.executable, "-c", code]
    done = subprocess.run(call, env={"PYTHONPATH": str(library)}, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(library))
    assert done.stdout.split()[1:3] == ["Counter({(int64,):", "1})"]


def test_it_is_laid_out_anew_each_time(tmp_path: Path) -> None:
    (ship(tmp_path) / "of_before.py").write_text("")
    assert not (ship(tmp_path) / "of_before.py").exists()
