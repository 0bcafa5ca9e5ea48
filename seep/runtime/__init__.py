"""The world around the pure machines: transport, stores, clocks, the worker's loop and the controller's host."""
