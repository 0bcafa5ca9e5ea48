"""Breakages of lives: generations and fences, lost stores, tables first, workers that are busy. One line each."""

from __future__ import annotations

from seep.sim.mutations.patch import Mutant

SOURCE = "seep.partition.source"
SINK = "seep.partition.sink"
OPERATOR = "seep.partition.operator"
INPUTS = "seep.partition.inputs"
WORKER = "seep.partition.worker"
JOURNAL = "seep.protocol.journal"
PLANNER = "seep.control.planner"
CONTROLLER = "seep.control.controller"
ATTENDANCE = "seep.control.attendance"

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
        "released-at-work",
        "a worker is let go only when nothing runs on it",
        "seep.control.pool",
        "        self.idle_since = {w: self.idle_since.get(w, now_ms) for w in idle(journal, there)}",
        "        self.idle_since = {w: self.idle_since.get(w, now_ms) for w in there}",
        scenario="workers-that-rest-are-let-go",
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
        "digest-before-life",
        "what a partition announces of epochs before its life is not its word",
        INPUTS,
        "        known = epoch >= channel.sender.first and progress.digest != UNKNOWN",
        "        known = epoch > 0 and progress.digest != UNKNOWN",
        scenario="parts-of-a-damaged-base",
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
        "lost-store-told-too-low",
        "what a controller that was started again says of a lost store is later than all that the workers know",
        "seep.control.controller",
        "        self.journal = with_fields(self.journal, term=FOREVER, version=FOREVER, stopping=LOST)",
        "        self.journal = with_fields(self.journal, version=self.journal.version + 1, stopping=LOST)",
        scenario="emptied-store-and-a-dead-controller",
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
        "fenced-never-restarted",
        "a partition that the store refuses is started again, whoever raised the fence",
        CONTROLLER,
        "        waiting = [p for p, e in journal.entries.items() if e.worker not in self.heard or self._is_fenced(p)]",
        "        waiting = [p for p, e in journal.entries.items() if e.worker not in self.heard]",
        scenario="fence-raised-then-controller-gone",
    ),
    Mutant(
        "other-replay-taken",
        "a replay that differs stops the flow",
        INPUTS,
        "        if known and digests.setdefault(epoch, progress.digest) != progress.digest:",
        "        if False:",
        scenario="fickle-operator-is-found-out",
    ),
    Mutant(
        "other-reread-taken",
        "a reread that differs from the epoch log stops the flow",
        SOURCE,
        '        if not same_rows(shapes_of(outputs_by_edge), record["edges"]):',
        "        if False:",
        scenario="fickle-source-is-found-out",
    ),
    Mutant(
        "reads-before-tables",
        "a source that waits has no row before the Tables are loaded",
        SOURCE,
        "        begins = self.desk.journal.beginning(self.node.turn)",
        "        begins = 0",
    ),
    Mutant(
        "begins-in-the-past",
        "its first row is in no earlier epoch than the last of the Tables'",
        SOURCE,
        "                self._cut(max(epoch, begins))",
        "                self._cut(epoch)",
        scenario="waiting-source-that-is-behind",
    ),
    Mutant(
        "waits-for-one-table-source",
        "every partition of every source that loads has ended before the waiting ones begin",
        "seep.control.planner",
        "    if len(ends) < len(loading):",
        "    if not ends:",
    ),
    Mutant(
        "turns-at-once",
        "a source that loads and waits begins after those that it waits for, not with them",
        "seep.protocol.journal",
        "        return self.begins[turn - 1] if turn else 0",
        "        return self.begins[0] if turn else 0",
    ),
    Mutant(
        "waits-for-its-own-turn",
        "a turn begins when those before it have ended: its own sources have not begun",
        "seep.control.planner",
        "    loads = [node.name for node in graph.nodes.values() if node.loads and node.turn < turn]",
        "    loads = [node.name for node in graph.nodes.values() if node.loads]",
    ),
    Mutant(
        "waiting-is-idle",
        "a source that waits is not idle: the watermark must not pass its rows",
        SOURCE,
        "                known[4] = wall_ms\n                continue",
        "                continue",
        scenario="waiting-source-is-not-idle",
    ),
    Mutant(
        "busy-is-dead",
        "a worker that says it is busy is not silent",
        ATTENDANCE,
        "        self.heard[said.worker] = now_ms\n        self.busy[said.worker] = said",
        "        self.busy[said.worker] = said",
        scenario="long-epoch-is-not-a-death",
    ),
    Mutant(
        "busy-for-ever",
        "a loop that never comes back is given up in the end",
        ATTENDANCE,
        "        if said.worker not in self.heard or said.busy_ms > self.settings.stuck_ms:",
        "        if said.worker not in self.heard:",
        scenario="stuck-loop-is-replaced",
    ),
    Mutant(
        "busy-begins-a-life",
        "one that was given up counts again when its loop reports, not before",
        ATTENDANCE,
        "        if said.worker not in self.heard or said.busy_ms > self.settings.stuck_ms:",
        "        if said.busy_ms > self.settings.stuck_ms:",
        scenario="busy-worker-that-was-given-up-gets-nothing",
    ),
    Mutant(
        "busy-excuses-silence",
        "one that was busy and falls silent is lost like any other",
        ATTENDANCE,
        "        for worker in [w for w, ms in self.heard.items() if now_ms - ms > self.settings.suspect_ms]:",
        "        late = [w for w, ms in self.heard.items() if now_ms - ms > self.settings.suspect_ms]\n"
        "        for worker in [w for w in late if w not in self.busy]:",
        scenario="stopped-inside-a-long-epoch",
    ),
)
