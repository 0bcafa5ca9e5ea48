"""What `split` gives: the streams that it has cut a stream into."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seep.flow.stream import Stream


class Splits:
    """The parts of a `split`, by name, ``rest``, and the ``errors`` of all."""

    def __init__(self, parts: dict[str, Stream]) -> None:
        self._parts = parts

    @property
    def errors(self) -> Stream:
        """The dead letters of the conditions: row, error, operator, epoch, position."""
        return self._parts["rest"].errors

    def __getattr__(self, name: str) -> Stream:
        parts: dict[str, Stream] = self.__dict__["_parts"]
        if name not in parts:
            raise AttributeError(f"no part {name!r}; there are {', '.join(parts)}, and errors")
        return parts[name]
