"""From a topic to a topic, exactly once, on Quix Streams: as many processes as are asked for, one consumer group.

Run in an environment of its own with `quixstreams`. Arguments are name=value. It runs until it is ended.
"""

import subprocess
import sys
from pathlib import Path

from quixstreams import Application
from quixstreams.dataframe.windows import Count, Max, Sum

ARGS = dict(argument.split("=", 1) for argument in sys.argv[1:])


def result(value: dict, key: str, timestamp: int, headers: object) -> dict:
    found = {name: value[name] for name in ("items", "revenue", "largest")}
    return {"store": key, "window_start": value["start"], **found}


def work(number: int) -> None:
    app = Application(
        ARGS["servers"],
        consumer_group=f"quix-{ARGS['in']}",
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=int(ARGS["checkpoint_ms"]) / 1000,
        state_dir=Path(ARGS["home"]) / f"state-{number}",
        loglevel="WARNING",
    )
    topic = app.topic(
        ARGS["in"],
        value_deserializer="json",
        key_deserializer="str",
        timestamp_extractor=lambda value, headers, timestamp, kind: value["at"],
    )
    windows = app.dataframe(topic).tumbling_window(int(ARGS["window_ms"]), grace_ms=int(ARGS["lateness_ms"]))
    results = windows.agg(items=Count(), revenue=Sum("amount"), largest=Max("amount"))
    closed = results.final(closing_strategy="partition").apply(result, metadata=True)
    closed.to_topic(app.topic(ARGS["out"], value_serializer="json", key_serializer="str"))
    app.run()


def main() -> None:
    command = [sys.executable, __file__, *sys.argv[1:]]
    workers = [subprocess.Popen([*command, f"worker={number}"]) for number in range(int(ARGS["parallelism"]))]
    try:
        sys.exit(workers[0].wait())
    finally:
        for worker in workers:
            worker.kill()


if __name__ == "__main__":
    work(int(ARGS["worker"])) if "worker" in ARGS else main()
