"""Breakages of the data lane: how sources cut, how receivers take, how credit is given. One line each.

A rule that two lines keep (a belt and its braces) has its mutant where breaking one line is enough.
"""

from __future__ import annotations

from seep.sim.mutations.patch import Mutant

SOURCE = "seep.partition.source"
SPLITS = "seep.partition.splits"
SINK = "seep.partition.sink"
OPERATOR = "seep.partition.operator"
INPUTS = "seep.partition.inputs"
OUTPUTS = "seep.partition.outputs"

CUTTING = (
    Mutant(
        "announce-unlogged",
        "a source announces an epoch only after it is in the epoch log",
        SOURCE,
        "epoch, record), self._appended)",
        "epoch, record), lambda reply: None); self._appended(StoreReply(0))",
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
        "        self.bases: dict[PartitionId, Record] = {}\n        self._fence(desk.call)",
        "        self.bases: dict[PartitionId, Record] = {}\n        self._read_log(desk.call)",
        scenario="zombie-source",
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
        SPLITS,
        "and all(known[3] for known in self.known.values())",
        "and any(known[3] for known in self.known.values())",
    ),
    Mutant(
        "watermark-of-fastest-split",
        "a source's watermark is the minimum over its splits",
        SPLITS,
        "            return min(time - self.intake",
        "            return max(time - self.intake",
    ),
    Mutant(
        "truncate-needed",
        "the epoch log is kept from the oldest epoch that any edge may replay",
        SOURCE,
        "below, journal = min(b.trimmed.epoch for b",
        "below, journal = max(b.newest.epoch for b",
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
        SPLITS,
        "for split, (_, end, *rest) in of_predecessor",
        "for split, (end, _, *rest) in of_predecessor",
    ),
)

GROWING = (
    Mutant(
        "split-moves",
        "the origin bucket of a split does not depend on how many there are by now",
        SPLITS,
        "        return split_bucket(split, self.intake.splits) in self.key_range",
        "        return split_bucket(split, self.intake.splits + len(self.known)) in self.key_range",
    ),
    Mutant(
        "born-split-left-behind",
        "who owns the bucket of a split next finds it in the log of who owned it before",
        SPLITS,
        "in of_predecessor if self._owns(split)})",
        "in of_predecessor if split in self.known})",
    ),
    Mutant(
        "split-born-everywhere",
        "a new split is taken up by the owner of its bucket alone",
        SPLITS,
        " if split not in self.known and self._owns(split)}",
        " if split not in self.known}",
    ),
    Mutant(
        "split-born-again",
        "a split that was taken up goes on where it stands",
        SPLITS,
        " if split not in self.known and self._owns(split)}",
        " if self._owns(split)}",
    ),
    Mutant(
        "split-born-elsewhere",
        "the log says where a new split begins",
        SPLITS,
        "{split: _fresh(at, wall_ms) for split, at in found",
        "{split: _fresh(None, wall_ms) for split, at in found",
    ),
    Mutant(
        "who-has-no-split-ends",
        "one that owns no split has not ended as long as it may get one",
        SPLITS,
        '        return not getattr(self.intake, "grows", False) and all(',
        "        return all(",
    ),
    Mutant(
        "splits-in-order-of-birth",
        "rows are cut in the order of their origin buckets, whenever their splits were born",
        SPLITS,
        "        if len(known) > len(self.known):",
        "        if False:",
    ),
    Mutant(
        "reread-by-number",
        "an epoch is read again in the order in which it was cut",
        SPLITS,
        "        return sorted(splits_of(record), key=lambda one: self._order(one[0]))",
        "        return sorted(splits_of(record))",
    ),
)

