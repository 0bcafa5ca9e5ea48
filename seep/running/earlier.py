"""What an earlier run of a flow has left: is there something to go on with, and how it is forgotten."""

from __future__ import annotations

import sys
from pathlib import Path

from seep.backends.needs import need_redis
from seep.errors import Misuse, SeepError
from seep.protocol.effects import ReadJournal
from seep.runtime.job import JobDirectory
from seep.runtime.stores.directory import DirectoryStore


def has_journal(path: Path, store: str | None) -> bool:
    """Is there a job to go on with? It is where it was, whatever is given now."""
    if not (path / "key").exists():
        return False
    directory = JobDirectory(path)
    kept = directory.elsewhere
    if store is not None and (kept is None or kept["url"] != store):
        where = "its directory" if kept is None else kept["url"]
        raise Misuse(f"the job in {path} keeps its state in {where}, not in {store}; resume it without --store")
    if kept is not None:
        need_redis(kept["url"])
    reply = directory.store().perform(ReadJournal(0))
    return reply is not None and reply.value is not None


def could_go_on(path: Path) -> bool:
    """Was this job cut off, or stopped before its input had ended? Then somebody may want what it has kept."""
    if not (path / "begun").exists():
        return False
    if (path / "api").exists():
        return True  # whoever ended it takes that away
    directory = JobDirectory(path)
    try:
        if (kept := directory.elsewhere) is not None:
            need_redis(kept["url"])
        reply = directory.store().perform(ReadJournal(0))
    except SeepError:
        return False  # what cannot be reached is not removed, either
    return reply is not None and reply.value is not None and reply.value.stopping not in ("", "drain")


def forget(directory: JobDirectory) -> None:
    """What an earlier job has left in a server; what cannot be reached stays there, and is in nobody's way."""
    known = directory.elsewhere
    if known is None:
        return
    try:
        need_redis(known["url"])
        kept = directory.store()
        assert not isinstance(kept, DirectoryStore)
        kept.forget()
    except SeepError as problem:
        print(f"seep: what the job before has kept under {known['prefix']} stays there: {problem}", file=sys.stderr)
