"""``python -m tests.foreign FOLDER ..``: what becomes of every case, counted by reason."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.foreign.folders import files, judged
from tests.foreign.verdicts import FAILED, summary


def main() -> int:
    verdicts = []
    for folder in map(Path, sys.argv[1:]):
        for path in files(folder):
            verdicts += judged(path, folder)
    print("\n".join(summary(verdicts)))
    return int(any(verdict.outcome == FAILED for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
