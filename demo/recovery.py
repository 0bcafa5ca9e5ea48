"""When is a kill overcome? When the output has something that the dead cannot have sent.

The last things a killed worker sent may still be on their way, and what is known of the others is some reports old, so
"the output goes on" says little. Instead: every partition that died runs again under a higher generation; the source,
knowing of that, names its epoch (later than anything the dead have seen); and the sink has committed a later one.
The time until then is a little too long, never too short.
"""

from __future__ import annotations

from collections.abc import Container

from seep.running.job import Job


class Recovery:
    def __init__(self, job: Job, doomed: Container[str], source: str, sink: str) -> None:
        """To be made before these workers are killed."""
        self._job = job
        self._source, self._sink = source, sink
        entries = job.host.view.journal.entries.values()
        self._dead = {e.partition: e.generation for e in entries if e.worker in doomed}
        self._version = 0
        """Of the first journal in which all that died are started again."""
        self._goal: int | None = None

    @property
    def partitions(self) -> int:
        """That died."""
        return len(self._dead)

    def over(self) -> bool:
        view = self._job.host.view
        entries = view.journal.entries
        if not self._version:
            if any(p in entries and entries[p].generation == generation for p, generation in self._dead.items()):
                return False
            self._version = view.journal.version
        if self._goal is None:
            told = {p: s for p, s in view.statuses.items() if s.journal_version >= self._version}
            epochs = [s.epoch for p, s in told.items() if p.operator == self._source and s.epoch >= 0]
            self._goal = max(epochs) if epochs else None
        out = [s.epoch for p, s in view.statuses.items() if p.operator == self._sink]
        return self._goal is not None and bool(out) and min(out) > self._goal
