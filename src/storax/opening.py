"""Any checkpoint, opened: its trees as leaves with sources, and its arrays by name, read when indexed.

What kind of checkpoint it is, is found out from the files: one of storax or Orbax, or a safetensors
file, a directory with such files, or the index of one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from storax.arrays.lazy import LazyArray
from storax.checkpoint import OpenCheckpoint, SavedLeaf, SavedTree, load_json, open_checkpoint
from storax.errors import CheckpointChanged
from storax.progress import readable
from storax.safetensors import files
from storax.safetensors.files import Collection as Tensors
from storax.safetensors.reading import TensorSource
from storax.store import commit, posix
from storax.store.paths import resolve
from storax.tree.dtypes import dtype_name, dtype_named
from storax.tree.leaves import EMPTY, Leaf
from storax.tree.names import Key
from storax.tree.notebook import leaf_table

_EMPTY: dict[str, Callable[[], Any]] = {"dict": dict, "list": list, "tuple": tuple}


class Tree(Protocol):
    """One opened tree, of whatever kind: its leaves, each with the source of its values."""

    @property
    def directory(self) -> Path: ...
    @property
    def tuples(self) -> frozenset[str]: ...

    def leaves(self, names: Collection[str] | None = None) -> list[SavedLeaf]:
        """The leaves; those not among ``names`` may be without a source."""
        ...


class SafetensorsTree:
    """The tensors of safetensors files, as the leaves of a flat dict."""

    tuples: frozenset[str] = frozenset()

    def __init__(self, found: Tensors) -> None:
        self.directory = found.path
        self.metadata = found.metadata
        self._found = found

    def leaves(self, names: Collection[str] | None = None) -> list[SavedLeaf]:
        return [_tensor_leaf(name, TensorSource(placed)) for name, placed in self._found.tensors.items()]


def _tensor_leaf(name: str, source: TensorSource) -> SavedLeaf:
    dtype = dtype_name(source.dtype)
    tensor = source.placed.tensor
    # JAX has no arrays of six-bit numbers.
    kind: Any = "np.ndarray" if dtype.startswith("float6_") else "jax.Array"
    return SavedLeaf(
        Leaf((Key("key", name),), kind, tensor.shape, dtype, nbytes=tensor.stop - tensor.start), source
    )


def open_safetensors(path: Path) -> SafetensorsTree | None:
    """The tensors at a path; None if it is no safetensors file, index or directory of them.

    Raises:
      Corrupt: it is one, and its header or index is wrong. No tensor was read.
    """
    if commit.is_draft(path):
        return None
    found = files.find(path)
    return None if found is None else SafetensorsTree(found)


def open(path: str | os.PathLike[str]) -> OpenedCheckpoint:
    """Opens any checkpoint without reading its values.

    Args:
      path: a checkpoint of storax or Orbax, a step of a ``CheckpointManager`` or an item of it, a
        safetensors file, a directory with such files, or a ``model.safetensors.index.json``.

    Returns:
      A mapping from the names of leaves (keys joined with dots; of a checkpoint with several items
      the item's name first) to arrays that are read when they are indexed. Use it in a ``with``.

    Raises:
      CheckpointNotFound: nothing committed is there.
      Corrupt: a document, a header or an index is wrong.

    Example:
      >>> import storax, tempfile, numpy as np
      >>> where = tempfile.mkdtemp() + "/a"
      >>> storax.save(where, {"embed": {"weight": np.arange(12).reshape(4, 3)}})
      >>> with storax.open(where) as m:
      ...     m["embed.weight"].shape, m["embed.weight"][1:3, 0]
      ((4, 3), array([3, 6]))
    """
    return OpenedCheckpoint(resolve(path))


class OpenedCheckpoint(Mapping[str, Any]):
    """The leaves of a checkpoint by name. Arrays are ``LazyArray``; text, None and the like are values.

    Attributes:
      path: of the checkpoint.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held = ExitStack()
        self._held.enter_context(commit.lease(path))
        self._closed = False
        try:
            self._watched: dict[Path, tuple[int, int]] = {}
            self._leaves = self._open(path)
        except BaseException:
            self._held.close()
            raise

    def _open(self, path: Path) -> dict[str, SavedLeaf | Any]:
        if (tensors := open_safetensors(path)) is not None:
            self._watched = {file: posix.identity(file) for file in tensors._found.files}
            return {found.leaf.name: found for found in tensors.leaves()}
        checkpoint = open_checkpoint(path)
        self._watched = {path: posix.identity(path)}
        return dict(_items(checkpoint))

    def __getitem__(self, name: str) -> Any:
        self._check()
        if name not in self._leaves:
            raise KeyError(f"{self.path} has no leaf {name!r}; list(...) has their names")
        found = self._leaves[name]
        if not isinstance(found, SavedLeaf):
            return found
        if found.source is None:
            return _EMPTY[found.leaf.kind]() if found.leaf.kind in EMPTY else found.leaf.value
        return LazyArray(name, found.source, _dtype_in_memory(found), self._check)

    def __iter__(self) -> Iterator[str]:
        return iter(self._leaves)

    def __len__(self) -> int:
        return len(self._leaves)

    def __repr__(self) -> str:
        return f"<{self.path}: {len(self)} leaves>"

    def _repr_html_(self) -> str:
        """As a notebook shows it."""
        leaves = [found.leaf for found in self._leaves.values() if isinstance(found, SavedLeaf)]
        sizes = {name: f.leaf.nbytes if isinstance(f, SavedLeaf) else 0 for name, f in self._leaves.items()}
        rows = [
            (name, str(f.leaf) if isinstance(f, SavedLeaf) else "JSON", readable(sizes[name]))
            for name, f in self._leaves.items()
        ]
        return leaf_table(str(self.path), f"{len(leaves):,} leaves, {readable(sum(sizes.values()))}", rows)

    def __enter__(self) -> OpenedCheckpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Gives back what keeps the checkpoint from being deleted; its arrays cannot be read after it."""
        self._closed = True
        self._held.close()

    def _check(self) -> None:
        if self._closed:
            raise ValueError(f"{self.path} is closed; read its arrays within the with statement")
        for path, before in self._watched.items():
            try:
                same = posix.identity(path) == before
            except (FileNotFoundError, NotADirectoryError):
                raise CheckpointChanged(f"{path} was deleted while it was open. Open it again.") from None
            if not same:
                raise CheckpointChanged(f"{path} was replaced while it was open. Open it again.")


def _dtype_in_memory(found: SavedLeaf) -> np.dtype:
    """The dtype of the values; that of the source may be their raw bytes. Of PRNG keys that of their data."""
    return np.dtype(np.uint32) if found.leaf.prng else dtype_named(found.leaf.dtype or "uint8")


def _items(checkpoint: OpenCheckpoint) -> Iterator[tuple[str, SavedLeaf | Any]]:
    if (tree := checkpoint.only_tree) is not None:
        yield from ((found.leaf.name, found) for found in SavedTree.open(tree).leaves())
        return
    for item, directory in checkpoint.items.items():
        if not checkpoint.is_tree(item):
            yield item, load_json(directory)
            continue
        for found in SavedTree.open(directory).leaves():
            yield f"{item}.{found.leaf.name}" if found.leaf.name else item, found
