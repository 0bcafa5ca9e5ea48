"""``python -m benchmarks.peers NAME SPEC``: run one adapter; its answer is the last line printed."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

from benchmarks.peers import Spec, Unable

if __name__ == "__main__":
    name, path = sys.argv[1:]
    spec = Spec(**json.loads(Path(path).read_text()))
    try:
        print(json.dumps(import_module(f"benchmarks.peers.{name}").main(spec)))
    except Unable as reason:
        print(json.dumps({"unavailable": str(reason)}))
