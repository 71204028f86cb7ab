"""Items inside an item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storax.items import Composite, load_any
from storax.processes import Message
from storax.publishing import Staged, StagedParts
from storax.store import posix
from storax.store.sealed import LIST_NAME, seal
from storax.tree import documents

COMPOSITE_HANDLER = "orbax.checkpoint._src.handlers.composite_checkpoint_handler.CompositeCheckpointHandler"


@dataclass(frozen=True, slots=True)
class StagedComposite:
    """Items in directories of their own below the directory of an item."""

    items: Mapping[str, Staged]
    handler: str = COMPOSITE_HANDLER

    def write_part(self, directory: Path) -> Message:
        """What this process writes of each; see ``publishing.StagedParts``."""
        parts: dict[str, Any] = {}
        for name, item in self.items.items():
            if isinstance(item, StagedParts):
                with suppress(FileExistsError):
                    posix.make_directory(directory / name)
                parts[name] = item.write_part(directory / name)
        posix.sync_directory(directory)
        sums = {f"{name}/{file}": s for name, part in parts.items() for file, s in part["sums"].items()}
        return {"parts": parts, "sums": sums}

    def merge_parts(self, directory: Path, messages: Sequence[Message]) -> Mapping[str, bytes]:
        """One whole of each, on process 0."""
        found: dict[str, bytes] = {}
        for name, item in self.items.items():
            inside = directory / name
            sums: dict[str, int] = {}
            if isinstance(item, StagedParts):
                parts = [message["parts"][name] for message in messages]
                texts = item.merge_parts(inside, parts)
                sums = {file: number for part in parts for file, number in part["sums"].items()}
            else:
                posix.make_directory(inside)
                texts = item.write(inside)
            marker = documents.marker_text(str(inside))
            every = {**texts, LIST_NAME: seal(texts, sums), documents.MARKER: marker}
            found |= {f"{name}/{file}": text for file, text in every.items()}
        return found


@dataclass(frozen=True, slots=True)
class CompositeSave:
    """Items to be saved inside an item; each has ``stage``."""

    items: Mapping[str, Any]

    def stage(self) -> Staged:
        return StagedComposite({name: item.stage() for name, item in self.items.items()})


@dataclass(frozen=True, slots=True)
class CompositeRestore:
    """Items to be restored from inside an item; each has ``load``. Empty: all that are there."""

    items: Mapping[str, Any]

    def load(self, directory: Path) -> Any:
        if self.items:
            return Composite(**{name: wish.load(directory / name) for name, wish in self.items.items()})
        inside = sorted(path for path in directory.iterdir() if path.is_dir())
        return Composite(**{path.name: load_any(path) for path in inside})
