"""The command line. Every verb: ``--json``, a useful exit code, the same REST route."""
