"""Breakages of Replace: pins, shadows, commits, hand-overs, recovery in parts, the journal. One line each."""

from __future__ import annotations

from seep.sim.mutations.patch import Mutant

SAVER = "seep.partition.saver"
SINK = "seep.partition.sink"
OPERATOR = "seep.partition.operator"
INPUTS = "seep.partition.inputs"
OUTPUTS = "seep.partition.outputs"
SOURCE = "seep.partition.source"
PLANNER = "seep.control.planner"
CONTROLLER = "seep.control.controller"
STEPS = "seep.control.steps"
LOADER = "seep.partition.loader"
COPIES = "seep.partition.copies"

REPLACE = (
    Mutant(
        "named-is-as-good-as-seen",
        "nothing starts from a checkpoint that a restored one only names: it may be gone",
        SAVER,
        "        seen = (point for point in reversed(self.durable) if point.version != self.unseen)",
        "        seen = reversed(self.durable)",
        scenario="merge-at-a-checkpoint-known-by-name-only",
    ),
    Mutant(
        "pin-not-trimmed-for",
        "upstream is not trimmed past a checkpoint that a pending Replace starts from",
        OPERATOR,
        "            upto = min(upto, self.pin.kept.epoch)",
        "            pass",
        scenario="slow-controller-in-a-replace",
    ),
    Mutant(
        "pin-dropped",
        "the base checkpoint of a pending Replace is kept",
        OPERATOR,
        "            keep.add(self.pin.kept.version)",
        "            pass",
        scenario="slow-controller-in-a-replace",
    ),
    Mutant(
        "merge-of-two-epochs",
        "a merge starts from checkpoints of one epoch, or not at all",
        OPERATOR,
        "        if not chain or chain[-1].epoch == self.entry.base_epoch:",
        "        if not chain or chain[-1].epoch <= self.entry.base_epoch:",
        scenario="merge-with-a-damaged-base",
    ),
    Mutant(
        "whole-state-to-each-part",
        "a new partition takes of the base only what is in its key range",
        LOADER,
        "        self._load(partition, version, self.me.key_range, then, call)",
        "        self._load(partition, version, None, then, call)",
    ),
    Mutant(
        "whole-copy-to-each-part",
        "who holds a copy gives of it only what is in the asker's key range",
        COPIES,
        "            chain = tuple(checkpoint.part(message.part) for checkpoint in chain)",
        "            chain = tuple(chain)",
    ),
    Mutant(
        "commit-before-restore",
        "routing is switched only when the new partitions run and their subscriptions are accepted",
        STEPS,
        "not status.accepted or not status.own_checkpoints or status.epoch < newest - lag:",
        "status.epoch < -1:",
        scenario="split-is-not-felt-downstream",
    ),
    Mutant(
        "life-begins-before-base",
        "E is later than every checkpoint that a new partition started from",
        STEPS,
        "(journal.entries[p].first for p in (*replace.old, *replace.new))",
        "(journal.entries[p].first for p in replace.old)",
        braces="the switch lies ahead of all that the old ones have reached, and so of their checkpoints",
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
        braces="rows past the sender's life are never taken (Inputs.take); its channel is left with its last epoch",
    ),
    Mutant(
        "fixed-epoch-passed-by",
        "a partition stops at the epoch of a merge's checkpoint, also when nothing happened in it",
        OPERATOR,
        "            if upcoming > stop and bound >= stop > self.epoch and stop < FOREVER:",
        "            if False:",
        braces="sources number without gaps, so something happens in every epoch up to the last one of the flow",
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
        braces="sources number without gaps, so the buffer already ends with an announcement of that epoch",
    ),
    Mutant(
        "retired-undrained",
        "a sealed partition serves its buffer until it is trimmed",
        PLANNER,
        "        if entry.role == SEALED and status.drained and status.journal_version == journal.version:",
        "        if entry.role == SEALED and status.journal_version == journal.version:",
    ),
    Mutant(
        "base-freed-at-once",
        "what a partition started from is kept until it has two checkpoints of its own",
        PLANNER,
        "        elif entry.role == LIVE and entry.base and status.own_checkpoints >= 2:",
        "        elif entry.role == LIVE and entry.base:",
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
        "        if replace.operator == partition.operator or partition in replace.old:",
        "        if False:",
    ),
    Mutant(
        "handover-at-smallest",
        "in a hand-over E is 1 + the largest epoch that any old partition has begun",
        STEPS,
        "        last = max(last, status.epoch if",
        "        last = max(1, status.epoch if",
    ),
    Mutant(
        "handover-unfinished",
        "in a hand-over the new ones begin when every old one has finished E-1",
        STEPS,
        "    if min(begun) >= replace.at:",
        "    if max(begun) >= replace.at:",
        scenario="sink-that-is-behind-in-a-hand-over",
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
        "sink-shows-at-once",
        "a sink shows nothing before those that had its keys have shown all of theirs",
        SINK,
        "        if self.held and not self._is_preceded():",
        "        if self.held:",
        scenario="split-sink-shows-in-order",
    ),
    Mutant(
        "shown-again",
        "a sink that may show each epoch once shows nothing that an earlier start has committed",
        SINK,
        "            if self.outlet.repeats:",
        "            if True:",
        scenario="at-most-once-shows-nothing-twice",
    ),
    Mutant(
        "ended-source-replaced",
        "an ended source is not replaced",
        SOURCE,
        "            begun=(FOREVER if self.ended else self.epoch) if resting else -1,",
        "            begun=self.epoch if resting else -1,",
        scenario="ended-source-is-not-replaced",
    ),
    Mutant(
        "ended-one-forgotten",
        "in a hand-over E lies behind what a partition has said that has ended, too",
        STEPS,
        "status.epoch if status.begun >= FOREVER else status.begun)",
        "0 if status.begun >= FOREVER else status.begun)",
        scenario="ended-partition-beside-one-that-is-behind",
    ),
    Mutant(
        "one-ended-holds-all",
        "a source is replaced as long as one of its partitions has not ended",
        STEPS,
        "    if min(begun) >= FOREVER:",
        "    if max(begun) >= FOREVER:",
        scenario="more-partitions-than-splits",
    ),
    Mutant(
        "ended-one-stays",
        "a partition that had ended before it was replaced is let go like others",
        SOURCE,
        "        return self.ended or self.epoch >= self.entry.last",
        "        return self.epoch >= self.entry.last",
        scenario="more-partitions-than-splits",
    ),
    Mutant(
        "swap-believed",
        "a journal write without an answer may have worked or not: it is read again",
        CONTROLLER,
        "            self.wanted, self.unsure_ms = wanted, self.now_ms\n        else:",
        "            self._settle(wanted, wanted)\n        else:",
    ),
    Mutant(
        "old-status-believed",
        "a step of a Replace rests on what partitions said under the journal of now",
        STEPS,
        "        return status if status is not None and status.journal_version == self.version else None",
        "        return status",
        braces="`begun` is said only of a Replace that the partition knows; one from a stale pin is given up",
    ),
    Mutant(
        "workers-not-adopted",
        "a new controller adopts the workers that the journal names, until they have been silent for too long",
        CONTROLLER,
        "                    self.heard.setdefault(entry.worker, self.now_ms)",
        "                    pass",
        scenario="new-controller-adopts-what-runs",
    ),
    Mutant(
        "half-of-a-part",
        "one that takes over keys reads all sections that hold any of them",
        "seep.partition.loader",
        "        self._load(partition, version, self.me.key_range, then, call)",
        "        self._load(partition, version, self.me.key_range.split(2)[0], then, call)",
    ),
)
