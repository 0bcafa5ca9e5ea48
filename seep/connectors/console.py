"""Rows on the screen, as they are committed."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from seep.connectors.contract import Committed, Opening, Publish
from seep.model.arrow import BUCKET


class ConsoleSink:
    """Prints each row as a line of JSON. After a restart the last epoch may be printed again.

    In a job that is the console of a worker, its log; `seep run` on local workers shows it as it comes.
    """

    kind = "console"

    def open(self, opening: Opening) -> Publish:
        name = opening.name

        def publish(commits: Sequence[Committed]) -> int:
            for record in (commit.record for commit in commits if commit.record is not None):
                rows = record.drop_columns([BUCKET]).to_pylist()
                sys.stdout.write("".join(f"{name}: {json.dumps(row, default=str)}\n" for row in rows))
                sys.stdout.flush()
            return commits[-1].epoch

        return publish
