"""The named steps of the protocol that a node is in the middle of: what a fault interrupts."""

from __future__ import annotations

from collections import Counter

from seep.control.controller import Controller
from seep.partition.operator import OperatorPartition
from seep.partition.worker import Worker
from seep.sim.world import SimNode


def named_steps(node: SimNode) -> Counter[str]:
    """The steps of the protocol that this worker is in the middle of."""
    assert isinstance(node.machine, Worker)
    found: Counter[str] = Counter()
    journal = node.machine.desk.journal
    for partition in node.machine.partitions.values():
        entry = partition.entry
        steps = [entry.role]
        if not partition.running:
            steps = ["starting"]
        elif isinstance(partition, OperatorPartition):
            steps += ["checkpoint"] if partition.saver.busy else []
            steps += ["pinned"] if partition.pin.kept else []
            steps += ["subscribing"] if not partition.inputs.accepted else []
            steps += ["replaying"] if partition.inputs.next_epoch() <= partition.inputs.bound() else []
        elif partition.appending is not None:
            steps += ["log append"]
        replace = journal.replacing(entry.partition)
        if replace is not None and replace.handover:
            steps += ["handing over"]
        if replace is not None and replace.code:
            steps += ["tried" if isinstance(partition, OperatorPartition) and partition.code.trial else "stopped"]
        found.update(f"{partition.node.kind}: {step}" for step in steps)
    return found


def controller_steps(controller: Controller) -> list[str]:
    """The steps of the protocol that the controller is in the middle of."""
    steps = ["controller: journal swap"] if controller.wanted is not None else []
    for replace in controller.journal.replaces:
        step = "hand-over" if replace.handover else "shadows" if replace.new else "pin"
        if replace.code:
            step = "upgrade, last epoch" if replace.at else "upgrade, stopping"
        steps.append(f"controller: replace, {step}")
    return [*steps, "controller: at rest"]
