"""A witness of a running job: sees what its logs say meanwhile, and tells afterwards what they should have said.

It follows the epoch logs of the sources and the committed logs of the sinks, file by file, and disturbs nobody. From a
savepoint taken at the beginning the flow is run on in this process, one epoch after the other, over the same cuts of
the input, by the simulator's oracle: no partitions, no protocol, no faults; an operator that is upgraded meanwhile runs
the new code from the epoch that the journal names. What the sinks have committed must be that.
An input that cannot be read again, or a log of which something was missed, is said and never passed over.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace as with_fields
from typing import Any

from seep.connectors.memory import MemorySink
from seep.flow.outlet import decode
from seep.model.arrow import ArrowState, compact
from seep.model.epoch import Moment
from seep.model.ids import PartitionId
from seep.partition.contract import Graph, Upgrade
from seep.protocol.effects import ReadJournal
from seep.protocol.journal import Journal
from seep.running.compared import Difference, compare
from seep.running.savepoint import Savepoint
from seep.runtime.job import Codes, JobDirectory
from seep.runtime.stores.base import Tail
from seep.sim.oracle import NOTHING_YET, Begun, expected, source_cuts

LOOK_SECONDS = 0.1


class Witness:
    """`seep.sim.oracle.Logs` of a real job."""

    def __init__(self, job: JobDirectory) -> None:
        self.job = job
        job.import_as_started()
        self.graph = _unseen(job.graph({}))
        self.store = job.store()
        self.history: dict[PartitionId, list[tuple[int, Any]]] = {}
        """Of what was seen; in order once it is judged."""
        self.journals: list[Journal] = []
        self.begun = NOTHING_YET
        self._seen: dict[PartitionId, dict[int, Any]] = {}
        self._sources: Mapping[str, Any] = {}
        self._tails: dict[PartitionId, Tail] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="seep-witness", daemon=True)
        self._look()
        self._thread.start()

    def begin(self, saved: Savepoint) -> None:
        """From here on it is a witness; what was before is forgotten."""
        states, moments = {}, {}
        for name in saved.manifest["operators"]:
            checkpoints = saved.checkpoints(name)
            states[name] = compact([c.state for c in checkpoints if isinstance(c.state, ArrowState)])
            newest = checkpoints[0]
            moments[name] = Moment(saved.manifest["epoch"], newest.now_ms, newest.watermark, newest.watermark)
        self.begun = Begun(saved.manifest["epoch"], states, moments)
        self._sources = saved.manifest["sources"]

    def close(self) -> None:
        """Look for the last time."""
        self._stopped.set()
        self._thread.join()
        self._look()

    def judge(self, upto: int) -> tuple[Difference, list[str]]:
        """What differs in the epochs since `begin`, and why something could not be judged (then it was not)."""
        self.history = {partition: sorted(seen.items()) for partition, seen in self._seen.items()}
        problems = [*self._missed_by_sources(upto), *self._missed_by_sinks(upto)]
        if problems:
            return Difference(), problems
        try:
            before, upgrades = self._codes()
            wanted = expected(_unseen(self.job.graph(before)), self, self.begun, upto, upgrades)
        except Exception as error:
            # Of a source that is gone, of a user's function: whatever it is, there is nothing to compare with.
            return Difference(), [f"the input could not be run again: {type(error).__name__}: {error}"]
        difference = Difference()
        for sink, by_epoch in wanted.items():
            difference.add(compare(sink, by_epoch, self._committed(sink, upto)))
        return difference, []

    # --- looking -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopped.wait(LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        reply = self.store.perform(ReadJournal(0))
        journal: Journal | None = reply.value if reply and not reply.error else None
        if journal is not None and (not self.journals or journal.version != self.journals[-1].version):
            self.journals.append(journal)
        if not self.journals:
            return
        for node in self.graph.nodes.values():
            if node.kind != "operator":
                for number in range(self.journals[-1].next_number.get(node.name, 0)):
                    self._follow(PartitionId(node.name, number))

    def _follow(self, partition: PartitionId) -> None:
        if partition not in self._tails:
            self._tails[partition] = self.store.tail(partition)
        seen = self._seen.setdefault(partition, {})
        seen.update(self._tails[partition].more())
        # Of what was before, the newest says where it stood.
        for epoch in sorted(epoch for epoch in seen if epoch <= self.begun.epoch)[:-1]:
            del seen[epoch]

    # --- judging -------------------------------------------------------------------------------------------------

    def _codes(self) -> tuple[Codes, dict[str, Upgrade]]:
        """What operators had been upgraded to when it began; and what they were upgraded to since, by name."""
        known = self.journals[-1].codes if self.journals else {}
        before = {name: tuple(c for c in codes if c.first <= self.begun.epoch) for name, codes in known.items()}
        since = [code.name for codes in known.values() for code in codes if code.first > self.begun.epoch]
        return {name: codes for name, codes in before.items() if codes}, {n: self.job.upgrade(n) for n in since}

    def _committed(self, sink: str, upto: int) -> Iterator[tuple[int, bytes]]:
        for partition, records in self.history.items():
            if partition.operator == sink:
                for epoch, (_, record) in records:
                    if record is not None and self.begun.epoch < epoch <= upto:
                        yield epoch, record

    def _missed_by_sources(self, upto: int) -> Iterator[str]:
        """Each split goes on where it stood, from epoch to epoch."""
        for name, saved in self._sources.items():
            at = {int(split): known[1] for split, known in saved["splits"].items()}
            cuts = source_cuts(self.graph, self, name)
            for epoch in sorted(epoch for epoch in cuts if self.begun.epoch < epoch <= upto):
                for split, (start, end, *_) in cuts[epoch].items():
                    if start != at.get(split, start):  # one that appeared meanwhile begins where it says
                        yield f"{name}: split {split} goes on at {start} in epoch {epoch}, and stood at {at[split]}"
                        return
                    at[split] = end

    def _missed_by_sinks(self, upto: int) -> Iterator[str]:
        """Each record says how many rows there are with it."""
        for partition, records in self.history.items():
            if self.graph.nodes[partition.operator].kind != "sink":
                continue
            before = 0
            for epoch, ((total, _), record) in records:
                rows = 0 if record is None else decode(record).num_rows
                if self.begun.epoch < epoch <= upto and before + rows != total:
                    yield f"{partition}: {total - rows - before} rows before epoch {epoch} were not seen in its log"
                    break
                before = total


def _unseen(graph: Graph) -> Graph:
    """The same without an outside: what the witness computes is shown nowhere."""
    nodes = {
        name: with_fields(node, make=with_fields(node.make, sink=MemorySink())) if node.kind == "sink" else node
        for name, node in graph.nodes.items()
    }
    return Graph(nodes, graph.edges)
