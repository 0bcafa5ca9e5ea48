"""Readers of one epoch, with a controller that takes its time: nobody reads what another one has fixed."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from seep.control.requests import FixEpoch, ReleaseEpoch
from seep.errors import Retry
from seep.model.ids import PartitionId
from seep.protocol.journal import Replace
from seep.running import fixing
from seep.running.fixing import Fixing

COUNT = PartitionId("count", 0)


class SlowHost:
    """Does one thing of what it was asked for each time that somebody has looked so often."""

    def __init__(self, looks: int = 3) -> None:
        self.looks = looks
        self.outcome = ""
        self.asked: list[Any] = []
        self.fixed: list[Replace] = []
        self.numbers = 0
        self._looks = 0
        self._alone = threading.Lock()

    def request(self, request: FixEpoch | ReleaseEpoch) -> None:
        self.asked.append(request)

    @property
    def view(self) -> Any:
        with self._alone:
            self._looks += 1
            if self._looks % self.looks == 0 and self.asked:
                self._perform(self.asked[0])
        status = [SimpleNamespace(fixed_version=one.number, fixed_epoch=one.at) for one in self.fixed]
        journal = SimpleNamespace(replaces=tuple(self.fixed), entries={})
        return SimpleNamespace(journal=journal, statuses={COUNT: status[0]} if status else {}, decisions=[])

    def _perform(self, request: FixEpoch | ReleaseEpoch) -> None:
        if isinstance(request, ReleaseEpoch):
            self.fixed = [one for one in self.fixed if one.number != request.number]
        elif self.fixed:
            return  # not before this one is released
        else:
            self.numbers += 1
            self.fixed = [Replace(self.numbers, "", (COUNT,), (), False, at=10 * self.numbers)]
        self.asked.remove(request)


def test_an_epoch_on_its_way_out_is_not_read() -> None:
    host = SlowHost()
    reader = Fixing(host)  # type: ignore[arg-type]
    for number in range(1, 6):
        with reader.fixed() as found:
            assert (found.number, found.at) == (number, 10 * number)
            assert [one.number for one in host.fixed] == [number]


def test_readers_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    host = SlowHost()
    reader, inside, most = Fixing(host), [0], [0]  # type: ignore[arg-type]

    def read() -> None:
        for _ in range(5):
            with reader.fixed() as found:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                assert host.fixed == [found]
                inside[0] -= 1

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (host.numbers, most) == (20, [1])
    monkeypatch.setattr(fixing, "PATIENCE_SECONDS", 0.05)
    with reader.fixed(), pytest.raises(Retry, match="another savepoint, audit or query"), reader.fixed():
        pass


def test_what_came_too_late_for_one_is_not_in_the_way_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    host = SlowHost(1_000)
    reader = Fixing(host)  # type: ignore[arg-type]
    monkeypatch.setattr(fixing, "PATIENCE_SECONDS", 0.0)
    with pytest.raises(Retry, match="a checkpoint of one epoch: not done within"), reader.fixed():
        pass
    monkeypatch.setattr(fixing, "PATIENCE_SECONDS", 30.0)
    host.looks = 3
    while not host.fixed:
        assert host.view
    with reader.fixed() as found:
        assert found.number == 2


def test_of_one_that_has_died_meanwhile_no_other_checkpoint_is_read() -> None:
    host = SlowHost()
    reader = Fixing(host)  # type: ignore[arg-type]
    with reader.fixed() as found:
        assert len(reader.saves(None, found)) == 1
        host.fixed = [replace(found, number=0)]  # started again, it has not said yet that it keeps one
        with pytest.raises(Retry, match="somebody died when one epoch was to be read"):
            reader.saves(None, found)
        host.fixed = [found]
