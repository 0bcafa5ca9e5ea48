"""Correctness cases of other engines: those in every folder that SEEP_CASES names, and always the few beside this file.

One test for each file: a case that seep's verbs cannot say is no failure and no skip (a skip would hide that seep was
not even asked), so it is counted by reason in the summary that ends the run. A wrong result is a failure, always.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.foreign.folders import files, judged
from tests.foreign.verdicts import FAILED, UNSAID, Verdict

OWN = Path(__file__).parent / "cases"
FOLDERS = [OWN, *(Path(name) for name in os.environ.get("SEEP_CASES", "").split(os.pathsep) if name)]
FOUND = [
    pytest.param(path, folder, id=f"{folder.name}/{path.relative_to(folder.resolve())}")
    for folder in FOLDERS
    for path in files(folder)
]


@pytest.mark.parametrize(("path", "folder"), FOUND)
def test_cases(path: Path, folder: Path, foreign_verdicts: list[Verdict]) -> None:
    verdicts = list(judged(path, folder))
    foreign_verdicts += verdicts
    assert [f"{one.case}: {one.reason}" for one in verdicts if one.outcome == FAILED] == []
    if folder == OWN:
        assert [f"{one.case}: {one.reason}" for one in verdicts if one.outcome == UNSAID] == []
