"""An upgrade in place, with kills in the middle of it and after it, wherever workers run and the state is kept.

Local processes with a directory have more of it in `tests/scenarios/test_upgrade.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conformance.test_backends import ON_RAY, ON_SPARK
from tests.scenarios.conftest import Start
from tests.scenarios.conftest import begin as begin
from tests.scenarios.conftest import home as home
from tests.scenarios.conftest import redis as redis
from tests.scenarios.oracles import advance, until
from tests.scenarios.test_upgrade import New, Old, check, flow_of, kill, named, upgrade_beside
from tests.servers import RedisServer

START_SECONDS = 120.0
SLOW = pytest.mark.slow
"""Spark and Ray take longer to start than a quick test may last."""


def upgraded_under_kills(begin: Start, gate: Path, **options: Any) -> None:
    job = begin(flow_of(Old, gate, 2), workers=2, **options)
    advance(job, 20, "rows", START_SECONDS)

    def hit() -> None:
        until(lambda: named(job) or job.journal.codes, "the epoch of the upgrade")
        kill(job, "sums")

    (done,) = upgrade_beside(job, flow_of(New, gate), hit)["upgraded"]
    advance(job, 10, "rows", START_SECONDS)
    kill(job, "sums")
    gate.touch()
    check(job.wait(START_SECONDS)["rows"].to_pylist(), done["epoch"])


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # pyspark leaves sockets to the collector
@pytest.mark.parametrize(
    ("on", "where"),
    [
        pytest.param("spark", {"master": "local-cluster[2,3,900]"}, marks=[*ON_SPARK, SLOW]),
        pytest.param("ray", {}, marks=[*ON_RAY, SLOW]),
    ],
)
def test_an_upgrade_on_a_cluster(begin: Start, tmp_path: Path, on: str, where: dict[str, str]) -> None:
    upgraded_under_kills(begin, tmp_path / "gate", on=on, **where)


@pytest.mark.server
@pytest.mark.timeout(120)
def test_an_upgrade_with_its_state_in_redis(begin: Start, redis: RedisServer, tmp_path: Path) -> None:
    upgraded_under_kills(begin, tmp_path / "gate", store=redis.url)
