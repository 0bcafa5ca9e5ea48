"""The window join: rows of equal keys in the same tumbling window."""

from __future__ import annotations

from operators.joining import Join, JoinInput, Times
from seep.errors import Misuse


class WindowJoin(Join):
    """Windows are aligned, half open; a pair is out as soon as both rows are there, unmatched rows at the close."""

    def __init__(
        self,
        left: JoinInput,
        right: JoinInput,
        how: str,
        size_us: int,
        offset_us: int,
        name: str = "join",
        ports: tuple[int, ...] = (0, 1),
    ) -> None:
        if size_us <= 0:
            raise Misuse("window: its size must be longer than zero")
        self._size = size_us
        self._offset = offset_us % size_us
        super().__init__(left, right, how, name, ports)

    def reach(self, side: int, times: Times) -> tuple[Times, Times]:
        starts = times - (times - self._offset) % self._size
        return starts, starts + (self._size - 1)

    def horizon(self, side: int, watermark: int) -> int:
        return watermark - (watermark - self._offset) % self._size

    @property
    def holds_us(self) -> int:
        return self._size if any(self._keeps) else 0
