"""What was there before a job starts: an earlier one to go on with or to forget, a savepoint to start from."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from shlex import quote

from seep.backends.needs import need_objects, need_redis
from seep.backends.process import end_workers
from seep.errors import DataLoss, Misuse, SeepError
from seep.partition.contract import Graph
from seep.protocol.effects import ReadJournal
from seep.running import views
from seep.running.matching import Asked, Match
from seep.running.places import fetched
from seep.running.savepoint import Savepoint, savepoint_at
from seep.runtime.addresses import shown
from seep.runtime.deadletters import NAME as LETTERS
from seep.runtime.home import job_path
from seep.runtime.job import CODES, RECEIVED, JobDirectory, is_folder_of
from seep.runtime.stores.directory import DirectoryStore
from seep.runtime.stores.files import Files, escape

STATE = ("store", "elsewhere", "objects", CODES, views.DIRECTORY)
"""In a job's directory: what an earlier run has kept."""
FETCHED = "fetched"
"""In the job's directory: a savepoint that came from an object store, while it is put in place."""


class Claim:
    """Whose job this directory is. The system takes it from a process that ends, whatever that has died of, and leaves
    it to one that is only too slow to answer."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path / "running", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.is_mine = True
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.is_mine = False
        except OSError:
            pass  # a file system without locks, where the store is a server: nobody can say

    def release(self) -> None:
        """Once, or more often."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def claimed(path: Path, flow: str, resumes: bool) -> Claim:
    """Refused while another process has it. Who resumes takes the flow over from one that no longer does anything: if
    that one wakes up, it finds in the journal that it was deposed."""
    claim = Claim(path)
    if not claim.is_mine and not resumes:
        claim.release()
        raise Misuse(
            f"flow {flow!r} runs already in {path}, or is just being started, and does not answer;"
            f" wait until it does and stop it: seep stop {quote(flow)}, or end its process"
        )
    return claim


def answers(path: Path) -> bool:
    """Does the job in this directory run?"""
    if not (path / "api").exists():
        return False
    import httpx

    try:
        token = (path / "token").read_text()
        address = (path / "api").read_text()
        headers = {"Authorization": f"Bearer {token}"}
        answer = httpx.get(f"{address}/status", headers=headers, timeout=2, trust_env=False)
        # Of a job that was killed the address is still there, and another server may have got its port meanwhile.
        return answer.is_server_error or (answer.is_success and escape(answer.json()["flow"]) == path.name)
    except (OSError, httpx.HTTPError, ValueError, LookupError, TypeError):
        return False


def has_journal(path: Path, store: str | None, checkpoints: str | None) -> bool:
    """Is there a job to go on with? It is where it was, whatever is given now."""
    if not (path / "key").exists():
        return False
    directory = JobDirectory(path)
    kept = directory.elsewhere
    if store is not None and (kept is None or kept["url"] != store):
        where = "its directory" if kept is None else shown(kept["url"])
        raise Misuse(f"the job in {path} keeps its state in {where}, not in {shown(store)}; resume it without --store")
    objects = directory.objects
    if checkpoints is not None and (objects is None or not is_folder_of(objects, checkpoints)):
        where = "its store" if objects is None else shown(objects)
        raise Misuse(
            f"the job in {path} keeps its checkpoints in {where}, not in {shown(checkpoints)};"
            " resume it without --checkpoints"
        )
    if objects is not None:
        need_objects(objects)
    if kept is not None:
        need_redis(kept["url"])
    reply = directory.store().perform(ReadJournal(0))
    found = reply is not None and reply.value is not None
    if not found and directory.has_begun:
        # Not "nothing to resume": who then started it anew would lose what can still be brought back.
        where = str(path / "store") if kept is None else shown(kept["url"])
        raise DataLoss(
            f"the store {where} has lost what was written to it by the job in {path}: bring its data back and resume,"
            " or restore from a savepoint"
        )
    return found


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
    known, objects = directory.elsewhere, directory.objects
    if known is None and objects is None:
        return
    try:
        if known is not None:
            need_redis(known["url"])
        kept = directory.store()
        assert not isinstance(kept, DirectoryStore)
        kept.forget()
    except (SeepError, OSError) as problem:
        where = " and ".join(filter(None, [known["prefix"] if known else None, objects]))
        print(f"seep: what the job before has kept under {where} stays there: {problem}", file=sys.stderr)


def savepoint_of(restore: str | Path, path: Path) -> Savepoint:
    if not isinstance(restore, str | Path):
        raise Misuse(f"restore={restore!r:.100}; give the name of a savepoint, or its directory")
    if "://" in str(restore):
        remove(path / FETCHED)
        return Savepoint(fetched(str(restore), path / FETCHED))
    return savepoint_at(path, restore)


def restored(
    flow: str,
    graph: Graph,
    restore: str | Path | None = None,
    rename: Mapping[str, str] | None = None,
    drop: Collection[str] = (),
) -> tuple[Savepoint, Match] | None:
    """The savepoint, and how it fits; refused, while nothing is changed yet, when it does not."""
    if restore is None:
        if rename or drop:
            raise Misuse("rename= and drop= say how a savepoint fits this flow; give restore= with them")
        return None
    saved = savepoint_of(restore, job_path(flow))
    return saved, saved.match(graph, Asked(rename or {}, drop))


def clear(path: Path, received: bool) -> None:
    """End and forget what an earlier run has left there; `received`: also what was sent to it."""
    if (path / "key").exists():
        if could_go_on(path):
            print(
                f"seep: the state of an earlier run is in {path}, and is replaced now; --resume goes on from it",
                file=sys.stderr,
            )
        # Without a controller its workers may still write, until they notice.
        end_workers(JobDirectory(path))
        forget(JobDirectory(path))
    for part in (*STATE, "sockets", "workers", "api", "token", LETTERS, *((RECEIVED,) if received else ())):
        remove(path / part)


def make_home(path: Path) -> None:
    """The directory of a job."""
    try:
        Files(sync=True).make_directory(path)
    except OSError as error:
        where = error.filename or path
        raise Misuse(
            f"{path} cannot be made: {where}: {error.strerror}; set SEEP_HOME to a directory that you can write"
        ) from error


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
