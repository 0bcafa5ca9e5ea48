"""The verbs on app files: a good one, a wrong one, none at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from seep.cli.main import main
from seep.errors import Misuse
from tests.saving import save

APP = """
import seep

flow = seep.Flow("words")
words = flow.source("words", seep.MemorySource([{"word": "a"}, {"word": "b"}, {"word": "a"}]))
words.key_by("word").aggregate(n=seep.count()).named("count").collect("counts")
"""

SVG = "{http://www.w3.org/2000/svg}"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("SEEP_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "path", list(sys.path))

    def call(verb: str, source: str, *arguments: str) -> tuple[int, str, str]:
        path = tmp_path / "app.py"
        path.write_text(source)
        monkeypatch.setattr(sys, "argv", ["seep", verb, str(path), *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        found = capsys.readouterr()
        return int(ended.value.code or 0), found.out, found.err

    return call


def test_run_inline(run: Run) -> None:
    assert run("run", APP, "--on", "inline") == (0, "words has ended\n  counts: 2 rows\n", "")
    code, out, _ = run("run", APP, "--on", "inline", "--json")
    assert (code, json.loads(out)) == (0, {"flow": "words", "state": "ended", "rows": {"counts": 2}})


def test_run_local(run: Run) -> None:
    code, out, problem = run("run", APP, "--json")
    assert (code, problem) == (0, "")
    assert json.loads(out.splitlines()[-1]) == {"flow": "words", "state": "ended", "rows": {"counts": 2}}


def test_what_a_console_sink_prints_is_on_the_console(run: Run) -> None:
    app = APP.replace('.collect("counts")', '.changes().sink("screen", seep.ConsoleSink())')
    rows = [{"word": "a", "n": 2, "change": "insert"}, {"word": "b", "n": 1, "change": "insert"}]
    code, out, problem = run("run", app)
    assert (code, problem) == (0, "")
    assert sorted(line for line in out.splitlines() if line.startswith("screen: ")) == [
        f"screen: {json.dumps(row)}" for row in rows
    ]
    for on in ("local", "inline"):
        told = [json.loads(line) for line in run("run", app, "--json", "--on", on)[1].splitlines()]
        assert sorted(one["row"]["word"] for one in told if one.get("sink") == "screen") == ["a", "b"]


PRINTING = """
import seep

def shown(row):
    print("screen: {row}", row.n)
    return {"n": row.n}

def build():
    print("built")
    return flow

print("loaded")
flow = seep.Flow("printing")
numbers = flow.source("numbers", seep.MemorySource([{"n": 1}, {"n": 2}])).map(shown, schema={"n": int})
"""


@pytest.mark.parametrize("end", ['numbers.collect("all")', 'numbers.sink("screen", seep.ConsoleSink())'])
def test_what_an_app_prints_is_not_among_machine_readable_lines(run: Run, end: str) -> None:
    app = f"{PRINTING}{end}\n"
    for verb, *options in (("check",), ("graph",), ("run", "--on", "inline"), ("run", "--on", "local")):
        code, out, problem = run(verb, app, *options, "--json")
        assert code == 0
        assert all(isinstance(json.loads(line), dict) for line in out.splitlines())
        assert problem.splitlines()[:2] == ["loaded", "built"]
        if "inline" in options:
            assert problem.splitlines()[2:] == ["screen: {row} 1", "screen: {row} 2"]
    ElementTree.fromstring(run("graph", app, "--format", "svg")[1])


@pytest.mark.parametrize("more", ["again = flow", "def build(): return flow"])
def test_a_flow_of_two_names_is_one(run: Run, more: str) -> None:
    assert run("check", f"{APP}\n{more}\n") == (0, "words: ok\n", "")
    assert run("run", f"{APP}\n{more}\n", "--on", "inline")[0] == 0


@pytest.mark.parametrize("option", ["--resume", "--store=redis://127.0.0.1:1/0", "--master=local"])
def test_an_inline_run_refuses_what_it_would_pass_over(run: Run, option: str) -> None:
    code, out, problem = run("run", APP, "--on", "inline", option)
    assert (code, out) == (2, "")
    assert problem.startswith(f"seep: {option.partition('=')[0]} is nothing for --on inline")


def test_debug_behind_the_verb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["--debug", "check", "none.py"], ["check", "none.py", "--debug"]):
        monkeypatch.setattr(sys, "argv", ["seep", *arguments])
        with pytest.raises(Misuse, match=r"none\.py is not a file"):
            main()


def test_check_and_graph(run: Run) -> None:
    assert run("check", APP) == (0, "words: ok\n", "")
    code, out, _ = run("graph", APP)
    assert code == 0
    assert out.startswith("flowchart LR\n")
    assert "-->" in out
    assert {n["kind"] for n in json.loads(run("graph", APP, "--json")[1])["nodes"]} == {"source", "operator", "sink"}


def test_graph_as_text_and_as_a_picture(run: Run) -> None:
    assert run("graph", APP, "--format", "text")[1].splitlines() == [
        "words",
        "  words (source) -> count",
        "  count (operator) -> counts",
        "  counts (sink)",
    ]
    code, out, _ = run("graph", APP.replace('"count"', '"a<b"'), "--format", "svg", "--plan")
    picture = ElementTree.fromstring(out)
    assert code == 0
    assert [text.text for text in picture.iter(f"{SVG}text")] == ["words", "a<b", "counts"]
    assert len([path for path in picture.findall(f"{SVG}path") if path.get("marker-end")]) == 2
    lefts = [float(box.attrib["x"]) for box in picture.iter(f"{SVG}rect")]
    assert lefts == sorted(set(lefts))
    assert run("graph", APP, "--format", "dot") == (2, "", "seep: --format dot: there are text, mermaid, svg\n")


def test_graph_says_what_is_folded_and_why(run: Run) -> None:
    more = """
