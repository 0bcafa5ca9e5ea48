"""The same job with its workers on Spark executors: one is killed, and nothing shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from seep.backends.spark import SparkBackend
from seep.runtime.job import JobDirectory
from tests.scenarios.toy import Job

pytest.importorskip("pyspark")


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("master", ["local[6]", "local-cluster[2,2,900]"])
def test_a_worker_on_spark_is_killed(tmp_path: Path, master: str) -> None:
    def backend(job: JobDirectory) -> SparkBackend:
        return SparkBackend(job, master)

    job = Job(tmp_path / "job", 30_000, backend)
    try:
        job.until(lambda: job.epoch() >= 5, seconds=150)
        killed = job.host.kill(job.host.partition("count", 0))
        assert killed.startswith("s")
        job.until(lambda: killed not in job.host.view.workers)
        assert job.host.wait(100)
        assert (job.host.outcome, job.host.report) == ("finished", "")
        job.assert_exact()
        assert job.host.backend.workers() == []
    finally:
        if not job.host.ended.is_set():
            job.host.abandon()
            job.host.wait(30)
