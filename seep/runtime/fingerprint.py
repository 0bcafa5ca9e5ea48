"""A digest of what a program would run: equal for the same app in another process, different when its code changed.

The bytes of a pickle will not do: they depend on which equal strings are one object, which a cached bytecode file
already changes. So values are walked: functions of the app by their bytecode, what they close over and the globals
they name; what is imported from a library by its name (the versions of libraries are compared apart), from a file of
the user's by that file's content; everything else the way it would be pickled.
"""

from __future__ import annotations

import enum
import hashlib
import pickle
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_UNTOLD = {"__dict__", "__weakref__", "__doc__", "__module__", "_abc_impl", "__abstractmethods__", "__firstlineno__"}
"""Of a class: what says nothing about what it does."""


def fingerprint(value: Any) -> str:
    return _Walk().digest(value).hex()


class _Walk:
    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, bytes]] = {}
        """By id; the value is kept, so that no other gets its id meanwhile."""

    def digest(self, value: Any) -> bytes:
        if isinstance(value, _PLAIN):
            return _hash([type(value).__name__.encode(), repr(value).encode()])
        known = self._known.get(id(value))
        if known is not None:
            return known[1]
        # Met again inside itself, a value counts by its type.
        self._known[id(value)] = (value, _hash([b"inside", type(value).__name__.encode()]))
        found = _hash(self._parts(value))
        self._known[id(value)] = (value, found)
        return found

    def _parts(self, value: Any) -> Iterator[bytes]:
        yield type(value).__name__.encode()
        if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
            yield from map(self.digest, value)
        elif type(value) is dict:
            for key, item in value.items():
                yield self.digest(key)
                yield self.digest(item)
        elif isinstance(value, (set, frozenset)):
            yield from sorted(map(self.digest, value))
        elif isinstance(value, types.CodeType):
            yield from self._code(value)
        elif isinstance(value, types.ModuleType):
            yield from _module(value.__name__)
        elif isinstance(value, (types.FunctionType, type)):
            yield from self._named(value) if _is_importable(value) else self._own(value)
        elif isinstance(value, types.MethodType):
            yield self.digest(value.__func__)
            yield self.digest(value.__self__)
        elif isinstance(value, types.CellType):
            yield self.digest(value.cell_contents) if _is_filled(value) else b"empty"
        elif isinstance(value, enum.Enum):
            yield self.digest(type(value))
            yield value.name.encode()
        elif isinstance(value, (pa.RecordBatch, pa.Table)):
            yield self.digest(value.schema)
            yield from _rows(value)
        elif isinstance(value, np.ndarray) and value.dtype != object:
            yield from (str(value.dtype).encode(), str(value.shape).encode(), np.ascontiguousarray(value).tobytes())
        elif isinstance(value, (staticmethod, classmethod, property)):
            yield from map(self.digest, (getattr(value, name, None) for name in ("__func__", "fget", "fset")))
        elif hasattr(type(value), "__fingerprint__"):  # it says itself what counts
            yield self.digest(value.__fingerprint__())
        else:
            yield from self._reduced(value)

    def _named(self, value: Any) -> Iterator[bytes]:
        yield value.__qualname__.encode()
        yield from _module(value.__module__)

    def _own(self, value: Any) -> Iterator[bytes]:
        """A function or class of the app itself."""
        yield value.__qualname__.encode()
        if isinstance(value, type):
            yield from map(self.digest, value.__bases__)
            for name, item in sorted(vars(value).items()):
                if name not in _UNTOLD:
                    yield name.encode()
                    yield self.digest(item)
            return
        yield self.digest(value.__code__)
        yield self.digest(value.__defaults__)
        yield self.digest(value.__kwdefaults__)
        yield from map(self.digest, value.__closure__ or ())
        for name in sorted(set(_names(value.__code__))):
            if name in value.__globals__:
                yield name.encode()
                yield self.digest(value.__globals__[name])

    def _code(self, code: types.CodeType) -> Iterator[bytes]:
        """Without file and line: moving a function changes nothing."""
        yield code.co_code
        yield code.co_exceptiontable
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        yield from map(self.digest, (counts, names, code.co_consts))

    def _reduced(self, value: Any) -> Iterator[bytes]:
        try:
            reduced = value.__reduce_ex__(4)
        except (TypeError, pickle.PicklingError):
            reduced = type(value).__qualname__  # such as a lock: it has no value
        if isinstance(reduced, str):
            yield from (reduced.encode(), str(getattr(value, "__module__", "")).encode())
            return
        make, arguments, *rest = reduced
        yield getattr(make, "__qualname__", type(make).__qualname__).encode()
        yield self.digest(tuple(arguments))
        for part in rest[:3]:
            yield self.digest(part if part is None or isinstance(part, (tuple, dict, *_PLAIN)) else _listed(part))


def _listed(part: Any) -> Any:
    return list(part) if isinstance(part, Iterable) else part


def _hash(parts: Iterable[bytes]) -> bytes:
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.digest()


def _names(code: types.CodeType) -> Iterator[str]:
    """The globals a function may use, those of functions inside it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _is_importable(value: Any) -> bool:
    """Would another process find it under its name? What the app file itself defines is taken along by value."""
    module = sys.modules.get(value.__module__ or "")
    by_value = {"__main__", "__mp_main__"} | set(cloudpickle.list_registry_pickle_by_value())
    if module is None or value.__module__ in by_value:
        return False
    found: Any = module
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


_LIBRARIES = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")]
_OURS = {"seep", "operators"}


def _module(name: str) -> Iterator[bytes]:
    yield name.encode()
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None or name.partition(".")[0] in _OURS:
        return
    path = Path(file).resolve()
    if path.is_file() and not any(path.is_relative_to(library) for library in _LIBRARIES):
        yield path.read_bytes()


def _rows(value: pa.RecordBatch | pa.Table) -> Iterator[bytes]:
    # Taken anew, so that neither slices nor what lies in null slots shows.
    for batch in value.to_batches() if isinstance(value, pa.Table) else [value]:
        yield batch.take(pa.array(np.arange(batch.num_rows))).serialize().to_pybytes()
