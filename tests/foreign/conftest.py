"""What became of the foreign cases is said at the end of the run, whatever it is."""

from __future__ import annotations

import pytest

from tests.foreign.verdicts import Verdict, summary

VERDICTS = pytest.StashKey[list[Verdict]]()


@pytest.fixture(scope="session")
def foreign_verdicts(pytestconfig: pytest.Config) -> list[Verdict]:
    """Where tests put their verdicts."""
    return pytestconfig.stash.setdefault(VERDICTS, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    found = config.stash.get(VERDICTS, [])
    if found:
        terminalreporter.section("foreign cases")
        for line in summary(found):
            terminalreporter.write_line(line)
