"""One written breakage for each rule of the protocol, in the order of the design: cutting, taking, lives, checkpoints,
Replace, rows that kill."""

from __future__ import annotations

from seep.sim.mutations.checkpoints import CHECKPOINTS
from seep.sim.mutations.data import CUTTING, GROWING, TAKING
from seep.sim.mutations.lives import LIVES
from seep.sim.mutations.poison import POISON
from seep.sim.mutations.replacing import REPLACE
from seep.sim.mutations.upgrading import UPGRADE

WRITTEN = CUTTING + GROWING + TAKING + LIVES + CHECKPOINTS + REPLACE + UPGRADE + POISON
