"""Rows on the screen, as they are committed."""

from __future__ import annotations

import json
import sys

import pyarrow as pa

from seep.connectors.contract import Publish
from seep.model.arrow import BUCKET


class ConsoleSink:
    """Prints each row as a line of JSON. After a restart the last epoch may be printed again."""

    kind = "console"

    def open(self, name: str) -> Publish:
        def publish(epoch: int, record: pa.RecordBatch | None, ended: bool) -> int:
            if record is not None:
                rows = record.drop_columns([BUCKET]).to_pylist()
                sys.stdout.write("".join(f"{name}: {json.dumps(row, default=str)}\n" for row in rows))
                sys.stdout.flush()
            return epoch

        return publish
