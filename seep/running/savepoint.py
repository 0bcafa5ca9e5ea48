"""Savepoints: the whole flow at one epoch, outside the job, to start from with any parallelism.

Taking one: every operator partition keeps its checkpoint of one epoch (the controller's FixEpoch), and what those hold
is copied, together with where each source's splits stood. Which part of an app takes which part of it is decided in
`seep.running.matching`; `seep.running.placing` fills the store of the job that starts from it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace as with_fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from seep.errors import DataLoss, Misuse, Retry
from seep.model.arrow import ArrowState, compact
from seep.model.ids import KeyRange, PartitionId
from seep.partition.contract import Graph
from seep.protocol.effects import FenceStore, LoadCheckpoints, PutCheckpoint, ReadLog
from seep.protocol.journal import Journal
from seep.running.matching import UNCHANGED, Asked, Match, described, edges_of, layouts_of, match
from seep.running.placing import FIRST, THREADS, Placing
from seep.runtime.background import give_way
from seep.runtime.stores.directory import DirectoryStore
from seep.runtime.stores.files import Files
from seep.state.checkpoint import Checkpoint

FORMAT = 1
"""Of the manifest and of what it describes; golden savepoints of each released version are in tests/golden."""


class Savepoint:
    """A directory: ``key``, ``manifest.json`` and a store with one full checkpoint for each partition.

    The manifest says what the checkpoints are made of, so that an app they do not fit is refused by it alone.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.manifest: dict[str, Any] = json.loads((path / "manifest.json").read_bytes())
            key = (path / "key").read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise Misuse(f"there is no savepoint at {path}") from None
        except ValueError as problem:
            raise DataLoss(f"the manifest of the savepoint at {path} is damaged: {problem}") from problem
        found = self.manifest.get("format")
        if found != FORMAT:
            raise Misuse(f"the savepoint at {path} has the format {found}; this version of seep reads {FORMAT}")
        self.store = DirectoryStore(path / "store", key)

    @property
    def now_ms(self) -> int:
        """When its sources had cut their last epochs."""
        return max((found["now"] for found in self.manifest["sources"].values()), default=0)

    @classmethod
    def write(
        cls,
        path: Path,
        key: bytes,
        flow: str,
        epoch: int,
        highest: int,
        checkpoints: Sequence[Callable[[], Checkpoint]],
        sources: Any,
        graph: Graph,
    ) -> Savepoint:
        """`checkpoints`: what reads each of them; two at once, giving way to others, since the flow runs on. `sources`:
        by source: where its splits stood (`source_positions`)."""
        files = Files(sync=True)
        _refuse_taken(path)
        operators: dict[str, Any] = {name: {"layout": found, "partitions": []} for name, found in layouts_of(graph)}
        try:
            if path.exists():
                shutil.rmtree(path)  # the remainder of one whose process was killed meanwhile
            for part in (path.parent, path, path / "store"):
                files.make_directory(part)
            files.replace(path / "key", [key])
            store = DirectoryStore(path / "store", key)
            with ThreadPoolExecutor(THREADS, "seep-savepoint", give_way) as pool:
                for partition in pool.map(lambda read: _copied(store, path.name, read()), checkpoints):
                    operators[partition.operator]["partitions"].append(partition.number)
            manifest = {
                "format": FORMAT,
                "seep": version("seep"),
                "flow": flow,
                "epoch": epoch,
                "highest": highest,
                "operators": operators,
                "sources": {name: {**described(graph.nodes[name]), **found} for name, found in sources.items()},
                "edges": edges_of(graph),
            }
            files.replace(path / "manifest.json", [json.dumps(manifest, indent=1).encode()])
        except BaseException as problem:
            # What is half there would be in the way of the next try.
            shutil.rmtree(path, ignore_errors=True)
            if isinstance(problem, OSError):
                raise Retry(f"savepoint {path.name!r} could not be written: {problem}") from problem
            raise
        return cls(path)

    def checkpoints(self, operator: str, part: KeyRange | None = None) -> list[Checkpoint]:
        """Of every partition it had; `part`: of these buckets alone."""
        if operator not in self.manifest["operators"]:
            raise Misuse(f"the savepoint has no state of an operator {operator!r}")
        numbers = self.manifest["operators"][operator]["partitions"]
        with ThreadPoolExecutor(THREADS, "seep-restore") as pool:
            return list(pool.map(lambda number: whole(self.store, PartitionId(operator, number), 0, part), numbers))

    def match(self, graph: Graph, asked: Asked = UNCHANGED) -> Match:
        """Refuse an app that has no place for something that was saved, or another place than it needs."""
        return match(self.path.name, self.manifest, graph, asked)

    def prepare(self, graph: Graph, store: Any, matched: Match | None = None) -> Journal:
        """Fill a new job's store, and give it its first journal."""
        placing = Placing(self, graph, store, matched or self.match(graph))
        return placing.place()


