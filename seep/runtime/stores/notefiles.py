"""Notes of a partition as small files beside its log, one for each generation, overwritten in place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from seep.model.ids import Generation
from seep.runtime.stores.files import read_or_none
from seep.state.codec import NOTE, DamagedError, decode_value, encode_value, sealed_bytes

_NAME = "note"


class NoteFiles:
    def __init__(self, home: Path, key: bytes) -> None:
        self._home = home
        self._key = key
        self._open: tuple[Generation, int] | None = None

    def write(self, generation: Generation, value: Any) -> None:
        if self._open is None or self._open[0] != generation:
            self.close()
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
            self._open = (generation, os.open(self._path(generation), flags, 0o600))
        os.pwrite(self._open[1], encode_value(NOTE, value, self._key), 0)

    def read(self, generation: Generation) -> Any:
        """What it noted last; those of earlier ones are forgotten."""
        for path in self._home.glob(f"{_NAME}-*-*"):
            _, term, number = path.name.split("-")
            if (int(term), int(number)) < generation:
                path.unlink(missing_ok=True)
        data = read_or_none(self._path(generation))
        try:
            # What a longer note before it has left lies behind it.
            return None if not data else decode_value(NOTE, data[: sealed_bytes(data)], self._key)
        except DamagedError:
            return None

    def close(self) -> None:
        if self._open is not None:
            os.close(self._open[1])
            self._open = None

    def _path(self, generation: Generation) -> Path:
        return self._home / f"{_NAME}-{generation.term}-{generation.number}"
