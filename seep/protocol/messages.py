"""Every message between partitions, and between the controller and its workers.

Nothing here is ever half applied: each message is a whole value, may be lost, delayed or repeated, and is safe to
send again. `protocol.wire` gives each its bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from seep.model.batch import Batch
from seep.model.epoch import Progress
from seep.model.ids import BEGINNING, FOREVER, NOWHERE, Generation, KeyRange, PartitionId, Place
from seep.protocol.journal import Journal, Poison
from seep.state.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class SubscriptionId:
    """One attempt of one receiver to listen to one edge of one sender; never used twice."""

    receiver: PartitionId
    generation: Generation
    number: int


# --- data lane: between partitions -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Receiver to sender: send me everything newer than `after` in my range, then go on live."""

    sender: PartitionId
    sender_generation: Generation
    subscription: SubscriptionId
    edge: str
    key_range: KeyRange
    after: int
    journal_version: int
    worker: str
    """Where to answer."""


@dataclass(frozen=True, slots=True)
class Accepted:
    subscription: SubscriptionId
    sender: PartitionId


@dataclass(frozen=True, slots=True)
class Refused:
    """`reason`: ``behind`` (the sender's journal is older: ask again), ``trimmed`` (what was asked for is gone)."""

    subscription: SubscriptionId
    sender: PartitionId
    reason: str


@dataclass(frozen=True, slots=True)
class Frame:
    """Some rows of one epoch; the last frame of an epoch carries its Progress. `sequence` counts from 0."""

    subscription: SubscriptionId
    sender: PartitionId
    sequence: int
    epoch: int
    batch: Batch | None
    progress: Progress | None


@dataclass(frozen=True, slots=True)
class Credit:
    """Receiver to sender: taken up to `taken`, so many rows in all, from every sender; `highest` is the highest epoch
    number heard of anywhere, `watermark` the lowest of the receiver and of those behind it."""

    subscription: SubscriptionId
    sender: PartitionId
    edge: str
    taken: int
    highest: int
    watermark: int
    rows: int


@dataclass(frozen=True, slots=True)
class Trim:
    """Receiver to sender: restore will never ask for anything up to `upto` again."""

    sender: PartitionId
    edge: str
    receiver: PartitionId
    generation: Generation
    upto: int
    journal_version: int


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    subscription: SubscriptionId
    sender: PartitionId
    edge: str


# --- copies of checkpoints in the memory of upstream workers ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Backup:
    """Owner to holder: this version is durable, hold a copy. Without a checkpoint: read it from the store."""

    partition: PartitionId
    generation: Generation
    version: int
    worker: str
    """Where to answer."""
    checkpoint: Checkpoint | None = None


@dataclass(frozen=True, slots=True)
class Holding:
    """Holder to owner: I have this version (`held`), or there is no room for it."""

    partition: PartitionId
    generation: Generation
    version: int
    held: bool


@dataclass(frozen=True, slots=True)
class Fetch:
    """One that starts, to whoever may hold it: the newest checkpoint of `partition`, or exactly version `upto`."""

    partition: PartitionId
    upto: int
    part: KeyRange | None
    """Of these buckets alone, without β."""
    asker: PartitionId
    generation: Generation
    worker: str
    """Where to answer."""


@dataclass(frozen=True, slots=True)
class Held:
    """Holder to asker: the chain, full one first; nothing: not here."""

    partition: PartitionId
    asker: PartitionId
    generation: Generation
    holder: str
    chain: tuple[Checkpoint, ...]


# --- control lane: controller and workers ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """Controller to worker: the journal as committed. A worker runs exactly what it says, no more, no less."""

    journal: Journal
    places: dict[str, Place] = field(default_factory=dict)
    """Where workers run, of those that have said so."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Worker to controller: I am here (sent until a Plan arrives, and again when a controller changes)."""

    worker: str
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True)
class Status:
    """What a worker knows of one of its partitions. Level-triggered: the latest one says it all."""

    partition: PartitionId
    generation: Generation
    journal_version: int
    """The journal the partition acted on when it said this."""
    epoch: int
    """τ: taken up to here (a source: announced; a sink: committed)."""
    durable_epoch: int = -1
    durable_version: int = 0
    own_checkpoints: int = 0
    """Durable checkpoints of its own, not counting the base it started from."""
    fixed_version: int = 0
    fixed_epoch: int = -1
    """The checkpoint that a Replace asked it to keep (pinned); the version is 0 until it is durable. Of a source and a
    sink: the epoch that somebody reads, if its log still begins no later."""
    accepted: bool = False
    """Every sender it needs has accepted its subscription."""
    begun: int = -1
    """In a hand-over or an upgrade: the last epoch begun, once it begins no more; later E-1, once finished (and, in an
    upgrade, once it is durable and the new code is tried on it)."""
    drained: bool = False
    """Sealed, and nothing in its buffers is needed any more."""
    ended: bool = False
    """All of its input has ended and is taken (a sink: committed)."""
    fenced: bool = False
    """The store refuses this generation: somebody began to replace it. It must be started again."""
    failure: str = ""
    """It cannot go on; the flow must stop with this report."""
    statistics: dict[str, int] = field(default_factory=dict)
    load: tuple[int, ...] = ()
    """Rows taken in 1,000 epochs, by group of buckets (`seep.partition.load`); empty: not measured yet."""
    watermark: int = BEGINNING
    """As of `epoch`; a source: announced."""
    idle: bool = False
    """Nobody waits for its watermark."""
    accused: Poison | None = None
    """It has stopped before this row, which killed its process again and again; started again, it leaves it out."""
    heard: int = -1
    """A receiver: the highest epoch number that it has heard of, taken or not."""
    refusal: str = ""
    """It cannot go on with the code of a pending upgrade, and why; it goes on with what it has."""
    published: int = FOREVER
    """A sink: so far all is published that was committed; a source: the last that had rows, since empty ones are no
    progress; FOREVER: as far as `epoch`, as with others."""
    shown: int = FOREVER
    """A sink: nothing up to here is held back from its outside any more."""


@dataclass(frozen=True, slots=True)
class Report:
    """Worker to controller, on change and as heartbeat."""

    worker: str
    journal_version: int
    statuses: tuple[Status, ...]
    time_ms: int
    cpu_seconds: float = 0.0
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True)
class Busy:
    """Worker to controller, from beside its loop: I live, and the loop is inside one piece of work."""

    worker: str
    partition: PartitionId | None
    """Whose (None: of the worker itself)."""
    epoch: int
    """The last one that it has finished."""
    busy_ms: float
    """For so long it is at the one after it."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Controller to worker: end, in peace. A process on another host cannot be sent a signal."""

    worker: str
    at_once: bool = False
    """Whatever it is doing, as if killed."""


DataMessage = Subscribe | Accepted | Refused | Frame | Credit | Trim | Unsubscribe
ControlMessage = Plan | Hello | Report | Busy | Leave
CopyMessage = Backup | Holding | Fetch | Held
Message = DataMessage | ControlMessage | CopyMessage
