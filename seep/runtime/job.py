"""The directory of a running job: everything its processes need to find and to trust each other.

    key        32 random bytes, 0600: proves membership, signs what is saved
    code       the graph and its settings, cloudpickled
    plan       sealed by the key: the digest of `code`, which app it is of (`seep.runtime.identity`), which run, where
               its modules were imported from, and the digests of what operators were upgraded to
    codes/     that: other code of one operator each, by its digest; which epochs it is for, the journal says
    store/     checkpoints, logs, journal        sockets/   where processes listen
    elsewhere  only where the store is a server: its address, and under which prefix the job keeps what it keeps
    objects    only where checkpoints are in an object store: the address of the job's own folder
    workers/   WORKER.json (host, process id, metrics port), WORKER.log
    received/  what was sent to sources that listen, a log for each
    running    locked by whoever runs the job or starts it anew
    meeting    only where workers may be on several hosts: the controller's address

Code is unpickled only when its digest stands in the sealed plan: whoever can write files but does not have the key
cannot make a worker run anything. Secrets are read from here, never passed in arguments.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import sys
from collections.abc import Mapping
from dataclasses import replace as with_fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from seep.errors import DataLoss, Misuse
from seep.model.settings import Settings
from seep.partition.contract import Graph, Upgrade
from seep.protocol.effects import ReadJournal
from seep.protocol.journal import Code
from seep.runtime.hosts import LOOPBACK, address_towards, this_host
from seep.runtime.identity import differences, identity_of
from seep.runtime.stores.directory import DirectoryStore
from seep.runtime.stores.files import Files, escape, locked, read_or_none
from seep.runtime.transport import Transport
from seep.state.codec import PLAN, DamagedError, decode_value, encode_value

if TYPE_CHECKING:  # its package is there only where somebody wants it
    from seep.runtime.stores.objects import ObjectStore
    from seep.runtime.stores.redis import RedisStore


RECEIVED = "received"
CODES = "codes"
Codes = Mapping[str, tuple[Code, ...]]
"""By operator: what it was upgraded to (`Journal.codes`)."""


class JobDirectory:
    """An existing job; `create` makes one."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).absolute()
        self.key = (self.path / "key").read_bytes()
        self._upgrades: dict[str, Upgrade] = {}

    @classmethod
    def create(cls, path: Path | str, graph: Graph, settings: Settings, prepared: Graph | None = None) -> JobDirectory:
        """Make the directory; the key, if there is one, stays. ``prepared``: what runs, where it holds more than the
        app says."""
        home = Path(path).absolute()
        files = Files(sync=True)
        for part in (home, home / "store", home / "sockets", home / "workers"):
            files.make_directory(part)
        home.chmod(0o700)
        if not (home / "key").exists():
            files.replace(home / "key", [secrets.token_bytes(32)])
        (home / "begun").unlink(missing_ok=True)
        job = cls(home)
        code = _pickled(prepared or graph, settings)
        files.replace(home / "code", [code])
        run = secrets.token_hex(8)
        plan = {"code": hashlib.sha256(code).hexdigest(), "app": identity_of(graph, settings), "run": run}
        plan["path"] = import_path()
        files.replace(home / "plan", [encode_value(PLAN, plan, job.key)])
        return job

    @classmethod
    def resume(cls, path: Path | str, graph: Graph, settings: Settings) -> JobDirectory:
        """The job as it is, with the code it was started with or upgraded to. Refuses another app or other libraries:
        what they would make of its state and logs nobody knows."""
        job = cls(path)
        parts, libraries = differences(job.app(job.codes()), identity_of(graph, settings))
        then = "or start with that one, take a savepoint and restore it here"
        if parts:
            raise Misuse(
                f"the job in {job.path} was started from another app (different: {', '.join(parts)});"
                f" resume it with the app it runs, and use upgrade then, {then}"
            )
        if libraries:
            raise Misuse(
                f"the job in {job.path} was started with other libraries ({'; '.join(libraries)});"
                f" resume it with the same, {then}"
            )
        return job

    def _plan(self) -> dict[str, Any]:
        found: dict[str, Any] = decode_value(PLAN, (self.path / "plan").read_bytes(), self.key)
        return found

    def code(self) -> tuple[Graph, Settings]:
        """The graph and settings, if the plan vouches for them."""
        data = (self.path / "code").read_bytes()
        if not secrets.compare_digest(self._plan()["code"], hashlib.sha256(data).hexdigest()):
            raise DamagedError(f"{self.path / 'code'} is not the code that the plan names")
        graph, settings = cloudpickle.loads(data)
        return graph, settings

    def import_as_started(self) -> None:
        """Have this process find the modules beside the app, as the one that started the job; its own come first."""
        sys.path.extend(entry for entry in self._plan().get("path", ()) if entry not in sys.path)

    # --- what operators were upgraded to -------------------------------------------------------------------------

    def add_code(self, data: bytes, part: str) -> str:
        """Keep other code of an operator (a pickled Upgrade), and vouch for it; its name. ``part``: its fingerprint in
        the identity of the app."""
        name = hashlib.sha256(data).hexdigest()
        files = Files(sync=True)
        files.replace(files.make_directory(self.path / CODES) / name, [data])
        with locked(self.path / "plan.lock"):
            plan = self._plan()
            plan["codes"] = {**plan.get("codes", {}), name: part}
            files.replace(self.path / "plan", [encode_value(PLAN, plan, self.key)])
        return name

    def upgrade(self, name: str) -> Upgrade:
        """The code of this name, if the plan vouches for it."""
        if name not in self._upgrades:
            data = read_or_none(self.path / CODES / name)
            if data is None or name not in self._plan().get("codes", {}) or hashlib.sha256(data).hexdigest() != name:
                raise DataLoss(f"{self.path / CODES / name} is not the code that the plan names")
            self._upgrades[name] = cloudpickle.loads(data)
        return self._upgrades[name]

    def codes(self) -> Codes:
        reply = self.store().perform(ReadJournal(0))
        # What a store that cannot be read has to say, whoever needs more of it will say.
        return {} if reply is None or reply.error or reply.value is None else reply.value.codes

    def app(self, codes: Codes) -> dict[str, Any]:
        """Which app runs, with these upgrades."""
        plan = self._plan()
        parts = {name: plan["codes"][known[-1].name] for name, known in codes.items()}
        return {**plan["app"], "parts": {**plan["app"]["parts"], **parts}}

    def graph(self, codes: Codes) -> Graph:
        """The graph that runs, with these upgrades."""
        graph = self.code()[0]
        nodes = {
            name: with_fields(graph.nodes[name], make=new.make, settings=new.settings)
            for name, new in ((name, self.upgrade(known[-1].name).node) for name, known in codes.items())
        }
        return with_fields(graph, nodes={**graph.nodes, **nodes})

    @property
    def run(self) -> str:
        """Drawn when the job was created, kept when it is resumed: epochs of another run are other epochs."""
        return str(self._plan().get("run", ""))

    @property
    def has_begun(self) -> bool:
        """It has had a journal: a store without one has lost it."""
        return (self.path / "begun").exists()

    def begin(self) -> None:
        (self.path / "begun").touch()

    def store(self) -> DirectoryStore | RedisStore | ObjectStore:
        objects = self.objects
        if objects is None:
            return self._own_store()
        from seep.runtime.stores.objects import ObjectStore

        return ObjectStore(self._own_store(), objects, self.key)

    def _own_store(self) -> DirectoryStore | RedisStore:
        known = self.elsewhere
        if known is None:
            return DirectoryStore(self.path / "store", self.key)
        from seep.runtime.stores.redis import RedisStore

        return RedisStore(known["url"], known["prefix"], self.key)

    @property
    def objects(self) -> str | None:
        """Where checkpoints are, if not in the store; a folder of this job's own."""
        data = read_or_none(self.path / "objects")
        return None if data is None else data.decode()

    def keep_objects(self, url: str) -> None:
        # What follows a question mark says how the server is reached.
        base, mark, how = url.partition("?")
        folder = f"{base.rstrip('/')}/{escape(self.path.name)}-{secrets.token_hex(8)}{mark}{how}"
        Files(sync=True).replace(self.path / "objects", [folder.encode()])

    @property
    def elsewhere(self) -> dict[str, str] | None:
        """The server that keeps what the job keeps; None: this directory does."""
        data = read_or_none(self.path / "elsewhere")
        return None if data is None else json.loads(data)

    def keep_elsewhere(self, url: str) -> None:
        """In a server; nothing that an earlier job has left there is met."""
        known = {"url": url, "prefix": f"seep:{self.path.name}:{secrets.token_hex(8)}:"}
        Files(sync=True).replace(self.path / "elsewhere", [json.dumps(known).encode()])

    # --- where ---------------------------------------------------------------------------------------------------

    def meet(self, address: str) -> None:
        """The controller is to be found at this address by workers on other hosts; empty: all are on this host."""
        self.__dict__.pop("network_address", None)
        if address:
            Files(sync=False).replace(self.path / "meeting", [address.encode()])
        else:
            (self.path / "meeting").unlink(missing_ok=True)

    @cached_property
    def network_address(self) -> str:
        """Where the job's processes on other hosts reach this one; empty: there are none."""
        meeting = read_or_none(self.path / "meeting")
        return address_towards(meeting.decode()) if meeting else ""

    @property
    def address(self) -> str:
        """Where to listen for whoever may want to know something."""
        return self.network_address or LOOPBACK

    def transport(self, name: str, listens: bool = True) -> Transport:
        return Transport(self.path / "sockets", name, self.key, listens, self.network_address)

    # --- who runs ----------------------------------------------------------------------------------------------

    def log_path(self, worker: str) -> Path:
        return self.path / "workers" / f"{escape(worker)}.log"

    def register(self, worker: str, metrics_port: int) -> None:
        process = os.getpid()
        facts = {
            "worker": worker,
            "host": this_host(),
            "host_name": socket.gethostname(),
            "address": self.address,
            "process": process,
            "began": process_began(process),
            "metrics_port": metrics_port,
        }
        Files(sync=False).replace(self._card(worker), [json.dumps(facts).encode()])

    def unregister(self, worker: str) -> None:
        self._card(worker).unlink(missing_ok=True)

    def registered(self) -> dict[str, dict[str, Any]]:
        """By worker: its host, process id and metrics port. A killed one may still be listed."""
        # A worker that ends between the listing and the reading takes its card away.
        found = (read_or_none(path) for path in sorted((self.path / "workers").glob("*.json")))
        # Nobody waits for the disk with a card: when the machine loses its power it may be left empty, and its worker
        # is gone, too.
        cards = [json.loads(data) for data in found if data]
        return {card["worker"]: card for card in cards}

    def targets(self) -> dict[str, str]:
        """By worker: where it serves its metrics."""
        return {name: f"http://{metrics_place(card)}/metrics" for name, card in self.registered().items()}

    def _card(self, worker: str) -> Path:
        return self.path / "workers" / f"{escape(worker)}.json"


