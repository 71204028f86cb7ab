"""The steps in a directory, as they are on disk now: which there are, what is known, which are pinned."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from storax import inspection
from storax.errors import CheckpointExists, CheckpointNotFound
from storax.manager.options import StepNames
from storax.plan.steps import Step
from storax.store import commit, layout, posix
from storax.tree import documents

PIN = documents.PIN
_ROOT_DOCUMENT = Path("metadata") / "_ROOT_METADATA"


class StepDirectory:
    """The committed steps of a run. Reads the directory whenever it is asked."""

    def __init__(self, directory: Path, names: StepNames) -> None:
        self.path = directory
        self.names = names
        self._known: dict[tuple[int, ...], Step] = {}

    def paths(self) -> dict[int, Path]:
        """The directory of each committed step, oldest step first.

        A directory with a step's name and nothing of a checkpoint in it is somebody else's.
        """
        try:
            entries = os.listdir(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        numbered = ((self.names.step_of(entry), self.path / entry) for entry in entries)
        found = {step: path for step, path in numbered if step is not None and _is_step(path)}
        return dict(sorted(found.items()))

    def links(self) -> set[int]:
        """The steps that are links: somebody moved them elsewhere."""
        return {number for number, path in self.paths().items() if path.is_symlink()}

    def new_path(self, step: int) -> Path:
        """Where a step is to be saved."""
        return self.path / self.names.name(step)

    def existing(self, step: int) -> Path:
        """The directory of a committed step. Raises ``CheckpointNotFound``, naming those that there are."""
        paths = self.paths()
        if step not in paths:
            there = ", ".join(map(str, paths)) or "none"
            raise CheckpointNotFound(f"{self.path} has no committed step {step}. There are: {there}.")
        return paths[step]

    def steps(self) -> list[Step]:
        """What is known of each committed step, oldest first. A committed step is read only once."""
        found = []
        known: dict[tuple[int, ...], Step] = {}
        for number, path in self.paths().items():
            try:
                key = (number, *posix.state(path))
            except FileNotFoundError:
                continue  # deleted just now
            known[key] = self._known.get(key) or _read(number, path)
            found.append(known[key])
        self._known = known
        return found

    def root(self) -> dict[str, Any]:
        """What was written about the whole run; empty if nothing was."""
        path = self.path / _ROOT_DOCUMENT
        if not path.is_file():
            return {}
        found = documents.parse_object(path.read_bytes(), str(path)).get("custom_metadata")
        return found if isinstance(found, dict) else {}

    def write_root(self, custom: dict[str, Any]) -> None:
        """Writes it, whole or not at all, unless it is there already."""
        path = self.path / _ROOT_DOCUMENT
        if path.exists():
            return
        draft = commit.begin(path.parent)
        try:
            text = documents.encode_json({"internal_metadata": {}, "custom_metadata": custom})
            posix.write_file(draft.path / path.name, text)
            commit.publish(draft, overwrite=False)
        except CheckpointExists:  # another process wrote it just now
            commit.discard(draft)
        except BaseException:
            commit.discard(draft)
            raise

    def pins(self) -> dict[int, str]:
        """The pinned steps, and why they are."""
        return {
            number: text for number, path in self.paths().items() if (text := _text(path / PIN)) is not None
        }

    def leased(self) -> set[int]:
        """The steps that a reader holds open now."""
        return {number for number, path in self.paths().items() if commit.is_leased(path)}

    def pin(self, step: int, reason: str) -> None:
        """Pins a step, durably; a new reason replaces the old one, and at every instant it is pinned."""
        path = self.existing(step)
        new = commit.draft_name(path / PIN)
        try:
            posix.write_file(new, reason.encode())
            posix.replace_file(new, path / PIN)
        except BaseException:
            posix.remove_file(new)
            raise
        posix.sync_directory(path)

    def unpin(self, step: int) -> None:
        """Takes the pin off a step, if it has one."""
        path = self.existing(step)
        posix.remove_file(path / PIN)
        posix.sync_directory(path)


def _is_step(path: Path) -> bool:
    return not commit.is_draft(path) and layout.is_checkpoint(path)


def _read(number: int, path: Path) -> Step:
    text = _text(path / documents.STEP_DOCUMENT)
    document = documents.StepDocument()
    if text is not None:
        document = documents.StepDocument.parse(text.encode(), str(path / documents.STEP_DOCUMENT))
    time = document.init_ns / 1e9 if document.init_ns is not None else posix.modified(path)
    return Step(number, time, inspection.read_metrics(path))


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None
