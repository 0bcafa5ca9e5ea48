"""A savepoint put into the store of a new job: the first checkpoint of each partition, the first record of each source.

Each partition's checkpoint is cut out of the saved ones by its key range, made to fit what the operator is now. Epochs
go on above the highest number ever used. What was not saved begins empty, and says so with a checkpoint of its own: a
partition that finds nothing must never be taken for one that had nothing.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from seep.control.planner import first_journal
from seep.errors import DataLoss
from seep.flow.accounts import opened
from seep.flow.fused import ACCOUNTS, BOOKS, TAILS
from seep.model.arrow import BUCKET, KEY, REPLICATED, ArrowState, joined
from seep.model.epoch import Progress
from seep.model.ids import BEGINNING, EVERYTHING, FOREVER, Generation, KeyRange, PartitionId
from seep.partition.contract import Graph, Node, split_bucket
from seep.protocol.effects import Append, FenceStore, PutCheckpoint, SwapJournal
from seep.protocol.journal import Entry, Journal
from seep.running.audit import Counters, add, counted_in, sent_to
from seep.running.matching import Match, splits_now
from seep.state.checkpoint import Checkpoint

if TYPE_CHECKING:
    from seep.running.savepoint import Savepoint

FIRST = Generation(0, 0)
THREADS = 2
"""Partitions that are copied at once: bytes are checked, moved and written without holding up other threads."""


@dataclass
class Placing:
    saved: Savepoint
    graph: Graph
    store: Any
    matched: Match

    def place(self) -> Journal:
        after = int(self.saved.manifest["highest"])
        journal = first_journal(self.graph, after=after)
        self._counters: dict[str, Counters] = {name: {} for name in self.graph.nodes}
        self._watermarks: dict[str, int] = {}
        self._now_ms = self.saved.now_ms
        for node in self.graph.nodes.values():
            entries = journal.of(node.name)
            if node.kind == "source":
                self._place_source(node, entries, after)
            elif node.kind == "operator":
                self._place_operator(node, entries, after)
        self._place_sinks(after)
        self._put(SwapJournal(0, 0, journal))
        return journal

    # --- operators -----------------------------------------------------------------------------------------------

    def _place_operator(self, node: Node, entries: list[Entry], after: int) -> None:
        fitting = self.matched.operators.get(node.name)
        if fitting is None:
            watermark, now_ms = self._watermark_into(node), self._now_ms
            states: dict[KeyRange, ArrowState] = {EVERYTHING: node.make().snapshot(True)}
        else:
            found = self.saved.checkpoints(fitting.saved_as)
            watermark, now_ms = min(c.watermark for c in found), max(c.now_ms for c in found)
            saved = {c.key_range: c.state for c in found if isinstance(c.state, ArrowState)}
            states = {r: self._with_books(node.name, fitting.fit(state, now_ms)) for r, state in saved.items()}
            if fitting.saved != fitting.now or any(ACCOUNTS not in state.tables for state in states.values()):
                states = {key_range: opened(node.make(), state) for key_range, state in states.items()}
            for state in states.values():
                add(self._counters[node.name], counted_in(state))
        self._watermarks[node.name] = watermark
        if any(entry.key_range not in states for entry in entries):
            whole = united(list(states.values()))
            states = {entry.key_range: whole.part(entry.key_range) for entry in entries}
        # Its buffers begin empty, at the savepoint: nothing before it can be asked for.
        trimmed = dict.fromkeys((e.name for e in self.graph.outputs(node.name)), Progress(after, now_ms, watermark))
        position = (1, 0, after, now_ms, watermark, False)

        def put(entry: Entry) -> None:
            part = states[entry.key_range]
            checkpoint = Checkpoint(entry.partition, FIRST, entry.key_range, *position, part, trimmed=trimmed)
            self._put(PutCheckpoint(0, checkpoint))

        with ThreadPoolExecutor(THREADS, "seep-restore") as pool:
            list(pool.map(put, entries))

    def _watermark_into(self, node: Node) -> int:
        """Of an operator that was not there: as if it had stood where it stands now."""
        edges = self.graph.inputs(node.name)
        return min((edge.watermark(self._watermarks.get(edge.source, BEGINNING)) for edge in edges), default=BEGINNING)

    def _with_books(self, name: str, state: ArrowState) -> ArrowState:
        """The counters of its edges under the names that these have now; what they were in each of the last epochs is
        left behind with those epochs."""
        state = ArrowState({table: rows for table, rows in state.tables.items() if table != BOOKS})
        if TAILS not in state.tables:
            return state
        rows = state.tables[TAILS].to_pylist()
        kept = [{**row, "name": counter} for row in rows if (counter := self.matched.counter(name, row["name"]))]
        for row in kept:
            row[KEY] = f"{row['name']}:{row[BUCKET]}".encode()
        table = pa.RecordBatch.from_pylist(kept, schema=state.tables[TAILS].schema)
        return ArrowState({**state.tables, TAILS: table})

    # --- sources and sinks ---------------------------------------------------------------------------------------

    def _place_source(self, node: Node, entries: list[Entry], after: int) -> None:
        """One that was not there, or has read nothing, has no record: it begins at its beginning."""
        self._watermarks[node.name] = BEGINNING
        saved = self.saved.manifest["sources"].get(self.matched.sources.get(node.name, ""), {"splits": {}})
        if not saved["splits"]:
            return
        intake, splits = node.make(), {}
        first, latest = intake.splits, BEGINNING
        for split, (old, at) in splits_now(self.saved.path.name, node, saved).items():
            known = [at, at, BEGINNING, False, 0, {}] if old is None else saved["splits"][old]
            _, _, time, ended, heard, counted = known
            # The end that it had then is asked for anew: there may be more of it now, unless it is gone.
            splits[split] = [at, at, time, ended and split >= first, heard, self.matched.counters(node.name, counted)]
            add(self._counters[node.name], splits[split][-1])
            latest = max(latest, time)
        watermark = saved["watermark"]
        if watermark == FOREVER:
            watermark = latest - intake.lateness_us if latest > BEGINNING else BEGINNING
        self._watermarks[node.name] = watermark
        for entry in entries:
            record = {
                "after": after - 1,
                "now": saved["now"],
                "watermark": watermark,
                "ended": False,
                "idle": False,
                "edges": {},
                "rows": 0,
                "splits": {
                    str(split): known
                    for split, known in splits.items()
                    if split_bucket(split, first) in entry.key_range
                },
            }
            self._put(Append(0, entry.partition, FIRST, after, record))

    def _place_sinks(self, after: int) -> None:
        """The books go on: what was sent to a sink up to the savepoint counts as committed."""
        for node in self.graph.nodes.values():
            if node.kind == "sink":
                sent = sent_to(self.graph, self._counters, node.name)
                self._put(Append(0, PartitionId(node.name, 0), FIRST, after, (sent, None)))

    def _put(self, effect: PutCheckpoint | Append | SwapJournal) -> None:
        if not isinstance(effect, SwapJournal):
            written = effect.checkpoint if isinstance(effect, PutCheckpoint) else effect
            self.store.perform(FenceStore(0, written.partition, FIRST))
        reply = self.store.perform(effect)
        if reply is None or reply.error:
            raise DataLoss(f"savepoint {self.saved.path.name!r} could not be put in place: {reply and reply.value}")


def united(states: list[ArrowState]) -> ArrowState:
    """The states of all partitions: their keys are disjoint, and what is replicated is the same in each."""
    if len(states) < 2:
        return states[0] if states else ArrowState({})
    own = joined([ArrowState({n: t for n, t in s.tables.items() if not n.startswith(REPLICATED)}) for s in states])
    shared = {name: table for name, table in states[0].tables.items() if name.startswith(REPLICATED)}
    return ArrowState({**own.tables, **shared})
