"""Breakages of an upgrade: the last epoch of the old code, what is tried before the commit, what a recovery runs."""

from __future__ import annotations

from seep.sim.mutations.patch import Mutant

CODE = "seep.partition.code"
OPERATOR = "seep.partition.operator"
PLANNER = "seep.control.planner"
STEPS = "seep.control.steps"
SCALING = "seep.control.scaling"

UPGRADE = (
    Mutant(
        "upgrade-without-a-stop",
        "nothing is begun while the last epoch of the old code is being agreed on",
        CODE,
        "        return FOREVER if replace is None else replace.at or epoch",
        "        return FOREVER",
        scenario="upgrade-while-it-runs",
    ),
    Mutant(
        "heard-of-old-code-forgotten",
        "the old code keeps every epoch that somebody behind it has heard of, also from one that is gone",
        STEPS,
        "    return max([1, *before, *sealed, *heard, *condemned])",
        "    return max([1, *before, *sealed, *condemned])",
        scenario="upgrade-of-one-that-came-back",
    ),
    Mutant(
        "receivers-not-waited-for",
        "E is decided when everybody behind the operator acts on the journal that asks for the upgrade",
        STEPS,
        "    told = [known.current(p) for p in journal.entries if p.operator in behind]",
        "    told = [known.statuses.get(p) for p in journal.entries if p.operator in behind]",
        scenario="upgrade-beside-a-zombie",
    ),
    Mutant(
        "only-next-receivers-waited-for",
        "everybody behind the operator, not only who listens to it: rows may still go through one that is gone",
        STEPS,
        "    behind = known.graph.behind(replace.operator)",
        "    behind = {edge.target for edge in known.graph.outputs(replace.operator)}",
        scenario="upgrade-beside-two-zombies",
    ),
    Mutant(
        "sealed-not-waited-for",
        "a sealed partition finishes its life with the old code: E is later",
        STEPS,
        "    return max([1, *before, *sealed, *heard, *condemned])",
        "    return max([1, *before, *heard, *condemned])",
        scenario="upgrade-right-after-a-split",
    ),
    Mutant(
        "two-upgrades-in-one-epoch",
        "each code has an epoch at least: it is tried on what the code before it remembers",
        STEPS,
        "    return max([1, *before, *sealed, *heard, *condemned])",
        "    return max([1, *sealed, *heard, *condemned])",
        scenario="upgrade-while-it-runs",
    ),
    Mutant(
        "new-code-an-epoch-early",
        "the new code begins after the last epoch of the old",
        PLANNER,
        "Code(replace.at + 1, replace.code)",
        "Code(replace.at, replace.code)",
        scenario="upgrade-while-it-runs",
    ),
    Mutant(
        "new-code-an-epoch-late",
        "the new code begins right after the last epoch of the old",
        PLANNER,
        "Code(replace.at + 1, replace.code)",
        "Code(replace.at + 2, replace.code)",
        braces="the epoch in the journal is the word, also for the oracle: nobody has begun it",
    ),
    Mutant(
        "upgrade-before-all-are-there",
        "every partition has finished the last epoch of the old code before the new one begins",
        STEPS,
        "    if min(begun) >= at:\n",
        "    if max(begun) >= at:\n",
        braces="who is behind runs the code of each epoch, by the journal; only a refusal would come too late",
    ),
    Mutant(
        "saved-state-taken-by-the-newest-code",
        "what is saved is taken by the code that saved it",
        CODE,
        "        self.passed = sum(code.first <= epoch for code in self._codes())",
        "        self.passed = len(self._codes())",
        scenario="upgraded-one-falls-back-past-the-upgrade",
    ),
    Mutant(
        "saved-state-taken-by-the-first-code",
        "what is saved is taken by the code that saved it",
        CODE,
        "        if self.passed:\n",
        "        if False:\n",
        scenario="upgraded-one-is-restored",
    ),
    Mutant(
        "state-not-handed-on",
        "the new code goes on with what the old one remembers, as it takes it",
        CODE,
        "        logic.load(upgrade.fit(self.logic.snapshot(True), now_ms))",
        "        pass",
        scenario="upgrade-while-it-runs",
    ),
    Mutant(
        "upgrade-saved-by-one-before",
        "before the commit each partition has a durable checkpoint at E-1 of its own generation",
        "seep.partition.saver",
        "point.epoch == epoch and point.version > first for point in self.durable)",
        "point.epoch == epoch for point in self.durable)",
        scenario="copy-from-before-the-upgrade",
    ),
    Mutant(
        "increment-of-another-code",
        "the first checkpoint of the new code is full",
        OPERATOR,
        "            if self.code.reach(epoch, self.moment.now_ms):\n                self.saver.full_next = True",
        "            self.code.reach(epoch, self.moment.now_ms)",
        scenario="upgraded-one-is-restored",
    ),
    Mutant(
        "refusal-ends-the-flow",
        "new code that cannot go on with what is remembered is not begun; the old one goes on",
        STEPS,
        '        return planner.abort(journal, replace), f"given up: {refused}"',
        "        pass",
        scenario="refused-upgrade",
    ),
    Mutant(
        "two-replaces-of-one-operator",
        "an upgrade waits for a Replace of its operator",
        SCALING,
        "    if not _may_begin(journal, statuses, request.operator, live):\n"
        '        return None, ""\n    old = [entry.partition for entry in live]',
        "    old = [entry.partition for entry in live]",
        scenario="upgrade-waits-for-a-split",
    ),
)
