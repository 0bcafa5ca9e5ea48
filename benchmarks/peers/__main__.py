"""``python -m benchmarks.peers NAME SPEC``: run one adapter; its answer is the last line printed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.peers import Spec, Unable, adapter

if __name__ == "__main__":
    name, path = sys.argv[1:]
    spec = Spec(**json.loads(Path(path).read_text()))
    try:
        print(json.dumps(adapter(name).main(spec)))
    except Unable as reason:
        print(json.dumps({"unavailable": str(reason)}))
