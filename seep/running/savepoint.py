"""Savepoints: the whole flow at one epoch, outside the job, to start from with any parallelism.

Taking one: every operator partition keeps its checkpoint of one epoch (the controller's FixEpoch), and what those hold
is copied, together with where each source's splits stood. Starting from one: each new partition's first checkpoint is
cut out of the saved ones by its key range, and epochs go on above the highest number ever used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any

from seep.control.planner import first_journal
from seep.errors import DataLoss, Misuse
from seep.model.arrow import ArrowState, compact
from seep.model.epoch import Progress
from seep.model.ids import Generation, KeyRange, PartitionId
from seep.partition.contract import Graph, split_buckets
from seep.protocol.effects import Append, FenceStore, LoadCheckpoints, PutCheckpoint, ReadLog, SwapJournal
from seep.protocol.journal import Journal
from seep.running.audit import counters_of, sent_to
from seep.runtime.stores.base import Store
from seep.runtime.stores.directory import DirectoryStore
from seep.runtime.stores.files import Files
from seep.state.checkpoint import Checkpoint

FIRST = Generation(0, 0)


class Savepoint:
    """A directory: ``key``, ``manifest.json`` and a store with one full checkpoint for each partition."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.manifest: dict[str, Any] = json.loads((path / "manifest.json").read_bytes())
        except FileNotFoundError:
            raise Misuse(f"there is no savepoint at {path}") from None
        self.store = DirectoryStore(path / "store", (path / "key").read_bytes())

    @classmethod
    def write(
        cls,
        path: Path,
        key: bytes,
        flow: str,
        epoch: int,
        highest: int,
        checkpoints: Iterable[Checkpoint],
        sources: Any,
    ) -> Savepoint:
        """`sources`: by source: where its splits stood (`source_positions`)."""
        files = Files(sync=True)
        _refuse_taken(path)
        for part in (path.parent, path, path / "store"):
            files.make_directory(part)
        files.replace(path / "key", [key])
        store = DirectoryStore(path / "store", key)
        operators: dict[str, list[int]] = {}
        for checkpoint in checkpoints:
            store.perform(FenceStore(0, checkpoint.partition, FIRST))
            reply = store.perform(PutCheckpoint(0, checkpoint))
            if reply is None or reply.error:
                raise DataLoss(f"savepoint {path.name!r} could not be written: {reply and reply.error}")
            operators.setdefault(checkpoint.partition.operator, []).append(checkpoint.partition.number)
        manifest = {"flow": flow, "epoch": epoch, "highest": highest, "operators": operators, "sources": sources}
        files.replace(path / "manifest.json", [json.dumps(manifest, indent=1).encode()])
        return cls(path)

    def checkpoints(self, operator: str) -> list[Checkpoint]:
        numbers = self.manifest["operators"].get(operator)
        if numbers is None:
            raise Misuse(f"the savepoint has no state of an operator {operator!r}")
        return [whole(self.store, PartitionId(operator, number), 0) for number in numbers]

    def check(self, graph: Graph) -> None:
        """Refuse an app that has no place for something that was saved: it would be lost without a word."""
        for kind, saved in (("operator", self.manifest["operators"]), ("source", self.manifest["sources"])):
            there = [node.name for node in graph.nodes.values() if node.kind == kind]
            lost = [name for name in saved if name not in there]
            if lost:
                raise Misuse(
                    f"savepoint {self.path.name!r} was taken from another app: this one has no {kind}"
                    f" {', '.join(map(repr, lost))} to put its saved state into; give it one of that name"
                )
        for name, found in self.manifest["sources"].items():
            splits = graph.nodes[name].make().splits
            lost = [split for split in found["splits"] if int(split) >= splits]
            if lost:
                raise Misuse(
                    f"savepoint {self.path.name!r} holds {splits + len(lost)} splits of source {name!r}, which now has"
                    f" {splits}: what was read of the others would be forgotten; give it the files or splits it had"
                )

    def prepare(self, graph: Graph, store: Store) -> Journal:
        """Fill a new job's store, and give it its first journal."""
        after = int(self.manifest["highest"])
        journal = first_journal(graph, after=after)
        for entry in journal.entries.values():
            kind = graph.nodes[entry.partition.operator].kind
            if kind == "operator":
                saved = self.checkpoints(entry.partition.operator)
                cut = _cut(saved, entry.partition, entry.key_range, after)
                # Its buffers begin empty, at the savepoint: nothing before it can be asked for.
                start = Progress(after, cut.now_ms, cut.watermark)
                trimmed = {edge.name: start for edge in graph.outputs(entry.partition.operator)}
                self._put(store, PutCheckpoint(0, with_fields(cut, trimmed=trimmed)))
            elif kind == "source":
                self._place_source(graph, store, entry.partition, entry.key_range, after)
        self._place_sinks(graph, store, after)
        self._put(store, SwapJournal(0, 0, journal))
        return journal

    def _place_sinks(self, graph: Graph, store: Store, after: int) -> None:
        """The books go on: what was sent to a sink up to the savepoint counts as committed."""
        saved = [c for name in self.manifest["operators"] if name in graph.nodes for c in self.checkpoints(name)]
        sources = {name: found for name, found in self.manifest["sources"].items() if name in graph.nodes}
        counters = counters_of(graph, saved, sources)
        for node in graph.nodes.values():
            if node.kind == "sink":
                rows = sent_to(graph, counters, node.name)
                self._put(store, Append(0, PartitionId(node.name, 0), FIRST, after, (rows, None)))

    def _put(self, store: Store, effect: PutCheckpoint | Append | SwapJournal) -> None:
        if not isinstance(effect, SwapJournal):
            written = effect.checkpoint if isinstance(effect, PutCheckpoint) else effect
            store.perform(FenceStore(0, written.partition, FIRST))
        reply = store.perform(effect)
        if reply is None or reply.error:
            # A partition that finds nothing starts empty: never let one.
            raise DataLoss(f"savepoint {self.path.name!r} could not be put in place: {reply and reply.value}")

    def _place_source(
        self, graph: Graph, store: Store, partition: PartitionId, key_range: KeyRange, after: int
    ) -> None:
        saved = self.manifest["sources"].get(partition.operator)
        if saved is None:
            raise Misuse(f"the savepoint has no source {partition.operator!r}")
        intake = graph.nodes[partition.operator].make()
        if len(saved["splits"]) > intake.splits:
            was, now = len(saved["splits"]), intake.splits
            raise Misuse(f"source {partition.operator!r} had {was} splits when it was saved and has {now} now")
        lows = [r.low for r in split_buckets(intake.splits)]
        splits = {
            str(split): [known[1], known[1], *known[2:]]
            for split, known in ((int(s), k) for s, k in saved["splits"].items())
            if lows[split] in key_range
        }
        record = {
            "after": after - 1,
            "now": saved["now"],
            "watermark": saved["watermark"],
            "ended": False,
            "idle": False,
            "edges": {},
            "rows": 0,
            "splits": splits,
        }
        self._put(store, Append(0, partition, FIRST, after, record))