import polars as pl
halves = words.filter(pl.col("word") != "c").with_columns(x=pl.lit(0.5)).key_by("word")
halves.aggregate(x=seep.total("x")).named("halves").collect("sums")
"""
    code, out, _ = run("graph", APP + more, "--plan")
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("%%")] == [
        "%% words (source)",
        "%%   runs filter, with_columns itself, since they need no state",
        "%% count (operator, aggregate)",
        "%%   rows of words are sent by key (word)",
        "%%   rows are folded before they travel, by words: its aggregates merge exactly in any grouping",
        "%%   hot keys: folded at the sender, to one part for each sender, epoch and window",
        "%% counts (sink)",
        "%%   rows of count are sent by origin: a row stays in its bucket",
        "%% halves (operator, aggregate)",
        "%%   rows of words are sent by key (word)",
        "%%   rows travel as they are: x = total('x') adds floats, whose result depends on the order",
        "%%   hot keys: all rows of a key go to one place, since its rows cannot be folded",
        "%% sums (sink)",
        "%%   rows of halves are sent by origin: a row stays in its bucket",
    ]
    plan = json.loads(run("graph", APP + more, "--plan", "--json")[1])["plan"]
    assert {entry["node"]: entry.get("folded_by") for entry in plan} == {
        "words": None,
        "count": ["words"],
        "counts": None,
        "halves": [],
        "sums": None,
    }


TWO = """
import seep

def flow(name, rows):
    made = seep.Flow(name)
    made.source("rows", seep.MemorySource([{"n": i} for i in range(rows)])).collect("kept")
    return made

