"""What belongs to a checkpoint's directory: by this a checkpoint is told from a directory of somebody's."""

from __future__ import annotations

import os
from pathlib import Path

from storax.errors import Corrupt
from storax.store import commit
from storax.store.sealed import LIST_NAME
from storax.tree import documents

MANIFEST_NAME = "manifest.ocdbt"
DATA_DIRECTORY = "d"
PARTS = "ocdbt.process_"
# Documents of a checkpoint itself, and those by which a directory is told to be one.
DOCUMENTS = frozenset(
    {
        documents.STEP_DOCUMENT,
        documents.TREE_DOCUMENT,
        documents.SHARDING_DOCUMENT,
        documents.STRINGS_DOCUMENT,
        documents.MARKER,
        documents.PIN,
        LIST_NAME,
        MANIFEST_NAME,
    }
)
_TELLING = (documents.STEP_DOCUMENT, documents.MARKER, documents.TREE_DOCUMENT, MANIFEST_NAME)
# What Orbax writes besides.
_OF_ORBAX = frozenset({"descriptor", "checkpoint", "orbax.checkpoint"})
_ARRAY_FILES = (".zarray", "zarr.json")
# What file systems and desktops put everywhere, and nobody would miss.
_LITTER = (".nfs", ".DS_Store")


def is_checkpoint(directory: Path) -> bool:
    """Whether a directory is a checkpoint: it has a document of one, or an item that can be read."""
    if any((directory / name).is_file() for name in _TELLING):
        return True
    try:
        with os.scandir(directory) as entries:
            return any(is_item(Path(entry.path)) for entry in entries if entry.is_dir())
    except OSError:
        return False


def is_item(directory: Path) -> bool:
    """Whether a directory looks as an item of a checkpoint, by its files; it is none on its own."""
    names = (documents.TREE_DOCUMENT, MANIFEST_NAME, documents.JSON_ITEM_DOCUMENT, documents.METRICS_DOCUMENT)
    if (directory / documents.STEP_DOCUMENT).exists():
        return False
    return any((directory / name).is_file() for name in names)


def strangers(directory: Path) -> list[str]:
    """The entries of a checkpoint's directory that are not of the checkpoint, and would be lost with it."""
    named = _named_items(directory)
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if not _belongs(entry, named))


def _named_items(directory: Path) -> frozenset[str]:
    path = directory / documents.STEP_DOCUMENT
    try:
        handlers = documents.StepDocument.parse(path.read_bytes(), str(path)).item_handlers
    except (OSError, Corrupt):
        return frozenset()
    return frozenset(handlers) if isinstance(handlers, dict) else frozenset()


def _belongs(entry: os.DirEntry[str], named: frozenset[str]) -> bool:
    name = entry.name
    if name in DOCUMENTS or name in _OF_ORBAX or name in named or name.startswith(_LITTER):
        return True
    if commit.DRAFT_SUFFIX in name:  # unfinished, so nobody's
        return True
    if not entry.is_dir():
        return False
    if name in (DATA_DIRECTORY, documents.ARRAY_DOCUMENTS) or name.startswith(PARTS):
        return True
    # Items whose names a damaged document, or none, tells nobody; arrays without a database.
    return is_item(Path(entry.path)) or any((Path(entry.path) / file).is_file() for file in _ARRAY_FILES)
