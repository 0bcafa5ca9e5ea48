"""One partition of a source: it cuts its splits into epochs and writes each cut to the epoch log before announcing it.

The log is the source's whole state: a record says where each split stood before and after the epoch, so a source that
is started again reads the same rows in the same epochs. Nothing else of a source is checkpointed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

from seep.errors import DataLoss, SeepError
from seep.model.batch import Batch
from seep.model.care import Condemned
from seep.model.epoch import NOTHING, UNKNOWN, Progress
from seep.model.ids import BEGINNING, FOREVER, PartitionId
from seep.partition.contract import Graph, Intake
from seep.partition.desk import Call, Desk, failure_of
from seep.partition.outputs import Outputs
from seep.partition.pace import AHEAD_EPOCHS, Pace
from seep.partition.reread import Reread, counted, merged, of_edge, same_rows, shapes_of
from seep.partition.splits import Splits, splits_of
from seep.partition.told import Told
from seep.partition.wary import Wary
from seep.protocol.effects import Append, FenceStore, ReadLog, StoreReply, Truncate
from seep.protocol.journal import Entry
from seep.protocol.messages import Credit, DataMessage, Status, Subscribe, Trim, Unsubscribe

Record = dict[str, Any]
"""One cut: after (the epoch before), base (the last before it that read anything), now (ms), watermark, ended, idle,
rows, edges: {edge: Shape of what goes there}, splits: {split: `seep.partition.splits.Known`}"""


class SourcePartition:
    def __init__(self, desk: Desk, entry: Entry, graph: Graph) -> None:
        self.desk = desk
        self.entry = entry
        self.node = graph.nodes[entry.partition.operator]
        self.intake: Intake = self.node.make()
        self.told = Told(self.intake)
        self.wary = Wary(desk, entry)
        self.outputs = Outputs(desk, entry, graph.outputs(self.node.name), NOTHING)
        self.splits = Splits(self.intake, entry.key_range)
        self.epoch = self.base = entry.first - 1
        self.watermark = BEGINNING
        self.cut_wall_ms = 0
        self.reading = False
        self.ended = False
        self.running = False
        self.fenced = False
        self.failure = ""
        self.next_cut_ms = self.truncated_ms = desk.now_ms
        self.pace = Pace(desk.settings.first_epoch_rows, desk.settings.epoch_ms)
        self.appending: tuple[int, Record, dict[str, Batch]] | None = None
        self.logged = False
        self.truncated = self.forgettable = self.rows = 0
        self.lingers = all(graph.nodes[edge.target].kind == "sink" for edge in graph.outputs(self.node.name))
        """Operators trim some checkpoints later, sinks at once: what those trim is forgotten a while after."""
        self.bases: dict[PartitionId, Record] = {}
        self._fence(desk.call)

    # --- start ---------------------------------------------------------------------------------------------------

    def _fence(self, call: Call) -> None:
        entry, version = self.entry, self.desk.journal.version
        call(self, lambda token: FenceStore(token, entry.partition, entry.generation, version), self._after_fence)

    def _after_fence(self, reply: StoreReply) -> None:
        if reply.error == "fenced":
            self.fenced = self.desk.changed = True
        elif reply.error:
            self._fence(self.desk.call_again)
        else:
            self._read_log(self.desk.call)

    def _read_log(self, call: Call) -> None:
        partition = self.entry.partition
        call(self, lambda token: ReadLog(token, partition), self._log_read)

    def _log_read(self, reply: StoreReply) -> None:
        if reply.error == "damaged":
            self._fail(f"{self.entry.partition}: its epoch log is damaged; restore from a savepoint")
        elif reply.error:
            self._read_log(self.desk.call_again)
        elif reply.value:
            # What the log no longer holds must not be served as if nothing had been there.
            trimmed = Progress(reply.value[0][1]["after"], 0, BEGINNING, UNKNOWN)
            for buffer in self.outputs.buffers.values():
                buffer.trimmed = trimmed
            for epoch, record in reply.value:
                self._replay(epoch, record)
            self._run()
        elif self.entry.base:
            for partition, _ in self.entry.base:
                self._read_base(partition, self.desk.call)
        else:
            self._run()

    def _read_base(self, partition: PartitionId, call: Call) -> None:
        """A new partition goes on where the old ones' logs end."""

        def read(reply: StoreReply) -> None:
            if reply.error:
                self._read_base(partition, self.desk.call_again)
                return
            records = [record for epoch, record in reply.value if epoch < self.entry.first]
            if not records:
                self._fail(f"{self.entry.partition}: the epoch log of {partition} is gone")
                return
            self.bases[partition] = records[-1]
            if len(self.bases) == len(self.entry.base):
                self._begin_from_bases()

        call(self, lambda token: ReadLog(token, partition), read)

    def _begin_from_bases(self) -> None:
        for record in self.bases.values():
            self.splits.inherit(splits_of(record["splits"]))
            self.cut_wall_ms = max(self.cut_wall_ms, record["now"])
        self.bases.clear()
        self.watermark = self.splits.watermark(self.cut_wall_ms, self.watermark)
        self._append(self.entry.first - 1, self._record(self.cut_wall_ms, 0, {}, ended=False), {})

    def _replay(self, epoch: int, record: Record) -> None:
        """What the log says of this epoch; its rows are read when they are asked for."""
        self.splits.inherit(splits_of(record["splits"]))
        self.rows += record["rows"]
        outputs = cache(partial(self._read_again, epoch, record))
        batches: dict[str, Batch] = {
            edge: Reread(shape, partial(of_edge, outputs, edge)) for edge, shape in record["edges"].items()
        }
        self._announce(epoch, record, batches)

    def _read_again(self, epoch: int, record: Record) -> dict[str, Batch]:
        outputs: list[dict[str, Batch]] = []
        self.intake.epoch = epoch
        self.intake.care = self.wary.care(_base_of(record), self.epoch, first=False)
        for split, (start, end, *_) in self.splits.in_order(record["splits"]):
            if start != end:
                reading = self.intake.read(split, start, end, FOREVER, record["now"])
                if reading is None:
                    raise DataLoss(f"{self.entry.partition}: split {split} no longer has epoch {epoch}")
                outputs.append(dict(reading.outputs))
        outputs_by_edge = merged(outputs)
        if not same_rows(shapes_of(outputs_by_edge), record["edges"]):
            raise DataLoss(f"{self.entry.partition}: epoch {epoch} reads differently than it did before")
        return outputs_by_edge

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Whatever sends may have to read again, and that may fail."""
        try:
            yield
        except SeepError as error:
            self._fail(failure_of(self.entry.partition, error))
        except Condemned as found:
            self.running = False  # some of its splits may have been read
            self._fail(self.wary.accuse(self.base, found, after=True))

    def _run(self) -> None:
        self.running = True
        self.desk.changed = True
        self.adopt(self.entry)

    def _fail(self, report: str) -> None:
        self.failure = report
        self.desk.changed = True

    # --- cutting -------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        if not self.running or self.failure or self.fenced or self.appending is not None:
            return
        replace = self.desk.journal.replacing(self.entry.partition)
        if replace is not None:
            if replace.at > self.epoch and not self.ended:
                self._append(replace.at, self._record(self.cut_wall_ms, 0, {}, ended=False), {})
            return
        heard_higher = self.outputs.highest > self.epoch
        if self.ended or self.epoch >= self.entry.last or not (heard_higher or self.desk.now_ms >= self.next_cut_ms):
            return
        draining = self.desk.journal.stopping == "drain"
        if draining and self.told.drained(self.splits.known):
            for known in self.splits.known.values():
                known[3] = True
            self.watermark = FOREVER
            self._append(
                max(self.epoch + 1, self.outputs.highest), self._record(self.cut_wall_ms, 0, {}, ended=True), {}
            )
            return
        if (self.desk.journal.stopping and not draining) or self.outputs.blocked:
            return
        waiting = self.outputs.waiting if self.pace.ahead else 0
        if waiting >= AHEAD_EPOCHS:
            return
        if self.outputs.full:
            self.desk.count("source_held_by_buffer")
            return
        epoch = max(self.epoch + 1, self.outputs.highest)
        begins = self.desk.journal.beginning(self.node.turn)
        with self._failing():
            if begins == FOREVER or not self.pace.hears(self.desk.now_ms, self.outputs.watermark, waiting):
                self._cut(epoch, reads=False)
            else:
                self.pace.begin(self.desk.now_ms, waiting, self.outputs.rows)
                self._cut(max(epoch, begins))

    def _cut(self, epoch: int, reads: bool = True) -> None:
        """``reads=False``: an empty epoch, while Tables are loaded or other sources catch up; who waits is not idle."""
        settings, wall_ms = self.desk.settings, max(self.desk.wall_ms, self.cut_wall_ms)
        outputs: list[dict[str, Batch]] = []
        limit = min(settings.epoch_rows, self.pace.rows)
        rows, left, full = 0, limit, False
        self.intake.epoch = epoch
        self.intake.care = self.wary.care(self.base, self.base)
        self._begin_to_read(wall_ms)
        self.splits.grow(wall_ms)
        for index, (split, known) in enumerate(self.splits.known.items()):
            share = max(1, left // (len(self.splits.known) - index))
            if not reads:
                known[4] = wall_ms
                continue
            if known[3]:
                continue
            reading = self.intake.read(split, known[1], None, share, wall_ms)
            if reading is None:
                self.splits.nothing_came(split, known, wall_ms)
                continue
            rows += reading.rows
            left -= reading.rows
            full = full or (reading.rows >= share and not reading.ended)
            known[1] = reading.position
            known[2] = max(known[2], reading.event_time)
            known[3] = reading.ended
            known[5] = counted(known[5], {"read": reading.rows, **(reading.statistics or {})})
            if reading.rows:
                known[4] = wall_ms
                outputs.append(dict(reading.outputs))
        outputs_by_edge = merged(outputs)
        self.next_cut_ms += settings.epoch_ms
        if (full and limit == settings.epoch_rows) or self.next_cut_ms < self.desk.now_ms:
            self.next_cut_ms = self.desk.now_ms
        self.cut_wall_ms = wall_ms
        self.watermark = self.splits.watermark(wall_ms, self.watermark)
        self.pace.end(self.desk.now_ms, rows, full if reads else self.pace.ahead, self.watermark)
        self._append(epoch, self._record(wall_ms, rows, outputs_by_edge, self.splits.ended), outputs_by_edge)

    def _begin_to_read(self, wall_ms: int) -> None:
        """Time in which nobody read is no silence: a split that has not been read yet is not idle, and one that was
        not for a while is no more so than before."""
        if not self.reading:
            for known in self.splits.known.values():
                known[4] = known[4] + wall_ms - self.cut_wall_ms if known[4] else wall_ms
        self.reading = True

    def _record(self, wall_ms: int, rows: int, outputs: dict[str, Batch], ended: bool) -> Record:
        return {
            "after": self.epoch,
            "base": self.base,
            "now": wall_ms,
            "watermark": self.watermark,
            "ended": ended,
            "idle": not ended and not self.splits.active(wall_ms),
            "edges": shapes_of(outputs),
            "rows": rows,
            "splits": {str(split): list(known) for split, known in self.splits.known.items()},
        }

    def _append(self, epoch: int, record: Record, outputs: dict[str, Batch]) -> None:
        self.appending = (epoch, record, outputs)
        self._write(epoch, record, self.desk.call)

    def _write(self, epoch: int, record: Record, call: Call) -> None:
        partition, generation = self.entry.partition, self.entry.generation
        call(self, lambda token: Append(token, partition, generation, epoch, record), self._appended)

    def _appended(self, reply: StoreReply) -> None:
        assert self.appending is not None
        epoch, record, outputs = self.appending
        if reply.error == "fenced":
            self.fenced = self.desk.changed = True
            self.desk.count("refused_fenced")
        elif reply.error and reply.error != "exists":
            # Nothing of this epoch has been announced: the same cut is tried again. "exists" is our own earlier
            # try, since nobody else has this generation.
            self._write(epoch, record, self.desk.call_again)
        else:
            self.appending = None
            self.rows += record["rows"]
            for known in self.splits.known.values():
                known[0] = known[1]
            self.outputs.count(outputs)
            with self._failing():
                self._announce(epoch, record, outputs)
            if not self.running:
                self._run()

    def _announce(self, epoch: int, record: Record, outputs: dict[str, Batch]) -> None:
        self.epoch = epoch
        self.base = epoch if _moved(record) else _base_of(record)
        self.cut_wall_ms = record["now"]
        self.watermark = record["watermark"]
        self.ended = record["ended"]
        self.logged = True
        self.told.announced(epoch, self.splits.known)
        watermark = self.splits.reached() if self.ended else self.watermark
        progress = Progress(epoch, record["now"], watermark, ended=self.ended, idle=record["idle"])
        if epoch < self.entry.first:
            for buffer in self.outputs.buffers.values():
                buffer.trimmed = progress
        else:
            self.outputs.add(progress, outputs)
        self.desk.changed = self.desk.changed or self.ended

    # --- journal, messages ---------------------------------------------------------------------------------------

    def adopt(self, entry: Entry) -> None:
        self.entry = entry
        if self.running:
            with self._failing():
                self.outputs.adopt()

    def handle(self, message: DataMessage) -> None:
        if not self.running:
            return
        with self._failing():
            match message:
                case Subscribe():
                    self.outputs.on_subscribe(message)
                case Credit():
                    self.outputs.on_credit(message)
                case Unsubscribe():
                    self.outputs.on_unsubscribe(message)
                case Trim():
                    if self.outputs.on_trim(message):
                        self._truncate()

    def _truncate(self) -> None:
        """Keep the newest record that is trimmed everywhere: it says where the next one starts. And some before it: an
        epoch that the controller is about to fix may be over here."""
        below = min(b.trimmed.epoch for b in self.outputs.buffers.values())
        if self.lingers and self.desk.now_ms - self.truncated_ms < self.desk.settings.retry_ms:
            below = 0
        elif self.lingers:
            below, self.forgettable, self.truncated_ms = self.forgettable, below, self.desk.now_ms
        if below > self.truncated and not self._is_read():
            self.truncated = below
            self.told.trimmed(below)
            self.desk.effects.append(Truncate(self.entry.partition, self.entry.generation, below))
        if self._said_all:
            self.desk.changed = True

    def _is_read(self) -> bool:
        """New sources go on where this log ends; a savepoint or an audit asks where it stood at one epoch."""
        return any(not r.operator or self.entry.partition in r.old for r in self.desk.journal.replaces)

    @property
    def _said_all(self) -> bool:
        """Of its life: one that has ended may have done so before its last epoch."""
        return self.ended or self.epoch >= self.entry.last

    def status(self) -> Status:
        replace = self.desk.journal.replacing(self.entry.partition)
        resting = self.running and replace is not None and self.appending is None
        return Status(
            self.entry.partition,
            self.entry.generation,
            self.desk.journal.version,
            self.epoch if self.running else -1,
            durable_epoch=self.epoch,
            own_checkpoints=2 if self.logged else 0,
            accepted=self.running,
            begun=(FOREVER if self.ended else self.epoch) if resting else -1,
            drained=self.running and self._said_all and self.outputs.empty,
            ended=self.running and self.ended,
            fenced=self.fenced,
            failure=self.failure,
            statistics={"rows_out": self.rows, "buffer_bytes": self.outputs.size_bytes, **self.splits.refused()},
            watermark=self.watermark,
            idle=self.running and not self.ended and not self.splits.active(self.cut_wall_ms),
            published=self.base,
            accused=self.wary.accused,
        )

    def stop(self) -> None:
        self.running = False
        self.told.close()
        self.desk.forget(self)


def _base_of(record: Record) -> int:
    """From here a row that kills is counted. A source that has to be heard first cuts empty epochs in every life of its
    process before it comes to that row again: counted from those, it would be another one each time."""
    return int(record["base"] if "base" in record else record["after"])


def _moved(record: Record) -> bool:
    return any(start != end for start, end, *_ in record["splits"].values())
