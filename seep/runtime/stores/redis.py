"""A store in Redis, for workers that share no disk.

    fence:P                  the generation below which nobody may write to the partition P
    log:P                    a stream, an entry for each record; its id is the epoch, so Redis itself keeps the order
    checkpoints:P            a hash: version -> (where its bytes lie, how many they are, whether it is damaged)
    bytes:P:VERSION:NAME     a hash: number -> portion of a checkpoint's bytes
    notes:P                  a hash: generation -> what it noted last
    begun:P                  a set of VERSION:NAME that may lie there without being a checkpoint
    journal

All of them begin with the job's own prefix. A decision is made by WATCH and EXEC: what it rests on (the fence, the last
epoch, the journal) is watched, read, and the change is made only if nobody has changed it since. No script runs on the
server, which may be one that allows none.

What is answered must stay, so Redis has to write to its disk before it answers (`appendfsync always`) and must never
evict: a server that is set up otherwise is refused. One that came back empty, or without what it had answered, is found
out by the fences and the journal's version, as in every store.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from redis.exceptions import RedisError, ResponseError, WatchError

from seep.errors import Misuse
from seep.model.ids import FOREVER, Generation, PartitionId
from seep.protocol.effects import (
    Append,
    DropCheckpoints,
    FenceStore,
    FindCheckpoint,
    LoadCheckpoints,
    NewestVersion,
    PutCheckpoint,
    ReadJournal,
    ReadLog,
    StoreReply,
    SwapJournal,
    Truncate,
)
from seep.protocol.journal import Journal
from seep.protocol.wire import decode_journal, encode_journal
from seep.runtime.addresses import shown
from seep.runtime.stores.base import DAMAGED, EXISTS, FAILED, FENCED, LOST, StoreEffect
from seep.runtime.stores.rediscopies import Change, RedisCheckpoints
from seep.runtime.stores.redisurl import client_of
from seep.state import plain
from seep.state.codec import FENCE, NOTE, RECORD, DamagedError, decode_value, encode_value
from seep.state.saved import Saved

TRIES = 50
"""Of a change that somebody else's changes get in the way of."""
TIMEOUT_SECONDS = 10.0
WANTED = {
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",  # else "always" does not hold while a child process rewrites or saves
    "maxmemory-policy": "noeviction",
}
Found = TypeVar("Found")
_FIELD = b"r"


