"""One written breakage for each rule of the protocol, in the order of the design: cutting, taking, lives, Replace.

Each is one changed line. A rule that two lines keep (a belt and its braces) has its mutant where breaking one line is
enough to break the promise.
"""

from __future__ import annotations

from seep.sim.mutations.patch import Mutant

SOURCE = "seep.partition.source"
SINK = "seep.partition.sink"
OPERATOR = "seep.partition.operator"
INPUTS = "seep.partition.inputs"
OUTPUTS = "seep.partition.outputs"
SAVER = "seep.partition.saver"
WORKER = "seep.partition.worker"
BUFFER = "seep.state.buffer"
JOURNAL = "seep.protocol.journal"
PLANNER = "seep.control.planner"
CONTROLLER = "seep.control.controller"

CUTTING = (
    Mutant(
        "announce-unlogged",
        "a source announces an epoch only after it is in the epoch log",
        SOURCE,
        "        self.desk.call(self, lambda token: Append(token, partition, generation, epoch, record), self._appended)",
        "        self.desk.call(self, lambda token: Append(token, partition, generation, epoch, record), lambda reply: None)"
        "; self._appended(StoreReply(0))",
    ),
    Mutant(
        "failed-append-counts",
        "an append that failed is tried again with the same cut",
        SOURCE,
        '        elif reply.error and reply.error != "exists":',
        '        elif reply.error == "never":',
    ),
    Mutant(
        "own-append-unknown",
        "an append that worked although its answer was lost is recognised",
        SOURCE,
        '        elif reply.error and reply.error != "exists":',
        "        elif reply.error:",
    ),
    Mutant(
        "source-without-fence",
        "a started source fences its predecessor before it reads the log",
        SOURCE,
        "        self.bases: dict[PartitionId, Record] = {}\n        self._fence()",
        "        self.bases: dict[PartitionId, Record] = {}\n        self._read_log()",
    ),
    Mutant(
        "replay-reads-on",
        "a restarted source reads each logged epoch exactly up to its logged position",
        SOURCE,
        'reading = self.intake.read(split, start, end, FOREVER, record["now"])',
        'reading = self.intake.read(split, start, None, FOREVER, record["now"])',
    ),
    Mutant(
        "one-split-ends-all",
        "a source has ended when all its splits have",
        SOURCE,
        "        ended = all(known[3] for known in self.splits.values())",
        "        ended = any(known[3] for known in self.splits.values())",
    ),
    Mutant(
        "watermark-of-fastest-split",
        "a source's watermark is the minimum over its splits",
        SOURCE,
        "            return min(active)",
        "            return max(active)",
    ),
    Mutant(
        "truncate-needed",
        "the epoch log is kept from the oldest epoch that any edge may replay",
        SOURCE,
        "below = min((b.trimmed.epoch for b",
        "below = max((b.newest.epoch for b",
    ),
    Mutant(
        "cut-while-agreeing",
        "in a hand-over an old source cuts nothing more of its own",
        SOURCE,
        "ended=False), {})\n            return\n        heard_higher",
        "ended=False), {})\n            pass\n        heard_higher",
    ),
    Mutant(
        "handover-from-start",
        "a new source partition goes on where the old ones' logs end",
        SOURCE,
        "                    self.splits[split] = [end, end, time, ended, heard]\n            self.cut_wall_ms",
        "                    self.splits[split] = [_, _, time, ended, heard]\n            self.cut_wall_ms",
    ),
)

