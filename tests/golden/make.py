"""Makes the golden savepoint of this version: ``python -m tests.golden.make``, once, when a version is released.

One that is there is never made anew: it is what jobs out there have.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

from tests.golden.flow import SAVED_EPOCHS, build
from tests.saving import save

HERE = Path(__file__).parent


def main() -> None:
    target = HERE / f"{version('seep')}.tar.xz"
    if target.exists():
        sys.exit(f"{target.name} is there already; it stays what it was")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "savepoint"
        save(build(), path, SAVED_EPOCHS, key=b"golden savepoint of seep, no key")
        with tarfile.open(target, "w:xz") as archive:
            archive.add(path, "savepoint", filter=_anonymous)
    print(f"{target.name}: {target.stat().st_size} bytes")


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    main()
