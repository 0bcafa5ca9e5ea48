"""Spark's Python daemon, warmed up: it forks the tasks' processes, so what it has loaded they have too.

Named by ``spark.python.daemon.module``. The same idea as the zygote of local workers.
"""

from __future__ import annotations

import os
import traceback


def main() -> None:
    from pyspark.daemon import manager

    job = os.environ.get("SEEP_JOB")
    if job:
        _warm_up(job)
    manager()


def _warm_up(job: str) -> None:
    try:
        from seep.backends.zygote import warm_up
        from seep.runtime.job import JobDirectory

        warm_up(JobDirectory(job))
    except Exception:
        # The same happens to the first worker, which can say so to more than a log.
        traceback.print_exc()


if __name__ == "__main__":
    main()
