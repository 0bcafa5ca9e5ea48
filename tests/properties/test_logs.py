"""Logs of small and large appends, past the page cache or not: read by anybody, cut anywhere."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seep.runtime.stores import direct
from seep.runtime.stores.direct import MANY_BYTES, read_at, write_at
from seep.runtime.stores.files import Files, opened
from seep.runtime.stores.log import Log

KEY = b"k" * 32
FILES = Files(sync=False)
SIZES = st.sampled_from([0, 10, 4096, MANY_BYTES - 1, MANY_BYTES, MANY_BYTES + 4097, 3 * MANY_BYTES])
APPENDS = st.lists(st.lists(SIZES, min_size=1, max_size=3), min_size=1, max_size=5)


@pytest.fixture(params=["direct", "plain"], autouse=True, scope="module")
def able(request: pytest.FixtureRequest) -> Iterator[None]:
    """A file system that can write past the page cache, and one that says that it cannot."""
    real = fcntl.fcntl

    def refusing(descriptor: int, command: int, argument: int = 0) -> int:
        if command == fcntl.F_SETFL and argument & os.O_DIRECT:
            raise OSError(errno.EINVAL, "not here")
        return int(real(descriptor, command, argument))

    with pytest.MonkeyPatch.context() as patch:
        if request.param == "plain":
            patch.setattr(direct.fcntl, "fcntl", refusing)
        yield


def grow(path: Path, appends: list[list[int]]) -> list[tuple[int, bytes]]:
    """Half of them by one process, half by another that finds what is there."""
    logs, known = [Log(path, KEY, FILES), Log(path, KEY, FILES)], []
    for number, sizes in enumerate(appends):
        records = [(len(known) + at, bytes([at + 1]) * size) for at, size in enumerate(sizes)]
        logs[number % 2].append(records)
        known += records
    return known


@settings(max_examples=40, deadline=None)
@given(APPENDS)
def test_what_was_appended_is_read(appends: list[list[int]]) -> None:
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "log"
        assert Log(path, KEY, FILES).read() == []
        known = grow(path, appends)
        log = Log(path, KEY, FILES)
        assert log.read() == known
        assert log.torn_tails == 0
        log.truncate(known[-1][0])
        log._rewrite()
        log.append([(known[-1][0] + 1, b"after")])
        for reader in (log, Log(path, KEY, FILES)):
            assert reader.read() == [known[-1], (known[-1][0] + 1, b"after")]


@settings(max_examples=60, deadline=None)
@given(APPENDS, st.integers(0, 1 << 30))
def test_of_one_that_is_cut_the_first_records_stay(appends: list[list[int]], place: int) -> None:
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "log"
        known = grow(path, appends)
        size = path.stat().st_size
        os.truncate(path, place % (size + 1))
        log = Log(path, KEY, FILES)
        found = log.read()
        assert found == known[: len(found)]
        log.append([(1_000, b"more")])
        assert Log(path, KEY, FILES).read() == [*found, (1_000, b"more")]


@settings(max_examples=60, deadline=None)
@given(st.lists(SIZES, max_size=6), st.integers(0, 3), st.data())
def test_what_was_written_at_a_block_is_read_from_anywhere(sizes: list[int], blocks: int, data: st.DataObject) -> None:
    parts = [os.urandom(size) for size in sizes]
    whole = b"".join(parts)
    begin = blocks * direct.BLOCK_BYTES
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "file"
        path.touch()
        descriptor = os.open(path, os.O_RDWR)
        assert write_at(descriptor, begin, parts) == len(whole)
        os.ftruncate(descriptor, begin + len(whole))
        low = data.draw(st.integers(0, begin + len(whole)))
        size = data.draw(st.integers(1, len(whole) + 5000))
        wanted = (bytes(begin) + whole)[low : low + size]
        assert bytes(read_at(descriptor, low, size)) == wanted
        os.close(descriptor)
        with opened(path) as (found, read):
            assert found == begin + len(whole)
            assert bytes(read(low, size)) == wanted
