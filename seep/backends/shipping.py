"""What executors on other hosts import: seep and the flow's own modules, laid into the job's directory.

They reach that directory anyway, so nothing else has to carry it there. Folders are copied as they are, with the times
of their files and the compiled loops beside them: by both the cache of numba knows that nothing is to be compiled (in a
zip it would find neither). Installed libraries are not shipped: those with compiled parts belong to a system.
"""

from __future__ import annotations

import shutil
import site
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

OURS = ("seep", "operators")
FOLDER = "lib"


def ship(job_path: Path) -> Path:
    """Lay them out anew; the folder to import from."""
    home = job_path / FOLDER
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    for name, place in sorted(own_modules().items()):
        if place.is_dir():
            shutil.copytree(place, home / name, ignore=shutil.ignore_patterns(".*"), ignore_dangling_symlinks=True)
        else:
            _copy_module(place, home)
    return home


def own_modules() -> dict[str, Path]:
    """Those of seep, and all loaded top-level modules that are neither Python's nor an installed library's: a file or
    a folder each.

    >>> set(OURS) <= own_modules().keys()
    True
    """
    specs = [find_spec(name) for name in OURS]
    found = {spec.name: Path(str(spec.origin)).parent.resolve() for spec in specs if spec is not None}
    for name, module in list(sys.modules.items()):
        place = _place(module)
        if "." in name or place is None or name in sys.stdlib_module_names or name in OURS:
            continue
        if not any(place.is_relative_to(folder) for folder in _installed()):
            found[name] = place
    return found


def _place(module: ModuleType) -> Path | None:
    if paths := list(getattr(module, "__path__", ())):
        place = Path(paths[0])
    elif module.__name__.startswith("__") or not getattr(module, "__file__", None):
        return None  # the app itself goes with the flow's code, by value
    else:
        place = Path(str(module.__file__))
    return place.resolve() if place.exists() else None


def _installed() -> set[Path]:
    paths = [sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
    return {Path(place).resolve() for place in (*paths, *site.getsitepackages(), site.getusersitepackages())}


def _copy_module(place: Path, home: Path) -> None:
    shutil.copy2(place, home)
    compiled = sorted(place.parent.glob(f"__pycache__/{place.stem}.*"))
    if compiled:
        (home / "__pycache__").mkdir(exist_ok=True)
    for one in compiled:
        shutil.copy2(one, home / "__pycache__")
