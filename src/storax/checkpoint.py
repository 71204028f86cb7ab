"""An opened checkpoint: its items, of each tree the leaves, and where their arrays are. Reads no values."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from storax.arrays.foreign import open_arrays
from storax.arrays.read import Source, open_array
from storax.errors import BadOption, CheckpointNotFound, Corrupt, ItemNotFound
from storax.ocdbt.index import Index
from storax.store import commit
from storax.store.sealed import LIST_NAME, SealedDirectory
from storax.tree import documents
from storax.tree.documents import TreeDocument
from storax.tree.dtypes import dtype_name, dtype_named, on_disk
from storax.tree.leaves import NUMBERS, Leaf

_log = logging.getLogger("storax")
_DATABASE = "manifest.ocdbt"
# How Orbax v1 calls the item of a bare tree, then and now.
_V1_NAMES = ("state", "pytree")
# For more leaves than this, and an eighth of all, the whole index is read at once.
_FEW_LEAVES = 64


@dataclass(frozen=True)
class OpenCheckpoint:
    """A committed checkpoint: its directory, its items by name, the step's document.

    A tree straight in the directory is the one item called None. Those of ``custom`` are items whose
    form only those know who saved them.
    """

    directory: Path
    items: Mapping[str, Path]
    bare: bool
    document: documents.StepDocument
    custom: Mapping[str, Path] = field(default_factory=dict)

    @property
    def only_tree(self) -> Path | None:
        """The directory of the tree, if the checkpoint was saved as one tree without a name."""
        if self.bare:
            return self.directory
        handlers = self.document.item_handlers
        if len(self.items) == 1:
            (name,) = self.items
            is_v1 = isinstance(handlers, dict) and ".v1." in str(handlers.get(name))
            if self.is_tree(name) and (name == "default" or (is_v1 and name in _V1_NAMES)):
                return self.items[name]
        return None

    def is_tree(self, name: str) -> bool:
        return _is_tree(self.items[name])

    def every_item(self) -> Mapping[str, Path]:
        """All items, for who wants all. Raises ``Corrupt`` if one that was saved is gone."""
        handlers = self.document.item_handlers
        known = (documents.TREE_HANDLER, documents.TREE_HANDLER_WITH_STRINGS, documents.JSON_HANDLER)
        saved = handlers.items() if isinstance(handlers, dict) else ()
        gone = [
            name
            for name, handler in saved
            if handler in known and name not in (*self.items, documents.METRICS_ITEM)
        ]
        if gone:
            raise Corrupt(
                f"{self.directory}: {documents.STEP_DOCUMENT} names items that are gone: {', '.join(gone)}. "
                f"Load the others by name: {', '.join(self.items) or 'none'}."
            )
        return self.items

    def item(self, name: str) -> Path:
        """The directory of an item. Raises ``ItemNotFound``, naming those that there are."""
        every = {**self.items, **self.custom}
        if name not in every:
            raise ItemNotFound(f"{self.directory} has no item {name!r}; it has {', '.join(every) or 'none'}.")
        return every[name]

    def load_item(self, name: str, load_tree: Callable[[Path], Any]) -> Any:
        """An item's value, by what its files are."""
        directory = self.item(name)
        return load_tree(directory) if _is_tree(directory) else load_json(directory)


def load_json(directory: Path, file: str = documents.JSON_ITEM_DOCUMENT) -> Any:
    """The value of a JSON item. Raises ``BadOption`` for a tree."""
    text = SealedDirectory(directory).read(file)
    if text is None:
        if _is_tree(directory):
            raise BadOption(
                f"the item {directory.name!r} is a tree, not JSON ({directory}); "
                "ask for it with StandardRestore()"
            )
        raise Corrupt(f"{directory} is neither a tree nor a JSON item: there is no {file}")
    return documents.parse_json(text, str(directory / file))


def open_checkpoint(directory: Path) -> OpenCheckpoint:
    """Finds out what is at a path.

    Raises:
      CheckpointNotFound: nothing, or nothing that is a checkpoint; says what is there instead.
    """
    if not commit.is_committed(directory):
        raise CheckpointNotFound(_what_is_there(directory))
    text = SealedDirectory(directory).read(documents.STEP_DOCUMENT)
    document = (
        documents.StepDocument()
        if text is None
        else documents.StepDocument.parse(text, str(directory / documents.STEP_DOCUMENT))
    )
    if _is_tree(directory):
        return OpenCheckpoint(directory, {}, True, document)
    items = {path.name: path for path in sorted(directory.iterdir()) if _is_item(path)}
    named = document.item_handlers if isinstance(document.item_handlers, dict) else {}
    others = sorted(set(named) - {*items, documents.METRICS_ITEM})
    custom = {name: directory / name for name in others if (directory / name).is_dir()}
    if not items and not custom:
        raise CheckpointNotFound(_what_is_there(directory))
    return OpenCheckpoint(directory, items, False, document, custom)


