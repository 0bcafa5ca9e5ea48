"""`seep diff`: what two savepoints hold differently, by operator, key and split."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import seep
from seep.cli.main import main
from seep.running.difference import _sources, difference_of
from seep.running.savepoint import Savepoint
from tests.golden.flow import build as golden
from tests.saving import save

ROWS = [
    *({"k": key, "n": n} for n, key in enumerate("abcd")),
    *({"k": "a", "n": 10 + n} for n in range(4)),  # a changes
    *({"k": "b", "n": -1} for _ in range(4)),  # b is deleted
    *({"k": "e", "n": 30} for _ in range(4)),  # e is new
    *({"k": "z", "n": 99} for _ in range(200)),
]


def tables(more: bool = False) -> seep.Flow:
    flow = seep.Flow("tables")
    rows = flow.source("rows", seep.MemorySource(ROWS, per_epoch=4)).key_by("k")
    rows.table(deleted=pl.col("n") < 0).named("latest").collect("rows_of")
    if more:
        rows.dedupe().named("more").collect("seen")
    return flow


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Savepoints by the number of rows that were read."""
    folder, found = tmp_path_factory.mktemp("savepoints"), {}
    for epochs in (1, 4, 7, 11, 15):
        saved = save(tables(), folder / str(epochs), epochs)
        found[saved.manifest["sources"]["rows"]["splits"]["0"][1]] = saved.path
    return found


def content(read: int) -> dict[str, int]:
    found = {row["k"]: row["n"] for row in ROWS[:read]}
    return {key: n for key, n in found.items() if n >= 0}


def test_keys_that_came_went_and_changed(places: dict[int, Path]) -> None:
    assert len(places) > 2
    for one, first in places.items():
        for other, second in places.items():
            found = difference_of(Savepoint(first), Savepoint(second))
            before, after = content(one), content(other)
            changed = {k for k in before if k in after and before[k] != after[k]}
            assert found["same"] == (one == other)
            if one == other:
                continue
            assert found["sources"]["changed"] == {"rows": {"0": [one, other]}}
            if before == after:
                assert found["operators"]["changed"] == {}
                continue
            operator = found["operators"]["changed"]["latest"]
            assert operator["keys"] == {
                "added": len(after.keys() - before.keys()),
                "removed": len(before.keys() - after.keys()),
                "changed": len(changed),
                "same": len(before.keys() & after.keys()) - len(changed),
            }
            for example in operator["examples"]["changed"]:
                key = example["key"]["k"]
                assert example["value"]["value.n"] == [before[key], after[key]]
            for kind, there in (("added", after), ("removed", before)):
                for example in operator["examples"][kind]:
                    assert example["value"]["value.n"] == there[example["key"]["k"]]


def test_operators_that_came_and_went(places: dict[int, Path], tmp_path: Path) -> None:
    more = save(tables(more=True), tmp_path / "more", 1)
    less = Savepoint(places[min(places)])
    assert difference_of(less, more)["operators"]["added"] == ["more"]
    assert difference_of(more, less)["operators"]["removed"] == ["more"]


def test_every_kind_of_state_can_be_compared(tmp_path: Path) -> None:
    one, other = save(golden(), tmp_path / "one", 8), save(golden(), tmp_path / "other", 16)
    assert difference_of(one, one)["same"]
    found = difference_of(one, other)["operators"]["changed"]
    assert set(found) == set(one.manifest["operators"]) - {"cities-by-key", "lookup"}
    (example, *_) = found["operator"]["examples"]["changed"]
    was, now = example["value"]["counter"]
    assert (example["key"]["key"][0], now > was) == ("k", True)
    windows = found["tumbling"]["examples"]["added"]
    assert all({"key", "at"} == set(one["key"]) for one in windows)


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    monkeypatch.setenv("SEEP_HOME", str(tmp_path / "home"))

    def diff(*arguments: Any) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["seep", "diff", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        found = capsys.readouterr()
        return int(ended.value.code or 0), found.out, found.err

    return diff


def test_the_command(call: Call, places: dict[int, Path], tmp_path: Path) -> None:
    first, *_, last = (places[read] for read in sorted(places))
    assert call(first, first)[0] == 0
    code, out, _ = call(first, last)
    assert code == 1
    assert "operator latest:" in out
    assert "source rows, split 0:" in out
    code, out, _ = call(first, last, "--json")
    assert (code, json.loads(out)["same"]) == (1, False)
    (tmp_path / "home" / "tables" / "savepoints").mkdir(parents=True)
    (tmp_path / "home" / "tables" / "savepoints" / "v1").symlink_to(first)
    assert call("tables/v1", first)[0] == 0


@pytest.mark.parametrize("given", ["nowhere", "tables/v9", "a/b/c"])
def test_what_is_no_savepoint(call: Call, places: dict[int, Path], given: str) -> None:
    code, out, problem = call(given, places[min(places)])
    assert (code, out) == (2, "")
    assert problem.startswith("seep: there is no savepoint")
    assert problem.count("\n") == 1


def test_where_sources_stood_is_told_by_name_where_numbers_may_be_those_of_others() -> None:
    def stood(files: dict[str, int], named: bool = True) -> dict[str, Any]:
        splits = {str(number): [0, at, 0, False, 0, {}] for number, at in enumerate(files.values())}
        return {"lines": {"splits": splits, **({"names": list(files)} if named else {})}}

    before, after = {"b": 5, "c": 7}, {"a": 2, "b": 6, "c": 7}
    assert _sources(stood(before), stood(after))["changed"] == {"lines": {"a": [None, 2], "b": [5, 6]}}
    older = _sources(stood(before, named=False), stood(after))["changed"]
    assert older == {"lines": {"0": [5, 2], "1": [7, 6], "2": [None, 7]}}
