"""The workloads on Quix Streams: as many processes as there are partitions, one consumer group.

Run in an environment of its own with `quixstreams` and `pyarrow`. Arguments are name=value. The first process makes the
topic, writes the rows, starts the others and puts together what they found: results in an Arrow file, and as the last
line printed, JSON. Rows are written in the order of all splits, one of each in turn, so that none is later than the
lateness allows; a row that comes an hour later closes the windows.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from quixstreams import Application
from quixstreams.dataframe.windows import Count, Max, Sum

ARGS = dict(argument.split("=", 1) for argument in sys.argv[1:])
LAP_ROWS, LAP_US, BASE_US, SPLIT_ROWS, SPLITS = (
    int(ARGS[name]) for name in ("lap_rows", "lap_us", "base_us", "split_rows", "splits")
)
TIMED, WORDS, TEXT = ARGS["timed"] == "1", ARGS["workload"] == "word-count", ARGS["text"]
TOPIC = "rows"
END = "\x00end"
HOUR_MS = 3_600_000
MARK_ROWS = 200
IDLE_SECONDS = 20.0
"""A worker ends when nothing has come for so long."""
PATIENCE_SECONDS = 1500.0
HOME = Path(ARGS["home"]) / "quix"


# --- rows ------------------------------------------------------------------------------------------------------------


def load(split: int) -> tuple[list[str], list[int], list[int]]:
    home = Path(ARGS["data"]) / str(split)
    offsets = np.fromfile(home / f"{TEXT}.offsets", np.int32).tolist()
    data = (home / f"{TEXT}.bytes").read_bytes().decode()
    texts = [data[offsets[row] : offsets[row + 1]] for row in range(LAP_ROWS)]
    times, numbers = (
        np.fromfile(path, np.int64).tolist() if path.exists() else [0] * LAP_ROWS
        for path in (home / "at.values", home / f"{ARGS['numbers']}.values")
    )
    return texts, times, numbers


def write_rows() -> None:
    admin = AdminClient({"bootstrap.servers": ARGS["broker"]})
    admin.create_topics([NewTopic(TOPIC, int(ARGS["parallelism"]), 1)])[TOPIC].result(60)
    producer = Producer({"bootstrap.servers": ARGS["broker"], "linger.ms": 50, "enable.idempotence": True})
    laps = [load(split) for split in range(SPLITS)]
    for position in range(SPLIT_ROWS):
        lap, row = divmod(position, LAP_ROWS)
        for split, (texts, times, numbers) in enumerate(laps):
            if WORDS:
                send(producer, partition=split % int(ARGS["parallelism"]), value=json.dumps(texts[row]))
            else:
                at_ms = (BASE_US + lap * LAP_US + times[row]) // 1000
                send(producer, key=texts[row], value=f'{{"amount": {numbers[row]}}}', timestamp=at_ms)
    if TIMED:
        end_ms = (BASE_US + (SPLIT_ROWS // LAP_ROWS + 1) * LAP_US) // 1000 + HOUR_MS
        for partition in range(int(ARGS["parallelism"])):
            send(producer, partition=partition, key=END, value='{"amount": 0}', timestamp=end_ms)
    if producer.flush(PATIENCE_SECONDS):
        raise TimeoutError("rows were not written in time")


def send(producer: Producer, **message) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return producer.produce(TOPIC, **message)
        except BufferError:
            producer.poll(0.1)
            if time.monotonic() > deadline:
                raise


# --- a worker --------------------------------------------------------------------------------------------------------


class Kept:
    """What a worker has found, and when: marks of (time, processor time, rows so far)."""

    def __init__(self) -> None:
        self.results, self.marks, self.rows, self.messages = [], [], 0, 0
        self.counts = {}

    def processed(self, topic: str, partition: int, offset: int) -> None:
        self.rows += topic == TOPIC
        self.messages += 1
        if self.messages % MARK_ROWS == 1:
            self.mark()

    def mark(self) -> None:
        self.marks.append((time.monotonic(), time.process_time(), self.rows))

    def window(self, value: dict, key: str, timestamp: int, headers: object) -> None:
        self.results.append((key, value["start"] * 1000, value["items"], value["revenue"], value["largest"]))

    def count(self, value: int, key: str, timestamp: int, headers: object) -> None:
        self.counts[key] = value


def counted(value: object, state) -> int:
    n = state.get("n", 0) + 1
    state.set("n", n)
    return n


def work(number: int) -> None:
    kept = Kept()
    app = Application(
        ARGS["broker"],
        consumer_group="bench",
        auto_offset_reset="earliest",
        commit_interval=int(ARGS["checkpoint_ms"]) / 1000,
        state_dir=HOME / f"state-{number}",
        on_message_processed=kept.processed,
        loglevel="WARNING",
    )
    rows = app.dataframe(app.topic(TOPIC, value_deserializer="json", key_deserializer="str"))
    if TIMED:
        windows = rows.tumbling_window(1000, grace_ms=int(ARGS["lateness_us"]) // 1000)
        results = windows.agg(items=Count(), revenue=Sum("amount"), largest=Max("amount"))
        results.final(closing_strategy="partition").update(kept.window, metadata=True)
    else:
        if WORDS:
            words = rows.apply(lambda sentence: sentence.split(" "), expand=True)
            rows = words.group_by(lambda word: word, name="word")
        rows.apply(counted, stateful=True).update(kept.count, metadata=True)
    app.run(timeout=IDLE_SECONDS, collect=False)
    found = {"results": kept.results or list(kept.counts.items()), "marks": kept.marks}
    (HOME / f"found-{number}.json").write_text(json.dumps(found))


# --- the first process -----------------------------------------------------------------------------------------------


def broker_cpu() -> float:
    fields = Path(f"/proc/{ARGS['broker_process']}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watch() -> list[tuple[float, float]]:
    """Runs the workers to their end; meanwhile, the broker's processor time by the clock."""
    command = [sys.executable, __file__, *sys.argv[1:]]
    workers = [subprocess.Popen([*command, f"worker={number}"]) for number in range(int(ARGS["parallelism"]))]
    seen, deadline = [], time.monotonic() + PATIENCE_SECONDS
    try:
        while any(worker.poll() is None for worker in workers) and time.monotonic() < deadline:
            seen.append((time.monotonic(), broker_cpu()))
            time.sleep(0.1)
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.kill()
                worker.wait()
    if any(worker.returncode for worker in workers):
        raise RuntimeError(f"workers ended with {[worker.returncode for worker in workers]}")
    return seen


