"""The data lane: one partition as a pure machine. Inputs -> operator contract -> outputs; effects come out."""
