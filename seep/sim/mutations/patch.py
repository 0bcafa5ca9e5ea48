"""One breakage as a value, and how it gets into a process: the module's source is changed on its way in.

Nothing is written to the tree: a finder in front of Python's own compiles the patched text. So it must be installed in
a fresh process, before the module is imported for the first time.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

TREE = Path(__file__).parents[3]


class BadPatch(Exception):
    """The bench itself is wrong: the text to replace is not there exactly once, or the module came in too early."""


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    rule: str
    """The sentence of the design that it breaks."""
    module: str
    old: str
    """Must stand exactly once in the module; lines around the changed one may be in it, to tell where."""
    new: str
    scenario: str = ""
    """A directed schedule that finds it, where the race is too rare for seeds."""
    braces: str = ""
    """Not empty: another line keeps the rule too, so breaking this one alone breaks no promise; which, and why."""
    line: int = 0
    """Not 0: the text is this whole line, wherever else it may stand."""

    def apply(self, source: str) -> str:
        if self.line:
            lines = source.splitlines(keepends=True)
            if lines[self.line - 1].rstrip("\n") != self.old:
                raise BadPatch(f"{self.name}: line {self.line} of {self.module} is another one")
            lines[self.line - 1] = self.new + "\n"
            return "".join(lines)
        if source.count(self.old) != 1:
            raise BadPatch(f"{self.name}: its text stands {source.count(self.old)} times in {self.module}")
        return source.replace(self.old, self.new)


def source_of(module: str) -> str:
    return (TREE / (module.replace(".", "/") + ".py")).read_text()


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self.patched = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.patched, self.path, "exec")


class _Finder(MetaPathFinder):
    def __init__(self, module: str, source: str) -> None:
        self.module, self.source = module, source

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin, self.source)
        return spec


def install(mutant: Mutant) -> None:
    """From now on, in this process, the module is the broken one."""
    if mutant.module in sys.modules:
        raise BadPatch(f"{mutant.name}: {mutant.module} is imported already")
    sys.meta_path.insert(0, _Finder(mutant.module, mutant.apply(source_of(mutant.module))))