def whole(store: Any, partition: PartitionId, upto: int) -> Checkpoint:
    """One full checkpoint out of a chain."""
    reply = store.perform(LoadCheckpoints(0, partition, upto))
    if reply is None or reply.error or not reply.value:
        raise DataLoss(f"checkpoint {upto or ''} of {partition} cannot be read: {reply and reply.error}")
    chain: list[Checkpoint] = reply.value
    if upto and chain[-1].version != upto:
        raise DataLoss(f"checkpoint {upto} of {partition} is damaged")
    states = [c.state for c in chain if isinstance(c.state, ArrowState)]
    return with_fields(chain[-1], parent=0, version=1, state=compact(states), buffers={}, generation=FIRST, before=None)


def source_positions(store: Any, journal: Journal, source: str, epoch: int) -> dict[str, Any]:
    """Where every split of a source stood after this epoch."""
    splits: dict[str, list[Any]] = {}
    now_ms, watermark = 0, None
    for entry in journal.of(source):
        reply = store.perform(ReadLog(0, entry.partition))
        records = [record for at, record in (reply.value if reply else ()) if at <= epoch]
        if records:
            splits.update(records[-1]["splits"])
            now_ms = max(now_ms, records[-1]["now"])
            mark = records[-1]["watermark"]
            watermark = mark if watermark is None else min(watermark, mark)
    return {"splits": splits, "now": now_ms, "watermark": watermark}


def _cut(saved: list[Checkpoint], partition: PartitionId, key_range: KeyRange, after: int) -> Checkpoint:
    parts = [c.state.part(key_range) for c in saved if isinstance(c.state, ArrowState)]
    newest = saved[0]
    return Checkpoint(
        partition,
        FIRST,
        key_range,
        1,
        0,
        after,
        newest.now_ms,
        newest.watermark,
        False,
        compact(parts),
    )


NAME_LETTERS = 100


def new_savepoint(job: Path, name: str) -> Path:
    """Where a savepoint of this job will be; refuses what is no name, and one that is taken."""
    wrong = not name.strip() or not name.isprintable() or len(name) > NAME_LETTERS
    if wrong or "/" in name or name.startswith("."):
        raise Misuse(f"{name!r} is no name for a savepoint; give some letters")
    path = job / "savepoints" / name
    _refuse_taken(path)
    return path


def _refuse_taken(path: Path) -> None:
    if path.exists():
        raise Misuse(f"savepoint {path.name!r} exists already; choose another name")
