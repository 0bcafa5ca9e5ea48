"""A savepoint goes only into an app that has a place for all of it."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import seep
from seep.control.planner import first_journal
from seep.flow.compile import compile_flow
from seep.model.arrow import ArrowState
from seep.model.ids import EVERYTHING, Generation, PartitionId
from seep.protocol.effects import Append, FenceStore, Truncate
from seep.running.matching import described, splits_now
from seep.running.savepoint import Savepoint, at_hand, new_savepoint, source_positions
from seep.runtime.stores.directory import DirectoryStore
from seep.runtime.stores.files import Files
from seep.sim.stage import chain
from seep.state.checkpoint import Checkpoint
from seep.state.ipc import Bytes

KNOWN = [7, 7, 0, False, 0, {}]


def flow_of(files: Path, source: str = "lines", operator: bool = False) -> seep.Flow:
    flow = seep.Flow("lines")
    lines = flow.source(source, seep.FileSource(files, format="text"))
    if operator:
        lines.key_by("line").aggregate(n=seep.count()).named("count").collect("counts")
    else:
        lines.collect("all")
    return flow


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    for name in ("a.txt", "b.txt"):
        (tmp_path / "files" / name).write_text("one\ntwo\n")
    return tmp_path / "files"


def saved(path: Path, *operators: str) -> Savepoint:
    sources: dict[str, Any] = {"lines": {"splits": {"0": KNOWN, "1": KNOWN}, "now": 0, "watermark": 0}}
    checkpoints = [
        Checkpoint(PartitionId(name, 0), Generation(1, 0), EVERYTHING, 1, 0, 5, 0, 0, False, ArrowState({}))
        for name in operators
    ]
    graph = compile_flow(flow_of(path / "files", operator=bool(operators)))
    return Savepoint.write(path / "savepoints" / "v1", b"k" * 32, "lines", 5, 9, at_hand(checkpoints), sources, graph)


def test_one_that_fits(tmp_path: Path, files: Path) -> None:
    saved(tmp_path).match(compile_flow(flow_of(files)))


def test_a_source_that_lost_splits_is_refused(tmp_path: Path, files: Path) -> None:
    savepoint = saved(tmp_path)
    (files / "b.txt").unlink()
    with pytest.raises(seep.Misuse, match=r"holds 'b\.txt' of source 'lines', which now has a\.txt"):
        savepoint.match(compile_flow(flow_of(files)))
    del savepoint.manifest["sources"]["lines"]["names"]  # as savepoints were written before
    with pytest.raises(seep.Misuse, match="holds 2 splits of source 'lines', which now has 1"):
        savepoint.match(compile_flow(flow_of(files)))


def test_an_app_without_the_saved_names_is_refused(tmp_path: Path, files: Path) -> None:
    savepoint = saved(tmp_path, "count")
    savepoint.match(compile_flow(flow_of(files, operator=True)))
    with pytest.raises(seep.Misuse, match="another app: this one has no operator 'count'"):
        savepoint.match(compile_flow(flow_of(files)))
    with pytest.raises(seep.Misuse, match="another app: this one has no source 'lines'"):
        savepoint.match(compile_flow(flow_of(files, source="rows", operator=True)))


def test_one_that_could_not_be_written_leaves_nothing(tmp_path: Path, files: Path) -> None:
    good = Checkpoint(PartitionId("count", 0), Generation(1, 0), EVERYTHING, 1, 0, 5, 0, 0, False, ArrowState({}))

    def damaged() -> Checkpoint:
        raise seep.DataLoss("the next one cannot be read")

    graph = compile_flow(flow_of(files, operator=True))
    with pytest.raises(seep.DataLoss, match="cannot be read"):
        Savepoint.write(tmp_path / "v1", b"k" * 32, "lines", 5, 9, [*at_hand([good]), damaged], {}, graph)
    assert not (tmp_path / "v1").exists()


@pytest.mark.parametrize("remainder", [("store",), ("key", "store"), ("key", "store", "manifest.json.7.8.tmp")])
def test_what_a_killed_process_had_begun_is_not_in_the_way(
    tmp_path: Path, files: Path, remainder: tuple[str, ...]
) -> None:
    """The name was taken for ever, and there was no such savepoint."""
    begun = tmp_path / "savepoints" / "v1"
    begun.mkdir(parents=True)
    for name in remainder:
        (begun / name).mkdir() if name == "store" else (begun / name).touch()
    with pytest.raises(seep.Misuse, match="there is no savepoint at"):
        Savepoint(begun)
    assert new_savepoint(tmp_path, "v1") == begun
    assert {one.name for one in saved(tmp_path, "count").path.iterdir()} == {"key", "store", "manifest.json"}


@pytest.mark.parametrize("there", ["manifest.json", "notes.txt", "key", "."])
def test_another_or_what_is_not_ours_is_never_replaced(tmp_path: Path, files: Path, there: str) -> None:
    begun = tmp_path / "savepoints" / "v1"
    begun.mkdir(parents=True)
    (begun / there).touch()
    for write in (lambda: new_savepoint(tmp_path, "v1"), lambda: saved(tmp_path)):
        with pytest.raises(seep.Misuse, match="savepoint 'v1' exists already"):
            write()
    assert (begun / there).exists()


@pytest.mark.parametrize("part", ["key", "manifest.json"])
def test_one_that_a_full_disk_has_ended_leaves_nothing(
    tmp_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    replace = Files.replace

    def full(self: Files, path: Path, parts: Iterable[Bytes]) -> None:
        if path.name == part:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        replace(self, path, parts)

    monkeypatch.setattr(Files, "replace", full)
    with pytest.raises(seep.Retry, match=r"savepoint 'v1' could not be written: .*No space left on device"):
        saved(tmp_path, "count")
    monkeypatch.undo()
    saved(tmp_path, "count").match(compile_flow(flow_of(files, operator=True)))


def test_where_a_source_stood_is_not_taken_for_its_beginning(tmp_path: Path) -> None:
    store, journal = DirectoryStore(tmp_path / "store", b"k" * 32), first_journal(chain())
    source, generation = PartitionId("s", 0), Generation(1, 0)
    record = {"after": 0, "now": 900, "watermark": 5, "splits": {"0": KNOWN}}
    store.perform(FenceStore(1, source, generation))
    store.perform(Append(2, source, generation, 4, record))
    store.perform(Append(3, source, generation, 7, {**record, "after": 4}))
    assert source_positions(store, journal, "s", 3)["splits"] == {}, "it had read nothing by then"
    assert source_positions(store, journal, "s", 6)["splits"] == {"0": KNOWN}
    store.perform(Truncate(source, generation, 7))
    with pytest.raises(seep.Retry, match="where s/0 stood at epoch 6 was forgotten meanwhile"):
        source_positions(store, journal, "s", 6)


def test_files_are_found_again_whatever_stands_beside_them(tmp_path: Path, files: Path) -> None:
    """The number of a file is that of another once a file is there that comes before it."""
    savepoint = saved(tmp_path)
    savepoint.manifest["sources"]["lines"]["splits"] = {"0": [8, 8, *KNOWN[2:]], "1": [4, 4, *KNOWN[2:]]}
    (files / "a0.txt").write_text("three\n")
    (files / "Z.txt").write_text("four\n")
    files = files.rename(tmp_path / "moved")
    found = seep.run(flow_of(files), restore=savepoint_with(savepoint))["all"]["line"].to_pylist()
    assert sorted(found) == ["four", "three", "two"]
    (files / "b.txt").rename(files / "c.txt")
    with pytest.raises(seep.Misuse, match=r"holds 'b\.txt' of source 'lines', which now has Z\.txt, a\.txt") as refused:
        savepoint.match(compile_flow(flow_of(files)))
    assert "\n" not in str(refused.value)


def savepoint_with(changed: Savepoint) -> Path:
    """With the manifest as it is in memory."""
    (changed.path / "manifest.json").write_text(json.dumps(changed.manifest))
    return changed.path


def test_streams_in_another_order_are_read_on_where_they_were() -> None:
    def node_of(*streams: str) -> Any:
        flow = seep.Flow("streams")
        url = "redis://127.0.0.1:1/0"
        flow.source("rows", seep.RedisStreamSource(list(streams), url=url, schema={"n": int})).collect("all")
        return compile_flow(flow).nodes["rows"]

    source = {**described(node_of("a", "b")), "splits": {"0": ["1-0"] * 2, "1": ["2-0"] * 2}}
    assert splits_now("v1", node_of("c", "b", "a"), source) == {2: ("0", "1-0"), 1: ("1", "2-0")}
    del source["names"]  # as savepoints were written before
    assert splits_now("v1", node_of("a", "b"), source) == {0: ("0", "1-0"), 1: ("1", "2-0")}
    with pytest.raises(seep.Misuse, match="a stream is there twice"):
        node_of("a", "a")
