"""The fourth backend: the shipped machines in a seeded world, with faults, checkers and mutants."""
