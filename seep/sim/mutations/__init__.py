"""Breakages of the protocol: written ones, one for each rule, and ones drawn by seed."""