class RedisStore:
    def __init__(self, url: str, prefix: str, key: bytes) -> None:
        self._client: Any = connected(url)
        self._prefix = prefix
        self._key = key
        self._checkpoints: dict[PartitionId, RedisCheckpoints] = {}
        self._lock = threading.Lock()

    def perform(self, effect: StoreEffect) -> StoreReply | None:
        token = getattr(effect, "token", None)
        try:
            return self._perform(effect)
        except (DamagedError, plain.MisfitError) as error:
            problem, detail = DAMAGED, str(error)
        except RedisError as error:
            problem, detail = FAILED, f"Redis: {error}"
        return None if token is None else StoreReply(token, detail, problem)

    def fold(self, partition: PartitionId, generation: Generation) -> None:
        with contextlib.suppress(RedisError):  # as long as before
            self._saved(partition).fold(self._guarded(partition, generation))

    def statistics(self) -> Mapping[str, int]:
        return {"damaged_checkpoints": sum(one.damaged for one in list(self._checkpoints.values())), "torn_tails": 0}

    def note(self, partition: PartitionId, generation: Generation, value: Any) -> None:
        data = encode_value(NOTE, value, self._key)
        with _as_os_error():
            self._client.hset(self._name("notes", partition), _noting(generation), data)

    def noted(self, partition: PartitionId, generation: Generation) -> Any:
        name = self._name("notes", partition)
        with _as_os_error():
            found = self._client.hgetall(name)
            data = found.get(_noting(generation).encode())
            older = [one for one in found if Generation(*map(int, one.split(b"."))) < generation]
            if older:
                self._client.hdel(name, *older)
        try:
            return None if data is None else decode_value(NOTE, data, self._key)
        except DamagedError:
            return None

    def forget(self) -> None:
        """Delete everything under the prefix."""
        for name in self._client.scan_iter(match=f"{self._prefix}*", count=1000):
            self._client.unlink(name)

    def tail(self, partition: PartitionId, place: Any = None) -> RedisTail:
        """For an onlooker who follows a partition's log; `place`: from where another one stood."""
        return RedisTail(self._client, self._name("log", partition), self._key, place)

    def _perform(self, effect: StoreEffect) -> StoreReply | None:
        match effect:
            case Append():
                return StoreReply(effect.token, error=self._append(effect))
            case PutCheckpoint():
                return self._put(effect)
            case FenceStore():
                journal = self._journal(self._client) if effect.journal_version else None
                if effect.journal_version > (journal.version if journal else 0):
                    return StoreReply(effect.token, error=LOST)
                return StoreReply(effect.token, error=self._raise_fence(effect.partition, effect.generation))
            case LoadCheckpoints():
                saved = self._saved(effect.partition)
                found = saved.chain(effect.upto, lambda one: one.load(effect.part))
                return StoreReply(effect.token, found, "" if found or not saved.ever() else DAMAGED)
            case NewestVersion():
                return StoreReply(effect.token, max(self._saved(effect.partition).places(), default=0))
            case FindCheckpoint():
                chain = self._saved(effect.partition).chain(0, Saved.check)
                return StoreReply(effect.token, (chain[-1].version, chain[-1].epoch) if chain else None)
            case DropCheckpoints():
                self._saved(effect.partition).drop(effect, self._guarded(effect.partition, effect.generation))
                return None
            case ReadLog():
                return StoreReply(effect.token, self._read_log(effect.partition))
            case Truncate():
                self._truncate(effect)
                return None
            case SwapJournal():
                return StoreReply(effect.token, self._swap(effect))
            case ReadJournal():
                return StoreReply(effect.token, self._journal(self._client))

    # --- deciding ------------------------------------------------------------------------------------------------

    def _name(self, kind: str, partition: PartitionId) -> str:
        return f"{self._prefix}{kind}:{partition}"

    def _decide(self, watched: Iterable[str], decide: Callable[[Any], tuple[Found, bool]]) -> Found:
        """What `decide` answers, once nobody has changed what is watched between its look and its change. It gets a
        connection to look with; if it says so, what it has queued after ``multi()`` is done, all of it or nothing."""
        names = list(watched)
        for attempt in range(TRIES):
            with self._client.pipeline(transaction=True) as pipe:
                pipe.watch(*names)
                answer, changes = decide(pipe)
                if not changes:
                    return answer
                try:
                    pipe.execute()
                    return answer
                except WatchError:
                    time.sleep(min(0.05, 0.001 * attempt * secrets.randbelow(10)))
        raise RedisError(f"{', '.join(names)}: changed by others again and again")

    def _fence(self, looking: Any, partition: PartitionId) -> Generation | None:
        data = looking.get(self._name("fence", partition))
        return None if data is None else plain.unpack(Generation, decode_value(FENCE, data, self._key))

    def _refusal(self, looking: Any, partition: PartitionId, generation: Generation) -> str:
        """Why this generation may not write; empty: it may."""
        fence = self._fence(looking, partition)
        return LOST if fence is None else FENCED if generation < fence else ""

    def _guarded(self, partition: PartitionId, generation: Generation) -> Change:
        """Makes changes as this generation."""

        def change(queue: Callable[[Any], None], watched: str = "", holds: Callable[[Any], bool] | None = None) -> str:
            def decide(pipe: Any) -> tuple[str, bool]:
                refusal = self._refusal(pipe, partition, generation)
                if not refusal and holds is not None and not holds(pipe):
                    refusal = EXISTS
                if not refusal:
                    pipe.multi()
                    queue(pipe)
                return refusal, not refusal

            return self._decide([self._name("fence", partition), *filter(None, [watched])], decide)

        return change

    def _raise_fence(self, partition: PartitionId, generation: Generation) -> str:
        name = self._name("fence", partition)

        def decide(pipe: Any) -> tuple[str, bool]:
            fence = self._fence(pipe, partition)
            if fence is not None and fence >= generation:
                return ("" if fence == generation else FENCED), False
            pipe.multi()
            pipe.set(name, encode_value(FENCE, plain.pack(generation), self._key))
            return "", True

        return self._decide([name], decide)

    # --- logs ----------------------------------------------------------------------------------------------------

    def _append(self, effect: Append) -> str:
        name = self._name("log", effect.partition)

        def decide(pipe: Any) -> tuple[str, bool]:
            refusal = self._refusal(pipe, effect.partition, effect.generation)
            missing = [] if refusal else effect.after(_last_epoch(pipe, name))
            if refusal or not missing:
                return refusal or EXISTS, False
            pipe.multi()
            for epoch, record in missing:
                pipe.xadd(name, {_FIELD: encode_value(RECORD, (epoch, record), self._key)}, id=_entry_id(epoch))
            return "", True

        return self._decide([self._name("fence", effect.partition), name], decide)

    def _read_log(self, partition: PartitionId) -> list[tuple[int, Any]]:
        found = []
        for _, fields in self._client.xrange(self._name("log", partition)):
            epoch, record = decode_value(RECORD, fields[_FIELD], self._key)
            found.append((epoch, record))
        return found

    def _truncate(self, effect: Truncate) -> None:
        name = self._name("log", effect.partition)
        last = _last_epoch(self._client, name)
        if last is not None:
            # The newest record says where to go on.
            below = _entry_id(min(effect.below, last))
            change = self._guarded(effect.partition, effect.generation)
            change(lambda pipe: pipe.xtrim(name, minid=below, approximate=False))

    # --- checkpoints ---------------------------------------------------------------------------------------------

    def _saved(self, partition: PartitionId) -> RedisCheckpoints:
        with self._lock:
            if partition not in self._checkpoints:
                self._checkpoints[partition] = RedisCheckpoints(self._client, self._prefix, partition, self._key)
            return self._checkpoints[partition]

    def _put(self, effect: PutCheckpoint) -> StoreReply:
        checkpoint = effect.checkpoint
        refusal = self._refusal(self._client, checkpoint.partition, checkpoint.generation)
        if refusal:
            return StoreReply(effect.token, error=refusal)
        change = self._guarded(checkpoint.partition, checkpoint.generation)
        refusal, root = self._saved(checkpoint.partition).put(checkpoint, change)
        return StoreReply(effect.token, root, refusal)

    # --- journal -------------------------------------------------------------------------------------------------

    def _journal(self, looking: Any) -> Journal | None:
        data = looking.get(f"{self._prefix}journal")
        return None if data is None else decode_journal(data, self._key)

    def _swap(self, effect: SwapJournal) -> Journal | None:
        name = f"{self._prefix}journal"

        def decide(pipe: Any) -> tuple[Journal | None, bool]:
            found = self._journal(pipe)
            if (found.version if found else 0) != effect.expected:
                return found, False
            pipe.multi()
            pipe.set(name, encode_journal(effect.journal, self._key))
            journal: Journal = effect.journal
            return journal, True

        return self._decide([name], decide)