TAKING = (
    Mutant(
        "source-deaf-to-numbers",
        "a source that hears of a higher epoch goes on there, and so all of them move together",
        SOURCE,
        "        epoch = max(self.epoch + 1, self.outputs.highest)\n        begins",
        "        epoch = self.epoch + 1\n        begins",
        scenario="source-that-slept-goes-on-where-the-others-are",
    ),
    Mutant(
        "partial-epoch",
        "an epoch is taken when every input alive in it has announced it",
        OPERATOR,
        "            if upcoming == FOREVER or upcoming > bound or upcoming > last or self.outputs.blocked",
        "            if upcoming == FOREVER or upcoming > last or self.outputs.blocked",
    ),
    Mutant(
        "sink-partial-epoch",
        "a sink commits an epoch when every input alive in it has announced it",
        SINK,
        "            if upcoming == FOREVER or upcoming > bound or upcoming > stop:",
        "            if upcoming == FOREVER or upcoming > stop:",
    ),
    Mutant(
        "sink-commits-the-last-only",
        "a sink commits every epoch that it has taken",
        SINK,
        "*last, tuple(before)), self._appended)",
        "*last), self._appended)",
    ),
    Mutant(
        "sink-commits-twice",
        "of a commit that is tried again the log takes what it lacks",
        "seep.protocol.effects",
        "[record for record in records if record[0] > last]",
        "(records if self.epoch > last else [])",
        scenario="torn-commit-is-tried-again",
    ),
    Mutant(
        "order-of-arrival",
        "inputs are concatenated in (port, bucket) order",
        INPUTS,
        "key=lambda c: (c.edge.port, c.sender.key_range.low, c.sender.first))",
        "key=lambda c: c.heard_ms)",
    ),
    Mutant(
        "order-without-port",
        "the port comes before the bucket in canonical order",
        INPUTS,
        "key=lambda c: (c.edge.port, c.sender.key_range.low, c.sender.first))",
        "key=lambda c: (c.sender.key_range.low, c.sender.first))",
    ),
    Mutant(
        "broadcast-by-range",
        "every partition gets every row of a broadcast edge",
        INPUTS,
        "                EVERYTHING if channel.edge.broadcast else self.key_range,",
        "                self.key_range,",
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
        scenario="lost-frames",
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
        braces="the answer to a subscription begins with an announcement of an epoch already taken: it clears them",
    ),
    Mutant(
        "old-number-taken",
        "frames of an earlier subscription number are never taken",
        INPUTS,
        "            self.by_subscription.pop(channel.subscription, None)\n        sender = channel.sender",
        "            pass\n        sender = channel.sender",
        scenario="zombie-is-counted",
    ),
    Mutant(
        "silence-trusted",
        "the last frame before a pause may be lost: silence means subscribing again",
        INPUTS,
        "if not channel.accepted or (silent and not channel.queue and channel.announced < channel.sender.last):",
        "if not channel.accepted:",
        scenario="last-frame-lost-before-a-pause",
    ),
    Mutant(
        "asked-once",
        "a subscription is tried again until it is answered",
        INPUTS,
        "if not channel.accepted or (silent and not channel.queue and channel.announced < channel.sender.last):",
        "if channel.accepted and (silent and not channel.queue and channel.announced < channel.sender.last):",
    ),
    Mutant(
        "fastest-watermark",
        "the watermark is the minimum over the inputs",
        INPUTS,
        "                watermark = min(watermark, channel.edge.watermark(current.watermark))",
        "                watermark = channel.edge.watermark(current.watermark)",
    ),
    Mutant(
        "judged-by-own-watermark",
        "rows of e are judged by the watermark of e-1",
        OPERATOR,
        "Moment(epoch, at_ms, before, max(before, watermark),",
        "Moment(epoch, at_ms, watermark, max(before, watermark),",
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
        scenario="restored-after-a-source-ended",
    ),
    Mutant(
        "frames-by-rows-alone",
        "a frame holds no more bytes than a receiver takes in one message",
        OUTPUTS,
        "in _pieces(part, self.desk.settings.frame_rows):",
        "in part.pieces(self.desk.settings.frame_rows):",
        scenario="wide-rows-go-in-more-frames",
    ),
    Mutant(
        "credit-ignored",
        "what a receiver has not taken is bounded by its credit",
        OUTPUTS,
        "            if full and cursor.opened:",
        "            if full and not cursor.opened:",
        scenario="slow-receiver",
    ),
    Mutant(
        "credit-not-given-back",
        "a taken epoch gives its credit back",
        OUTPUTS,
        "        while self.opened and self.opened[0][0] <= taken:",
        "        while self.opened and self.opened[0][0] < taken:",
        scenario="one-credit",
    ),
)
