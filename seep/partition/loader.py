"""How one that starts gets the checkpoints it starts from: from an upstream worker's memory, else from the store.

A copy in memory is good when it is no older than the newest version the store has; newer means that the store's copy
of that version is damaged. The store is asked only for that number, so a large state is not read twice. Of another's
checkpoint only the part of our own key range is asked for, and never its β.

Where the store has nothing left that can be used, the flow would have to stop: then copies are asked for once more,
with patience, and of our own the version before the newest will do, too, as it does in the store.
"""

from __future__ import annotations

from seep.model.ids import KeyRange, PartitionId
from seep.partition.contract import Graph
from seep.partition.copies import upstream_workers
from seep.partition.desk import Call, Continuation, Desk
from seep.protocol.effects import LoadCheckpoints, NewestVersion, StoreReply
from seep.protocol.journal import Entry
from seep.protocol.messages import Fetch, Held

PATIENCE_MS = 40.0
"""So long one waits for copies: a worker that has none says so at once, one that is dead says nothing."""
LAST_RESORT_MS = 3_000.0
"""And so long when nothing else is left."""


class Loading:
    def __init__(self, upto: int, part: KeyRange | None, then: Continuation, asked_ms: float) -> None:
        self.upto = upto
        self.part = part
        self.then = then
        self.asked_ms = asked_ms
        self.waiting: set[str] = set()
        """Workers that have not answered yet."""
        self.wanted = upto
        """No older version will do."""
        self.refusal: StoreReply | None = None
        """The store has said that it has nothing that can be used."""

    @property
    def patience_ms(self) -> float:
        return PATIENCE_MS if self.refusal is None else LAST_RESORT_MS


class Loader:
    def __init__(self, desk: Desk, me: Entry, graph: Graph) -> None:
        self.desk = desk
        self.me = me
        self.graph = graph
        self.loading: dict[PartitionId, Loading] = {}
        self.from_memory = False
        """Our own checkpoint came from memory: what the store has of it may be damaged."""

    def newest(self, then: Continuation, call: Call) -> None:
        """Our own newest checkpoint, whole: `then` gets the answer of LoadCheckpoints. `call` is for the store alone if
        it has failed before: nobody has a copy then."""
        self._load(self.me.partition, 0, None, then, call)

    def base(self, partition: PartitionId, version: int, then: Continuation, call: Call) -> None:
        """Exactly this version of another's, of which we take over our own buckets."""
        self._load(partition, version, self.me.key_range, then, call)

    def _load(self, partition: PartitionId, upto: int, part: KeyRange | None, then: Continuation, call: Call) -> None:
        workers = upstream_workers(self.desk, self.graph, partition.operator)
        if not workers or not self.desk.settings.copies_bytes or call != self.desk.call:
            call(self, lambda token: LoadCheckpoints(token, partition, upto, part), then)
        elif upto:
            self._ask(partition, Loading(upto, part, then, self.desk.now_ms), workers)
        else:
            self._newest(partition, then, workers)

    def _newest(self, partition: PartitionId, then: Continuation, workers: list[str]) -> None:
        def found(reply: StoreReply) -> None:
            if reply.error:
                then(reply)  # who asked tries again
            elif not reply.value:
                then(StoreReply(reply.token, []))
            else:
                loading = Loading(0, None, then, self.desk.now_ms)
                loading.wanted = reply.value
                self._ask(partition, loading, workers)

        self.desk.call(self, lambda token: NewestVersion(token, partition), found)

    def _ask(self, partition: PartitionId, loading: Loading, workers: list[str]) -> None:
        self.loading[partition] = loading
        loading.waiting = set(workers)
        for worker in workers:
            asker, generation = self.me.partition, self.me.generation
            asked = Fetch(partition, loading.upto, loading.part, asker, generation, self.desk.worker)
            self.desk.send(worker, asked)

    def on_held(self, message: Held) -> None:
        loading = self.loading.get(message.partition)
        if loading is None or message.generation != self.me.generation:
            return
        loading.waiting.discard(message.holder)
        if message.chain and message.chain[-1].version >= loading.wanted:
            del self.loading[message.partition]
            self.desk.count("restored_from_memory")
            self.from_memory |= message.partition == self.me.partition
            loading.then(StoreReply(0, list(message.chain)))
        elif not loading.waiting:
            self._give_up(message.partition)

    def tick(self) -> None:
        late = [p for p, one in self.loading.items() if self.desk.now_ms - one.asked_ms >= one.patience_ms]
        for partition in late:
            self._give_up(partition)

    def _give_up(self, partition: PartitionId) -> None:
        loading = self.loading.pop(partition)
        if loading.refusal is not None:
            loading.then(loading.refusal)
            return

        def read(reply: StoreReply) -> None:
            if reply.error == "damaged":
                self._last_resort(partition, loading, reply)
            else:
                loading.then(reply)

        self.desk.call(self, lambda token: LoadCheckpoints(token, partition, loading.upto, loading.part), read)

    def _last_resort(self, partition: PartitionId, loading: Loading, refusal: StoreReply) -> None:
        loading.refusal = refusal
        loading.asked_ms = self.desk.now_ms
        if not loading.upto:
            loading.wanted -= 1
        workers = upstream_workers(self.desk, self.graph, partition.operator)
        self._ask(partition, loading, workers)
        if not workers:
            self._give_up(partition)
