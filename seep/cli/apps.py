"""Verbs on apps, files of Python with a flow in them: run, check, restore (`graph` has a file of its own).

What takes seconds to import (columns, compiled loops) is imported by the verb that needs it.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seep.cli.beside import run_beside
from seep.cli.console import Follower, console_sinks, rows_as_lines
from seep.cli.output import Json, show
from seep.errors import Misuse, SeepError
from seep.runtime.home import job_path

if TYPE_CHECKING:
    from seep.flow.build import Flow

App = Annotated[Path, typer.Argument(metavar="APP", help="a Python file with a top-level flow, or build() -> Flow")]
On = Annotated[str, typer.Option("--on", help="inline, local, spark or ray")]
Workers = Annotated[int, typer.Option("--workers", min=1, help="worker processes in use")]
Prometheus = Annotated[
    str | None, typer.Option("--prometheus", help="a server that scrapes the workers; without one the controller does")
]
Stored = Annotated[
    str | None, typer.Option("--store", metavar="URL", help="a Redis that keeps the state, redis://HOST:PORT/0")
]
One = Annotated[str | None, typer.Option("--flow", metavar="NAME", help="only this one, of an app with several flows")]
Spare = Annotated[int | None, typer.Option("--spare", min=0, help="warm workers beyond those in use; 1 unless given")]
Master = Annotated[str | None, typer.Option("--master", help="the master of --on spark, or the address of --on ray")]


def load(path: Path) -> list[Flow]:
    """The flows of an app."""
    if not path.is_file():
        raise Misuse(f"{path} is not a file; give the Python file of an app")
    import cloudpickle

    from seep.flow.build import Flow

    spec = importlib.util.spec_from_file_location("__seep_app__", path)
    if spec is None or spec.loader is None:
        raise Misuse(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # By value: workers unpickle the app's functions without having its file.
    sys.modules["__seep_app__"] = module
    sys.path.insert(0, str(path.parent.absolute()))
    cloudpickle.register_pickle_by_value(module)
    try:
        with redirect_stdout(sys.stderr):  # what an app prints is no part of a verb's answer
            spec.loader.exec_module(module)
            build = getattr(module, "build", None)
            built = build() if callable(build) else None
    except SeepError as error:
        if str(error).startswith(f"{path.name}:"):
            raise
        raise type(error)(f"{_line_of(error, path)}: {error}", error.history) from error
    except SystemExit as error:
        where = _line_of(error, path)
        raise Misuse(f"{where}: it ends Python (SystemExit: {error.code}); an app only builds a flow") from error
    except Exception as error:
        text = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
        raise Misuse(f"{_line_of(error, path)}: {type(error).__name__}: {text}") from error
    # A flow may have several names, and build() may return one of them: by identity, each is one.
    flows = list({id(v): v for v in (*vars(module).values(), built) if isinstance(v, Flow)}.values())
    if not flows:
        raise Misuse(f"{path} has no flow: give it a top-level `flow = seep.Flow(...)`, or a function build() -> Flow")
    return flows


def _line_of(error: BaseException, path: Path) -> str:
    """The line of the app that an error came out of, such as ``app.py:12``."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f"{path.name}:{error.lineno}"
    lines = [
        f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).resolve() == path.resolve()
    ]
    return f"{path.name}:{lines[-1]}" if lines else str(path)


def chosen(path: Path, name: str | None) -> list[Flow]:
    """The flows of an app, or the one of this name."""
    flows = load(path)
    names = [flow.name for flow in flows]
    if name is not None and name not in names:
        raise Misuse(f"{path} has no flow {name!r}; it has {', '.join(names)}")
    if twice := next((n for n in names if names.count(n) > 1), None):
        raise Misuse(f"{path} has two flows of the name {twice!r}; give each its own")
    return [flow for flow in flows if name in (None, flow.name)]


def only(path: Path, name: str | None = None) -> Flow:
    flows = chosen(path, name)
    if len(flows) > 1:
        raise Misuse(f"{path} has {len(flows)} flows ({', '.join(f.name for f in flows)}); choose one: --flow NAME")
    return flows[0]


def run(
    app: App,
    on: On = "local",
    workers: Workers = 2,
    master: Master = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="go on from the durable state of a job that is gone")
    ] = False,
    prometheus: Prometheus = None,
    store: Stored = None,
    checkpoints: Annotated[
        str | None,
        typer.Option("--checkpoints", metavar="URL", help="a folder for checkpoints alone, s3://BUCKET/FOLDER"),
    ] = None,
    spare: Spare = None,
    recover_in: Annotated[
        int, typer.Option("--recover-in", metavar="PARTS", min=1, help="a partition that dies comes back as so many")
    ] = 1,
    flow: One = None,
    json: Json = False,
) -> None:
    """Run a flow until its input ends, or until Ctrl-C.

    Several flows of an app run beside each other.

    Example: seep run app.py --workers 3
    """
    flows = chosen(app, flow)
    if len(flows) > 1 and on != "inline":
        raise typer.Exit(run_beside([one.name for one in flows]))
    options = {"workers": workers, "master": master, "resume": resume, "prometheus": prometheus, "store": store}
    options |= {"checkpoints": checkpoints, "spare": spare, "recover_in": recover_in}
    for one in flows:
        _run(one, on, json, options)


