"""Breakages of how rows that kill are found and left out. One line each."""

from __future__ import annotations

from seep.sim.mutations.patch import Mutant

CARE = "seep.model.care"
WARY = "seep.partition.wary"
SOURCE = "seep.partition.source"
DEATHS = "seep.control.deaths"
VERDICT = "seep.control.verdict"
JOURNAL = "seep.protocol.journal"
CONTROLLER = "seep.control.controller"

POISON = (
    Mutant(
        "poison-run-again",
        "a row in the journal is never run again",
        JOURNAL,
        "one.operator == operator and one.epoch == epoch)",
        "one.operator == operator and one.epoch == epoch and not one.spot)",
        scenario="row-that-kills-is-left-out",
    ),
    Mutant(
        "condemned-at-once",
        "a row is condemned only when processes died on it, each with a note on that very row",
        WARY,
        "            if times >= CONDEMNED_AFTER:",
        "            if times >= 1:",
        scenario="row-that-kills-once-stays",
    ),
    Mutant(
        "neighbour-condemned",
        "the note must be on the very row",
        WARY,
        "(before.epoch, before.spot, before.upgrades) == found",
        "before.epoch == epoch",
        scenario="row-that-kills-is-left-out",
    ),
    Mutant(
        "note-stays",
        "who runs no user's code is noted at no row",
        CARE,
        "            self._note(None)",
        "            pass",
        scenario="kills-on-one-epoch-accuse-nobody",
    ),
    Mutant(
        "silence-accuses",
        "the note counts only of a process that has ended by itself",
        DEATHS,
        "        died = entry.worker in self._gone",
        "        died = True; self._known[entry.partition] = known._replace(crashes=known.crashes + 1)",
        scenario="silence-accuses-nobody",
    ),
    Mutant(
        "request-accuses",
        "who was killed by request has not died of a row",
        CONTROLLER,
        "                if not event.asked:",
        "                if event:",
        scenario="asked-kills-accuse-nobody",
    ),
    Mutant(
        "connection-accuses",
        "a closed connection is no death until the backend says so",
        VERDICT,
        "    if not deaths.certain(entry):",
        "    if False:",
        scenario="closed-connections-accuse-nobody",
    ),
    Mutant(
        "uncounted-in-parts",
        "deaths are counted, however a partition comes back",
        "seep.control.parts",
        "controller.change(controller.restarted(journal, entry, there))",
        "controller.change(planner.restart(journal, partition, there))",
        scenario="row-that-kills-what-comes-back-in-parts-is-left-out",
    ),
    Mutant(
        "note-not-handed-on",
        "a process that dies of something else hands the note on",
        WARY,
        "        notes.write(entry.partition, entry.generation, note)",
        "        notes.write(entry.partition, entry.generation, None)",
        scenario="row-that-kills-between-other-deaths-is-left-out",
    ),
    Mutant(
        "taken-and-left-out",
        "no row is left out of an epoch that was taken with it",
        VERDICT,
        "    if not poison.after and max(taken) >= poison.epoch:",
        "    if False:",
        scenario="row-that-did-no-harm-stays",
    ),
    Mutant(
        "read-again-with-it",
        "a source that reads an epoch again leaves out what it left out",
        SOURCE,
        "self.wary.care(_base_of(record), self.epoch, first=False)",
        "self.wary.care(epoch, self.epoch, first=False)",
        scenario="row-that-kills-its-source-is-left-out",
    ),
    Mutant(
        "source-row-by-number",
        "a source's row is found from the last epoch that had rows: its own has no number yet",
        SOURCE,
        "self.wary.accuse(self.base, found, after=True)",
        "self.wary.accuse(self.intake.epoch, found, after=True)",
        scenario="row-that-kills-its-source-is-left-out",
    ),
    Mutant(
        "suspicion-forgotten",
        "a row is looked for as long as deaths without progress go on",
        WARY,
        "        return done < self._until",
        "        return False",
        scenario="row-that-kills-is-left-out",
    ),
    Mutant(
        "committing-is-progress",
        "a sink that dies while it publishes gets no further, however much it commits",
        DEATHS,
        "min(epoch, last.published)",
        "epoch",
        scenario="committing-is-no-progress-of-a-sink-that-dies-publishing",
    ),
    Mutant(
        "empty-epochs-are-progress",
        "a source that cuts empty epochs before it comes to the row again gets no further by them",
        SOURCE,
        "            published=self.base,",
        "            published=self.epoch,",
        scenario="row-that-kills-a-source-that-is-slow-to-begin-is-left-out",
    ),
    Mutant(
        "counted-from-empty-epochs",
        "a row is the same one, however many empty epochs are cut before it",
        SOURCE,
        "self.wary.care(self.base, self.base)",
        "self.wary.care(self.epoch, self.base)",
        scenario="row-that-kills-a-source-that-is-slow-to-begin-is-left-out",
    ),
    Mutant(
        "deaths-of-long-ago",
        "a controller that takes over does not take deaths of long ago for deaths in one place",
        DEATHS,
        "        times = min(entry.deaths, SUSPECT_AFTER)",
        "        times = entry.deaths",
        scenario="deaths-of-long-ago-end-no-flow",
    ),
)
