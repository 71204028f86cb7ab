"""``timeline`` and ``report``: checkpoints and their saves as pictures."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from storax.cli.options import Json
from storax.cli.printing import out, print_json, say, size

_WIDTH_OF_A_LOG = 100


def register(app: typer.Typer) -> None:
    app.command("timeline")(timeline)
    app.command("report")(report)


def timeline(
    trace: Annotated[
        str, typer.Argument(metavar="TRACE", help="A file of save(..., trace=) or STORAX_TRACE.")
    ],
    json: Json = False,
) -> None:
    """Draw how a save or load spent its time, by process and thread. Perfetto opens the same file."""
    import sys

    from storax.store.paths import resolve
    from storax.survey.timeline import chapters, draw, read_trace, totals

    spans, threads = read_trace(resolve(trace))
    if json:
        print_json({name: {"count": n, "seconds": s} for name, (n, s) in totals(spans).items()})
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH_OF_A_LOG
    for i, chapter in enumerate(chapters(spans, threads)):
        if i:
            out("")
        for line in draw(chapter, width):
            out(line)


def report(
    path: Annotated[str, typer.Argument(metavar="CKPT|RUN", help="A checkpoint, or a run with its steps.")],
    file: Annotated[
        str, typer.Option("--out", "-o", metavar="FILE", help="The page to write.")
    ] = "report.html",
    values: Annotated[
        bool, typer.Option("--values", help="Read all values, for statistics and histograms.")
    ] = False,
    trace: Annotated[
        list[str] | None,
        typer.Option("--trace", metavar="TRACE", help="Show this trace too; may be repeated."),
    ] = None,
) -> None:
    """Write one page with pictures of a checkpoint or a run. It needs no network; open it in any browser."""
    from storax.cli.watching import watched
    from storax.store.paths import resolve
    from storax.survey.report import render, survey

    with watched("reading"):
        page = render(survey(resolve(path), values=values, traces=[resolve(t) for t in trace or ()]))
    target = Path(resolve(file))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page, encoding="utf-8")
    say(f"{target}: {size(target.stat().st_size)}; open it in a browser.")
