"""State as values: processing, buffer, routing, and the checkpoint that holds them together."""
