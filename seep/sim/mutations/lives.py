"""Breakages of lives: generations and fences, checkpoints and trims, restore. One line each."""

from __future__ import annotations

from seep.sim.mutations.patch import Mutant

SOURCE = "seep.partition.source"
SINK = "seep.partition.sink"
OPERATOR = "seep.partition.operator"
INPUTS = "seep.partition.inputs"
OUTPUTS = "seep.partition.outputs"
SAVER = "seep.partition.saver"
LOADER = "seep.partition.loader"
COPIES = "seep.partition.copies"
WORKER = "seep.partition.worker"
BUFFER = "seep.state.buffer"
JOURNAL = "seep.protocol.journal"
PLANNER = "seep.control.planner"
CONTROLLER = "seep.control.controller"

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
        scenario="zombie-is-counted",
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
        scenario="zombie-source",
    ),
    Mutant(
        "operator-without-fence",
        "restore raises the generation at the store before it reads",
        OPERATOR,
        "        self.bases: dict[PartitionId, list[Checkpoint]] = {}\n        self._fence(desk.call)",
        "        self.bases: dict[PartitionId, list[Checkpoint]] = {}\n        self._load(desk.call)",
        scenario="zombie-operator",
    ),
    Mutant(
        "sink-without-fence",
        "a sink fences its predecessor before it reads its marker",
        SINK,
        "        self.closed = False\n        self._fence(desk.call)",
        "        self.closed = False\n        self._read_log(desk.call)",
        scenario="zombie-sink-in-a-handover",
    ),
    Mutant(
        "trim-before-durable",
        "Trim comes only when the checkpoint is durable",
        OPERATOR,
        "        upto = self.saver.fallback_epoch(self.base_epoch)",
        "        upto = self.epoch",
    ),
    Mutant(
        "trim-to-newest",
        "Trim names the oldest checkpoint that restore may fall back to",
        SAVER,
        "        return self.durable[-2].epoch if len(self.durable) >= 2 else base_epoch",
        "        return self.durable[-1].epoch if len(self.durable) >= 2 else base_epoch",
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
        "        return self.buffers[edge].trim(min(trims.values(), default=-1))",
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
        scenario="restored-operator-remembers-what-it-trimmed",
    ),
    Mutant(
        "forget-watermark",
        "the watermark is checkpointed",
        OPERATOR,
        "            self.moment = Moment(newest.epoch, newest.now_ms, newest.watermark, newest.watermark)",
        "            self.moment = Moment(newest.epoch, newest.now_ms, BEGINNING, BEGINNING)",
        scenario="late-rows-after-a-restore",
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
        scenario="zombie-controller",
    ),
    Mutant(
        "version-written-twice",
        "a version of a partition's checkpoints is never written twice",
        SAVER,
        "        self.parent = chains[0][-1].version",
        "        self.parent = self.version = chains[0][-1].version",
        scenario="damaged-increment-inside-a-chain",
    ),
    Mutant(
        "digest-before-life",
        "what a partition announces of epochs before its life is not its word",
        INPUTS,
        "        lived = epoch >= channel.sender.first",
        "        lived = epoch > 0",
        scenario="parts-of-a-damaged-base",
    ),
    Mutant(
        "base-epoch-as-named",
        "one that started from an older base than named may start from it again: trim waits for that",
        OPERATOR,
        "            self.base_epoch = min(self.base_epoch, self.epoch)",
        "            pass",
        scenario="first-checkpoint-older-than-the-base",
    ),
    Mutant(
        "idle-holds-back",
        "an idle sender's watermark holds nobody back",
        INPUTS,
        "            if current.idle:",
        "            if current.idle and current.ended:",
        scenario="idle-partition",
    ),
    Mutant(
        "watermark-without-anybody",
        "when all senders are idle, the watermark stays where it is",
        INPUTS,
        "            return Taken(batches, now_ms, BEGINNING, ended, True)",
        "            return Taken(batches, now_ms, FOREVER, ended, True)",
        scenario="everybody-idle",
    ),
    Mutant(
        "lost-store-not-noticed",
        "a store that came back empty stops the flow",
        "seep.partition.desk",
        '        if reply.error == "lost":',
        '        if reply.error == "never":',
        scenario="emptied-store",
    ),
    Mutant(
        "first-journal-twice",
        "a controller that finds no journal where there was one writes none",
        CONTROLLER,
        "        if found is None and self.resumes:",
        "        if found is None and self.resumes is None:",
        braces="the next write of every worker is refused as lost, too",
    ),
    Mutant(
        "built-on-a-hidden-tear",
        "what was restored from memory alone is written anew, in full",
        SAVER,
        "        if len(chains) < 2:",
        "        if len(chains) < 1:",
        scenario="torn-checkpoint-hidden-by-a-copy",
    ),
    Mutant(
        "older-copy-taken",
        "a copy in memory counts only if it is no older than what the store has",
        LOADER,
        "        if message.chain and message.chain[-1].version >= loading.wanted:",
        "        if message.chain:",
        scenario="copy-that-missed-a-version",
    ),
    Mutant(
        "newer-copy-as-base",
        "a base is exactly the version that the journal names, also out of memory",
        COPIES,
        "            chain = chain[: len(upto)] if message.upto in upto else ()",
        "            pass",
        scenario="copy-newer-than-the-base",
    ),
    Mutant(
        "fenced-never-restarted",
        "a partition that the store refuses is started again, whoever raised the fence",
        CONTROLLER,
        "        waiting = [p for p, e in journal.entries.items() if e.worker not in self.heard or self._is_fenced(p)]",
        "        waiting = [p for p, e in journal.entries.items() if e.worker not in self.heard]",
        scenario="fence-raised-then-controller-gone",
    ),
    Mutant(
        "trimmed-served",
        "a subscription after what was trimmed is refused",
        OUTPUTS,
        "        elif message.after < self.buffers[message.edge].trimmed.epoch:",
        "        elif False:",
        scenario="running-source-and-a-receiver-without-checkpoint",
    ),
    Mutant(
        "restarted-source-serves-less",
        "a restarted source refuses what its log no longer holds",
        SOURCE,
        "                buffer.trimmed = trimmed\n",
        "                pass\n",
        scenario="restarted-source-and-a-receiver-without-checkpoint",
    ),
    Mutant(
        "other-replay-taken",
        "a replay that differs stops the flow",
        INPUTS,
        "        if lived and digests.setdefault(epoch, progress.digest) != progress.digest:",
        "        if False:",
        scenario="fickle-operator-is-found-out",
    ),
    Mutant(
        "other-reread-taken",
        "a reread that differs from the epoch log stops the flow",
        SOURCE,
        '        if _digest(merged) != record["digest"]:',
        "        if False:",
        scenario="fickle-source-is-found-out",
    ),
)
