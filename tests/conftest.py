"""Rules for the whole suite: a server test that is skipped in CI is a failure, and property tests are repeatable."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

from benchmarks.servers.kafka import KafkaBroker, fetched

IN_CI = os.environ.get("CI") == "true"

settings.register_profile("quick", max_examples=60, deadline=None, derandomize=True)
settings.register_profile("long", max_examples=2_000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    skipped = report.skipped and not hasattr(report, "wasxfail")
    if IN_CI and skipped and item.get_closest_marker("server") is not None:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: skipped, and CI=true: its server must be there ({report.longrepr})"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module that skips itself (importorskip) has no marker to look at: in CI nothing may be left out whole."""
    report = yield
    if IN_CI and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid}: skipped as a whole, and CI=true ({report.longrepr})"
    return report


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker that tests share, each with topics of its own; whoever kills one starts another."""
    with new_kafka(tmp_path_factory) as broker:
        yield broker


@pytest.fixture
def mortal_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker of one test, which may do anything to it."""
    with new_kafka(tmp_path_factory) as broker:
        yield broker


def new_kafka(folders: pytest.TempPathFactory) -> KafkaBroker:
    if not fetched():
        pytest.skip("no Kafka: tools/setup kafka")
    return KafkaBroker(folders.mktemp("kafka") / "broker")
