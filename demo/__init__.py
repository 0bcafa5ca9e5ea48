"""The demo: a chain of supermarkets whose load triples and falls while an executor is killed. `make demo` runs it."""
