"""A directory that is neither a run nor a checkpoint: which of them lie in it."""

from __future__ import annotations

from pathlib import Path

from storax.store import commit, layout
from storax.survey import run

_MOST_SHOWN = 10


def what_lies_in(directory: Path, *, for_runs: str = "", for_checkpoints: str = "") -> str:
    """Says which runs and checkpoints lie straight in a directory, and how to go on; empty if none does.

    It is also empty of a run and of a checkpoint, as what is in them is theirs.

    Args:
      for_runs, for_checkpoints: what to type before the path of one.
    """
    if not directory.is_dir() or run.is_run(directory) or layout.is_checkpoint(directory):
        return ""
    below = [path for path in sorted(directory.iterdir()) if path.is_dir() and not commit.is_draft(path)]
    runs = [path for path in below if run.is_run(path)]
    checkpoints = [path for path in below if path not in runs and layout.is_checkpoint(path)]
    if not runs and not checkpoints:
        return ""
    named = " and ".join(
        _named(what, paths) for what, paths in (("run", runs), ("checkpoint", checkpoints)) if paths
    )
    command = for_runs if runs else for_checkpoints
    first = (runs or checkpoints)[0]
    lies = "lies" if len(runs + checkpoints) == 1 else "lie"
    return f"In it {lies} {named}. " + (f"Type: {command} {first}" if command else f"Name one: {first}")


def _named(what: str, paths: list[Path]) -> str:
    names = ", ".join(path.name for path in paths[:_MOST_SHOWN])
    more = ", …" if len(paths) > _MOST_SHOWN else ""
    return f"the {what}{'s' if len(paths) > 1 else ''} {names}{more}"
