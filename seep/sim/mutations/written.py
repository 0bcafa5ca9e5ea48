"""One written breakage for each rule of the protocol, in the order of the design: cutting, taking, lives, Replace."""

from __future__ import annotations

from seep.sim.mutations.data import CUTTING, TAKING
from seep.sim.mutations.lives import LIVES
from seep.sim.mutations.replacing import REPLACE
from seep.sim.mutations.upgrading import UPGRADE

WRITTEN = CUTTING + TAKING + LIVES + REPLACE + UPGRADE
