"""Redis: streams as a source, hashes and JSON as a sink."""
