"""``python -m benchmarks NAME`` is ``seep bench NAME``."""

from __future__ import annotations

import sys

from seep.cli.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["bench"]
    main()
