"""What a worker measures, under the names that Prometheus gets: one list, so that names never drift.

A name ending in ``_total`` is a counter, one of `HISTOGRAMS` a histogram, every other a gauge. Each is given for every
partition it concerns from the first scrape on, at zero: a counter that appears with its first event hides that event
from ``rate()``. No label ever holds a key of the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from seep.model.ids import BEGINNING, FOREVER, PartitionId
from seep.partition.histogram import Histogram
from seep.partition.operator import OperatorPartition
from seep.partition.sink import SinkPartition
from seep.partition.source import SourcePartition
from seep.partition.worker import Partition
from seep.runtime.arrivals import Arrival

PARTITION = ("worker", "operator", "partition")
EDGE = (*PARTITION, "edge")
WORKER = ("worker",)
BLOCKED = (*PARTITION, "reason")
REASONS = ("input", "output", "checkpoint")
DROPPED = ("worker", "operator", "partition", "reason")


class Family(NamedTuple):
    name: str
    labels: tuple[str, ...]
    help: str

    @property
    def counts(self) -> bool:
        return self.name.endswith("_total")


FAMILIES = (
    Family("seep_rows_in_total", EDGE, "Rows taken from an edge (a source: read)."),
    Family("seep_rows_out_total", EDGE, "Rows put on an edge."),
    Family("seep_epoch", PARTITION, "The last epoch taken (a source: announced; a sink: committed)."),
    Family("seep_durable_epoch", PARTITION, "The epoch of the newest durable checkpoint or log record."),
    Family("seep_lag_epochs", PARTITION, "Epochs behind the highest one heard of."),
    Family("seep_source_arrived_rows_total", PARTITION, "Rows that came, read or not, where a source can say."),
    Family("seep_source_lag_rows", PARTITION, "Rows there to be read, where a source can say (text: estimated)."),
    Family("seep_source_lag_seconds", PARTITION, "How long that many take to arrive."),
    Family("seep_watermark_lag_seconds", PARTITION, "How far the watermark is behind the clock."),
    Family("seep_latency_seconds", PARTITION, "From the cut of an epoch at its source to its commit at a sink."),
    Family("seep_hot_key_share", PARTITION, "Of the rows taken, those that one key (bucket) has, at most."),
    Family("seep_queue_epochs", PARTITION, "Epochs sent and not taken by the slowest receiver."),
    Family("seep_credit_epochs", PARTITION, "Epochs that the receiver with the least credit left may still be sent."),
    Family("seep_credit_bytes", PARTITION, "Bytes that the receiver with the least credit left may still be sent."),
    Family("seep_blocked_seconds_total", BLOCKED, "Time without work, by reason: input, output, checkpoint."),
    Family("seep_busy_seconds_total", PARTITION, "Time the partition was at work, without encoding what it sends."),
    Family("seep_useful_seconds_total", PARTITION, "Of an operator's: inside its code, with rows, and for its state."),
    Family("seep_taking_epochs_total", PARTITION, "Epochs with rows that an operator took."),
    Family("seep_taking_seconds_total", PARTITION, "Time inside an operator's code, with rows."),
    Family("seep_taking_rows_squared_total", PARTITION, "By epoch taken: rows times rows (for a line through epochs)."),
    Family("seep_taking_row_seconds_total", PARTITION, "By epoch taken: rows times seconds (for a line)."),
    Family("seep_taking_seconds_squared_total", PARTITION, "By epoch taken: seconds times seconds (for a line)."),
    Family("seep_state_bytes", PARTITION, "Processing state held."),
    Family("seep_state_keys", PARTITION, "Keys that have state."),
    Family("seep_buffer_bytes", PARTITION, "Output kept for replay."),
    Family("seep_checkpoints_total", PARTITION, "Checkpoints made durable."),
    Family("seep_checkpoints_failed_total", PARTITION, "Checkpoints that the store did not take."),
    Family("seep_checkpoint_bytes_total", PARTITION, "Bytes of the checkpoints made durable, before they are encoded."),
    Family("seep_checkpoint_duration_seconds", PARTITION, "To encode and write a checkpoint, until it is durable."),
    Family("seep_unprotected_seconds_total", PARTITION, "Time in which no upstream worker held a copy of the state."),
    Family("seep_dead_letters_total", PARTITION, "Rows that user code refused."),
    Family("seep_dropped_total", DROPPED, "Dropped: late, skipped, duplicate (replayed), fenced (of a zombie)."),
    Family("seep_replace_output_gap_seconds", PARTITION, "Longest time without an epoch at a sink around a Replace."),
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
HISTOGRAMS = frozenset({"seep_latency_seconds", "seep_checkpoint_duration_seconds", "seep_replace_output_gap_seconds"})

Snapshot = Mapping[str, Mapping[tuple[str, ...], "float | Histogram"]]
"""By family, then by the values of its labels."""


class Saved(NamedTuple):
    """Checkpoints of one partition that this worker has written."""

    written: int = 0
    failed: int = 0
    size_bytes: int = 0
    took: Histogram = Histogram()
    """Never changed: the next value has a histogram of its own."""


class Timed(NamedTuple):
    """Where one partition's time went, in ms."""

    busy_ms: float = 0.0
    blocked_ms: Mapping[str, float] = {}
    """By reason."""