TAKING = (
    Mutant(
        "partial-epoch",
        "an epoch is taken when every input alive in it has announced it",
        OPERATOR,
        "            if upcoming == FOREVER or upcoming > bound or upcoming > last or self.outputs.blocked:",
        "            if upcoming == FOREVER or upcoming > last or self.outputs.blocked:",
    ),
    Mutant(
        "sink-partial-epoch",
        "a sink commits an epoch when every input alive in it has announced it",
        SINK,
        "            if upcoming == FOREVER or upcoming > bound or upcoming > stop:",
        "            if upcoming == FOREVER or upcoming > stop:",
    ),
    Mutant(
        "order-of-arrival",
        "inputs are concatenated in (port, bucket) order",
        INPUTS,
        "        self.order = sorted(self.channels.values(), key=lambda c: (c.edge.port, c.sender.key_range.low, c.sender.first))",
        "        self.order = sorted(self.channels.values(), key=lambda c: c.heard_ms)",
    ),
    Mutant(
        "order-without-port",
        "the port comes before the bucket in canonical order",
        INPUTS,
        "key=lambda c: (c.edge.port, c.sender.key_range.low, c.sender.first))",
        "key=lambda c: (c.sender.key_range.low, c.sender.first))",
    ),
    Mutant(
        "dedupe-by-less",
        "anything of an epoch already taken is a duplicate",
        INPUTS,
        "        if epoch <= max(self.taken, channel.sender.first - 1):",
        "        if epoch < max(self.taken, channel.sender.first - 1):",
    ),
    Mutant(
        "after-what-came",
        "a subscription asks for everything not taken, not for what has not come",
        INPUTS,
        "        channel.announced = after = max(self.taken, sender.first - 1)",
        "        channel.announced = after = max(self.taken, sender.first - 1, channel.announced)",
    ),
    Mutant(
        "gap-ignored",
        "a receiver takes only the next sequence number",
        INPUTS,
        "        if frame.sequence != channel.sequence:",
        "        if frame.sequence < channel.sequence:",
    ),
    Mutant(
        "untaken-kept",
        "subscribing again discards untaken rows of the channel",
        INPUTS,
        "        channel.queue.clear()\n        channel.partial.clear()",
        "        pass\n        channel.partial.clear()",
    ),
    Mutant(
        "half-epoch-kept",
        "subscribing again discards the rows of a half received epoch",
        INPUTS,
        "        channel.queue.clear()\n        channel.partial.clear()",
        "        channel.queue.clear()\n        pass",
    ),
    Mutant(
        "old-number-taken",
        "frames of an earlier subscription number are never taken",
        INPUTS,
        "            self.by_subscription.pop(channel.subscription, None)\n        sender = channel.sender",
        "            pass\n        sender = channel.sender",
    ),
    Mutant(
        "silence-trusted",
        "the last frame before a pause may be lost: silence means subscribing again",
        INPUTS,
        "            if not channel.accepted or (silent and not channel.queue and channel.announced < channel.sender.last):",
        "            if not channel.accepted:",
    ),
    Mutant(
        "asked-once",
        "a subscription is tried again until it is answered",
        INPUTS,
        "            if not channel.accepted or (silent and not channel.queue and channel.announced < channel.sender.last):",
        "            if channel.accepted and (silent and not channel.queue and channel.announced < channel.sender.last):",
    ),
    Mutant(
        "fastest-watermark",
        "the watermark is the minimum over the inputs",
        INPUTS,
        "            watermark = min(watermark, FOREVER if current.ended else current.watermark)",
        "            watermark = FOREVER if current.ended else current.watermark",
    ),
    Mutant(
        "judged-by-own-watermark",
        "rows of e are judged by the watermark of e-1",
        OPERATOR,
        "        moment = Moment(epoch, max(before.now_ms, now_ms), before.watermark, max(before.watermark, watermark))",
        "        moment = Moment(epoch, max(before.now_ms, now_ms), watermark, max(before.watermark, watermark))",
    ),
    Mutant(
        "now-of-last-input",
        "`now` travels with Progress, maximum over the inputs",
        INPUTS,
        "            now_ms = max(now_ms, current.now_ms)",
        "            now_ms = current.now_ms",
    ),
    Mutant(
        "announcement-lost-on-subscribe",
        "a subscriber also hears what was announced as of the epoch it has",
        OUTPUTS,
        "        cursor = Cursor(message, max(buffer.first, buffer.after(message.after) - 1))",
        "        cursor = Cursor(message, max(buffer.first, buffer.after(message.after)))",
    ),
    Mutant(
        "credit-ignored",
        "what a receiver has not taken is bounded by its credit",
        OUTPUTS,
        "            if full and cursor.opened:",
        "            if full and not cursor.opened:",
    ),
    Mutant(
        "credit-not-given-back",
        "a taken epoch gives its credit back",
        OUTPUTS,
        "        while self.opened and self.opened[0][0] <= taken:",
        "        while self.opened and self.opened[0][0] < taken:",
    ),
)

