"""What users write: Flow, Stream, Table; and the compiler that turns them into a graph of physical nodes."""
