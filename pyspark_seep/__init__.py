"""seep as a data source of Spark: the state of a flow to read, its output to follow.

Spark imports every package whose name begins with ``pyspark_`` and takes its `DefaultSource`, so ``format("seep")``
works wherever seep is installed. What takes time to import is imported when it is used.

    spark.read.format("seep").option("flow", "sales").option("operator", "store-minute").load()
    spark.readStream.format("seep").option("flow", "sales").option("sink", "per-store").load()
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from seep.errors import Misuse

if TYPE_CHECKING:
    from pyspark_seep.output import OutputReader
    from pyspark_seep.state import StateReader

OPTIONS = ("flow", "path", "operator", "at", "sink")


class DefaultSource(DataSource):
    """``flow`` (or ``path``: its job's directory), and ``operator`` with or without ``at``, or ``sink``."""

    @classmethod
    def name(cls) -> str:
        return "seep"

    def schema(self) -> StructType:
        from pyspark_seep.types import spark_schema

        if self.options.get("sink"):
            return spark_schema(self.streamReader(StructType()).output_schema())
        return spark_schema(self.reader(StructType()).state_schema())

    def reader(self, schema: StructType) -> StateReader:
        from pyspark_seep.state import StateReader

        return StateReader(self._job(), self._given("operator"), self.options.get("at"), schema)

    def streamReader(self, schema: StructType) -> OutputReader:  # noqa: N802
        from pyspark_seep.output import OutputReader

        return OutputReader(self._job(), self._given("sink"), schema)

    def _given(self, name: str) -> str:
        value = self.options.get(name)
        if not value:
            known = "spark.read needs an operator, spark.readStream a sink; both a flow, or the path of its job"
            raise Misuse(f"format('seep'): option {name!r} is missing: {known}")
        return str(value)

    def _job(self) -> Path:
        """The directory of the job, as all tasks find it."""
        from seep.runtime.home import job_path

        unknown = [name for name in self.options if name.casefold() not in OPTIONS]
        if unknown:
            raise Misuse(f"format('seep') has no option {unknown[0]!r}; options are: {', '.join(OPTIONS)}")
        path = self.options.get("path")
        return Path(path).absolute() if path else job_path(self._given("flow")).absolute()
