"""`python -m demo`: a chain of supermarkets, scaled out, killed and scaled in while it sells; `DEMO_ON=local` does it
without Spark, `DEMO_EDGES=kafka` from and to Kafka.

Exit code 0 when every result is exact, 1 when one is not or the run did not come to its end.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import IO

from rich.console import Console

DIRECTORY = Path(".seep/demo")
LOG, PICTURE = DIRECTORY / "demo.log", DIRECTORY / "demo.png"
ABOUT = "real sales of a grocery chain's year, played fast; its 8 regions and the slow lookup are made up"


def main() -> int:
    on, edges = os.environ.get("DEMO_ON", "spark"), os.environ.get("DEMO_EDGES", "memory")
    console = Console(file=own_stdout())
    place = {"spark": "embedded Spark", "local": "local processes"}.get(on)
    if place is None:
        console.print(f"DEMO_ON={on}: give spark or local")
        return 2
    if edges not in ("memory", "kafka"):
        console.print(f"DEMO_EDGES={edges}: give memory or kafka")
        return 2
    title = f"seep: a chain of supermarkets on {place}{', from and to Kafka' if edges == 'kafka' else ''}"
    try:
        with console.status("loading seep"):
            # Not at the top: it takes some seconds on a busy machine, and somebody is looking at an empty screen.
            from demo.edges import InMemory, OnKafka
            from demo.picture import draw
            from demo.report import report
            from demo.screen import Screen
            from demo.story import Story
        story = Story(DIRECTORY, on, edges=OnKafka(DIRECTORY) if edges == "kafka" else InMemory())
        with Screen(console, title, ABOUT, story.steps) as screen:
            verdict = story.tell(screen)
        draw(PICTURE, title, story.watch.samples, story.dial.rates, story.events)
    except KeyboardInterrupt:
        console.print("\nstopped")
        return 1
    except Exception as error:
        # Whatever it was, the one who looks at the screen gets a sentence; the rest is in the log.
        traceback.print_exc()
        console.print(f"\n[red]the demo did not come to its end:[/] {error}\nmore is in {LOG}", highlight=False)
        return 1
    report(console, verdict, edges)
    console.print(f"  the run as a picture: {PICTURE}\n", highlight=False)
    return 0 if verdict.exact else 1


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