def _is_tree(directory: Path) -> bool:
    return (directory / documents.TREE_DOCUMENT).is_file() or (directory / _DATABASE).is_file()


def _is_item(path: Path) -> bool:
    if not path.is_dir() or path.name == documents.METRICS_ITEM:
        return False
    return _is_tree(path) or (path / documents.JSON_ITEM_DOCUMENT).is_file()


def _what_is_there(directory: Path) -> str:
    if commit.is_draft(directory):
        return f"{directory} is a draft that was never committed; it cannot be loaded."
    if not directory.exists():
        siblings = sorted(p.name for p in directory.parent.iterdir()) if directory.parent.is_dir() else []
        drafts = [name for name in siblings if name.startswith(directory.name + commit.DRAFT_SUFFIX)]
        if drafts:
            return f"{directory} does not exist; a save of it was begun and not committed ({drafts[0]})."
        there = f" In {directory.parent} there is: {', '.join(siblings[:10])}." if siblings else ""
        return f"{directory} does not exist.{there}"
    if not directory.is_dir():
        return f"{directory} is a file, not a checkpoint."
    steps = [path for path in sorted(directory.iterdir()) if path.is_dir() and path.name[-1:].isdigit()]
    if steps:
        return (
            f"{directory} holds steps ({', '.join(p.name for p in steps[:10])}), it is not one checkpoint. "
            f"Load one: load({str(steps[-1])!r}), or use CheckpointManager({str(directory)!r})."
        )
    return f"{directory} is not a checkpoint: it has neither {documents.TREE_DOCUMENT} nor items."


# --- one tree ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SavedLeaf:
    """A saved leaf, complete, and the source of its values (None if a document has its value)."""

    leaf: Leaf
    source: Source | None