class RedisTail:
    """What others append to a log. What they have forgotten between two looks it misses; whoever reads can tell by what
    the records say."""

    def __init__(self, client: Any, name: str, key: bytes, place: Any = None) -> None:
        self._client, self._name, self._key = client, name, key
        self._after = place or "-"

    @property
    def place(self) -> str:
        return self._after

    def more(self) -> list[tuple[int, Any]]:
        """Records since the last call; none while Redis does not answer."""
        try:
            entries = self._client.xrange(self._name, min=self._after)
        except RedisError:
            return []
        if entries:
            last = entries[-1][0]
            self._after = f"({last.decode() if isinstance(last, bytes) else last}"
        return [(epoch, record) for epoch, record in (decode_value(RECORD, f[_FIELD], self._key) for _, f in entries)]


def _entry_id(epoch: int) -> str:
    """Ids begin with 1."""
    return f"{min(epoch, FOREVER) + 1}-0"


def _last_epoch(looking: Any, name: str) -> int | None:
    try:
        last = looking.xinfo_stream(name)["last-generated-id"]
    except ResponseError as error:
        if "no such key" in str(error):
            return None
        raise
    return int((last.decode() if isinstance(last, bytes) else last).partition("-")[0]) - 1


def connected(url: str) -> Any:
    """A client, which connects when it is first used."""
    return client_of(
        f"store {shown(url)!r}", url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS
    )


def check(url: str) -> None:
    """Refuse a server that does not answer, or would forget what it has answered."""
    client = connected(url)
    try:
        found = {name: client.config_get(name).get(name) for name in WANTED}
    except ResponseError as error:
        raise Misuse(f"store {shown(url)}: {error}; seep must see that it keeps what it answers (CONFIG GET)") from None
    except RedisError as error:
        raise Misuse(f"store {shown(url)} does not answer: {error}; is Redis running there?") from None
    finally:
        client.close()
    for name, wanted in WANTED.items():
        if found[name] != wanted:
            raise Misuse(
                f"store {shown(url)} may forget what it has answered: {name} is {found[name]!r}; set it to {wanted!r}"
            )


def _noting(generation: Generation) -> str:
    return f"{generation.term}.{generation.number}"


@contextlib.contextmanager
def _as_os_error() -> Iterator[None]:
    try:
        yield
    except RedisError as problem:
        raise OSError(f"Redis: {problem}") from problem
