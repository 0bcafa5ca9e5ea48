"""Servers that tests and benchmarks start for themselves, on loopback ports that are free."""
