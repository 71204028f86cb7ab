"""``cp`` and ``rm``: checkpoints from here to there, and away."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from storax.cli.options import DryRun, Yes
from storax.cli.printing import confirm, counted, out, say, size


def register(app: typer.Typer) -> None:
    app.command("cp")(cp)
    app.command("rm")(rm)


def cp(
    source: Annotated[
        str, typer.Argument(metavar="SRC", help="A checkpoint, or a run: all its committed steps.")
    ],
    target: Annotated[str, typer.Argument(metavar="DST", help="The new checkpoint, or run.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a checkpoint that is there.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Copy a checkpoint as it is, durably; the copy appears when it is whole.

    Of a run every committed step is copied that DST does not have yet.
    """
    from storax.cli.watching import watched
    from storax.progress import expect
    from storax.store import commit
    from storax.store.paths import resolve
    from storax.survey.copying import copy_checkpoint, files_of
    from storax.survey.places import find
    from storax.survey.run import is_run, see_run

    start, end = resolve(source), resolve(target)
    pairs = [(find(start).path, end)] if not is_run(start) else []
    for step in see_run(start, sizes=False) if not pairs else ():
        if step.state != "committed":
            say(f"{step.path.name}: a {step.state}, not copied")
        elif commit.is_committed(end / step.path.name) and not overwrite:
            say(f"{step.path.name}: {end} has it already")
        else:
            pairs.append((step.path, end / step.path.name))
    nbytes = sum(size_ for path, _ in pairs for _, size_ in files_of(path))
    if dry_run:
        for path, final in pairs:
            out(f"{path} -> {final}")
        say(f"{size(nbytes)} would be copied.")
        return
    with watched("copying"):
        expect(nbytes)
        for path, final in pairs:
            copy_checkpoint(path, final, overwrite=overwrite)
    say(f"{len(pairs)} copied, {size(nbytes)}.")


def rm(
    paths: Annotated[list[str], typer.Argument(metavar="CKPT...", help="Checkpoints, steps or drafts.")],
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Delete checkpoints: each leaves its name in one step, so no reader meets half of it."""
    from storax.errors import BadOption
    from storax.store import commit, posix
    from storax.store.paths import resolve
    from storax.survey.run import is_run, see_step

    every = [resolve(path) for path in paths]
    for path in every:
        _check_removable(path)
        if is_run(path):
            raise BadOption(f"{path} is a run with steps in it. Name the steps, or use: storax gc {path}")
    weights = {path: see_step(path) for path in every}
    for path, seen in weights.items():
        out(f"{path}  {size(seen.nbytes)} in {counted(seen.files, 'file')}")
    if dry_run:
        say("Nothing was deleted.")
        return
    confirm(f"Delete {len(every)}?", yes=yes)
    for path in every:
        if path.is_file():
            posix.remove_file(path)
        else:
            commit.delete(path)
    say(f"{len(every)} deleted, {size(sum(seen.nbytes for seen in weights.values()))}.")


def _check_removable(path: Path) -> None:
    """Only what is a checkpoint, a draft or an empty step may go: not a home directory."""
    from storax.errors import BadOption
    from storax.store import commit
    from storax.survey.places import find
    from storax.survey.run import step_of

    if commit.is_draft(path) and path.is_dir():
        if "-storax-" in path.name and path not in set(commit.leftovers(path.parent)):
            raise BadOption(f"{path} is being written by a live process.")
        return
    if path.is_dir() and step_of(path.name) is not None and not any(path.iterdir()):
        return
    find(path)
