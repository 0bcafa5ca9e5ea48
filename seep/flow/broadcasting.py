"""What `broadcast` gives: a further input of `apply` or `join_table` that every partition gets whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from seep.errors import Misuse
from seep.flow.logical import Input
from seep.flow.place import at_place

if TYPE_CHECKING:
    from seep.flow.dataset import Dataset
    from seep.flow.tabled import Versions


class Broadcast:
    """An input, and nothing by itself: the latest row of each key of a Stream, or a Table."""

    def __init__(self, data: Dataset, keys: tuple[str, ...], table: bool = False) -> None:
        self.flow = data.flow
        self.lineage = data.lineage
        self.wire = data.wire
        self.schema = data.schema
        self.keys = keys
        self.table = table
        """Its rows are changes, some of which delete."""
        self.versions: Versions | None = getattr(data, "versions", None)

    @property
    def input(self) -> Input:
        return Input(self.lineage, self.keys, self.wire, broadcast=True)

    def __repr__(self) -> str:
        return f"Broadcast({', '.join(f'{f.name}: {f.type}' for f in self.schema)})"

    def __getattr__(self, name: str) -> Any:
        from seep.flow.stream import Stream

        if hasattr(Stream, name) and not name.startswith("_"):
            with at_place(name):
                raise Misuse(
                    "a broadcast stream is only a further input of apply or join_table; it emits nothing itself"
                )
        raise AttributeError(f"a broadcast stream has no {name!r}")
