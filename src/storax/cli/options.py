"""Arguments and options that several verbs have, spelled once."""

from __future__ import annotations

from typing import Annotated

import typer

Checkpoint = Annotated[
    str,
    typer.Argument(
        metavar="CKPT", help="A checkpoint, an item of one, or a run directory (its newest step)."
    ),
]
Item = Annotated[str | None, typer.Option("--item", help="Only this item of the checkpoint.", metavar="NAME")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Match = Annotated[
    str | None,
    typer.Option(
        "--match", "-m", metavar="REGEX", help="Only leaves whose name has this regular expression."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Say what would be done, and do nothing.")]
