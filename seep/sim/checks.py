"""What must hold at every moment, and at rest; looked at from outside, with the eyes of nobody in the world.

While it runs: what a sender forgets (or a source's log, or the store of checkpoints) is never anything that a restore
may need, or somebody who reads an epoch of the whole flow; no more is under way on a channel than its credit; who
writes to the store only gets newer. In the end: no Replace is pending, all that is committed is published, nobody
listens to or is served as somebody that is gone, and a sealed partition stays only for a receiver that could still ask
for it.

Loss, double effect and the order of each key need no check of their own: the operators of the simulator fold their
rows in a way that shows the order, and `seep.sim.oracle` compares every committed row of every epoch.
"""

from __future__ import annotations

from collections.abc import Iterator

from seep.model.ids import PartitionId
from seep.partition.operator import OperatorPartition
from seep.partition.outputs import Outputs
from seep.partition.sink import SinkPartition
from seep.partition.source import SourcePartition
from seep.partition.worker import Partition, Worker
from seep.protocol.journal import SEALED, Entry, Journal
from seep.sim.oracle import Violation
from seep.sim.world import World


class Watch:
    """Looks at a running world; raises `Violation`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.looks = 0
        self.journal: Journal | None = None
        """Of which the pairs are. One that was lost before anybody had an answer may be followed by another of the same
        version."""
        self.pairs: list[tuple[Entry, str, tuple[Entry, ...]]] = []
        """(sender, edge, its receivers), by the journal in the store."""
        self.excused: set[PartitionId] = set()
        """Those of whose checkpoints more were damaged than the promise covers: what they lack, they say."""

    def __call__(self) -> None:
        store = self.world.store
        if store.problems:
            raise Violation(store.problems[0])
        journal = store.journal
        if journal is None:
            return
        self.looks += 1
        if journal is not self.journal:
            self._read(journal)
        if store.beyond:
            based = {e.partition for e in journal.entries.values() if any(p in store.beyond for p, _ in e.base)}
            self.excused |= store.beyond | based
        self._check_trims(journal)
        self._check_bases(journal)
        if journal.fixed >= 0:
            self._check_logs(journal)

    def _read(self, journal: Journal) -> None:
        self.journal = journal
        graph = self.world.graph
        receivers = {name: tuple(journal.of(name)) for name in graph.nodes}
        self.pairs = [
            (entry, edge.name, receivers[edge.target]) for edge in graph.edges for entry in journal.of(edge.source)
        ]

    # --- what is forgotten ---------------------------------------------------------------------------------------

    def fallback(self, entry: Entry) -> int:
        """τ of the oldest point that a restore of this partition may begin from."""
        store = self.world.store
        if self.world.graph.nodes[entry.partition.operator].kind == "sink":
            log = store.logs.get(entry.partition)
            return max(log[-1][0], entry.base_epoch) if log else entry.base_epoch
        points = store.points(entry.partition)
        if len(points) > 1 or (points and entry.partition in store.fallen):
            return points[-1].epoch
        return min([entry.base_epoch, *(point.epoch for point in points)])

    def _check_trims(self, journal: Journal) -> None:
        running = {p.entry.partition: p for p in partitions(self.world)}
        logs, known = self.world.store.logs, dict[PartitionId, int]()
        for sender, edge, receivers in self.pairs:
            partition = running.get(sender.partition)
            forgotten = -1
            if partition is not None and partition.running and partition.entry.generation == sender.generation:
                assert not isinstance(partition, SinkPartition)
                forgotten = partition.outputs.buffers[edge].trimmed.epoch
                self._check_credit(partition.outputs, edge)
            log = logs.get(sender.partition)
            if log:
                forgotten = max(forgotten, log[0][1]["after"])
            for receiver in receivers:
                if receiver.partition not in known:
                    known[receiver.partition] = self.fallback(receiver)
                needed = known[receiver.partition]
                if receiver.partition in self.excused:
                    continue
                if forgotten > max(needed, sender.first - 1) and needed < min(sender.last, receiver.last):
                    raise Violation(
                        f"{sender.partition} has forgotten epochs up to {forgotten} of {edge}, and"
                        f" {receiver.partition} may be restored at {needed}"
                    )

    def _check_credit(self, outputs: Outputs, edge: str) -> None:
        limit = self.world.settings.credit_epochs
        for cursor in outputs.cursors[edge].values():
            if len(cursor.opened) > limit:
                raise Violation(
                    f"{outputs.me.partition} has {len(cursor.opened)} epochs open on {edge}, credit {limit}"
                )
            if cursor.open_bytes != sum(size for _, size in cursor.opened):
                raise Violation(f"{outputs.me.partition} miscounts what it has open on {edge}")

    def _check_bases(self, journal: Journal) -> None:
        """What a partition of the journal would be restored from is still there (it may be damaged)."""
        store = self.world.store
        for entry in journal.entries.values():
            if self.world.graph.nodes[entry.partition.operator].kind != "operator":
                continue
            points = store.points(entry.partition)
            for point in points:
                self._check_whole(entry, entry.partition, point.version)
            for partition, version in entry.base if len(points) < 2 else ():
                self._check_whole(entry, partition, version)

    def _check_logs(self, journal: Journal) -> None:
        """Somebody reads an epoch of the whole flow: whoever says that its log reaches back so far is right."""
        store, at = self.world.store, journal.fixed
        for partition in partitions(self.world):
            who = partition.entry.partition
            if isinstance(partition, OperatorPartition) or partition.status().fixed_epoch != at:
                continue
            newest = max((epoch for epoch, _ in store.history.get(who, ()) if epoch <= at), default=None)
            if newest is not None and all(epoch != newest for epoch, _ in store.logs[who]):
                raise Violation(f"{who} has forgotten where it stood at epoch {at}, which is being read")

    def _check_whole(self, entry: Entry, partition: PartitionId, version: int) -> None:
        found = self.world.store.checkpoints.get(partition, {})
        at = version
        while at:
            if at not in found:
                raise Violation(
                    f"{entry.partition} may be restored from checkpoint {version} of {partition}, and {at} is dropped"
                )
            at = found[at].parent


def partitions(world: World) -> Iterator[Partition]:
    for node in world.live_workers():
        assert isinstance(node.machine, Worker)
        yield from node.machine.partitions.values()


def hidden(world: World) -> str:
    """What is committed, and nobody was shown."""
    sinks = [name for name, node in world.graph.nodes.items() if node.kind == "sink"]
    for partition, log in ((p, log) for p, log in world.store.history.items() if p.operator in sinks):
        upto = world.published.get(partition, -1)
        later = [epoch for epoch, (_, record) in log if record is not None and epoch > upto]
        if later:
            return f"{partition} has not published epoch {min(later)}, which is committed"
    return ""


def unrest(world: World, watch: Watch) -> str:
    """What has not come to rest yet, after the end of all input."""
    journal = world.store.journal
    assert journal is not None
    if any(replace.operator for replace in journal.replaces):
        return f"pending: {journal.replaces}"
    for node in world.live_workers():
        assert isinstance(node.machine, Worker)
        if node.machine.desk.journal.version != journal.version:
            return f"{node.name} has journal {node.machine.desk.journal.version}, not {journal.version}"
        if node.machine.early:
            return f"{node.name} keeps subscriptions for later: {list(node.machine.early)}"
        wanted = {p for entry in journal.entries.values() for p in (entry.partition, *(base for base, _ in entry.base))}
        if not wanted.issuperset(node.machine.holder.chains):
            return f"{node.name} holds copies that nobody can ask for"
    for partition in partitions(world):
        left = _left(partition, journal)
        if left:
            return f"{partition.entry.partition} {left}"
    if left := hidden(world):
        return left
    trims = {p.entry.partition: _trims(p) for p in partitions(world) if not isinstance(p, SourcePartition)}
    for entry in journal.entries.values():
        if entry.role == SEALED:
            waits = [r for s, _, receivers in watch.pairs if s == entry for r in receivers]
            if watch.journal is journal and all(trims.get(r.partition, -1) >= min(entry.last, r.last) for r in waits):
                return f"{entry.partition} is sealed, and nobody can ask for anything of it"
    return ""


def _trims(partition: OperatorPartition | SinkPartition) -> int:
    """What it tells its senders that it will never ask for again. (By its own word: a checkpoint that was written, but
    reported as failed, does not count.)"""
    if isinstance(partition, SinkPartition):
        return partition.committed
    return partition.saver.fallback_epoch(partition.base_epoch)


def _left(partition: Partition, journal: Journal) -> str:
    """Who is still listened to, or served, although it is gone or has another generation now."""
    if not partition.running:
        return "does not run"
    entries = journal.entries
    if hasattr(partition, "inputs"):
        for (_, sender), channel in partition.inputs.channels.items():
            if sender not in entries or entries[sender].generation != channel.sender.generation:
                return f"listens to {sender}, which is gone"
    if hasattr(partition, "outputs"):
        for edge, cursors in partition.outputs.cursors.items():
            for receiver, cursor in cursors.items():
                if receiver not in entries or entries[receiver].generation != cursor.subscription.generation:
                    return f"serves {receiver} on {edge}, which is gone"
            for receiver in partition.outputs.trims[edge]:
                if receiver not in entries:
                    return f"remembers what {receiver} trimmed on {edge}, which is gone"
    return ""