one, two = flow("one", 1), flow("two", 2)
"""


def test_several_flows_of_an_app_all_run(run: Run) -> None:
    ended = [{"flow": name, "state": "ended", "rows": {"kept": rows}} for name, rows in (("one", 1), ("two", 2))]
    code, out, problem = run("run", TWO, "--on", "inline", "--json")
    assert (code, list(map(json.loads, out.splitlines())), problem) == (0, ended, "")
    code, out, _ = run("run", TWO, "--on", "inline", "--json", "--flow", "two")
    assert (code, json.loads(out)) == (0, ended[1])
    code, _, problem = run("run", TWO, "--flow", "three")
    assert (code, "has no flow 'three'; it has one, two" in problem) == (2, True)
    code, _, problem = run("graph", TWO, "--format", "svg")
    assert (code, "has 2 flows (one, two); choose one: --flow NAME" in problem) == (2, True)


def test_several_flows_run_beside_each_other(tmp_path: Path) -> None:
    """Each by a process of its own; what one of them ends with is told, and ends no other."""
    path = tmp_path / "app.py"
    failing = (
        'three = seep.Flow("three")\n'
        'numbers = three.source("rows", seep.MemorySource([{"n": 0}]))\n'
        'numbers.map(lambda row: 1 // row.n, schema={"n": int}, on_error="fail").collect("kept")\n'
    )
    for source, code in ((TWO, 0), (TWO + failing, 2)):
        path.write_text(source)
        command = [str(Path(sys.executable).parent / "seep"), "run", str(path), "--workers", "1", "--json"]
        environment = {**os.environ, "SEEP_HOME": str(tmp_path / "home")}
        found = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
        told = [json.loads(line) for line in found.stdout.splitlines()]
        assert found.returncode == code, found.stderr
        assert sorted(t["flow"] for t in told if t["state"] == "ended") == ["one", "two"]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("x = 1", "has no flow"),
        ("import nonsense_module", "No module named 'nonsense_module'"),
        ("import seep\na = seep.Flow('a')\nb = seep.Flow('a')", "has two flows of the name 'a'"),
        ("import seep\nflow = seep.Flow('')", "seep:"),
        ("import sys\nsys.exit()", "app.py:2: it ends Python (SystemExit: None); an app only builds a flow"),
        ("def build():\n    raise SystemExit('no')", "app.py:2: it ends Python (SystemExit: no)"),
        ("import seep\n\nsource = seep.MemorySource([])", "app.py:3: no rows to take a schema from"),
    ],
)
def test_a_wrong_app_is_one_line_and_exit_code_2(run: Run, source: str, says: str) -> None:
    code, out, problem = run("run", source)
    assert (code, out) == (2, "")
    assert says in problem
    assert "Traceback" not in problem


def test_an_address_that_is_none_is_refused(run: Run) -> None:
    code, _, problem = run("run", APP, "--prometheus", "nonsense")
    assert code == 2
    assert problem == "seep: prometheus='nonsense' is no address; give one such as http://127.0.0.1:9090\n"


@pytest.mark.parametrize("option", ["--workers", "--spare"])
def test_more_workers_than_can_be_had_are_refused(run: Run, option: str) -> None:
    least = int(option == "--workers")
    for on, most in ("local", 256), ("ray", 4096):
        code, out, problem = run("run", APP, "--on", on, option, "99999999999999999999")
        assert (code, out) == (2, "")
        assert problem == f"seep: {option[2:]}=99999999999999999999; give a whole number from {least} to {most}\n"


def test_no_file(run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["seep", "run", "nowhere.py"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "not a file" in capsys.readouterr().err


def test_help_loads_nothing_heavy() -> None:
    call = "import sys, seep.cli.main; print([m for m in sys.argv[1:] if m in sys.modules])"
    heavy = ["numpy", "pyarrow", "polars", "numba", "httpx", "fastapi", "rich", "zmq"]
    done = subprocess.run([sys.executable, "-c", call, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_restore_into_another_version(run: Run, tmp_path: Path) -> None:
    before = 'words.key_by("word").aggregate(n=seep.count()).named("count").collect("counts")'
    assert before in APP
    source = APP.replace("]))", "] * 50, per_epoch=2))")
    scope: dict[str, Any] = {}
    exec(source, scope)
    save(scope["flow"], tmp_path / "v1", 5)
    where = str(tmp_path / "v1")
    assert run("restore", source, where, "--on", "inline") == (0, "words has ended\n  counts: 2 rows\n", "")
    other = source.replace('named("count")', 'named("tally")')
    code, out, problem = run("restore", other, where, "--on", "inline")
    assert (code, out) == (2, "")
    assert problem.startswith("seep: savepoint 'v1' was taken from another app: this one has no operator 'count'")
    assert problem.count("\n") == 1
    assert run("restore", other, where, "--on", "inline", "--rename", "count=tally")[0] == 0
    assert run("restore", other, where, "--on", "inline", "--drop", "count")[0] == 0
    assert run("restore", other, where, "--on", "inline", "--rename", "count")[0] == 2
