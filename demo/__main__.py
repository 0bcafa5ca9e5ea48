"""`python -m demo`: the word count, split, killed and merged while it runs. `DEMO_ON=local` does it without Spark.

Exit code 0 when the result is exact, 1 when it is not or the run did not come to its end.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import IO, Any

from rich.console import Console

LINES_PER_SECOND = 2_000
LINES = 35 * LINES_PER_SECOND
LOG = Path(".seep/demo.log")


def main() -> int:
    on = os.environ.get("DEMO_ON", "spark")
    console = Console(file=own_stdout())
    place = {"spark": "embedded Spark", "local": "local processes"}.get(on)
    if place is None:
        console.print(f"DEMO_ON={on}: give spark or local")
        return 2
    try:
        with console.status("loading seep"):
            # Not at the top: it takes some seconds on a busy machine, and somebody is looking at an empty screen.
            from demo.screen import Screen
            from demo.story import Story
            from demo.words import build
        story = Story(build(LINES, LINES_PER_SECOND), on)
        with Screen(console, f"seep: a word count on {place}", story.steps) as screen:
            rows = story.tell(screen)
    except KeyboardInterrupt:
        console.print("\nstopped")
        return 1
    except Exception as error:
        # Whatever it was, the one who looks at the screen gets a sentence; the rest is in the log.
        traceback.print_exc()
        console.print(f"\n[red]the demo did not come to its end:[/] {error}\nmore is in {LOG}", highlight=False)
        return 1
    return verdict(console, rows)


def verdict(console: Console, rows: list[dict[str, Any]]) -> int:
    from demo.words import judge

    found = judge(LINES, rows)
    most = ", ".join(f"{word} {n:,}" for word, n in found.most)
    console.print(f"\n  {LINES:,} lines, {found.expected:,} words; most often: {most}", highlight=False)
    console.print("  compared with a plain count of the same lines:", highlight=False)
    if found.exact:
        console.print("  [bold green]exact[/]: lost 0, duplicated 0\n", highlight=False)
        return 0
    wrong = f"lost {found.lost:,}, duplicated {found.duplicated:,}, at a wrong place {found.misplaced:,}"
    console.print(f"  [bold red]not exact[/]: {wrong}\n", highlight=False)
    return 1


def own_stdout() -> IO[str]:
    """The terminal for us alone. Spark's JVM writes its log to whatever it inherits; that goes to a file."""
    LOG.parent.mkdir(parents=True, exist_ok=True)
    ours = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    with LOG.open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    return ours


if __name__ == "__main__":
    sys.exit(main())