def at_hand(checkpoints: Iterable[Checkpoint]) -> list[Callable[[], Checkpoint]]:
    """Checkpoints that are read already, as `Savepoint.write` wants them."""

    def given(one: Checkpoint) -> Callable[[], Checkpoint]:
        return lambda: one

    return [given(one) for one in checkpoints]


def _copied(store: DirectoryStore, name: str, checkpoint: Checkpoint) -> PartitionId:
    store.perform(FenceStore(0, checkpoint.partition, FIRST))
    reply = store.perform(PutCheckpoint(0, checkpoint))
    if reply is None or reply.error:
        raise Retry(f"savepoint {name!r} could not be written: {reply and reply.value}")
    return checkpoint.partition


def savepoint_at(path: Path, name: str | Path) -> Savepoint:
    """A savepoint of the job in this directory by its name, or any by its own directory."""
    return Savepoint(Path(name) if "/" in str(name) else path / "savepoints" / str(name))


def whole(store: Any, partition: PartitionId, upto: int, part: KeyRange | None = None) -> Checkpoint:
    """One full checkpoint out of a chain; `part`: of these buckets alone."""
    reply = store.perform(LoadCheckpoints(0, partition, upto, part))
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
        if reply is None or reply.error:
            raise Retry(f"the epoch log of {entry.partition} cannot be read: {reply and reply.value}; try again")
        records = [record for at, record in reply.value if at <= epoch]
        if reply.value and not records and reply.value[0][1]["after"] >= entry.first:
            raise Retry(f"where {entry.partition} stood at epoch {epoch} was forgotten meanwhile; try again")
        if records:
            splits.update(records[-1]["splits"])
            now_ms = max(now_ms, records[-1]["now"])
            mark = records[-1]["watermark"]
            watermark = mark if watermark is None else min(watermark, mark)
    return {"splits": splits, "now": now_ms, "watermark": watermark}


NAME_LETTERS, NAME_BYTES = 100, 255
_BEGUN = {"key", "store", "manifest"}


def new_savepoint(job: Path, name: Any) -> Path:
    """Where a savepoint of this job will be; refuses what is no name, and one that is taken."""
    wrong = not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > NAME_LETTERS
    wrong = wrong or len(name.encode()) > NAME_BYTES
    if wrong or "/" in name or name.startswith("."):
        raise Misuse(f"{name!r} is no name for a savepoint; give some letters")
    path: Path = job / "savepoints" / name
    _refuse_taken(path)
    return path


def _refuse_taken(path: Path) -> None:
    if path.exists() and not _is_remainder(path):
        raise Misuse(f"savepoint {path.name!r} exists already; choose another name")


def _is_remainder(path: Path) -> bool:
    """Of one whose process was killed: the manifest comes last."""
    names = {one.name for one in path.iterdir()} if path.is_dir() else set()
    return "store" in names and "manifest.json" not in names and {n.partition(".")[0] for n in names} <= _BEGUN
