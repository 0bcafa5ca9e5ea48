"""Savepoints of released versions go on exactly: what comes out after them is computed in plain Python."""

from __future__ import annotations

import statistics
import tarfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import seep
from seep.running.savepoint import Savepoint
from tests.golden.flow import CITIES, GAP, NEAR, START, STEP, WINDOW, Row, build, rows

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("*.tar.xz"))
ROWS = rows()


class Golden:
    """One savepoint, and what came out of the flow that went on from it."""

    def __init__(self, archive: Path, folder: Path) -> None:
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
        self.saved = Savepoint(folder / "savepoint")
        self.result = seep.run(build(), restore=folder / "savepoint")
        split = self.saved.manifest["sources"]["rows"]["splits"]["0"]
        self.read: int = split[1]
        """So many rows were read before it."""
        self.watermark = ROWS[self.read - 1].at

    def rows_of(self, name: str) -> list[dict[str, Any]]:
        return self.result[name].to_pylist()

    def by_key(self, name: str) -> dict[str, dict[str, Any]]:
        return {row["key"]: row for row in self.rows_of(name)}


@pytest.fixture(scope="module", params=GOLDEN, ids=lambda path: path.name.removesuffix(".tar.xz"))
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Golden:
    return Golden(request.param, tmp_path_factory.mktemp("golden"))