class SavedTree:
    """The documents of a tree, and its arrays opened as they are asked for."""

    def __init__(self, directory: Path, document: TreeDocument, texts: SealedDirectory) -> None:
        self.directory = directory
        self._texts = texts
        self._document = document
        self.tuples = document.tuples

    @classmethod
    def open(cls, directory: Path, *, unsealed: bool = False) -> SavedTree:
        """Opens what a directory has of a tree.

        Args:
          directory: with the tree's own documents.
          unsealed: whether to do without the list of checksums if that is damaged.

        Raises:
          Corrupt: the tree's document is missing or wrong.
          BadOption: it is a JSON item.
        """
        path = directory / documents.TREE_DOCUMENT
        texts = SealedDirectory(directory, unsealed=unsealed)
        text = texts.read(documents.TREE_DOCUMENT)
        if text is None:
            if (directory / documents.JSON_ITEM_DOCUMENT).is_file() and not _is_tree(directory):
                raise BadOption(
                    f"the item {directory.name!r} is JSON, not a tree ({directory}); "
                    "ask for it with JsonRestore()"
                )
            raise Corrupt(f"{path} is missing: the names of the tree are in it.")
        document = TreeDocument.parse(text, str(path))
        if document.ours and not texts.is_sealed and not unsealed:
            raise Corrupt(
                f"{directory / LIST_NAME} is missing: without it damaged documents are not found out."
            )
        shared = [name for name, n in Counter(leaf.name for leaf in document.leaves).items() if n > 1]
        if shared:
            _log.warning(
                "%s: several leaves share one array, since their keys joined with dots are the same (%s): "
                "they have the values of whichever was written last.",
                directory,
                ", ".join(shared),
            )
        return cls(directory, document, texts)

    def leaves(self, names: Collection[str] | None = None) -> list[SavedLeaf]:
        """The leaves, complete. Those not among ``names`` are not opened, so their shapes stay unknown."""
        every = self._document.leaves
        opened = [leaf for leaf in every if not leaf.is_in_document and (names is None or leaf.name in names)]
        sources = self._open_arrays(opened)
        return [
            SavedLeaf(self._complete(leaf, sources.get(leaf.name)), sources.get(leaf.name)) for leaf in every
        ]

    def sound_leaves(self) -> tuple[list[SavedLeaf], dict[str, Corrupt]]:
        """The leaves that can be opened, and by name why others cannot. Slower than ``leaves``."""
        found: list[SavedLeaf] = []
        lost: dict[str, Corrupt] = {}
        for leaf in self._document.leaves:
            try:
                source = None if leaf.is_in_document else self._open_arrays([leaf])[leaf.name]
                found.append(SavedLeaf(self._complete(leaf, source), source))
            except Corrupt as error:
                lost[leaf.name] = error
        return found, lost

    def _complete(self, leaf: Leaf, source: Source | None) -> Leaf:
        if source is None:
            return replace(leaf, value=self._string(leaf)) if leaf.value is not None else leaf
        dtype = leaf.dtype or dtype_name(source.dtype)
        kind = leaf.kind
        if kind == "any":
            kind = "bool" if dtype == "bool" else "int" if source.dtype.kind in "iu" else "float"
        prng = self._prng.get(leaf.name) if kind == "jax.Array" else None
        said = "uint32" if prng else dtype
        shape_fits = bool(source.shape) if prng else kind not in NUMBERS or not source.shape
        if dtype_name(on_disk(dtype_named(said))) != dtype_name(source.dtype) or not shape_fits:
            raise Corrupt(
                f"{self.directory}: {leaf.name!r} is said to be {prng or kind} of {said}, and its array is "
                f"{dtype_name(source.dtype)}{list(source.shape)}"
            )
        return replace(
            leaf,
            kind=kind,
            shape=source.shape[:-1] if prng else source.shape,
            dtype=f"key<{prng}>" if prng else dtype,
            prng=prng,
            sharding=self._shardings.get(leaf.name),
            nbytes=source.dtype.itemsize * math.prod(source.shape),
            tied=None,  # the source knows it: what becomes of the leaf elsewhere is its own
        )

    def _string(self, leaf: Leaf) -> str | int:
        if leaf.value:
            return leaf.value  # the tree's document had it
        if leaf.name not in self._strings:
            raise Corrupt(f"{self.directory / documents.STRINGS_DOCUMENT} has no value for {leaf.name!r}")
        text = self._strings[leaf.name]
        try:
            return int(text, 16) if leaf.kind == "int" else text
        except ValueError:
            raise Corrupt(
                f"{self.directory / documents.STRINGS_DOCUMENT}: {leaf.name!r} is not a number"
            ) from None

    def _open_arrays(self, leaves: list[Leaf]) -> dict[str, Source]:
        found: dict[str, Source] = {}
        others = [leaf.name for leaf in leaves]
        if self._index is not None:
            others = []
            if len(leaves) > max(_FEW_LEAVES, len(self._document.leaves) // 8):
                self._index.prefetch()
            for leaf in leaves:
                source = open_array(
                    self._index,
                    leaf.name,
                    str(self.directory),
                    marked=self._document.ours,
                    tied=leaf.tied,
                )
                if source is None:
                    others.append(leaf.name)
                else:
                    found[leaf.name] = source
        if others:
            opened = open_arrays(
                self.directory,
                others,
                ocdbt=self._is_database,
                zarr3=self._document.zarr3,
                complete=self._document.complete,
            )
            found |= dict(zip(others, opened, strict=True))
        return found

    @cached_property
    def _is_database(self) -> bool:
        # Not what the document says: older releases of Orbax wrote that wrongly.
        return (self.directory / _DATABASE).is_file()

    @cached_property
    def _index(self) -> Index | None:
        """The index of the database; None if there is none, or if a chunk that is missing may mean zeros."""
        return Index.open(self.directory) if self._is_database and self._document.complete else None

    @cached_property
    def _shardings(self) -> dict[str, str]:
        text = self._texts.read(documents.SHARDING_DOCUMENT)
        path = self.directory / documents.SHARDING_DOCUMENT
        return {} if text is None else documents.parse_shardings(text, str(path))

    @cached_property
    def _strings(self) -> dict[str, str]:
        text = self._texts.read(documents.STRINGS_DOCUMENT)
        path = self.directory / documents.STRINGS_DOCUMENT
        return {} if text is None else {k: str(v) for k, v in documents.parse_object(text, str(path)).items()}

    @cached_property
    def _prng(self) -> dict[str, str]:
        directory = self.directory / documents.ARRAY_DOCUMENTS
        names = {f"{documents.ARRAY_DOCUMENTS}/{path.name}" for path in directory.glob("process_*")}
        names |= {name for name in self._texts.names if name.startswith(f"{documents.ARRAY_DOCUMENTS}/")}
        found: dict[str, str] = {}
        for name in sorted(names):
            text = self._texts.read(name)
            found |= documents.parse_array_document(text or b"", str(self.directory / name))
        return found
