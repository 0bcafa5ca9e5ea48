"""Sources that others send to, by HTTP or through a socket: what comes is kept in a log before it counts."""