LIVES = (
    Mutant(
        "shadow-heard",
        "the inputs of an epoch are the partitions alive in it, as the journal says",
        JOURNAL,
        "        return self.role != SHADOW and self.last > epoch and self.last >= self.first",
        "        return self.last > epoch and self.last >= self.first",
    ),
    Mutant(
        "zombie-sender-heard",
        "a channel is bound to one generation of its sender",
        INPUTS,
        "            if known.generation != entry.generation or known.worker != entry.worker:",
        "            if False:",
    ),
    Mutant(
        "restart-without-generation",
        "a partition that is started again has a higher generation",
        PLANNER,
        "journal.entries[partition], worker=worker, generation=Generation(journal.term, journal.next_generation)",
        "journal.entries[partition], worker=worker",
    ),
    Mutant(
        "generation-reused",
        "generations only grow",
        PLANNER,
        "        journal, entries={**journal.entries, partition: entry}, next_generation=journal.next_generation + 1",
        "        journal, entries={**journal.entries, partition: entry}, next_generation=journal.next_generation",
    ),
    Mutant(
        "operator-without-fence",
        "restore raises the generation at the store before it reads",
        OPERATOR,
        "        self.bases: dict[PartitionId, list[Checkpoint]] = {}\n        self._fence()",
        "        self.bases: dict[PartitionId, list[Checkpoint]] = {}\n        self._load()",
    ),
    Mutant(
        "sink-without-fence",
        "a sink fences its predecessor before it reads its marker",
        SINK,
        "        self.truncated = 0\n        self._fence()",
        "        self.truncated = 0\n        self._read_log()",
    ),
    Mutant(
        "trim-before-durable",
        "Trim comes only when the checkpoint is durable",
        OPERATOR,
        "        upto = self.saver.fallback_epoch(self.entry.base_epoch)",
        "        upto = self.epoch",
    ),
    Mutant(
        "trim-to-newest",
        "Trim names the oldest checkpoint that restore may fall back to",
        SAVER,
        "        return self.durable[-2][1] if len(self.durable) >= 2 else base_epoch",
        "        return self.durable[-1][1] if len(self.durable) >= 2 else base_epoch",
    ),
    Mutant(
        "trim-for-listeners",
        "whom a buffer waits for comes from the journal, never from who is subscribed",
        OUTPUTS,
        "        return self.buffers[edge].trim(min((trims.get(e.partition, -1) for e in receivers), default=-1))",
        "        return self.buffers[edge].trim(min((trims.get(p, -1) for p in self.cursors[edge]), default=-1))",
    ),
    Mutant(
        "trim-for-first",
        "a buffer is trimmed when every receiver said so",
        OUTPUTS,
        "        return self.buffers[edge].trim(min((trims.get(e.partition, -1) for e in receivers), default=-1))",
        "        return self.buffers[edge].trim(max((trims.get(e.partition, -1) for e in receivers), default=-1))",
    ),
    Mutant(
        "trim-unheard",
        "a starting upstream trims nothing until each receiver has spoken",
        OUTPUTS,
        "        return self.buffers[edge].trim(min((trims.get(e.partition, -1) for e in receivers), default=-1))",
        "        return self.buffers[edge].trim(min((trims[e.partition] for e in receivers if e.partition in trims), default=-1))",
    ),
    Mutant(
        "sink-trims-taken",
        "a sink's durable epoch is its last committed one",
        SINK,
        "            self.inputs.trim(epoch)",
        "            self.inputs.trim(epoch + 1)",
    ),
    Mutant(
        "sink-failed-append-counts",
        "a sink's commit that failed is tried again",
        SINK,
        '        elif reply.error and reply.error != "exists":',
        '        elif reply.error == "never":',
    ),
    Mutant(
        "forget-buffer",
        "a checkpoint holds the buffer",
        OPERATOR,
        "                {name: buffer.unsaved(full) for name, buffer in buffers.items()},",
        "                {name: () for name, buffer in buffers.items()},",
    ),
    Mutant(
        "forget-trimmed",
        "an incremental checkpoint says what was trimmed meanwhile",
        OPERATOR,
        "            newest = chain[-1].trimmed[name]\n",
        "            newest = chain[0].trimmed[name]\n",
    ),
    Mutant(
        "forget-watermark",
        "the watermark is checkpointed",
        OPERATOR,
        "            self.moment = Moment(newest.epoch, newest.now_ms, newest.watermark, newest.watermark)",
        "            self.moment = Moment(newest.epoch, newest.now_ms, BEGINNING, BEGINNING)",
    ),
    Mutant(
        "forget-epoch",
        "a restored partition subscribes after the epoch of its checkpoint",
        OPERATOR,
        "        self.inputs.taken = self.inputs.highest = self.epoch",
        "        self.inputs.taken = self.inputs.highest = self.epoch + 1",
    ),
    Mutant(
        "increment-on-lost-parent",
        "a chain of increments starts anew after a write that failed",
        SAVER,
        "            self.waiting.clear()\n            self.full_next = True",
        "            self.waiting.clear()\n            pass",
    ),
    Mutant(
        "saved-by-count",
        "an increment holds every entry added to the buffer since its parent",
        BUFFER,
        "        start = self.first if full else max(self.saved, self.first)",
        "        start = self.first if full else max(self.saved + 1, self.first)",
    ),
    Mutant(
        "older-journal-taken",
        "workers refuse a journal of a lower term or version",
        WORKER,
        "        if (journal.term, journal.version) < (desk.journal.term, desk.journal.version):",
        "        if False:",
    ),
)

