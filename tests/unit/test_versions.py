"""A savepoint of one version of a flow, restored into another: what fits goes on exactly, the rest is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import seep
from seep.running.savepoint import Savepoint
from tests.saving import save

ROWS, KEYS, EPOCH_ROWS, SAVED_EPOCHS = 120, 6, 6, 8
SALE = {"k": pa.string(), "n": pa.int64()}
OUT = {"k": str, "n": int, "held": int}

Build = Callable[[seep.Stream], Any]


def rows(schema: dict[str, pa.DataType], first: int = 0) -> pa.Table:
    values = {"k": [f"k{i % KEYS}" for i in range(ROWS)], "n": list(range(ROWS)), "more": [i * i for i in range(ROWS)]}
    return pa.table({name: pa.array(values[name], kind) for name, kind in schema.items()})


def flow_of(build: Build, schema: dict[str, pa.DataType] = SALE, source: str = "sales") -> seep.Flow:
    flow = seep.Flow("versions")
    build(flow.source(source, seep.MemorySource(rows(schema), per_epoch=EPOCH_ROWS)).key_by("k"))
    return flow


def counting(stream: seep.Stream, name: str = "count", **more: Any) -> None:
    stream.aggregate(count=seep.count(), sum=seep.total("n"), **more).named(name).changes().collect("counts")


def latest(stream: seep.Stream) -> None:
    stream.table().named("latest").changes().collect("rows")


def goes_on(path: Path, flow: seep.Flow, **asked: Any) -> seep.Result:
    return seep.run(flow, on="inline", restore=path, **asked)


def final(result: pa.Table) -> dict[str, dict[str, Any]]:
    return {row["k"]: row for row in result.to_pylist()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "v1"


def refused(path: Path, flow: seep.Flow, what: str, **asked: Any) -> None:
    with pytest.raises(seep.Misuse, match=what):
        goes_on(path, flow, **asked)


# --- names -------------------------------------------------------------------------------------------------------


def test_the_same_flow_goes_on_exactly_with_another_parallelism(path: Path) -> None:
    saved = save(flow_of(counting), path, SAVED_EPOCHS)
    read = saved.manifest["sources"]["sales"]["splits"]["0"][1]
    wide = flow_of(lambda s: s.aggregate(count=seep.count(), sum=seep.total("n")).named("count").scale(start=3)
                   .changes().collect("counts"))  # fmt: skip
    found = goes_on(path, wide)["counts"]
    assert set(found.column("change").to_pylist()) == {"update"}
    assert found.num_rows == ROWS - read
    for at in range(KEYS):
        row = final(found)[f"k{at}"]
        assert (row["count"], row["sum"]) == (ROWS // KEYS, sum(range(at, ROWS, KEYS)))


def test_an_operator_that_was_added_begins_empty(path: Path) -> None:
    saved = save(flow_of(counting), path, SAVED_EPOCHS)
    read = saved.manifest["sources"]["sales"]["splits"]["0"][1]

    def both(stream: seep.Stream) -> None:
        counting(stream)
        stream.aggregate(seen=seep.count()).named("new").changes().collect("seen")

    result = goes_on(path, flow_of(both))
    assert sum(row["count"] for row in final(result["counts"]).values()) == ROWS
    assert sum(row["seen"] for row in final(result["seen"]).values()) == ROWS - read


def test_an_operator_that_is_gone_is_dropped_only_when_asked(path: Path) -> None:
    def both(stream: seep.Stream) -> None:
        counting(stream)
        latest(stream)

    save(flow_of(both), path, SAVED_EPOCHS)
    refused(path, flow_of(counting), "no operator 'latest' to put its saved state into")
    assert (
        sum(row["count"] for row in final(goes_on(path, flow_of(counting), drop=["latest"])["counts"]).values()) == ROWS
    )


def test_what_is_dropped_and_still_there_begins_empty(path: Path) -> None:
    saved = save(flow_of(counting), path, SAVED_EPOCHS)
    read = saved.manifest["sources"]["sales"]["splits"]["0"][1]
    found = final(goes_on(path, flow_of(counting), drop=["count"])["counts"])
    assert sum(row["count"] for row in found.values()) == ROWS - read
    # Of a source: it is read from its beginning, into what has been counted before.
    again = final(goes_on(path, flow_of(counting), drop=["sales"])["counts"])
    assert sum(row["count"] for row in again.values()) == ROWS + read


def test_names_that_have_changed(path: Path) -> None:
    save(flow_of(counting), path, SAVED_EPOCHS)
    other = flow_of(lambda s: counting(s, "tally"), source="tills")
    refused(path, other, "no operator 'count' to put its saved state into")
    refused(path, other, "no source 'sales' to put its saved state into", rename={"count": "tally"})
    found = final(goes_on(path, other, rename={"count": "tally", "sales": "tills"})["counts"])
    assert sum(row["count"] for row in found.values()) == ROWS


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        ({"rename": {"cont": "count"}}, "rename cont=count: savepoint 'v1' has no 'cont'; it has count, sales"),
        ({"rename": {"count": "tally"}}, "rename count=tally: the app has no 'tally'"),
        ({"rename": {"count": "sales"}}, "'sales' of savepoint 'v1' goes there, too"),
        ({"drop": ["counts"]}, "drop counts: savepoint 'v1' has nothing of that name"),
        ({"drop": ["count.items"]}, "drop count.items: savepoint 'v1' has nothing of that name"),
    ],
)
def test_names_that_are_none(path: Path, asked: dict[str, Any], what: str) -> None:
    save(flow_of(counting), path, SAVED_EPOCHS)
    refused(path, flow_of(counting), what, **asked)


def test_rename_and_drop_need_a_savepoint() -> None:
    with pytest.raises(seep.Misuse, match="give restore= with them"):
        seep.run(flow_of(counting), drop=["count"])


def test_an_operator_that_kept_nothing_may_become_any_other(path: Path) -> None:
    def told(name: str) -> Build:
        def build(stream: seep.Stream) -> None:
            kept = stream.shuffle().named("op") if name == "shuffle" else stream.apply(First, out=OUT).named("op")
            kept.collect("rows")

        return build

    saved = save(flow_of(told("shuffle")), path, SAVED_EPOCHS)
    read = saved.manifest["sources"]["sales"]["splits"]["0"][1]
    assert goes_on(path, flow_of(told("apply")))["rows"].num_rows == ROWS - read


# --- columns -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [(pa.int32(), pa.int64()), (pa.uint32(), pa.int64()), (pa.int32(), pa.float64()), (pa.float32(), pa.float64())],
)
def test_a_wider_column(path: Path, before: pa.DataType, after: pa.DataType) -> None:
    saved = save(flow_of(latest, {**SALE, "n": before}), path, SAVED_EPOCHS)
    read = saved.manifest["sources"]["sales"]["splits"]["0"][1]
    flow = flow_of(latest, {**SALE, "n": after})
    result = goes_on(path, flow)["rows"]
    assert result.schema.field("n").type == after
    assert set(result.column("change").to_pylist()) == {"update"}
    assert sorted(row["n"] for row in result.to_pylist()) == list(range(read, ROWS))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (pa.int64(), pa.int32()),
        (pa.int64(), pa.float64()),
        (pa.int32(), pa.uint64()),
        (pa.int64(), pa.decimal128(20, 0)),
    ],
)
def test_another_type_is_refused_with_operator_and_column(path: Path, before: pa.DataType, after: pa.DataType) -> None:
    save(flow_of(latest, {**SALE, "n": before}), path, SAVED_EPOCHS)
    what = re.escape(f"operator 'latest' its column 'n' was a {before} and is a {after} now")
    refused(path, flow_of(latest, {**SALE, "n": after}), what)


def test_an_added_column_is_null_and_a_removed_one_must_be_dropped(path: Path, tmp_path: Path) -> None:
    def by_change(stream: seep.Stream) -> None:
        table = stream.filter(lambda row: row.n < 60).table().named("latest")
        stream.filter(lambda row: row.n >= 90).join_table(table).named("look").collect("rows")

    save(flow_of(by_change), path, SAVED_EPOCHS + 4)
    wider = flow_of(by_change, {**SALE, "more": pa.int64()})
    result = goes_on(path, wider)["rows"].to_pylist()
    assert {row["more_right"] for row in result} == {None}
    save(flow_of(by_change, {**SALE, "more": pa.int64()}), tmp_path / "v2", SAVED_EPOCHS + 4)
    refused(
        tmp_path / "v2", flow_of(by_change), "has no place for 'more', which was saved; to lose it, drop 'latest.more'"
    )
    drop = ["latest.more", "look.more"]
    assert goes_on(tmp_path / "v2", flow_of(by_change), drop=drop)["rows"].num_rows == len(result)


# --- aggregates, windows, keys -----------------------------------------------------------------------------------


def test_an_added_aggregate_begins_empty_and_a_removed_one_must_be_dropped(path: Path, tmp_path: Path) -> None:
    saved = save(flow_of(counting), path, SAVED_EPOCHS)
    read = saved.manifest["sources"]["sales"]["splits"]["0"][1]
    more = {"seen": seep.count(), "least": seep.minimum("n"), "kinds": seep.distinct("n"), "letter": seep.minimum("k")}
    wider = flow_of(lambda s: counting(s, **more))
    found = final(goes_on(path, wider)["counts"])
    assert sum(row["count"] for row in found.values()) == ROWS
    assert sum(row["seen"] for row in found.values()) == sum(row["kinds"] for row in found.values()) == ROWS - read
    assert min(row["least"] for row in found.values()) == read
    assert all(row["letter"] == key for key, row in found.items())
    save(wider, tmp_path / "v2", SAVED_EPOCHS)
    refused(tmp_path / "v2", flow_of(counting), "has no place for 'seen', which was saved")
    drop = [f"count.{name}" for name in more]
    found = final(goes_on(tmp_path / "v2", flow_of(counting), drop=drop)["counts"])
    assert sum(row["count"] for row in found.values()) == ROWS


def test_an_aggregate_of_a_wider_type(path: Path) -> None:
    def kept(stream: seep.Stream) -> None:
        counting(stream, most=seep.maximum("n"), kinds=seep.distinct("n"), end=seep.last("n"), half=seep.median("n"))

    save(flow_of(kept, {**SALE, "n": pa.int32()}), path, SAVED_EPOCHS)
    found = final(goes_on(path, flow_of(kept))["counts"])
    for at in range(KEYS):
        values = range(at, ROWS, KEYS)
        row = found[f"k{at}"]
        assert (row["sum"], row["most"], row["kinds"]) == (sum(values), max(values), len(values))
        assert (row["end"], row["half"]) == (values[-1], (values[9] + values[10]) / 2)


def windowed(size: str = "1m", **more: Any) -> Build:
    def build(stream: seep.Stream) -> None:
        stream.window(seep.tumbling(size, by="arrival"), n=seep.count(), **more).named("window").collect("rows")

    return build


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda s: counting(s, "op", x=seep.maximum("n")), "its column 'x' was a minimum and is a maximum now"),
        (
            lambda s: counting(s, "op", x=seep.minimum("k")),
            "its column 'x' was a minimum of int64 and is one of string",
        ),
        (
            lambda s: s.table().named("op").changes().collect("x"),
            "was a aggregate when it was saved and is a table now",
        ),
        (
            lambda s: counting(s.key_by("n"), "op", x=seep.minimum("n")),
            "was keyed by k when it was saved and is by n now",
        ),
        (lambda s: counting(s.key_by("k", "n"), "op", x=seep.minimum("n")), "was keyed by k when .* is by k, n now"),
    ],
)
def test_state_that_means_something_else_is_refused(path: Path, build: Build, what: str) -> None:
    save(flow_of(lambda s: counting(s, "op", x=seep.minimum("n"))), path, SAVED_EPOCHS)
    refused(path, flow_of(build), f"operator 'op' {what}")


def test_another_window_is_refused(path: Path) -> None:
    save(flow_of(windowed()), path, SAVED_EPOCHS)
    refused(path, flow_of(windowed("5m")), "operator 'window' had size_us=60000000 when it was saved and has 300000000")
    assert goes_on(path, flow_of(windowed(total=seep.total("n"))))["rows"].num_rows == KEYS


def test_another_kind_of_source_is_refused(path: Path) -> None:
    save(flow_of(counting), path, SAVED_EPOCHS)
    flow = seep.Flow("versions")
    counting(flow.source("sales", seep.GeneratorSource(lambda i: {"k": "a", "n": i}, rows=9)).key_by("k"))
    refused(path, flow, "source 'sales' was a MemorySource when savepoint 'v1' was taken and is a GeneratorSource now")
    assert final(goes_on(path, flow, drop=["sales"])["counts"])["a"]["count"] == 9


# --- a user's operators ------------------------------------------------------------------------------------------


class First(seep.Operator):
    """What other versions of it start from."""

    seen = seep.ListState(int)
    total = seep.ValueState(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> None:
        self.seen.append(row.n)
        self.total.value += row.n
        ctx.emit({"k": ctx.key, "n": self.total.value, "held": len(self.seen)})


class Grown(First):
    rows = seep.CounterState()

    def on_row(self, row: Any, ctx: Any) -> None:
        self.rows.add(1)
        super().on_row(row, ctx)
        ctx.emit({"k": ctx.key, "n": -self.rows.value, "held": 0})


class Shrunk(seep.Operator):
    total = seep.ValueState(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> None:
        self.total.value += row.n
        ctx.emit({"k": ctx.key, "n": self.total.value, "held": 0})


class Changed(seep.Operator):
    """The list has become a map, the number a text."""

    seen = seep.MapState(int, bool)
    total = seep.ValueState(str, default="0")
    state_version = 2

    def migrate(self, states: dict[str, Any], version: int) -> dict[str, Any]:
        assert version == 1
        return {"seen": dict.fromkeys(states["seen"], True), "total": str(states["total"])}

    def on_row(self, row: Any, ctx: Any) -> None:
        self.seen[row.n] = True
        self.total.value = str(int(self.total.value) + row.n)
        ctx.emit({"k": ctx.key, "n": int(self.total.value), "held": len(self.seen)})


class Wrong(Changed):
    def migrate(self, states: dict[str, Any], version: int) -> dict[str, Any]:
        return {"sean": {}}


class Failing(Changed):
    def migrate(self, states: dict[str, Any], version: int) -> dict[str, Any]:
        raise KeyError("no such thing")


class Retyped(seep.Operator):
    seen = seep.SetState(int)
    total = seep.ValueState(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> None:
        raise AssertionError


def applied(operator: Any) -> seep.Flow:
    return flow_of(lambda s: s.apply(operator, out=OUT).named("user").collect("rows"))


def test_a_state_that_was_added_begins_empty(path: Path) -> None:
    save(applied(First), path, SAVED_EPOCHS)
    found = goes_on(path, applied(Grown))["rows"].to_pylist()
    totals = {row["k"]: row["n"] for row in found if row["n"] >= 0}
    assert totals == {f"k{at}": sum(range(at, ROWS, KEYS)) for at in range(KEYS)}
    assert {row["k"]: row["n"] for row in found if row["n"] < 0} == {f"k{at}": -10 for at in range(KEYS)}


def test_a_state_that_is_gone_must_be_dropped(path: Path) -> None:
    save(applied(First), path, SAVED_EPOCHS)
    refused(
        path, applied(Shrunk), "operator 'user' has no place for 'seen', which was saved; to lose it, drop 'user.seen'"
    )
    found = goes_on(path, applied(Shrunk), drop=["user.seen"])["rows"]
    assert {k: row["n"] for k, row in final(found).items()} == {
        f"k{at}": sum(range(at, ROWS, KEYS)) for at in range(KEYS)
    }


def test_a_users_migration(path: Path, tmp_path: Path) -> None:
    save(applied(First), path, SAVED_EPOCHS)
    found = final(goes_on(path, applied(Changed))["rows"])
    for at in range(KEYS):
        assert (found[f"k{at}"]["n"], found[f"k{at}"]["held"]) == (sum(range(at, ROWS, KEYS)), ROWS // KEYS)
    # Its own savepoint needs no migration: it is not asked (and would stumble over the version).
    save(applied(Changed), tmp_path / "v2", SAVED_EPOCHS)
    again = final(goes_on(tmp_path / "v2", applied(Changed))["rows"])
    assert {k: row["held"] for k, row in again.items()} == {k: row["held"] for k, row in found.items()}


@pytest.mark.parametrize(
    ("operator", "what"),
    [
        (Retyped, r"its state 'seen' was a ListState of .* and is a SetState of .* now; write a migrate\(\)"),
        (
            Wrong,
            "cannot be restored: migrate gave {'sean': {}} for the key 'k[0-5]'; give a dict of its states: seen",
        ),
        (Failing, "cannot be restored: migrate fails for the key 'k[0-5]': KeyError: 'no such thing'"),
    ],
)
def test_states_that_do_not_fit(path: Path, operator: Any, what: str) -> None:
    save(applied(First), path, SAVED_EPOCHS)
    refused(path, applied(operator), f"operator 'user' {what}")


class Totals(seep.BatchOperator):
    totals = seep.TableState({"total": pa.int32()})

    def on_batch(self, batch: pa.RecordBatch, ctx: Any) -> None:
        table = pa.Table.from_batches([batch]).group_by("k").aggregate([("n", "sum")]).combine_chunks()
        new = table.to_batches()[0]
        known = self.totals.get(new.select(["k"]))["total"].to_pylist()
        sums = [(old or 0) + more for old, more in zip(known, new["n_sum"].to_pylist(), strict=True)]
        self.totals.put(self.rows(new["k"], sums))
        ctx.emit(pa.record_batch({"k": new["k"], "n": pa.array(sums, pa.int64())}))

    def rows(self, keys: pa.Array, sums: list[int]) -> pa.RecordBatch:
        return pa.record_batch({"k": keys, "total": pa.array(sums, pa.int32())})


class WideTotals(Totals):
    totals = seep.TableState({"total": pa.int64(), "note": pa.string()})

    def rows(self, keys: pa.Array, sums: list[int]) -> pa.RecordBatch:
        return pa.record_batch(
            {"k": keys, "total": pa.array(sums, pa.int64()), "note": pa.nulls(len(sums), pa.string())}
        )


def test_the_tables_of_a_batch_operator(path: Path, tmp_path: Path) -> None:
    def batches(operator: Any) -> seep.Flow:
        return flow_of(lambda s: s.apply(operator, out={"k": str, "n": int}).named("user").collect("rows"))

    save(batches(Totals), path, SAVED_EPOCHS)
    wanted = {f"k{at}": sum(range(at, ROWS, KEYS)) for at in range(KEYS)}
    assert {k: row["n"] for k, row in final(goes_on(path, batches(WideTotals))["rows"]).items()} == wanted
    save(batches(WideTotals), tmp_path / "v2", SAVED_EPOCHS)
    refused(tmp_path / "v2", batches(Totals), "operator 'user' its column 'total' was a int64 and is a int32 now")


# --- the savepoint itself ----------------------------------------------------------------------------------------


def test_a_savepoint_of_another_format_and_a_damaged_manifest(path: Path) -> None:
    manifest = save(flow_of(counting), path, SAVED_EPOCHS).manifest
    (path / "manifest.json").write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(seep.Misuse, match="has the format 99; this version of seep reads 1"):
        Savepoint(path)
    (path / "manifest.json").write_text("{")
    with pytest.raises(seep.DataLoss, match="is damaged"):
        Savepoint(path)


def test_a_file_is_no_savepoint(tmp_path: Path) -> None:
    (tmp_path / "v1").write_text("")
    with pytest.raises(seep.Misuse, match="there is no savepoint"):
        Savepoint(tmp_path / "v1")
