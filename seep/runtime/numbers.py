"""What a worker measures, under the names that Prometheus gets: one list, so that names never drift.

A name ending in ``_total`` is a counter, every other a gauge. Each is given for every partition it concerns from the
first scrape on, at zero: a counter that appears with its first event hides that event from ``rate()``. No label ever
holds a key of the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from seep.model.ids import PartitionId
from seep.partition.source import SourcePartition
from seep.partition.worker import Partition

PARTITION = ("worker", "operator", "partition")
WORKER = ("worker",)
DROPPED = ("worker", "operator", "partition", "reason")


class Family(NamedTuple):
    name: str
    labels: tuple[str, ...]
    help: str

    @property
    def counts(self) -> bool:
        return self.name.endswith("_total")


FAMILIES = (
    Family("seep_rows_in_total", PARTITION, "Rows taken (a sink: committed)."),
    Family("seep_rows_out_total", PARTITION, "Rows put on the partition's edges."),
    Family("seep_epoch", PARTITION, "The last epoch taken (a source: announced; a sink: committed)."),
    Family("seep_durable_epoch", PARTITION, "The epoch of the newest durable checkpoint or log record."),
    Family("seep_lag_epochs", PARTITION, "Epochs behind the highest one heard of."),
    Family("seep_source_lag_rows", PARTITION, "Rows there to be read, where a source can say (text: estimated)."),
    Family("seep_busy_seconds_total", PARTITION, "Time the partition was at work, without encoding what it sends."),
    Family("seep_state_bytes", PARTITION, "Processing state held."),
    Family("seep_state_keys", PARTITION, "Keys that have state."),
    Family("seep_buffer_bytes", PARTITION, "Output kept for replay."),
    Family("seep_checkpoints_total", PARTITION, "Checkpoints made durable."),
    Family("seep_checkpoints_failed_total", PARTITION, "Checkpoints that the store did not take."),
    Family("seep_checkpoint_bytes_total", PARTITION, "Bytes of the checkpoints made durable, before they are encoded."),
    Family("seep_checkpoint_seconds_total", PARTITION, "Time spent to encode and write checkpoints."),
    Family("seep_unprotected_seconds_total", PARTITION, "Time in which no upstream worker held a copy of the state."),
    Family("seep_dead_letters_total", PARTITION, "Rows that user code refused."),
    Family("seep_dropped_total", DROPPED, "Dropped: late, skipped, duplicate (replayed), fenced (of a zombie)."),
    Family("seep_recoveries_total", PARTITION, "Starts of the partition here because it was lost elsewhere."),
    Family("seep_worker_busy_seconds_total", WORKER, "Time the processing loop had work."),
    Family("seep_worker_cpu_seconds_total", WORKER, "Processor time of the process."),
    Family("seep_worker_messages_sent_total", WORKER, "Messages given to the transport."),
    Family("seep_worker_messages_received_total", WORKER, "Messages received."),
    Family("seep_worker_messages_dropped_total", WORKER, "Messages to a peer that was absent or whose queue was full."),
    Family("seep_worker_messages_rejected_total", WORKER, "Messages received that were none."),
    Family("seep_worker_connections_refused_total", WORKER, "Connections of peers that did not prove the job's key."),
    Family("seep_worker_store_failures_total", WORKER, "Store calls that failed, such as on a full disk."),
    Family("seep_worker_publish_failures_total", WORKER, "Tries to publish to a sink's outside that failed."),
    Family("seep_worker_checkpoints_damaged_total", WORKER, "Checkpoints found damaged when they were read."),
    Family("seep_worker_logs_torn_total", WORKER, "Logs whose torn tail was cut off."),
    Family("seep_worker_dead_letters_unwritten_total", WORKER, "Dead letters beyond what the file of the job holds."),
)
BY_NAME = {family.name: family for family in FAMILIES}

Snapshot = Mapping[str, Mapping[tuple[str, ...], float]]
"""By family, then by the values of its labels."""


class Saved(NamedTuple):
    """Checkpoints of one partition that this worker has written."""

    written: int = 0
    failed: int = 0
    size_bytes: int = 0
    seconds: float = 0.0


def snapshot(
    worker: str,
    own: Mapping[str, float],
    counts: Mapping[str, int],
    partitions: Iterable[Partition],
    saved: Mapping[PartitionId, Saved],
    recovered: Mapping[PartitionId, int],
    busy_ms: Mapping[PartitionId, float],
) -> Snapshot:
    """`own`: families of the worker itself; `counts`: what its machine has dropped."""
    found: dict[str, dict[tuple[str, ...], float]] = {family.name: {} for family in FAMILIES}
    for name, number in own.items():
        found[name][(worker,)] = number
    fenced = counts.get("dropped_fenced", 0) + counts.get("refused_fenced", 0)
    found["seep_dropped_total"] = {
        (worker, "", "", "duplicate"): counts.get("dropped_duplicate", 0),
        (worker, "", "", "fenced"): fenced,
    }
    for partition in partitions:
        who = partition.entry.partition
        labels = (worker, who.operator, str(who.number))
        for name, number in _of(partition, saved.get(who, Saved()), recovered.get(who, 0)).items():
            found[name][labels] = number
        found["seep_busy_seconds_total"][labels] = busy_ms.get(who, 0.0) / 1000
        lag = _rows_behind(partition)
        if lag is not None:
            found["seep_source_lag_rows"][labels] = lag
        statistics = partition.status().statistics
        for reason in ("late", "skipped"):
            found["seep_dropped_total"][(*labels, reason)] = statistics.get(reason, 0)
    return found


def _of(partition: Partition, saved: Saved, recovered: int) -> dict[str, float]:
    status = partition.status()
    statistics = status.statistics
    sides = [side for side in (getattr(partition, "inputs", None), getattr(partition, "outputs", None)) if side]
    highest = max(side.highest for side in sides)
    return {
        "seep_rows_in_total": statistics.get("rows_in", 0),
        "seep_rows_out_total": statistics.get("rows_out", 0),
        "seep_epoch": status.epoch,
        "seep_durable_epoch": status.durable_epoch,
        "seep_lag_epochs": max(0, highest - status.epoch),
        "seep_state_bytes": statistics.get("state_bytes", 0),
        "seep_state_keys": statistics.get("keys", 0),
        "seep_buffer_bytes": statistics.get("buffer_bytes", 0),
        "seep_checkpoints_total": saved.written,
        "seep_checkpoints_failed_total": saved.failed,
        "seep_checkpoint_bytes_total": saved.size_bytes,
        "seep_checkpoint_seconds_total": saved.seconds,
        "seep_unprotected_seconds_total": statistics.get("unprotected_ms", 0) / 1000,
        "seep_dead_letters_total": statistics.get("errors", 0),
        "seep_recoveries_total": recovered,
    }


def _rows_behind(partition: Partition) -> int | None:
    """Rows that lie before a source partition; None when it is none, or one that cannot say."""
    behind = getattr(getattr(partition, "intake", None), "behind", None)
    if behind is None or not isinstance(partition, SourcePartition):
        return None
    wall_ms = partition.desk.wall_ms
    found = [behind(split, known[1], wall_ms) for split, known in partition.splits.items() if not known[3]]
    return None if None in found else sum(found)