REPLACE = (
    Mutant(
        "pin-not-trimmed-for",
        "upstream is not trimmed past a checkpoint that a pending Replace starts from",
        OPERATOR,
        "            upto = min(upto, self.pinned[2])",
        "            pass",
    ),
    Mutant(
        "pin-dropped",
        "the base checkpoint of a pending Replace is kept",
        OPERATOR,
        "            keep.add(self.pinned[1])",
        "            pass",
    ),
    Mutant(
        "merge-of-two-epochs",
        "a merge asks its partitions for a checkpoint at one epoch",
        OPERATOR,
        "        found = self.saver.at(replace.at) if replace.at else",
        "        found = self.saver.at(replace.at) if False else",
    ),
    Mutant(
        "merge-epoch-passed-by",
        "a partition stops at the epoch of a merge's checkpoint, also when nothing happened in it",
        OPERATOR,
        "            if upcoming > stop and bound >= stop > self.epoch and stop < FOREVER:",
        "            if upcoming > last and bound >= stop > self.epoch and stop < FOREVER:",
    ),
    Mutant(
        "whole-state-to-each-part",
        "a new partition takes of the base only what is in its key range",
        OPERATOR,
        "                    self.logic.load(checkpoint.state.part(self.entry.key_range))",
        "                    self.logic.load(checkpoint.state)",
    ),
    Mutant(
        "commit-before-restore",
        "routing is switched only when the new partitions run and their subscriptions are accepted",
        CONTROLLER,
        "            if not status.accepted or not status.own_checkpoints or status.epoch < goal:",
        "            if status.epoch < -1:",
    ),
    Mutant(
        "life-begins-before-base",
        "E is later than every checkpoint that a new partition started from",
        CONTROLLER,
        "        first = max([first, *(journal.entries[p].first for p in (*replace.old, *replace.new))])",
        "        first = max([first, *(journal.entries[p].first for p in replace.old)])",
    ),
    Mutant(
        "lives-overlap",
        "old lives end at E-1",
        PLANNER,
        "        entries[partition] = with_fields(entries[partition], last=first - 1, role=SEALED)",
        "        entries[partition] = with_fields(entries[partition], last=first, role=SEALED)",
    ),
    Mutant(
        "old-rows-past-the-end",
        "on hearing of the commit untaken rows of epochs from E on are dropped",
        INPUTS,
        "            while channel.queue and channel.queue[-1][0].epoch > entry.last:",
        "            while False:",
    ),
    Mutant(
        "new-asked-from-tau",
        "new partitions are asked for epochs from E on only",
        INPUTS,
        "        channel.announced = after = max(self.taken, sender.first - 1)",
        "        channel.announced = after = self.taken",
    ),
    Mutant(
        "seal-unannounced",
        "a sealed partition announces the last epoch of its life",
        OUTPUTS,
        "            if newest.epoch < last and not newest.ended:",
        "            if False:",
    ),
    Mutant(
        "retired-undrained",
        "a sealed partition serves its buffer until it is trimmed",
        CONTROLLER,
        "            if entry.role == SEALED and status.drained and status.journal_version == self.journal.version:",
        "            if entry.role == SEALED and status.journal_version == self.journal.version:",
    ),
    Mutant(
        "base-freed-at-once",
        "what a partition started from is kept until it has two checkpoints of its own",
        CONTROLLER,
        "            elif entry.role == LIVE and entry.base and status.own_checkpoints >= 2:",
        "            elif entry.role == LIVE and entry.base:",
    ),
    Mutant(
        "parts-without-ghost",
        "a dead partition that comes back in parts leaves a sealed ghost to serve its buffer",
        PLANNER,
        "    return retire(journal, partition) if first - 1 < dead.first else journal",
        "    return retire(journal, partition)",
    ),
    Mutant(
        "parts-before-life",
        "a life never begins before the life it takes over",
        PLANNER,
        "    first = max(epoch + 1, dead.first)",
        "    first = epoch + 1",
    ),
    Mutant(
        "death-leaves-replace",
        "a death that comes back in parts aborts an uncommitted Replace of that operator",
        PLANNER,
        "        if replace.operator == partition.operator:\n            journal = abort(journal, replace)",
        "        if replace.operator == partition.operator:\n            pass",
    ),
    Mutant(
        "handover-at-smallest",
        "in a hand-over E is 1 + the largest epoch that any old partition has begun",
        CONTROLLER,
        "            return planner.decide_epoch(journal, replace, max(1, *begun))",
        "            return planner.decide_epoch(journal, replace, max(1, min(begun)))",
    ),
    Mutant(
        "handover-unfinished",
        "in a hand-over the new ones begin when every old one has finished E-1",
        CONTROLLER,
        "        if min(begun) >= replace.at:",
        "        if max(begun) >= replace.at:",
    ),
    Mutant(
        "sink-commits-while-agreeing",
        "a sink commits nothing while the epoch of its hand-over is being agreed on",
        SINK,
        "        return min(self.entry.last, replace.at) if replace.at else self.inputs.taken",
        "        return min(self.entry.last, replace.at) if replace.at else self.entry.last",
    ),
    Mutant(
        "new-sink-from-start",
        "a new sink skips what its predecessors have committed",
        SINK,
        "        self.committed = entry.base_epoch",
        "        self.committed = 0",
    ),
    Mutant(
        "ended-source-replaced",
        "an ended source is not replaced",
        CONTROLLER,
        "        if max(begun) >= FOREVER:",
        "        if max(begun) > FOREVER:",
    ),
    Mutant(
        "swap-believed",
        "a journal write without an answer may have worked or not: it is read again",
        CONTROLLER,
        "            self.wanted = wanted\n            self._call(ReadJournal, self._swapped_or_not)\n        else:",
        "            self._settle(wanted, wanted)\n        else:",
    ),
    Mutant(
        "old-status-believed",
        "a step of a Replace rests on what partitions said under the journal of now",
        CONTROLLER,
        "            if status is None or status.journal_version != self.journal.version or status.begun < 0:",
        "            if status is None or status.begun < 0:",
    ),
)

WRITTEN = CUTTING + TAKING + LIVES + REPLACE
