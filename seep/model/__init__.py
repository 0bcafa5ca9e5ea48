"""The words every other folder speaks: ids, epochs, batches, schemas, the key space, the graph."""
