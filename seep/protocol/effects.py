"""What a machine asks the world to do. The host (a worker process, the simulator) performs each and answers.

Every store call carries a token; its answer comes back as a `StoreReply` with that token. Answers may be lost
(the caller asks again), and a call may have worked although its answer says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seep.model.ids import Generation, KeyRange, PartitionId
from seep.protocol.messages import Message
from seep.state.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class Send:
    to: str
    """A worker id, or CONTROLLER."""
    message: Message


@dataclass(frozen=True, slots=True)
class FenceStore:
    """From now on refuse every put, append and truncate for `partition` by a lower generation. -> None, or error
    ``fenced`` / ``failed`` / ``lost``: the store's journal is not there, or older than the one the caller acts on. So
    nobody starts from nothing in a store that came back empty; what runs learns it at its next put or append, which a
    store without the partition's fence refuses as ``lost``, too."""

    token: int
    partition: PartitionId
    generation: Generation
    journal_version: int = 0


@dataclass(frozen=True, slots=True)
class PutCheckpoint:
    """Write durably. -> the version that its chain now starts from (None: as the caller thinks; a store may fold a
    long chain into a full checkpoint), or error ``fenced`` / ``failed``."""

    token: int
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class LoadCheckpoints:
    """-> list[Checkpoint]: the newest restorable point of the partition as its chain (the full one first, then its
    increments), past damaged ones; empty: there is none. ``upto``: no newer version than that (0 = any). ``part``: of
    these buckets alone, without β; damage elsewhere may go unseen. Error ``damaged``: there are some, but none can be
    restored."""

    token: int
    partition: PartitionId
    upto: int = 0
    part: KeyRange | None = None


@dataclass(frozen=True, slots=True)
class NewestVersion:
    """-> the highest version there is of the partition's checkpoints, damaged or not (0: none). Reads none of them."""

    token: int
    partition: PartitionId


@dataclass(frozen=True, slots=True)
class FindCheckpoint:
    """-> (version, epoch) of the newest restorable checkpoint, or None. Reads headers, not state."""

    token: int
    partition: PartitionId


@dataclass(frozen=True, slots=True)
class DropCheckpoints:
    """Delete versions below `below` (all of them: below = 2**62), except those in `keep`. No answer."""

    partition: PartitionId
    generation: Generation
    below: int
    keep: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Append:
    """Append to the partition's log if the generation is not fenced and `epoch` is higher than the last one's.
    -> None, or error ``fenced`` / ``exists`` / ``failed``. `record`: a dict of plain values for
    sources, (rows so far, bytes or None) for sinks. `before`: records of earlier epochs that go in first, with the same
    write; what the log has of them already is left out. A crash may keep any first part of it all."""

    token: int
    partition: PartitionId
    generation: Generation
    epoch: int
    record: Any
    before: tuple[tuple[int, Any], ...] = ()

    def after(self, last: int | None) -> list[tuple[int, Any]]:
        """The records that are missing in a log that ends with this epoch."""
        records = [*self.before, (self.epoch, self.record)]
        return records if last is None else [record for record in records if record[0] > last]


@dataclass(frozen=True, slots=True)
class ReadLog:
    """-> list[tuple[int, record]], in epoch order."""

    token: int
    partition: PartitionId


@dataclass(frozen=True, slots=True)
class Truncate:
    """Forget log entries with epoch < `below`. No answer."""

    partition: PartitionId
    generation: Generation
    below: int


@dataclass(frozen=True, slots=True)
class SwapJournal:
    """Compare-and-set of the journal: `expected` is the version it replaces. -> Journal that is now stored (the new
    one, or the one that was found instead)."""

    token: int
    expected: int
    journal: Any


@dataclass(frozen=True, slots=True)
class ReadJournal:
    """-> Journal | None"""

    token: int


@dataclass(frozen=True, slots=True)
class Publish:
    """Call the partition's `Outlet.publish`. The answer comes back as `Published`."""

    partition: PartitionId
    epoch: int
    record: bytes | None
    ended: bool


@dataclass(frozen=True, slots=True)
class WantWorkers:
    """To the backend, from the controller: have this many workers, busy and warm together."""

    count: int


@dataclass(frozen=True, slots=True)
class ReleaseWorker:
    """To the backend: this worker is not needed any more."""

    worker: str


@dataclass(frozen=True, slots=True)
class KillWorker:
    """To the backend: this worker was lost by its silence, and those who have its partitions now do not get them to
    run: stopped inside a write, it still holds a lock of the store for which they wait. It may be out of reach: nothing
    rests on it but that."""

    worker: str


@dataclass(frozen=True, slots=True)
class Published:
    """The host's answer to some Publishes, in their order: the sink's log is no longer needed below this epoch."""

    partition: PartitionId
    upto: int
    count: int = 1
    failure: str = ""
    """It will not work: the flow is to stop with this report."""
    generation: Generation | None = None
    """Whose they were, if the host may have others of this partition under way."""


@dataclass(frozen=True, slots=True)
class StoreReply:
    token: int
    value: Any = None
    error: str = ""


Effect = (
    Send
    | FenceStore
    | PutCheckpoint
    | LoadCheckpoints
    | NewestVersion
    | FindCheckpoint
    | DropCheckpoints
    | Append
    | ReadLog
    | Truncate
    | SwapJournal
    | ReadJournal
    | Publish
    | WantWorkers
    | ReleaseWorker
    | KillWorker
)
