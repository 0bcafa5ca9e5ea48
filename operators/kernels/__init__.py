"""The compiled loops under the ready operators: finding keys, folding columns into per-key state."""
