"""Spark's Python daemon, warmed up: it forks the tasks' processes, so what it has loaded they have too.

Named by ``spark.python.daemon.module``. The same idea as the zygote of local workers.
"""

from __future__ import annotations

import os


def main() -> None:
    from pyspark.daemon import manager

    from seep.backends.zygote import warm_up
    from seep.runtime.job import JobDirectory

    job = os.environ.get("SEEP_JOB")
    if job:
        warm_up(JobDirectory(job))
    manager()


if __name__ == "__main__":
    main()
