"""`start`: how long a worker takes to start cold: a fresh interpreter that imports everything and loads the compiled
loops of a flow from their cache. Nothing may be compiled then; what is, is counted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

from benchmarks.outcome import Options, Outcome, Tell, spread

TIMES = 10
PROGRAM = """
import time
began = time.perf_counter()
import json
from numba.core import event
with event.install_recorder("numba:compile") as compiled:
    import seep.runtime.worker
    imported = time.perf_counter()
    from pathlib import Path
    from benchmarks.digestsink import DigestSink
    from benchmarks.workloads.windows import KEYED_WINDOW as workload
    from seep.flow.compile import compile_flow
    sources = {"sales": workload.with_lap(1_000).looped("sales", 42)}
    graph = compile_flow(workload.flow(sources, DigestSink(Path("unused"), workload.columns)))
    for node in graph.nodes.values():
        getattr(node.make, "warm", lambda: None)()
ready = time.perf_counter()
print(json.dumps({"import_ms": (imported - began) * 1e3, "warm_ms": (ready - imported) * 1e3,
                  "compilations": len(compiled.buffer) // 2}))
"""


def run(options: Options, tell: Tell) -> Outcome:
    times = TIMES if options.kills is None else options.kills
    _fresh()  # whatever was never compiled on this machine is now
    found: list[dict[str, float]] = []
    for number in range(times):
        tell(f"start {number + 1} of {times}", number / times)
        found.append(_fresh())
    starts = [one["start_ms"] for one in found]
    compilations = sum(int(one["compilations"]) for one in found)
    return Outcome(
        "start",
        {"starts": times},
        compilations == 0,
        {
            "start_ms": spread(starts),
            "import_ms": spread([one["import_ms"] for one in found]),
            "warm_ms": spread([one["warm_ms"] for one in found]),
            "compilations": compilations,
        },
        {"start_ms": starts},
    )


def _fresh() -> dict[str, float]:
    began = time.perf_counter()
    said = subprocess.run([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, check=True).stdout
    found: dict[str, float] = json.loads(said.strip().splitlines()[-1])
    return found | {"start_ms": (time.perf_counter() - began) * 1000}
