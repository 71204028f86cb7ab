"""A run directory seen from outside: its steps and drafts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from storax.errors import CheckpointNotFound, Corrupt
from storax.store import commit, layout
from storax.tree import documents

State = Literal["committed", "draft", "dead draft"]

_STEP = re.compile(r"(?:.*_)?([0-9]+)")
_STEP_OF_DRAFT = re.compile(r"(?:.*_)?([0-9]+)" + re.escape(commit.DRAFT_SUFFIX))


@dataclass(frozen=True, slots=True)
class SeenStep:
    """One step of a run, or a checkpoint on its own.

    Attributes:
      path: its directory.
      step: its number; None for a checkpoint that is no step.
      state: a draft is being written, or was and its writer is dead.
      saved_ns: when it was committed, in nanoseconds since 1970; of drafts, when they last changed.
      seconds: how long the save took, if the documents say so.
      nbytes: of all its files.
      files: how many.
      items: the names of its items; empty for a bare tree.
      metrics: saved with it.
      why: what keeps it whatever a policy says: it is the newest, pinned, or open in a reader.
    """

    path: Path
    step: int | None
    state: State
    saved_ns: int
    seconds: float | None
    nbytes: int
    files: int
    items: tuple[str, ...]
    metrics: Mapping[str, Any]
    why: tuple[str, ...] = ()


def step_of(name: str) -> int | None:
    """The step that a directory's name stands for, or None.

    >>> step_of("1200"), step_of("ckpt_0007"), step_of("metadata")
    (1200, 7, None)
    """
    found = _STEP.fullmatch(name)
    return int(found[1]) if found else None


def is_run(directory: Path) -> bool:
    """Whether a directory holds steps, and is not itself a checkpoint."""
    if not directory.is_dir() or (directory / documents.STEP_DOCUMENT).exists():
        return False
    names = os.listdir(directory)
    if documents.TREE_DOCUMENT in names or layout.MANIFEST_NAME in names:
        return False
    steps = [name for name in names if step_of(name) is not None or _STEP_OF_DRAFT.match(name)]
    return any((directory / name).is_dir() for name in steps)


def see_run(directory: Path, *, sizes: bool = True) -> list[SeenStep]:
    """The steps of a run, the oldest first, drafts among them.

    Raises:
      CheckpointNotFound: if the directory is not there.
    """
    if not directory.is_dir():
        raise CheckpointNotFound(f"{directory} is not a directory.")
    found = [
        see_step(path, sizes=sizes)
        for path in sorted(directory.iterdir())
        if path.is_dir() and (step_of(path.name) is not None or commit.is_draft(path))
    ]
    found.sort(key=lambda seen: (seen.step is None, seen.step or 0, seen.path.name))
    numbered = [seen.step for seen in found if seen.state == "committed" and seen.step is not None]
    newest = max(numbered, default=None)
    return [
        replace(seen, why=("newest", *seen.why))
        if seen.state == "committed" and seen.step == newest
        else seen
        for seen in found
    ]


def see_step(path: Path, *, sizes: bool = True) -> SeenStep:
    """One checkpoint or draft."""
    nbytes, files = weigh(path) if sizes else (0, 0)
    document = _document(path)
    changed = path.stat().st_mtime_ns
    seconds = None
    if document.init_ns is not None and document.commit_ns is not None:
        seconds = (document.commit_ns - document.init_ns) / 1e9
    return SeenStep(
        path,
        _step_in(path.name),
        _state(path),
        document.commit_ns or changed,
        seconds,
        nbytes,
        files,
        tuple(items_of(path)),
        read_metrics(path),
        tuple(_reasons(path)),
    )


def _reasons(path: Path) -> Iterator[str]:
    if (reason := pin_of(path)) is not None:
        yield f"pinned: {reason}" if reason else "pinned"
    if path.is_dir() and commit.is_leased(path):
        yield "open in a reader"


def pin_of(path: Path) -> str | None:
    """Why a step is pinned; None if it is not."""
    try:
        return (path / documents.PIN).read_text()
    except OSError:
        return None


def _step_in(name: str) -> int | None:
    if (draft := _STEP_OF_DRAFT.match(name)) is not None:
        return int(draft[1])
    return step_of(name)


def _state(path: Path) -> State:
    if not commit.is_draft(path):
        return "committed"
    return "dead draft" if path in set(commit.leftovers(path.parent)) else "draft"


def _document(path: Path) -> documents.StepDocument:
    try:
        text = (path / documents.STEP_DOCUMENT).read_bytes()
        return documents.StepDocument.parse(text, str(path / documents.STEP_DOCUMENT))
    except (OSError, Corrupt):
        # A list of steps must come also when one of them is damaged; `verify` says which.
        return documents.StepDocument()


def items_of(path: Path) -> Iterator[str]:
    """The names of the items that a checkpoint's files show; none of a bare tree."""
    names = set(os.listdir(path)) if path.is_dir() else set()
    if documents.TREE_DOCUMENT in names:
        return
    for name in sorted(names - {documents.METRICS_ITEM}):
        inside = path / name
        if (inside / documents.TREE_DOCUMENT).is_file() or (inside / documents.JSON_ITEM_DOCUMENT).is_file():
            yield name


def read_metrics(path: Path) -> Mapping[str, Any]:
    """The metrics that a manager saved with a step; none if there are none or they are damaged."""
    try:
        text = (path / documents.METRICS_ITEM / documents.METRICS_DOCUMENT).read_bytes()
        return documents.parse_object(text, documents.METRICS_DOCUMENT)
    except (OSError, Corrupt):
        return {}


def weigh(directory: Path) -> tuple[int, int]:
    """Bytes and number of the files below a directory, or of one file."""
    if not directory.is_dir():
        return directory.stat().st_size, 1
    nbytes = files = 0
    waiting = [os.fspath(directory)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    files += 1
                    nbytes += entry.stat(follow_symlinks=False).st_size
    return nbytes, files
