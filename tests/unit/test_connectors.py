"""Sources give the same rows between two positions for ever; sinks show whole files, once."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seep
from seep.connectors import files
from seep.connectors.contract import Source
from seep.connectors.filesink import BLOCK_EPOCHS
from seep.flow.outlet import OutletPlan, decode, result_table, table_content
from seep.model.arrow import ArrowBatch
from seep.model.epoch import Moment
from seep.testing import check_source

ROWS: list[dict[str, Any]] = [{"n": i, "text": f'line "{i}",\nand more' if i % 3 else None} for i in range(50)]


def drain(source: Source, split: int, limits: list[int]) -> list[tuple[Any, Any, list[Any]]]:
    """Everything of a split as (from, to, rows), reading with these limits in turn."""
    found: list[tuple[Any, Any, list[Any]]] = []
    position: Any = None
    for turn in range(10_000):
        rows = source.read(split, position, None, limits[turn % len(limits)], turn * 100)
        if rows is not None:
            found.append((position, rows.position, rows.record.to_pylist()))
            position = rows.position
            if rows.ended:
                return found
    raise AssertionError("it never ended")


def sources(folder: Path) -> dict[str, Source]:
    pyarrow.parquet.write_table(pa.Table.from_pylist(ROWS), folder / "a.parquet", row_group_size=7)
    quoted = [('"' + row["text"].replace('"', '""') + '"') if row["text"] else "" for row in ROWS]
    (folder / "a.csv").write_text("n,text\n" + "".join(f"{i},{text}\n" for i, text in enumerate(quoted)))
    (folder / "a.jsonl").write_text("\n".join(json.dumps(row) for row in ROWS))
    (folder / "a.txt").write_text("".join(f"{row['n']}\r\n" for row in ROWS) + "end")
    return {
        "memory": seep.MemorySource(ROWS),
        "memory per epoch": seep.MemorySource(ROWS, per_epoch=3),
        "generator": seep.GeneratorSource(lambda i: {"n": i}, rows=2500),
        "paced": seep.GeneratorSource(lambda i: {"n": i}, rows=300, rate=800),
        "batches": seep.GeneratorSource(
            fn_batch=lambda first, n: pa.RecordBatch.from_pydict({"n": np.arange(first, first + n)}), rows=9_345
        ),
        **{ending: seep.FileSource(folder / f"a.{ending}") for ending in ("parquet", "csv", "jsonl", "txt")},
    }


NAMES = ["memory", "memory per epoch", "generator", "paced", "batches", "parquet", "csv", "jsonl", "txt"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Source]:
    return sources(tmp_path_factory.mktemp("files"))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=8, deadline=None)
@given(limits=st.lists(st.integers(7, 700), min_size=1, max_size=4), data=st.data())
def test_reading_again_gives_the_same_rows(
    made: dict[str, Source], name: str, limits: list[int], data: st.DataObject
) -> None:
    source = made[name]
    split = data.draw(st.integers(0, source.splits - 1))
    pieces = drain(source, split, limits)
    whole = [row for *_, rows in drain(source, split, [10**6]) for row in rows]
    assert [row for *_, rows in pieces for row in rows] == whole
    first = data.draw(st.integers(0, len(pieces) - 1))
    last = data.draw(st.integers(first, len(pieces) - 1))
    again = source.read(split, pieces[first][0], json.loads(json.dumps(pieces[last][1])), 1, 10**9)
    assert again is not None
    assert again.record.to_pylist() == [row for *_, rows in pieces[first : last + 1] for row in rows]
    assert again.position == pieces[last][1]
    assert again.ended == (last == len(pieces) - 1)


def test_generator_deals_every_number_once(made: dict[str, Source]) -> None:
    for name, count in (("generator", 2500), ("batches", 9_345), ("paced", 300)):
        source = made[name]
        numbers = [row["n"] for s in range(source.splits) for *_, rows in drain(source, s, [333]) for row in rows]
        assert sorted(numbers) == list(range(count))


def test_generator_keeps_its_pace() -> None:
    source = seep.GeneratorSource(lambda i: {"n": i}, rate=80)
    first = source.read(2, None, None, 1000, 5_000)
    assert first is not None
    assert first.record.to_pylist() == [{"n": 2}]
    assert source.read(2, first.position, None, 1000, 5_050) is None
    later = source.read(2, first.position, None, 1000, 6_000)
    assert later is not None
    assert later.record.num_rows == 10


@pytest.mark.parametrize(("rate", "rows"), [(10, 50), (100, 300), (1_000, 3_000), (50_000, 9_000)])
def test_few_rows_come_as_fast_as_many(rate: int, rows: int) -> None:
    """At every moment what the splits have given together is what the rate says, and about the lowest numbers."""
    source = seep.GeneratorSource(lambda i: {"n": i}, rate=rate, rows=rows)
    firsts = [source.read(split, None, None, 10**6, 0) for split in range(source.splits)]
    for second in (rows / rate * share for share in (0.25, 0.5, 1.0)):
        given = [number["n"] for first in firsts if first is not None for number in first.record.to_pylist()]
        for split, first in enumerate(firsts):
            assert first is not None
            more = source.read(split, first.position, None, 10**6, int(second * 1000)) if not first.ended else None
            given += [number["n"] for number in more.record.to_pylist()] if more is not None else []
        wanted, slack = min(rows, rate * second), source.splits * (source.block_rows + 1)
        assert abs(len(given) - wanted) <= slack
        assert max(given) <= wanted + slack


def test_file_contents(made: dict[str, Source]) -> None:
    for name in ("parquet", "jsonl"):
        assert [row for *_, rows in drain(made[name], 0, [9]) for row in rows] == ROWS
    csv = [row for *_, rows in drain(made["csv"], 0, [9]) for row in rows]
    assert csv == [{"n": row["n"], "text": row["text"] or ""} for row in ROWS]
    assert [row["line"] for *_, rows in drain(made["txt"], 0, [9]) for row in rows] == [*map(str, range(50)), "end"]


def test_times_in_text_are_utc(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("at\n2024-01-01 10:00:00\n")
    (tmp_path / "b.csv").write_text("at\n2024-01-01T10:00:00Z\n")
    (tmp_path / "c.jsonl").write_text('{"at": "2024-01-01T12:00:00+02:00", "more": 1}\n')
    schema = {"at": datetime}
    for source in (
        seep.FileSource(tmp_path / "a.csv"),
        seep.FileSource(tmp_path / "a.csv", schema=schema),
        seep.FileSource(tmp_path / "b.csv", schema=schema),
        seep.FileSource(tmp_path / "c.jsonl", schema=schema),
    ):
        rows = source.read(0, None, None, 10, 0)
        assert rows is not None
        assert rows.record.to_pylist() == [{"at": datetime(2024, 1, 1, 10, tzinfo=UTC)}]


def test_a_line_that_cannot_be_read_is_handed_back(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n{"n": \n[3]\n{"n": "x"}\n{"n": 5}\n')
    (tmp_path / "a.csv").write_text("n\n1\nx\n5\n")
    for name, bad in (("a.jsonl", [9, 16, 20]), ("a.csv", [4])):
        rows = seep.FileSource(tmp_path / name, schema={"n": int}).read(0, None, None, 10, 0)
        assert rows is not None
        assert rows.record.to_pylist() == [{"n": 1}, {"n": 5}]
        assert [one.position for one in rows.refused] == bad


LONG_ENDS = ["", "\n", '\n{"n": 3}', '\n{"n": 3}\n']


@pytest.mark.parametrize("length", [63, 64, 65, 100, 200])
@pytest.mark.parametrize("after", LONG_ENDS)
def test_a_row_that_is_too_long_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int, after: str
) -> None:
    monkeypatch.setattr(files, "PIECE_BYTES", 16)
    monkeypatch.setattr(files, "ROW_BYTES", 64)
    long = '{"n": 2, "text": "' + "x" * (length - 20) + '"}'
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n' + long + after)
    source = seep.FileSource(tmp_path / "a.jsonl", schema={"n": int, "text": str | None})
    check_source(lambda: source)
    pieces = drain(source, 0, [10])
    kept = length + len(after[:1]) <= 64 and (length < 64 or after)
    numbers = [1, *([2] if kept else []), *([3] if "3" in after else [])]
    assert [row["n"] for *_, rows in pieces for row in rows] == numbers
    whole = source.read(0, None, pieces[-1][1], 1, 0)
    assert whole is not None
    assert [(one.position, "more than 64" in one.reason) for one in whole.refused] == ([] if kept else [(9, True)])


def test_a_long_quoted_row_ends_where_its_quotes_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PIECE_BYTES", 16)
    monkeypatch.setattr(files, "ROW_BYTES", 64)
    (tmp_path / "a.csv").write_text('text\na\n"' + "line\n" * 50 + '"\nb\n')
    source = seep.FileSource(tmp_path / "a.csv", schema={"text": str})
    assert [row["text"] for *_, rows in drain(source, 0, [10]) for row in rows] == ["a", "b"]
    check_source(lambda: source)


def test_a_file_that_was_written_anew_stops_with_a_report(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n")
    for follow in (False, True):
        source = seep.FileSource(path, follow=follow)
        with pytest.raises(seep.DataLoss, match="was read up to byte 9, and ends before"):
            source.read(0, 9, None, 10, 0)


@pytest.mark.parametrize("follow", [False, True])
def test_a_file_that_cannot_be_read_ends_no_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], follow: bool
) -> None:
    """It may get better, or it is said in one line that it does not."""
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n")
    source = seep.FileSource(path, follow=follow)

    def stale(*_: Any) -> int:
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as patch:
        patch.setattr(os.path, "getsize", stale)
        assert source.read(0, 4, None, 10, 0) is None
        assert source.behind(0, 4, 0) is None
        with pytest.raises(seep.Retry, match=r"a\.txt' cannot be read: Stale file handle"):
            source.read(0, 4, 8, 10, 0)
    assert "a.txt' cannot be read: Stale file handle; trying again" in capsys.readouterr().err
    assert (found := source.read(0, 4, None, 10, 0)) is not None
    assert found.record["line"].to_pylist() == ["two"]
    path.unlink()
    path.mkdir()
    for position in (None, 4):
        with pytest.raises(seep.Misuse, match=r"a\.txt' cannot be read: Is a directory"):
            source.read(0, position, None, 10, 0)


def test_a_parquet_file_that_is_damaged_inside_stops_with_a_report(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pa.table({"n": list(range(10_000))}), path)
    source, data = seep.FileSource(path), path.read_bytes()
    path.write_bytes(data[:4] + b"\xff" * 2_000 + data[2_004:])
    with pytest.raises(seep.DataLoss, match="cannot be read") as refused:
        source.read(0, None, None, 100_000, 0)
    assert "\n" not in str(refused.value)


@given(data=st.data(), format=st.sampled_from(["csv", "jsonl", "text"]))
def test_a_file_in_the_place_of_another_is_not_read_on(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, format: str
) -> None:
    """Logs are rotated, and who comes back may find one that is longer than what was read: where a row ends inside of
    it nobody can tell, elsewhere it is said."""
    file = tmp_path_factory.mktemp("rotated") / "log"
    schema = None if format == "text" else {"n": int}

    def written(numbers: list[int]) -> bytes:
        lines = [f'{{"n": {n}}}\n' if format == "jsonl" else f"{n}\n" for n in numbers]
        return "".join(["n\n"] * (format == "csv") + lines).encode()

    numbers = st.lists(st.integers(0, 10**9), min_size=1, max_size=9)
    file.write_bytes(written(data.draw(numbers)))
    source = seep.FileSource(file, format=format, follow=True, schema=schema)
    first = source.read(0, None, None, data.draw(st.integers(1, 9)), 0)
    assert first is not None
    after = written(data.draw(numbers))
    file.write_bytes(after)
    fits = first.position <= len(after) and after[: first.position].endswith(b"\n")
    with contextlib.nullcontext() if fits else pytest.raises(seep.DataLoss, match="was it written anew"):
        found = source.read(0, first.position, None, 100, 0)
        assert found is None or not found.refused


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("no")
    (tmp_path / "a.jsonl").write_text('{"n": 1}\nbroken\n')
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(seep.Misuse, match="is no Parquet file"):
        seep.FileSource(tmp_path / "a.parquet")
    assert seep.FileSource(tmp_path / "a.jsonl").schema.names == ["n"], "a line that is none will be a dead letter"
    with pytest.raises(seep.Misuse, match="is empty; give schema="):
        seep.FileSource(tmp_path / "a.csv")
    rows = seep.FileSource(tmp_path / "a.csv", schema={"n": int}).read(0, None, None, 10, 0)
    assert rows is not None
    assert (rows.record.num_rows, rows.ended) == (0, True)
    flow = seep.Flow("refused")
    nested = flow.source("rows", seep.MemorySource([{"l": [1], "b": b""}]))
    for column in ("l", "b"):
        with pytest.raises(seep.Misuse, match=f"FileSink: column '{column}': CSV has no .*; choose another format"):
            nested.select(column).sink("csv", seep.FileSink(tmp_path, format="csv"))
    with pytest.raises(seep.Misuse, match="JSON has no bytes"):
        nested.sink("jsonl", seep.FileSink(tmp_path, format="jsonl"))


def test_json_is_not_made_to_fit(tmp_path: Path) -> None:
    """A fraction is no int, a number no time; without a schema, lines that are no rows say nothing about columns."""
    lines = [
        '{"n": 1, "at": "2024-01-01"}',
        '{"n": 1.5}',
        '{"n": 2, "at": 1704067200000}',
        '{"n": 2.0}',
        '{"n":',
        "[3]",
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    rows = seep.FileSource(tmp_path / "a.jsonl", schema={"n": int, "at": datetime | None}).read(0, None, None, 10, 0)
    assert rows is not None
    assert rows.record.column("n").to_pylist() == [1, 2]
    assert [row.text for row in rows.refused] == [lines[1], lines[2], lines[4], lines[5]]
    (tmp_path / "b.jsonl").write_text('{"n": 1}\n{"n":\n')
    assert seep.FileSource(tmp_path / "b.jsonl").schema == pa.schema({"n": pa.int64()})
    with pytest.raises(seep.Misuse, match=r"'took': JSON has no duration"):
        seep.FileSource(tmp_path / "a.jsonl", schema={"took": timedelta})


def test_following_takes_only_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("n,te")
    source = seep.FileSource(path, follow=True, schema={"n": int, "text": str})
    assert source.read(0, None, None, 10, 0) is None
    path.write_text('n,text\n1,a\n2,"b\n')
    rows = source.read(0, None, None, 10, 0)
    assert rows is not None
    assert rows.record.to_pylist() == [{"n": 1, "text": "a"}]
    with path.open("a") as file:
        file.write('c"\n3')
    rows = source.read(0, rows.position, None, 10, 0)
    assert rows is not None
    assert rows.record.to_pylist() == [{"n": 2, "text": "b\nc"}]
    assert not rows.ended
    assert source.read(0, rows.position, None, 10, 0) is None


def test_wrong_sources_are_refused(tmp_path: Path) -> None:
    with pytest.raises(seep.Misuse, match="there is no file"):
        seep.FileSource(tmp_path / "none.csv")
    (tmp_path / "a.bin").write_bytes(b"")
    with pytest.raises(seep.Misuse, match="give format="):
        seep.FileSource(tmp_path / "a.bin")
    with pytest.raises(seep.Misuse, match=r"format='xml' of .*a\.bin"):
        seep.FileSource(tmp_path / "a.bin", format="xml")
    with pytest.raises(seep.Misuse, match="MemorySource: 5 is neither rows nor"):
        seep.MemorySource(5)
    with pytest.raises(seep.Misuse, match="either fn or fn_batch"):
        seep.GeneratorSource()
    for wrong in (0, "x", 1.5):
        with pytest.raises(seep.Misuse, match=f"per_epoch={wrong!r}"):
            seep.MemorySource(ROWS, per_epoch=wrong)  # type: ignore[arg-type]


def test_what_a_generators_function_raises_is_said_in_one_line() -> None:
    def fail(number: int) -> dict[str, float]:
        return {"n": 1 / (7 - number)}

    def fail_batch(first: int, count: int) -> pa.RecordBatch:
        raise OSError("no data")

    flow = seep.Flow("failing")
    flow.source("numbers", seep.GeneratorSource(fail, rows=9)).collect("out")
    with pytest.raises(seep.Misuse, match=r"numbers: GeneratorSource: fn\(7\) raises ZeroDivisionError: .*; fix it"):
        seep.run(flow)
    with pytest.raises(seep.Misuse, match=r"GeneratorSource: fn_batch\(0, 1\) raises OSError: no data"):
        seep.GeneratorSource(fn_batch=fail_batch)


# --- sinks ---------------------------------------------------------------------------------------------------------

SCHEMA = pa.schema([("n", pa.int64())])


def record(*numbers: int, bucket: int = 5) -> bytes:
    outlet = OutletPlan("out", seep.MemorySink(), SCHEMA)()
    rows = pa.RecordBatch.from_pydict({"n": list(numbers)}, schema=SCHEMA)
    encoded = outlet.encode(Moment(1, 0, 0, 0), [(0, ArrowBatch(rows, np.full(len(numbers), bucket, np.uint16)))])
    assert encoded is not None
    return encoded


def test_records_are_in_canonical_order_and_the_same_every_time() -> None:
    outlet = OutletPlan("out", seep.MemorySink(), SCHEMA)()
    rows = pa.RecordBatch.from_pydict({"n": [1, 2, 3]}, schema=SCHEMA)
    inputs = [
        (0, ArrowBatch(rows, np.array([9, 2, 9], np.uint16))),
        (1, ArrowBatch(rows, np.array([2] * 3, np.uint16))),
    ]
    encoded = outlet.encode(Moment(1, 0, 0, 0), inputs)
    assert encoded is not None
    assert decode(encoded).column("n").to_pylist() == [2, 1, 2, 3, 1, 3]
    assert outlet.encode(Moment(1, 0, 0, 0), inputs) == encoded
    assert outlet.encode(Moment(1, 0, 0, 0), []) is None
    assert outlet.publish([(1, encoded, False)]) == -1


def test_results_of_several_partitions_come_in_one_order() -> None:
    records = [(2, record(4, bucket=9)), (1, record(2, bucket=9)), (2, record(3, bucket=1)), (1, record(1, bucket=1))]
    table = result_table({"schema": SCHEMA, "table_keys": None}, records)
    assert table.column("n").to_pylist() == [1, 2, 3, 4]
    assert result_table({"schema": SCHEMA, "table_keys": None}, []).num_rows == 0


def test_table_content_is_the_fold_of_changes() -> None:
    changes = pa.table({"k": ["a", "b", None, "a", "b", None], "n": [1, 2, 3, 4, 2, 5]}).append_column(
        "change", pa.array(["insert", "insert", "insert", "update", "delete", "update"])
    )
    assert table_content(changes, ["k"]).to_pylist() == [{"k": "a", "n": 4}, {"k": None, "n": 5}]


@pytest.mark.parametrize("format", ["parquet", "csv", "jsonl"])
def test_files_are_whole_and_written_once(tmp_path: Path, format: str) -> None:
    def numbers() -> list[int]:
        paths = sorted(path for path in (tmp_path / "out").iterdir() if not path.name.startswith("."))
        if format == "parquet":
            return [n for path in paths for n in pyarrow.parquet.read_table(path).column("n").to_pylist()]
        source = [seep.FileSource(path) for path in paths]
        return [row["n"] for one in source for *_, rows in drain(one, 0, [100]) for row in rows]

    plan = OutletPlan("out/x", seep.FileSink(tmp_path / "out", format=format), SCHEMA)
    log = [(epoch, record(epoch, epoch + 1000)) for epoch in range(1, 3 * BLOCK_EPOCHS)]
    outlet = plan()
    kept = 0
    for epoch, data in log[: 2 * BLOCK_EPOCHS + 3]:
        kept = outlet.publish([(epoch, data, False)])
    assert kept == 2 * BLOCK_EPOCHS - 1
    assert numbers() == [n for e in range(1, 2 * BLOCK_EPOCHS) for n in (e, e + 1000)]
    again = plan()
    for epoch, data in log:
        if epoch >= kept:
            again.publish([(epoch, data, epoch == log[-1][0])])
    assert numbers() == [n for e in range(1, 3 * BLOCK_EPOCHS) for n in (e, e + 1000)]
    assert not list((tmp_path / "out").glob(".*"))


def test_files_that_could_not_be_written_are_not_doubled(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("no directory")
    outlet = OutletPlan("out", seep.FileSink(tmp_path / "out", format="jsonl"), SCHEMA)()
    commits = [(epoch, record(epoch), False) for epoch in range(1, 2 * BLOCK_EPOCHS + 2)]
    with pytest.raises(OSError, match="exists"):
        outlet.publish(commits)
    (tmp_path / "out").unlink()
    assert outlet.publish(commits) == 2 * BLOCK_EPOCHS - 1
    lines = [line for path in sorted((tmp_path / "out").iterdir()) for line in path.read_text().splitlines()]
    assert [json.loads(line)["n"] for line in lines] == list(range(1, 2 * BLOCK_EPOCHS))


def test_sources_say_how_far_behind_they_are(tmp_path: Path) -> None:
    memory = seep.MemorySource([{"n": n} for n in range(10)])
    assert (memory.behind(0, None, 0), memory.behind(0, 4, 0)) == (10, 6)
    paced = seep.GeneratorSource(lambda i: {"n": i}, rate=8_000, rows=80_000)
    assert paced.behind(0, None, 5_000) == 1, "the pace begins with the first read"
    assert paced.behind(0, [1, 5_000, 80], 6_000) == 1_000
    assert paced.behind(0, [1, 5_000, 80], 999_000) == 9_999
    assert seep.GeneratorSource(lambda i: {"n": i}, rows=80_000).behind(0, [2_500, 0, 1_000], 0) == 7_500
    assert seep.GeneratorSource(lambda i: {"n": i}).behind(0, [7, 0, 1_000], 0) is None
    table = pa.table({"n": list(range(100))})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert seep.FileSource(tmp_path / "a.parquet").behind(0, 30, 0) == 70
    (tmp_path / "a.txt").write_text("12345678\n" * 50_000)
    lines = seep.FileSource(tmp_path / "a.txt")
    assert lines.behind(0, None, 0) == pytest.approx(50_000, rel=0.01)
    assert lines.behind(0, 9 * 49_990, 0) == 10
    (tmp_path / "a.txt").unlink()
    assert lines.behind(0, None, 0) is None


def test_console(capsys: pytest.CaptureFixture[str]) -> None:
    outlet = OutletPlan("out", seep.ConsoleSink(), SCHEMA)()
    assert outlet.publish([(7, record(1, 2), False)]) == 7
    assert capsys.readouterr().out == 'out: {"n": 1}\nout: {"n": 2}\n'
