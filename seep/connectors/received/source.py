"""What `HttpSource` and `SocketSource` have in common: rows are lines of the log, read like a file that grows.

The log lies in the job's directory, so whoever starts the source again has it. A position is the place of a frame, the
number of its lines that were taken, and the name of the log.
"""

from __future__ import annotations

import copy
import ipaddress
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from seep.connectors.contract import Refused, Rows
from seep.connectors.jsonrows import JsonDecoder
from seep.connectors.received.listener import Begin, Listener, Service, bound, place_problem
from seep.connectors.received.log import REFUSED, Frame, LogReader, name_of
from seep.connectors.trouble import Trouble
from seep.errors import DataLoss, Misuse
from seep.model.schema import schema_of

BEGIN_SECONDS = 0.5
"""Between two tries to listen where somebody else does."""
SHOWN_LETTERS = 10_000
"""Of a line that becomes a dead letter."""
_TEXT = pa.schema([("line", pa.string())])


class Place(NamedTuple):
    frame: int
    line: int


class Line(NamedTuple):
    where: str
    data: bytes


class ReceivedSource:
    """`seep.connectors.contract.Source`. One split: a port is listened on by one process."""

    splits = 1
    endless = True

    def __init__(self, who: str, service: Service, host: str, port: int, schema: Any) -> None:
        self._who = who
        problem = place_problem(host, port)
        if problem:
            raise Misuse(f"{who}: {problem}")
        self.host, self.port = host, port
        self._service = service
        self._json = JsonDecoder(schema_of(schema)) if schema is not None else None
        self._home: Path | None = None
        self._listener: Listener | None = None
        self._tried_at = -1e9
        self._closed = False
        self._trouble = Trouble(who)
        self._bytes_of_row = 100

    def __getstate__(self) -> dict[str, Any]:
        kept = {"_listener": None, "_tried_at": -1e9, "_closed": False, "_trouble": Trouble(self._who)}
        return {**self.__dict__, **kept}

    @property
    def schema(self) -> pa.Schema:
        return _TEXT if self._json is None else self._json.schema

    def warm(self) -> None:
        if self._json is not None:
            self._json.warm()

    def kept_in(self, home: Path) -> ReceivedSource:
        """The same with its log there. Called where a job starts, when nobody of an earlier one runs any more."""
        if _is_loopback(self.host):
            try:
                bound(self.host, self.port).close()
            except OSError as problem:
                why = problem.strerror or problem
                raise Misuse(f"{self._who}: nobody can listen on {self.host}:{self.port}: {why}") from problem
        home.mkdir(parents=True, exist_ok=True)
        found = copy.copy(self)
        found._home = home
        return found

    # --- reading ---------------------------------------------------------------------------------------------------

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Rows | None:
        home = self._log_home()
        place, name = self._placed(home, position)
        if until is not None:
            return self._rows(*self._taken(home, place, Place(*until[:2]), limit_rows), name=until[2])
        listener = self._listening(home, Begin(*place, name))
        if listener is not None:
            listener.inbox.read_to = max(listener.inbox.read_to, place.frame)
        after, lines, refused = self._taken(home, place, None, limit_rows)
        return self._rows(after, lines, refused, name_of(home)) if after != place else None

    def _placed(self, home: Path, position: Any) -> tuple[Place, str]:
        frame, line, name = position or (0, 0, "")
        found = name_of(home)
        if name and found and name != found:
            raise DataLoss(
                f"{self._who}: the log in {home} is of another run; remove it to go on without what was received since"
            )
        return Place(frame, line), name

    def behind(self, split: int, position: Any, now_ms: int) -> int | None:
        """An estimate, by the length of the rows that came last."""
        if self._home is None:
            return None
        left = LogReader(self._who, self._home).end() - (position[0] if position else 0)
        return max(0, left) // self._bytes_of_row

    def forget(self, split: int, position: Any) -> None:
        if self._home is not None:
            LogReader(self._who, self._home).forget(position[0])

    def drained(self, split: int, position: Any) -> bool:
        """Takes no more, and says whether all that it took was read."""
        self._closed = True
        self.close()
        home = self._log_home()
        place, _ = self._placed(home, position)
        return self._taken(home, place, None, 1)[0] == place

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _log_home(self) -> Path:
        if self._home is None:
            raise Misuse(f"{self._who}: it has a log when it runs as a job; start it with on='local' or on='spark'")
        if not self._home.is_dir():
            raise DataLoss(
                f"{self._who}: its log {self._home} is not here; all hosts of a job must share its directory"
            )
        return self._home

    def _listening(self, home: Path, begin: Begin) -> Listener | None:
        """None: another process still does, and what it appends is read here."""
        if self._listener is not None and not self._listener.alive:
            self._trouble.hears(self._listener.failure or "it has stopped listening")
            self._listener = None
        if self._listener is None and not self._closed and time.monotonic() - self._tried_at > BEGIN_SECONDS:
            self._tried_at = time.monotonic()
            try:
                self._listener = Listener(self._who, self._service, (self.host, self.port), home, begin)
            except BlockingIOError:
                self._trouble.hears("another process of this job still listens")
            except OSError as problem:
                self._trouble.hears(f"cannot listen on {self.host}:{self.port}: {problem.strerror or problem}")
        return self._listener

    def _taken(
        self, home: Path, place: Place, until: Place | None, limit_rows: int
    ) -> tuple[Place, list[Line], list[Refused]]:
        reader, listener = LogReader(self._who, home), self._listener
        synced = None if listener is None or until is not None else listener.inbox.end
        lines: list[Line] = []
        refused: list[Refused] = []
        while until is None or place < until:
            frames = reader.some(place.frame, synced)
            if not frames and until is not None:
                raise DataLoss(f"{self._who}: its log ends at {place.frame}, and was read up to {until.frame}")
            for frame in frames:
                full = until is None and len(lines) + len(refused) >= limit_rows
                if full or (until is not None and place >= until):
                    return place, lines, refused
                end = until.line if until is not None and until.frame == frame.place else None
                room = None if until is not None else limit_rows - len(lines) - len(refused)
                place = _take(frame, place.line, end, room, lines, refused)
                if place.frame == frame.place:
                    return place, lines, refused
            if not frames:
                break
        return place, lines, refused

    def _rows(self, place: Place, lines: list[Line], refused: list[Refused], name: str) -> Rows:
        if lines:
            self._bytes_of_row = max(1, sum(len(line.data) + 1 for line in lines) // len(lines))
        if self._json is None:
            texts = [line.data.decode(errors="replace").removesuffix("\r") for line in lines]
            record = pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], schema=_TEXT)
            return Rows(record, [*place, name], False, tuple(refused))
        full = [line for line in lines if line.data.strip()]
        record, _, bad = self._json.decode([line.data for line in full])
        refused = refused + [Refused(_shown(full[number].data), why, full[number].where) for number, why in bad]
        refused.sort(key=lambda one: [int(part) for part in one.position.split("+")])
        return Rows(record, [*place, name], False, tuple(refused))


def _take(
    frame: Frame, first: int, end: int | None, room: int | None, lines: list[Line], refused: list[Refused]
) -> Place:
    """Lines of a frame from one on, to before another or as many as there is room for; where to go on."""
    if frame.kind == REFUSED:
        text, reason = json.loads(frame.data)
        refused.append(Refused(text, reason, str(frame.place)))
        return Place(frame.after, 0)
    found = frame.data.removesuffix(b"\n").split(b"\n")
    stop = len(found) if end is None else end
    if room is not None:
        stop = min(stop, first + max(1, room))
    lines += [Line(f"{frame.place}+{number}", found[number]) for number in range(first, stop)]
    return Place(frame.after, 0) if stop == len(found) and end is None else Place(frame.place, stop)


def _shown(line: bytes) -> str:
    text = line[: 4 * SHOWN_LETTERS].decode(errors="replace")
    return text if len(text) <= SHOWN_LETTERS else f"{text[:SHOWN_LETTERS]}..."


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