def import_path() -> list[str]:
    """Where this process imports from, for others: nothing in it depends on the current directory."""
    return [os.path.abspath(entry) if os.path.exists(entry or ".") else entry for entry in sys.path]


def is_folder_of(objects: str, url: str) -> bool:
    """
    >>> is_folder_of("s3://bucket/jobs/sales-7?region=x", "s3://bucket/jobs/"), is_folder_of("s3://a/b", "s3://other")
    (True, False)
    """
    return objects.partition("?")[0].startswith(f"{url.partition('?')[0].rstrip('/')}/")


def _pickled(graph: Graph, settings: Settings) -> bytes:
    try:
        data: bytes = cloudpickle.dumps((graph, settings))
        return data
    except Exception as problem:  # whatever a user's object raises when it is asked to
        for node in graph.nodes.values():
            try:
                cloudpickle.dumps(node)
            except Exception as inside:
                raise Misuse(
                    f"{node.kind} {node.name!r} cannot be sent to workers: {inside}; it holds something of this process"
                    " (a lock, a file, a connection): make that where it is used"
                ) from inside
        raise Misuse(f"the flow cannot be sent to workers: {problem}") from problem


def metrics_place(card: dict[str, Any]) -> str:
    """Of a registered worker: host and port, as addresses are written."""
    return place_of(card["address"], card["metrics_port"])


def place_of(address: str, port: int) -> str:
    """
    >>> place_of("10.0.0.7", 80), place_of("fe80::7", 80)
    ('10.0.0.7:80', '[fe80::7]:80')
    """
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def process_began(process: int) -> int:
    """When a process started, in clock ticks since boot; 0 when it is not there (or only waits to be reaped).

    Process ids are used again; together with this number one names a process for good.
    """
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])
