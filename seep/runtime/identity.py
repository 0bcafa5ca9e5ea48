"""Which app a job was started from, so that no other is resumed on its state by mistake.

Parallelism is not part of it: it is the journal's. What differs is named, since "another app" alone helps nobody.
"""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from seep.model.settings import Settings
from seep.partition.contract import Graph
from seep.runtime.fingerprint import fingerprint

LIBRARIES = ("seep", "numpy", "numba", "polars", "pyarrow")
"""Those whose versions may show in state or output."""


def identity_of(graph: Graph, settings: Settings) -> dict[str, Any]:
    """Plain values, to be kept with the job."""
    nodes = {node.name: fingerprint((node.kind, node.make, node.settings)) for node in graph.nodes.values()}
    edges = fingerprint([(e.name, e.source, e.target, e.port) for e in graph.edges])
    parts = {**nodes, "the streams between them": edges, "the flow's settings": fingerprint(settings)}
    return {"parts": parts, "versions": {"python": platform.python_version(), **_versions()}}


def _versions() -> dict[str, str]:
    found = {}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            found[library] = "of this directory"
    return found


def differences(before: dict[str, Any], now: dict[str, Any]) -> tuple[list[str], list[str]]:
    """What of the app differs, and which libraries do, each as people read it."""
    old, new = before["parts"], now["parts"]
    parts = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    had, has = before["versions"], now["versions"]
    libraries = [
        f"{name} {had.get(name, 'none')}, here {has.get(name, 'none')}"
        for name in {**had, **has}
        if had.get(name) != has.get(name)
    ]
    return parts, libraries