def of_key(given: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in given:
        found[row.key].append(row)
    return found


def test_there_is_one_and_it_was_taken_in_the_middle(golden: Golden) -> None:
    assert 20 < golden.read < len(ROWS) - 20
    assert len(of_key(ROWS[: golden.read])) == len(of_key(ROWS[golden.read :])) == len(CITIES)


def test_aggregates(golden: Golden) -> None:
    found = golden.by_key("aggregated")
    for key, given in of_key(ROWS).items():
        row, values = found[key], [one.n for one in given]
        assert (row["count"], row["total"], int(row["wide"])) == (len(values), sum(values), sum(values))
        assert row["mean"] == pytest.approx(statistics.fmean(one.x for one in given))
        assert (row["least"], row["text"], row["kinds"]) == (min(values), key, len(set(values)))
        assert row["variance"] == pytest.approx(statistics.variance(values))
        assert row["median"] == statistics.median(values)
        assert row["about"] == pytest.approx(len(set(values)), rel=0.1)
        assert row["near"] == pytest.approx(statistics.median(values), rel=0.1, abs=40)
        assert (row["first"], row["last"]) == (values[0], values[-1])
        assert [one["n"] for one in row["best"]] == sorted(values, reverse=True)[:2]
        assert [one["n"] for one in row["rows"]] == values


def windows(step: timedelta) -> dict[tuple[str, Any], list[int]]:
    found: dict[tuple[str, Any], list[int]] = defaultdict(list)
    for row in ROWS:
        start = START + (row.at - START) // step * step
        while start + WINDOW > row.at:
            found[row.key, start].append(row.n)
            start -= step
    return found


@pytest.mark.parametrize(("name", "step"), [("tumbled", WINDOW), ("slid", STEP)])
def test_windows(golden: Golden, name: str, step: timedelta) -> None:
    found = {(row["key"], row["window_start"]): (row["n"], row["sum"]) for row in golden.rows_of(name)}
    wanted = {
        (key, start): (len(values), sum(values))
        for (key, start), values in windows(step).items()
        if start + WINDOW > golden.watermark
    }
    assert found == wanted
    assert any(start < golden.watermark for _, start in wanted)


def test_sessions(golden: Golden) -> None:
    wanted = set()
    for key, given in of_key(ROWS).items():
        held = [given[0]]
        for row in [*given[1:], None]:
            if row is not None and row.at - held[-1].at < GAP:
                held.append(row)
                continue
            wanted.add((key, held[0].at, held[-1].at + GAP, len(held), sum(one.n for one in held)))
            held = [row] if row is not None else held
    found = {
        tuple(row[c] for c in ("key", "window_start", "window_end", "n", "sum")) for row in golden.rows_of("sessions")
    }
    assert found == {one for one in wanted if one[2] > golden.watermark}


def test_windows_by_count(golden: Golden) -> None:
    wanted = []
    for key, given in of_key(ROWS).items():
        seen = sum(row.key == key for row in ROWS[: golden.read])
        for first in range(seen // 4 * 4, len(given), 4):
            part = [row.n for row in given[first : first + 4]]
            wanted.append((key, len(part), sum(part)))
    assert sorted((r["key"], r["n"], r["sum"]) for r in golden.rows_of("fours")) == sorted(wanted)


def test_joins(golden: Golden) -> None:
    wanted = [
        (one.key, one.n, other.n)
        for i, one in enumerate(ROWS)
        for j, other in enumerate(ROWS)
        if one.key == other.key and abs(one.at - other.at) <= NEAR and max(i, j) >= golden.read
    ]
    assert sorted((r["key"], r["n"], r["n_right"]) for r in golden.rows_of("pairs")) == sorted(wanted)
    cities = {row["key"]: row["city"] for row in CITIES}
    located = [(row["key"], row["n"], row["city"]) for row in golden.rows_of("located")]
    assert sorted(located) == sorted((row.key, row.n, cities[row.key]) for row in ROWS[golden.read :])


def test_tables(golden: Golden) -> None:
    latest = {key: given[-1] for key, given in of_key(ROWS).items() if given[-1] in ROWS[golden.read :]}
    assert {key: row["n"] for key, row in golden.by_key("current").items()} == {k: row.n for k, row in latest.items()}
    reduced = {key: (row["n"], row["x"]) for key, row in golden.by_key("reduced").items()}
    assert reduced == {k: (max(r.n for r in g), sum(r.x for r in g)) for k, g in of_key(ROWS).items() if k in latest}


def test_the_largest(golden: Golden) -> None:
    """Of a Table only what changes is seen again."""
    for row in golden.rows_of("largest"):
        values = sorted((one.n for one in of_key(ROWS)[row["key"]]), reverse=True)
        assert row["n"] == values[row["rank"] - 1]


def test_what_was_seen_before_is_not_seen_again(golden: Golden) -> None:
    seen: set[tuple[str, int]] = set()
    wanted = []
    for at, row in enumerate(ROWS):
        one = (row.key, abs(row.n) % 11)
        if one not in seen and at >= golden.read:
            wanted.append(one)
        seen.add(one)
    assert sorted((row["key"], row["m"]) for row in golden.rows_of("unseen")) == sorted(wanted)


def held_by(key: str, given: list[Row], first: int, watermark: Any) -> Iterable[str]:
    """What `Remembers` says from a key's row `first` on."""
    entries: dict[str, float] = {}
    for at, row in enumerate(given):
        entries[f"m{row.n % 4}"] = row.x
        seen = given[: at + 1]
        if at >= first:
            last = [one.n for one in seen][-3:]
            yield repr([row.n, at + 1, last, sorted(entries.items()), sorted({one.n % 5 for one in seen})])
        due = row.at + timedelta(seconds=30)
        if at % 5 == 0 and due > watermark:
            yield f"timer {due.isoformat()}"


def test_users_operators(golden: Golden) -> None:
    wanted = []
    for key, given in of_key(ROWS).items():
        first = sum(row.key == key for row in ROWS[: golden.read])
        wanted += [(key, said) for said in held_by(key, given, first, golden.watermark)]
    assert sorted((row["key"], row["held"]) for row in golden.rows_of("remembered")) == sorted(wanted)
    totals: Callable[[str], int] = lambda key: sum(row.n for row in of_key(ROWS)[key])  # noqa: E731
    assert all(row["total"] == totals(key) for key, row in golden.by_key("totals").items())