def restore(
    app: App,
    savepoint: Annotated[str, typer.Argument(metavar="SAVEPOINT", help="its name, its directory, or its address")],
    on: On = "local",
    workers: Workers = 2,
    master: Master = None,
    prometheus: Prometheus = None,
    store: Stored = None,
    spare: Spare = None,
    rename: Annotated[
        list[str] | None,
        typer.Option("--rename", metavar="OLD=NEW", help="an operator or source that has another name now"),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option("--drop", metavar="NAME", help="state that may be lost: of an operator, or OPERATOR.COLUMN"),
    ] = None,
    flow: One = None,
    json: Json = False,
) -> None:
    """Run a flow from a savepoint, also one of another version of it.

    Example: seep restore app.py v1 --rename minute=store-minute --drop best-items
    """
    pairs = [pair.partition("=") for pair in rename or ()]
    for old, _, new in pairs:
        if not old or not new:
            raise Misuse(f"--rename {old}{new}: give OLD=NEW, such as minute=store-minute")
    changed = {"restore": savepoint, "rename": {old: new for old, _, new in pairs}, "drop": drop or ()}
    options = {"workers": workers, "master": master, "prometheus": prometheus, "store": store, "spare": spare}
    _run(only(app, flow), on, json, options, changed)


def _run(flow: Flow, on: str, json: bool, options: dict[str, Any], restore: dict[str, Any] | None = None) -> None:
    from seep.running import run as run_once
    from seep.running import start
    from seep.runtime.deadletters import NAME as LETTERS

    if on == "inline":
        _refuse_lasting(options)
        with rows_as_lines(console_sinks(flow), json):
            result = run_once(flow, **(restore or {}))
    else:
        logs = job_path(flow.name) / "workers"
        printing = console_sinks(flow)
        follower = Follower(logs, printing if on == "local" else (), json, bool(options.get("resume")))
        job = start(flow, on=on, **options, **(restore or {}))
        if printing and on != "local":
            where = "the output of Spark's executors" if on == "spark" else "the logs of Ray's workers"
            typer.echo(f"seep: the rows of {', '.join(printing)} are in {where}", err=True)
        follower.start()
        try:
            show([{"flow": flow.name, "state": "running"}], json, lambda a: [f"{a['flow']} runs; stop it with Ctrl-C"])
            result = job.wait()
        except KeyboardInterrupt:
            job.stop()
            result = job.wait()
        finally:
            job.close()
            follower.close()
    rows = {name: table.num_rows for name, table in result.items()}
    show([{"flow": flow.name, "state": "ended", "rows": rows}], json, _ended_lines)
    letters = job_path(flow.name) / LETTERS
    if on != "inline" and letters.exists():
        typer.echo(f"seep: rows that failed, and that no .errors stream takes, are in {letters}", err=True)


def _refuse_lasting(options: dict[str, Any]) -> None:
    """An inline run keeps nothing and has nobody to ask: to pass over what was asked for would promise it."""
    for name in ("resume", "store", "checkpoints", "prometheus", "master"):
        if options.get(name):
            raise Misuse(f"--{name} is nothing for --on inline, which keeps nothing; run it --on local, spark or ray")


def _ended_lines(answer: dict[str, Any]) -> list[str]:
    return [f"{answer['flow']} has ended", *(f"  {name}: {rows} rows" for name, rows in answer["rows"].items())]


def check(app: App, json: Json = False) -> None:
    """Find what is wrong with a flow before anything runs.

    Exit code 2 when something is.

    Example: seep check app.py
    """
    from seep.flow.check import ERROR
    from seep.flow.check import check as findings_of

    wrong = False
    for flow in load(app):
        found = findings_of(flow)
        wrong = wrong or any(f.level == ERROR for f in found)
        answer = {"flow": flow.name, "findings": [{"level": f.level, "message": f.message} for f in found]}
        show([answer], json, _finding_lines)
    if wrong:
        raise typer.Exit(2)


def _finding_lines(answer: dict[str, Any]) -> list[str]:
    lines = [f"{answer['flow']}: {f['level']}: {f['message']}" for f in answer["findings"]]
    return lines or [f"{answer['flow']}: ok"]
