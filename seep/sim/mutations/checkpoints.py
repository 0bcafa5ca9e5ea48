"""Breakages of checkpoints: what they hold, how long they and what is sent are kept, restore. One line each."""

from __future__ import annotations

from seep.sim.mutations.patch import Mutant

SOURCE = "seep.partition.source"
SINK = "seep.partition.sink"
OPERATOR = "seep.partition.operator"
OUTPUTS = "seep.partition.outputs"
SAVER = "seep.partition.saver"
LOADER = "seep.partition.loader"
COPIES = "seep.partition.copies"
BUFFER = "seep.state.buffer"

CHECKPOINTS = (
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
        "one-of-an-epoch-is-enough",
        "at rest the newest two checkpoints are both of the last epoch, so that all before it can be let go",
        SAVER,
        "        return len(self.durable) < 2 or epoch > self.durable[-2].epoch",
        "        return len(self.durable) < 2 or epoch > self.durable[-1].epoch",
        scenario="full-buffers",
    ),
    Mutant(
        "dropped-behind-a-base",
        "the checkpoint before one that somebody starts from is kept: that one may be damaged",
        SAVER,
        "point.version in pinned or (after is not None and after.version in pinned)",
        "point.version in pinned",
        scenario="first-checkpoint-older-than-the-base",
    ),
    Mutant(
        "digest-of-what-was-truncated",
        "what a source announces of the epoch before its log begins is compared with nothing",
        SOURCE,
        'Progress(reply.value[0][1]["after"], 0, BEGINNING, UNKNOWN)',
        'Progress(reply.value[0][1]["after"], 0, BEGINNING, 0)',
        scenario="source-restarts-where-its-log-was-cut",
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
        "            self.inputs.trim(self.committed)\n            self.desk.changed",
        "            self.inputs.trim(self.committed + 1)\n            self.desk.changed",
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
        OUTPUTS,
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
        "version-written-twice",
        "a version of a partition's checkpoints is never written twice",
        SAVER,
        "        self.parent = newest.version",
        "        self.parent = self.version = newest.version",
        scenario="damaged-increment-inside-a-chain",
    ),
    Mutant(
        "base-epoch-as-named",
        "one that started from an older base than named may start from it again: trim waits for that",
        OPERATOR,
        "        self.base_epoch = min(self.base_epoch, self.epoch)",
        "        pass",
        scenario="first-checkpoint-older-than-the-base",
    ),
    Mutant(
        "base-epoch-forgotten",
        "... also in the next generation, which starts from its own checkpoint out of a copy",
        OPERATOR,
        "        self.base_epoch = min(self.base_epoch, self.epoch)",
        "        if not self.loader.from_memory:\n            self.base_epoch = min(self.base_epoch, self.epoch)",
        scenario="own-checkpoint-older-than-the-named-base",
    ),
    Mutant(
        "built-on-a-hidden-tear",
        "what was restored from memory alone is written anew, in full",
        OPERATOR,
        "            if not self.loader.from_memory:",
        "            if True:",
        scenario="torn-checkpoint-hidden-by-a-copy",
    ),
    Mutant(
        "holder-never-replaced",
        "when the holder of a copy dies, another one is asked at once",
        COPIES,
        "        if chosen == self.holder:",
        "        if self.holder:",
        scenario="another-holds-the-copy-when-its-holder-is-gone",
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
        "no-last-resort",
        "a flow does not stop for want of a checkpoint while somebody holds a copy",
        LOADER,
        '            if reply.error == "damaged":',
        "            if False:",
        scenario="copy-that-comes-late",
    ),
    Mutant(
        "last-resort-only-the-newest",
        "where nothing else is left, a copy of the version before the newest will do",
        LOADER,
        "            loading.wanted -= 1",
        "            pass",
        scenario="copy-of-the-version-before",
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
)
