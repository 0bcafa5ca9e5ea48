"""The workloads on Pathway: two worker threads in one process, the input saved every 5 s.

Run in an environment of its own with `pathway` and `pyarrow`. Arguments are name=value; results go to an Arrow file,
the last line printed is JSON. Rows go through the Python connector, which one thread reads: a row of each split in
turn, so that none is later than the lateness allows.
"""

import json
import os
import sys
import time
from pathlib import Path

ARGS = dict(argument.split("=", 1) for argument in sys.argv[1:])
os.environ["PATHWAY_THREADS"] = ARGS["parallelism"]

import numpy as np  # noqa: E402 - the number of threads is read at import
import pathway as pw  # noqa: E402
import pyarrow as pa  # noqa: E402

LAP_ROWS, LAP_US, BASE_US, SPLIT_ROWS, SPLITS = (
    int(ARGS[name]) for name in ("lap_rows", "lap_us", "base_us", "split_rows", "splits")
)
TIMED = ARGS["timed"] == "1"
TEXT = ARGS["text"]
CHUNK = 10_000
"""Rows of each split for one commit."""
BACKLOG = 10 * CHUNK
COUNTS: dict[str, int] = {}
WINDOWS: list[tuple[str, int, int, int, int]] = []


class Sale(pw.Schema):
    store: str
    at: int
    amount: int


class Visit(pw.Schema):
    store: str


class Line(pw.Schema):
    sentence: str


class Looped(pw.io.python.ConnectorSubject):
    """Gives a lap of all splits again and again with later times, until the end is reached or the time is over."""

    deletions_enabled = False

    def __init__(self) -> None:
        super().__init__()
        self.position = 0
        self.measured = None
        self.began = 0.0
        self.laps = [self.load(Path(ARGS["data"]) / str(split)) for split in range(SPLITS)]

    def load(self, home: Path) -> tuple[list[str], list[int], list[int]]:
        offsets = np.fromfile(home / f"{TEXT}.offsets", np.int32).tolist()
        data = (home / f"{TEXT}.bytes").read_bytes().decode()
        texts = [data[offsets[row] : offsets[row + 1]] for row in range(LAP_ROWS)]
        if not TIMED:
            return texts, [], []
        return texts, *(np.fromfile(home / f"{name}.values", np.int64).tolist() for name in ("at", "amount"))

    def run(self) -> None:
        self.began = time.monotonic()
        warm = self.began + int(ARGS["warm_ms"]) / 1000
        over = warm + int(ARGS["measured_ms"]) / 1000
        before = None
        while True:
            now = time.monotonic()
            if SPLIT_ROWS < 0 and before is None and now >= warm:
                before = (now, time.process_time(), self.position)
            if self.position == SPLIT_ROWS or (SPLIT_ROWS < 0 and before is not None and now >= over):
                break
            self.give()
            self.commit()
        if before is not None:
            after = (time.monotonic(), time.process_time(), self.position)
            self.measured = tuple(new - old for new, old in zip(after, before, strict=True))

    def give(self) -> None:
        lap, inside = divmod(self.position, LAP_ROWS)
        upto = min(LAP_ROWS, inside + CHUNK)
        if SPLIT_ROWS >= 0:
            upto = min(upto, inside + SPLIT_ROWS - self.position)
        later = BASE_US + lap * LAP_US
        for row in range(inside, upto):
            for texts, times, amounts in self.laps:
                if TIMED:
                    self.next(store=texts[row], at=times[row] + later, amount=amounts[row])
                else:
                    self.next(**{TEXT: texts[row]})
        self.position += upto - inside


def split_sentence(sentence: str) -> tuple[str, ...]:
    return tuple(sentence.split(" "))


def keep_count(key: pw.Pointer, row: dict, time: int, is_addition: bool) -> None:
    if is_addition:
        COUNTS[row["name"]] = row["n"]


def keep_window(key: pw.Pointer, row: dict, time: int, is_addition: bool) -> None:
    assert is_addition, "a window that has closed does not change"
    WINDOWS.append((row["store"], row["window_start"], row["items"], row["revenue"], row["largest"]))


def build(source: Looped) -> None:
    schema = Sale if TIMED else Line if TEXT == "sentence" else Visit
    rows = pw.io.python.read(source, schema=schema, autocommit_duration_ms=None, max_backlog_size=BACKLOG, name="rows")
    if TIMED:
        windows = rows.windowby(
            rows.at,
            window=pw.temporal.tumbling(duration=1_000_000),
            behavior=pw.temporal.exactly_once_behavior(shift=int(ARGS["lateness_us"])),
            instance=rows.store,
        ).reduce(
            store=pw.this._pw_instance,
            window_start=pw.this._pw_window_start,
            items=pw.reducers.count(),
            revenue=pw.reducers.sum(pw.this.amount),
            largest=pw.reducers.max(pw.this.amount),
        )
        pw.io.subscribe(windows, keep_window)
        return
    if TEXT == "sentence":
        words = pw.apply_with_type(split_sentence, tuple[str, ...], rows.sentence)
        rows = rows.select(store=words).flatten(pw.this.store)
    counts = rows.groupby(rows.store).reduce(name=rows.store, n=pw.reducers.count())
    pw.io.subscribe(counts, keep_count)


def main() -> None:
    saved = Path(ARGS["home"]) / "pathway"
    source = Looped()
    build(source)
    pw.run(
        monitoring_level=pw.MonitoringLevel.NONE,
        persistence_config=pw.persistence.Config(
            pw.persistence.Backend.filesystem(saved / "saved"),
            snapshot_interval_ms=int(ARGS["checkpoint_ms"]),
        ),
    )
    whole = (time.monotonic() - source.began, time.process_time(), source.position)
    seconds, cpu, rows = source.measured or whole
    if TIMED:
        names = ("store", "window_start", "items", "revenue", "largest")
        columns = list(zip(*WINDOWS, strict=True))
    else:
        names, columns = (ARGS["key"], "n"), [list(COUNTS), list(COUNTS.values())]
    table = pa.table(dict(zip(names, map(pa.array, columns), strict=True)))
    path = saved / "results.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    given = [source.position] * SPLITS
    said = {"rows": rows * SPLITS, "seconds": seconds, "cpu_seconds": cpu, "given": given, "results": str(path)}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
