"""An onlooker of a log sees every record, whatever its owner does to the file meanwhile, and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from seep.runtime.stores import log as logs
from seep.runtime.stores.files import Files
from seep.runtime.stores.log import Log, Tail

KEY = b"k" * 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_what_is_forgotten_is_still_seen(path: Path) -> None:
    log, tail = Log(path, KEY, Files(sync=False)), Tail(path, KEY)
    assert tail.more() == []
    log.append([(1, "a"), (2, "b")])
    log.truncate(2)
    log.append([(3, "c")])
    assert tail.more() == [(1, "a"), (2, "b"), (3, "c")]
    assert tail.more() == []
    log.append([(5, "d")])
    assert tail.more() == [(5, "d")]


def test_half_a_record_is_waited_for_and_left_alone(path: Path) -> None:
    log, tail = Log(path, KEY, Files(sync=False)), Tail(path, KEY)
    log.append([(1, "a")])
    first = path.stat().st_size
    log.append([(2, "b")])
    whole = path.read_bytes()
    for end in range(first, len(whole)):
        path.write_bytes(whole[:end])
        assert tail.more() == ([(1, "a")] if end == first else [])
        assert path.stat().st_size == end
    path.write_bytes(whole)
    assert tail.more() == [(2, "b")]


def test_after_a_rewrite_nothing_new_is_missed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "REWRITE_BYTES", 0)
    log, tail = Log(path, KEY, Files(sync=False)), Tail(path, KEY)
    seen: dict[int, str] = {}
    for epoch in range(1, 60):
        log.append([(epoch, f"r{epoch}")])
        if epoch % 3 == 0:
            log.truncate(epoch - 2)
        if epoch % 2 == 0:
            seen.update(tail.more())
    seen.update(tail.more())
    assert seen == {epoch: f"r{epoch}" for epoch in range(1, 60)}


def test_a_write_that_was_taken_back_is_read_anew(path: Path) -> None:
    log, tail = Log(path, KEY, Files(sync=False)), Tail(path, KEY)
    log.append([(1, "a")])
    first = path.stat().st_size
    log.append([(2, "b")])
    assert dict(tail.more()) == {1: "a", 2: "b"}
    with path.open("r+b") as file:
        file.truncate(first)
    assert dict(tail.more()) == {1: "a"}
    Log(path, KEY, Files(sync=False)).append([(2, "other")])
    assert dict(tail.more()) == {2: "other"}


def test_what_lies_between_large_writes_is_no_record(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MANY_BYTES", 5_000)
    log, tail = Log(path, KEY, Files(sync=False)), Tail(path, KEY)
    seen: dict[int, bytes] = {}
    written = {epoch: bytes([epoch]) * (9_000 if epoch % 3 else 10) for epoch in range(1, 30)}
    for epoch, record in written.items():
        log.append([(epoch, record)])
        if epoch % 2:
            seen.update(tail.more())
    seen.update(tail.more())
    assert seen == written


@pytest.mark.parametrize("last", range(8, 40))
def test_a_rewritten_file_with_the_same_inode_is_another(
    path: Path, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    """Inodes are used again: what somebody knew of a file's beginning says nothing of what stands there now. Nothing
    that was answered may be cut off as torn."""
    monkeypatch.setattr(logs, "REWRITE_BYTES", 0)
    before, other, tail = Log(path, KEY, Files(sync=False)), Log(path, KEY, Files(sync=False)), Tail(path, KEY)
    before.append([(epoch, "before") for epoch in range(3)])
    assert len(tail.more()) == 3
    kept = path.with_name("kept")
    kept.hardlink_to(path)
    for epoch in range(3, last):
        other.append([(epoch, "after" * (1 + epoch % 11))])
        other.truncate(epoch - epoch % 4)
    kept.write_bytes(path.read_bytes())
    kept.rename(path)
    for reader in (before, other, Log(path, KEY, Files(sync=False))):
        assert reader.last_epoch() == last - 1
        assert reader.read()[-1] == (last - 1, "after" * (1 + (last - 1) % 11))
        assert reader.torn_tails == 0
    assert tail.more()[-1][0] == last - 1
