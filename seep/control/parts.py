"""A dead partition that comes back as several: fenced first, then cut at its newest checkpoint, by its load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seep.control import planner
from seep.control.balance import Profile
from seep.control.placement import place
from seep.model.ids import Generation
from seep.protocol.effects import FenceStore, FindCheckpoint, StoreReply
from seep.protocol.journal import LIVE, Entry

if TYPE_CHECKING:
    from seep.control.controller import Controller


def recovers_in_parts(controller: Controller, entry: Entry) -> bool:
    """Begin (or wait for) the recovery of a dead live partition as several; False: restart it as it is."""
    partition, before = entry.partition, controller.journal
    if controller.parts < 2 or before.entries.get(partition) != entry or entry.role != LIVE or not entry.worker:
        return False
    node, live = controller.graph.nodes[partition.operator], before.live(partition.operator)
    if node.kind != "operator" or entry.key_range.size < controller.parts:
        return False
    if len(live) + controller.parts - 1 > node.maximum:
        return False
    if entry.base or entry.deaths:  # a part that dies before it has saved anything would come back in ever more
        return False
    if partition in controller.lost_parts:
        return True
    generation = Generation(before.term, before.next_generation)
    controller.lost_parts[partition] = generation

    def fenced(reply: StoreReply) -> None:
        if reply.error:
            del controller.lost_parts[partition]
        else:
            controller.call(lambda token: FindCheckpoint(token, partition), found)

    def found(reply: StoreReply) -> None:
        del controller.lost_parts[partition]
        journal, attendance = controller.journal, controller.attendance
        if reply.error or journal.entries.get(partition) != entry or controller.wanted is not None:
            return
        if reply.value is None:
            there = place(journal, partition, attendance.at_hand(), attendance.places)
            controller.change(controller.restarted(journal, entry, there))
        else:
            version, epoch = reply.value
            controller.note(f"{journal.shown(partition)} comes back as {controller.parts} parts")
            status = controller.statuses.get(partition)
            profile = Profile([entry], {partition: status.load} if status else {})
            ranges = profile.split(entry.key_range, controller.parts)
            controller.change(planner.recover_in_parts(journal, partition, version, epoch, ranges))

    controller.call(lambda token: FenceStore(token, partition, generation, before.version), fenced)
    return True
