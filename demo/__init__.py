"""The demo: a word count that is split, killed and merged while it runs, and then checked. `make demo` runs it."""