def measured(found: list[dict], broker: list[tuple[float, float]]) -> tuple[int, float, float]:
    """Rows, seconds and processor time of workers and broker, from the end of the warm-up to the last message."""
    marks = [np.array(one["marks"]) for one in found if one["marks"]]
    began = min(mark[0, 0] for mark in marks) + int(ARGS["warm_ms"]) / 1000
    ended = max(mark[-1, 0] for mark in marks)
    if began >= ended:
        began = min(mark[0, 0] for mark in marks)

    def passed(known: np.ndarray, place: int) -> float:
        before, after = np.interp([began, ended], known[:, 0], known[:, place])
        return float(after - before)

    rows = sum(passed(mark, 2) for mark in marks)
    cpu = sum(passed(mark, 1) for mark in marks) + passed(np.array(broker), 1)
    return round(rows), ended - began, cpu


def table(found: list[dict]) -> pa.Table:
    if TIMED:
        names = ("store", "window_start", "items", "revenue", "largest")
        columns = list(zip(*(row for one in found for row in one["results"]), strict=True))
    else:
        latest: dict[str, int] = {}
        for one in found:
            for key, count in one["results"]:
                latest[key] = max(latest.get(key, 0), count)
        names, columns = (ARGS["key"], "n"), [list(latest), list(latest.values())]
    return pa.table(dict(zip(names, map(pa.array, columns), strict=True)))


def main() -> None:
    HOME.mkdir()
    began = time.monotonic()
    write_rows()
    conversion_seconds = time.monotonic() - began
    broker = watch()
    found = [json.loads(path.read_text()) for path in sorted(HOME.glob("found-*.json"))]
    rows, seconds, cpu = measured(found, broker)
    results, path = table(found), HOME / "results.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, results.schema) as writer:
        writer.write_table(results)
    said = {"rows": rows, "seconds": seconds, "cpu_seconds": cpu, "given": [SPLIT_ROWS] * SPLITS, "results": str(path)}
    print(json.dumps({**said, "conversion_seconds": round(conversion_seconds, 3)}))


if __name__ == "__main__":
    work(int(ARGS["worker"])) if "worker" in ARGS else main()
