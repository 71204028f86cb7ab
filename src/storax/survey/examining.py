"""What is wrong in a run directory: unfinished, incomplete, or not of the run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from storax.errors import BadOption, CheckpointNotFound
from storax.safetensors.files import SUFFIX
from storax.store import commit, layout
from storax.store.sealed import LIST_NAME
from storax.survey.folders import what_lies_in
from storax.survey.run import is_run, items_of, step_of
from storax.tree import documents

# What a run directory holds besides its steps.
_BELONGS = frozenset({"metadata", "descriptor"})


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a run that somebody should know.

    Attributes:
      path: of what.
      kind: in a few words.
      advice: what to do about it.
      serious: whether a restart could go wrong because of it.
    """

    path: Path
    kind: str
    advice: str
    serious: bool = False


def examine(directory: Path) -> list[Finding]:
    """Drafts of dead processes, steps that are not whole, and strays of a run directory.

    Raises:
      BadOption: it is one checkpoint, or nothing of a run is in it.
      CheckpointNotFound: it is no directory.
    """
    _refuse_no_run(directory)
    dead = set(commit.leftovers(directory))
    found = []
    for path in sorted(directory.iterdir()):
        if path.name.startswith(".") or path.name in _BELONGS:
            continue
        if commit.is_draft(path):
            found.append(_about_draft(path, path in dead))
        elif path.is_dir() and step_of(path.name) is not None:
            found += _about_step(path)
        else:
            what = "a directory" if path.is_dir() else "a file"
            found.append(
                Finding(path, f"a stray: {what} that is no step", "Move it elsewhere, or ignore it.")
            )
    return found


def _refuse_no_run(directory: Path) -> None:
    if is_run(directory):
        return
    if layout.is_checkpoint(directory) or (directory.is_file() and directory.name.endswith(SUFFIX)):
        raise BadOption(f"{directory} is one checkpoint, not a run. Check it: storax verify {directory}")
    if not directory.is_dir():
        raise CheckpointNotFound(f"{directory} is not a directory.")
    there = [path for path in directory.iterdir() if not path.name.startswith(".")]
    if any(commit.is_draft(path) for path in there):
        return  # of checkpoints that were saved under names of their own
    if any(path.name not in _BELONGS for path in there):
        found = what_lies_in(directory, for_runs="storax doctor", for_checkpoints="storax verify")
        advice = found or "Name the directory that the steps are in."
        raise BadOption(f"{directory} is not a run: there are no steps in it. {advice}")


def _about_draft(path: Path, is_dead: bool) -> Finding:
    if is_dead:
        advice = f"Its writer is dead. Delete it: storax doctor {path.parent} --fix"
        return Finding(path, "a draft of a dead process", advice)
    if "-storax-" in path.name:
        return Finding(path, "a draft that a live process is writing", "Leave it alone.")
    advice = f"No lock says whether its writer lives. If no job writes here: storax rm {path}"
    return Finding(path, "a draft of another program", advice)


def _about_step(path: Path) -> Iterator[Finding]:
    names = set(os.listdir(path))
    if not names:
        yield Finding(path, "an empty step", f"Delete it: storax rm {path}", serious=True)
        return
    is_tree = bool(names & {documents.TREE_DOCUMENT, layout.MANIFEST_NAME})
    trees = [path] if is_tree else [path / name for name in items_of(path)]
    if not trees:
        advice = f"Nothing in it can be loaded. Look into it, then: storax rm {path}"
        yield Finding(path, "a step without items", advice, serious=True)
    elif documents.MARKER not in names and any((tree / LIST_NAME).is_file() for tree in (path, *trees)):
        advice = (
            f"Nothing here: a file system needs no marker. A copy in an object store would not count as "
            f"committed. Whether the rest is whole: storax verify {path}"
        )
        yield Finding(path, f"a step without {documents.MARKER}", advice)
    for tree in trees:
        if (tree / documents.TREE_DOCUMENT).is_file() and not _has_arrays(tree):
            advice = f"Its data is gone. Copy it again, or: storax rm {path}"
            yield Finding(tree, "a tree without its arrays", advice, serious=True)


def _has_arrays(tree: Path) -> bool:
    with os.scandir(tree) as entries:
        return any(entry.name == layout.MANIFEST_NAME or entry.is_dir() for entry in entries)
