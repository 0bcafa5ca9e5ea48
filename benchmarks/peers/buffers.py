"""The blocks of a workload on disk, for programs in any language: the plain Arrow buffers of each column, a file each.

DATA/SPLIT/COLUMN.offsets (int32), COLUMN.bytes     of a string column
DATA/SPLIT/COLUMN.values  (int64)                   of numbers, and of times in microseconds since the lap began

A source has one string column, at most one of times (`at`) and at most one of numbers.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from benchmarks.looped import TIME, Block
from benchmarks.oracle import digest_table
from benchmarks.peers import Spec, Unable
from seep.model.duration import microseconds

PATIENCE_SECONDS = 1800.0
CHECKPOINT_MS = 5000


def cache() -> Path:
    """Where what is built or installed for peers is kept between runs."""
    path = Path.home() / ".cache" / "seep" / "peers"
    path.mkdir(parents=True, exist_ok=True)
    return path


class Written(NamedTuple):
    """Of a source: its directory, and the names of its columns (no name: it has none of the kind)."""

    data: Path
    text: str
    number: str


def write(spec: Spec) -> list[Written]:
    workload = spec.load()
    return [_write(spec, f"data-{spec.workload}-{source}", block) for source, block in workload.blocks.items()]


def _write(spec: Spec, name: str, block: Block) -> Written:
    data, text, number = Path(spec.home) / name, "", ""
    for split in range(spec.splits):
        home = data / str(split)
        home.mkdir(parents=True, exist_ok=True)
        record = block(split, spec.lap_rows, spec.seed)
        for name, column in zip(record.schema.names, record.columns, strict=True):
            if pa.types.is_string(column.type):
                text = name
                _, offsets, data_bytes = column.buffers()
                (home / f"{name}.offsets").write_bytes(memoryview(offsets)[: 4 * (len(column) + 1)])
                (home / f"{name}.bytes").write_bytes(memoryview(data_bytes))
            else:
                number = name if name != TIME else number
                (home / f"{name}.values").write_bytes(column.to_numpy().astype(np.int64).tobytes())
    return Written(data, text, number)


def run(spec: Spec, command: list[str], version: str, how: str) -> dict[str, Any]:
    """Run a program that takes name=value arguments and prints one JSON object last."""
    workload = spec.load()
    sources = write(spec)
    settings = {
        "workload": spec.workload,
        "data": ",".join(str(source.data) for source in sources),
        "home": spec.home,
        "text": sources[0].text,
        "numbers": ",".join(source.number for source in sources),
        "timed": int(workload.time is not None),
        "splits": spec.splits,
        "parallelism": spec.parallelism,
        "lap_rows": spec.lap_rows,
        "lap_us": spec.lap_us,
        "base_us": spec.base_us,
        "lateness_us": microseconds(workload.lateness),
        "split_rows": spec.rows // spec.splits if spec.bounded else -1,
        "warm_ms": int(spec.warm_seconds * 1000),
        "measured_ms": int(spec.seconds * 1000),
        "checkpoint_ms": CHECKPOINT_MS,
        "key": workload.columns[0],
    }
    said = output([*command, *(f"{name}={value}" for name, value in settings.items())])
    found: dict[str, Any] = json.loads(said.strip().splitlines()[-1])
    if "results" in found:
        with pa.OSFile(found.pop("results")) as file, pa.ipc.open_file(file) as reader:
            result = digest_table(reader.read_all(), workload.columns)
        found |= {"rows_out": result.rows, "digest": str(result.total)}
    rows, seconds, cpu = (found.pop(name) for name in ("rows", "seconds", "cpu_seconds"))
    given = found.pop("given")
    return {
        "rows_per_second": round(rows / seconds),
        "cpu_seconds_per_10m_rows": round(cpu / rows * 10_000_000, 3),
        "seconds": round(seconds, 3),
        "how": how,
        "version": version,
        **found,
        "given": by_source(workload.blocks, given, spec.splits),
    }


def by_source(sources: Iterable[str], given: Sequence[int], splits: int) -> dict[str, list[int]]:
    """Programs print what their splits have given in one list, source after source.

    >>> by_source(["sales", "offers"], [5, 6, 7, 8], 2)
    {'sales': [5, 6], 'offers': [7, 8]}
    """
    return {name: list(given[place * splits : (place + 1) * splits]) for place, name in enumerate(sources)}


def environment(name: str, packages: Sequence[str]) -> str:
    """The interpreter of a peer's own virtual environment, made when it is first needed."""
    home = cache() / f"{name}-{hashlib.sha256(' '.join(packages).encode()).hexdigest()[:12]}"
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        beside = Path(sys.executable).with_name("uv")
        uv = str(beside) if beside.exists() else "uv"
        output([uv, "venv", "--quiet", "--clear", "--python", "3.11", str(home)])
        output([uv, "pip", "install", "--quiet", "--python", str(python), *packages])
        (home / "ready").touch()
    return str(python)


def output(command: list[str], cwd: Path | None = None) -> str:
    """What a command prints; a failing or missing one makes the peer unavailable, with its last words."""
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise Unable(f"{command[0]}: {error}") from None
    if done.returncode:
        words = [line for line in (done.stdout + done.stderr).strip().splitlines() if line.strip()]
        raise Unable(f"{Path(command[0]).name} failed: {' / '.join(words[-3:])}")
    return done.stdout
