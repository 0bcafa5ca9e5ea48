"""The verb `graph`: a flow's physical plan as text, as mermaid, or as a picture (SVG) that needs no other program."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Annotated, Any

import typer

from seep.cli.apps import App, One, chosen, only
from seep.cli.output import Json, show
from seep.errors import Misuse

CHARACTER, LINE, GAP = 8, 36, 48
"""Of the picture, in pixels: the width of a letter, the height of a box, the distance between boxes."""
COLOURS = {"source": "#d8ecd8", "operator": "#dce6f4", "sink": "#f4e6d2"}


def graph(
    app: App,
    plan: Annotated[
        bool, typer.Option("--plan", help="say what was fused, how rows are sent, what is folded early, and why")
    ] = False,
    form: Annotated[str, typer.Option("--format", help="text, mermaid or svg")] = "mermaid",
    flow: One = None,
    json: Json = False,
) -> None:
    """What will run: a flow's nodes, and the streams between them.

    Example: seep graph app.py --format svg > flow.svg
    """
    if form not in FORMS:
        raise Misuse(f"--format {form}: there are {', '.join(FORMS)}")
    from seep.flow.compile import compile_flow
    from seep.flow.explain import explain

    for one in [only(app, flow)] if form == "svg" and not json else chosen(app, flow):
        made = compile_flow(one)
        answer: dict[str, Any] = {
            "flow": one.name,
            "nodes": [{"name": n.name, "kind": n.kind} for n in made.nodes.values()],
            "edges": [{"name": e.name, "source": e.source, "target": e.target, "port": e.port} for e in made.edges],
        }
        if plan:
            answer["plan"] = explain(made)
        show([answer], json, FORMS[form])


def _plan(answer: dict[str, Any]) -> list[str]:
    from seep.flow.explain import lines

    return [line for entry in answer.get("plan", ()) for line in lines(entry)]


def _text(answer: dict[str, Any]) -> list[str]:
    lines = [answer["flow"]]
    for node in answer["nodes"]:
        targets = list(dict.fromkeys(e["target"] for e in answer["edges"] if e["source"] == node["name"]))
        lines.append(f"  {node['name']} ({node['kind']})" + (f" -> {', '.join(targets)}" if targets else ""))
    return lines + [f"  {line}" for line in _plan(answer)]


def _mermaid(answer: dict[str, Any]) -> list[str]:
    number = {node["name"]: index for index, node in enumerate(answer["nodes"])}
    shapes = {"source": '(["{}"])', "operator": '["{}"]', "sink": '[("{}")]'}
    lines = ["flowchart LR"]
    lines += [f"  n{number[n['name']]}{shapes[n['kind']].format(n['name'])}" for n in answer["nodes"]]
    lines += [f"  n{number[e['source']]} --> n{number[e['target']]}" for e in answer["edges"]]
    # Comments of mermaid: the whole can still be pasted where a picture is wanted.
    return lines + [f"%% {line}" for line in _plan(answer)]


def _svg(answer: dict[str, Any]) -> list[str]:
    """In columns: each node right of all that it reads."""
    kinds = {node["name"]: node["kind"] for node in answer["nodes"]}
    columns: list[list[str]] = []
    for name, depth in _depths(answer).items():
        while len(columns) <= depth:
            columns.append([])
        columns[depth].append(name)
    boxes: dict[str, tuple[int, int, int]] = {}
    left = GAP // 2
    for column in columns:
        width = CHARACTER * max(map(len, column)) + 2 * CHARACTER
        for row, name in enumerate(column):
            boxes[name] = (left, GAP // 2 + row * (LINE + GAP // 2), width)
        left += width + GAP
    high = max(top for _, top, _ in boxes.values()) + LINE + GAP // 2
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left - GAP // 2}" height="{high}" font-family="monospace">',
        f"<title>{escape(answer['flow'])}</title>",
        '<defs><marker id="tip" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z"/></marker></defs>',
    ]
    for edge in answer["edges"]:
        (x, y, width), (to_x, to_y, _) = boxes[edge["source"]], boxes[edge["target"]]
        path = f"M{x + width} {y + LINE // 2} L{to_x} {to_y + LINE // 2}"
        lines.append(f'<path d="{path}" stroke="black" fill="none" marker-end="url(#tip)"/>')
    for name, (x, y, width) in boxes.items():
        shape = f'x="{x}" y="{y}" width="{width}" height="{LINE}" rx="6" fill="{COLOURS[kinds[name]]}" stroke="black"'
        middle = f'x="{x + width // 2}" y="{y + LINE // 2 + 5}" text-anchor="middle" font-size="13"'
        lines.append(f"<g><title>{kinds[name]}</title><rect {shape}/><text {middle}>{escape(name)}</text></g>")
    notes = [f"<desc>{escape(line)}</desc>" for line in _plan(answer)]
    return [*lines, *notes, "</svg>"]


def _depths(answer: dict[str, Any]) -> dict[str, int]:
    """How many edges lie before each node, on the longest way; nodes come in topological order."""
    found: dict[str, int] = {}
    for node in answer["nodes"]:
        before = [found[e["source"]] for e in answer["edges"] if e["target"] == node["name"] and e["source"] in found]
        found[node["name"]] = 1 + max(before) if before else 0
    return found


FORMS: dict[str, Callable[[dict[str, Any]], list[str]]] = {"text": _text, "mermaid": _mermaid, "svg": _svg}