def snapshot(
    worker: str,
    own: Mapping[str, float],
    counts: Mapping[str, int],
    partitions: Iterable[Partition],
    saved: Mapping[PartitionId, Saved],
    recovered: Mapping[PartitionId, int],
    timed: Mapping[PartitionId, Timed],
    arrivals: Mapping[PartitionId, Arrival | None],
    gaps: Mapping[PartitionId, Histogram],
) -> Snapshot:
    """`own`: families of the worker itself; `counts`: what its machine has dropped."""
    found: dict[str, dict[tuple[str, ...], float | Histogram]] = {family.name: {} for family in FAMILIES}
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
        kept = saved.get(who, Saved())
        for name, number in _of(partition, kept, recovered.get(who, 0)).items():
            found[name][labels] = number
        found["seep_checkpoint_duration_seconds"][labels] = kept.took
        for name, by_edge in _by_edge(partition).items():
            for edge, rows in by_edge.items():
                found[name][(*labels, edge)] = rows
        spent = timed.get(who, Timed())
        found["seep_busy_seconds_total"][labels] = spent.busy_ms / 1000
        for reason in REASONS:
            found["seep_blocked_seconds_total"][(*labels, reason)] = spent.blocked_ms.get(reason, 0.0) / 1000
        arrival = arrivals.get(who)
        if arrival is not None:
            found["seep_source_arrived_rows_total"][labels] = arrival.rows
            found["seep_source_lag_rows"][labels] = arrival.lag_rows
            found["seep_source_lag_seconds"][labels] = arrival.lag_seconds
        if isinstance(partition, SinkPartition):
            found["seep_latency_seconds"][labels] = partition.latency
            found["seep_replace_output_gap_seconds"][labels] = gaps.get(who, Histogram())
        statistics = partition.status().statistics
        for reason in ("late", "skipped"):
            found["seep_dropped_total"][(*labels, reason)] = statistics.get(reason, 0)
    return found


def _by_edge(partition: Partition) -> dict[str, Mapping[str, int]]:
    match partition:
        case SourcePartition():
            return {"seep_rows_in_total": {"": partition.rows}, "seep_rows_out_total": partition.outputs.sent}
        case SinkPartition():
            return {"seep_rows_in_total": partition.inputs.rows_by_edge}
        case _:
            return {
                "seep_rows_in_total": partition.inputs.rows_by_edge,
                "seep_rows_out_total": partition.outputs.sent,
            }


def _of(partition: Partition, saved: Saved, recovered: int) -> dict[str, float]:
    status = partition.status()
    statistics = status.statistics
    sides = [side for side in (getattr(partition, "inputs", None), getattr(partition, "outputs", None)) if side]
    highest = max(side.highest for side in sides)
    found: dict[str, float] = {
        "seep_epoch": status.epoch,
        "seep_durable_epoch": status.durable_epoch,
        "seep_lag_epochs": max(0, highest - status.epoch),
        "seep_state_bytes": statistics.get("state_bytes", 0),
        "seep_state_keys": statistics.get("keys", 0),
        "seep_buffer_bytes": statistics.get("buffer_bytes", 0),
        "seep_checkpoints_total": saved.written,
        "seep_checkpoints_failed_total": saved.failed,
        "seep_checkpoint_bytes_total": saved.size_bytes,
        "seep_unprotected_seconds_total": statistics.get("unprotected_ms", 0) / 1000,
        "seep_dead_letters_total": statistics.get("errors", 0),
        "seep_recoveries_total": recovered,
    }
    watermark = partition.watermark if isinstance(partition, SourcePartition) else partition.moment.watermark
    if BEGINNING < watermark < FOREVER:
        found["seep_watermark_lag_seconds"] = partition.desk.wall_ms / 1000 - watermark / 1_000_000
    if not isinstance(partition, SinkPartition):
        found["seep_queue_epochs"] = partition.outputs.waiting
        found["seep_credit_epochs"], found["seep_credit_bytes"] = partition.outputs.credit
    if isinstance(partition, OperatorPartition):
        found["seep_hot_key_share"] = partition.load.hot_share
        taking = partition.taking
        found["seep_useful_seconds_total"] = taking.seconds + partition.paused_ms / 1000
        found["seep_taking_epochs_total"] = taking.epochs
        found["seep_taking_seconds_total"] = taking.seconds
        found["seep_taking_rows_squared_total"] = taking.rows_squared
        found["seep_taking_row_seconds_total"] = taking.row_seconds
        found["seep_taking_seconds_squared_total"] = taking.seconds_squared
    return found
