"""Rows on the screen, as they are committed."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from seep.connectors.contract import Committed, Opening, Publish
from seep.model.arrow import BUCKET


class ConsoleSink:
    """Prints a line for each row: the sink's name, and the row as JSON. After a crash the last epoch may come again.

    In a job the lines go to the worker's log; `seep run` on local workers shows them as they come.

    >>> import seep
    >>> flow = seep.Flow("words")
    >>> flow.source("words", seep.MemorySource([{"word": "a"}, {"word": "b"}])).sink("screen", seep.ConsoleSink())
    >>> result = seep.run(flow)
    screen: {"word": "a"}
    screen: {"word": "b"}
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
