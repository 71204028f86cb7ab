"""A directory that is neither a run nor a checkpoint: which of them lie in it."""

from __future__ import annotations

from pathlib import Path

from storax.store import commit, layout
from storax.survey import run

_MOST_SHOWN = 10


def what_lies_in(directory: Path, verb: str) -> str:
    """Says which runs and checkpoints lie straight in a directory, and what to type; empty if none does.

    It is also empty of a run and of a checkpoint, as what is in them is theirs.
    """
    if not directory.is_dir() or run.is_run(directory) or layout.is_checkpoint(directory):
        return ""
    below = [path for path in sorted(directory.iterdir()) if path.is_dir() and not commit.is_draft(path)]
    runs = [path for path in below if run.is_run(path)]
    checkpoints = [path for path in below if path not in runs and layout.is_checkpoint(path)]
    if not runs and not checkpoints:
        return ""
    parts = [_named("run", runs)] if runs else []
    parts += [_named("checkpoint", checkpoints)] if checkpoints else []
    return f"In it {'lies' if len(runs + checkpoints) == 1 else 'lie'} {' and '.join(parts)}. Type: storax {verb} {(runs or checkpoints)[0]}"


def _named(what: str, paths: list[Path]) -> str:
    names = ", ".join(path.name for path in paths[:_MOST_SHOWN])
    more = ", …" if len(paths) > _MOST_SHOWN else ""
    return f"the {what}{'s' if len(paths) > 1 else ''} {names}{more}"
