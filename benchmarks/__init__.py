"""Benchmarks of running flows: real worker processes, real signals, and every result compared with an oracle.

Each is a module with a function ``run(options, tell) -> Outcome``; `benchmarks.catalogue` names them. They use seep as
any user could, through its public face and the handle of a job.
"""
