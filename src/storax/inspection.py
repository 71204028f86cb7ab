"""What is in a checkpoint, without reading its values or touching a device."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storax.checkpoint import OpenCheckpoint, SavedTree, load_json, open_checkpoint
from storax.opening import Tree, open_safetensors
from storax.progress import readable
from storax.store.paths import resolve
from storax.store.unchanged import unchanged
from storax.tree import documents
from storax.tree.nesting import unflatten
from storax.tree.notebook import leaf_table


@dataclass(frozen=True, slots=True)
class LeafMetadata:
    """One saved leaf.

    Attributes:
      name: the parts of its key path, joined with dots.
      kind: what it was: ``jax.Array``, ``np.ndarray``, ``int``, ``str``, …
      shape: of arrays and numbers, otherwise None.
      dtype: its name; ``key<impl>`` for typed PRNG keys.
      sharding: as saved, a JSON object; None if it had none.
      nbytes: bytes of its values.
    """

    name: str
    kind: str
    shape: tuple[int, ...] | None
    dtype: str | None
    sharding: Mapping[str, Any] | None
    nbytes: int

    def __str__(self) -> str:
        shape = "" if self.shape is None else f"[{','.join(map(str, self.shape))}]"
        return f"{self.dtype or self.kind}{shape}"


@dataclass(frozen=True, slots=True)
class CheckpointMetadata:
    """A whole checkpoint.

    Attributes:
      path: its directory.
      item_metadata: the tree of ``LeafMetadata``; of a checkpoint with named items a dict of such
        trees, with None for items that are JSON.
      custom_metadata: what the user saved beside it; of safetensors files the strings of their headers.
      metrics: of a manager's step.
      init_timestamp_nsecs, commit_timestamp_nsecs: when the save began and ended, since 1970.
      nbytes: bytes of all values.
    """

    path: Path
    item_metadata: Any
    custom_metadata: Mapping[str, Any]
    metrics: Mapping[str, Any] | None
    init_timestamp_nsecs: int | None
    commit_timestamp_nsecs: int | None
    nbytes: int

    def _repr_html_(self) -> str:
        """As a notebook shows it."""
        found = list(_flat(self.item_metadata, ""))
        rows = [(name, str(leaf), readable(leaf.nbytes)) for name, leaf in found]
        said = [f"{len(found):,} leaves", readable(self.nbytes)]
        said += [
            f"{key} = {value!r}" for key, value in {**(self.metrics or {}), **self.custom_metadata}.items()
        ]
        return leaf_table(str(self.path), ", ".join(said), rows)


def _flat(tree: Any, name: str) -> Iterator[tuple[str, LeafMetadata]]:
    """The leaves of a tree of metadata, with the names of their items in front."""
    if isinstance(tree, LeafMetadata):
        yield name, tree
    elif isinstance(tree, (Mapping, list, tuple)):
        pairs = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
        for key, value in pairs:
            yield from _flat(value, f"{name}.{key}" if name else str(key))


def metadata(path: str | os.PathLike[str]) -> CheckpointMetadata:
    """Shapes, dtypes, shardings, bytes and custom metadata of a checkpoint. Touches no device.

    Args:
      path: as for ``load``.

    Raises:
      CheckpointNotFound: nothing committed is there.
      CheckpointChanged: it was deleted or replaced again and again meanwhile.
      Corrupt: a document or the database's index is wrong.

    Example:
      >>> import storax, tempfile, numpy as np
      >>> where = tempfile.mkdtemp() + "/a"
      >>> storax.save(where, {"w": np.zeros((2, 3))}, custom_metadata={"run": "x"})
      >>> found = storax.metadata(where)
      >>> str(found.item_metadata["w"]), found.nbytes, found.custom_metadata
      ('float64[2,3]', 48, {'run': 'x'})
    """
    directory = resolve(path)
    return unchanged(directory, lambda: _metadata(directory))


def _metadata(directory: Path) -> CheckpointMetadata:
    if (tensors := open_safetensors(directory)) is not None:
        found, nbytes = _described(tensors)
        return CheckpointMetadata(directory, found, tensors.metadata, None, None, None, nbytes)
    checkpoint = open_checkpoint(directory)
    found, nbytes = _items(checkpoint)
    return CheckpointMetadata(
        checkpoint.directory,
        found,
        checkpoint.document.custom,
        read_metrics(checkpoint.directory),
        checkpoint.document.init_ns,
        checkpoint.document.commit_ns,
        nbytes,
    )


def _items(checkpoint: OpenCheckpoint) -> tuple[Any, int]:
    if (tree := checkpoint.only_tree) is not None:
        return tree_metadata(tree)
    items: dict[str, Any] = {}
    total = 0
    for name, directory in checkpoint.items.items():
        items[name] = None
        if checkpoint.is_tree(name):
            items[name], nbytes = tree_metadata(directory)
            total += nbytes
    return items, total


def tree_metadata(directory: Path) -> tuple[Any, int]:
    """The tree of ``LeafMetadata`` of one item, and the bytes of its values."""
    return _described(SavedTree.open(directory))


def _described(saved: Tree) -> tuple[Any, int]:
    leaves = [found.leaf for found in saved.leaves()]
    tree = unflatten(
        [
            (
                leaf.path,
                LeafMetadata(
                    leaf.name, leaf.kind, leaf.shape, leaf.dtype, _parsed(leaf.sharding), leaf.nbytes
                ),
            )
            for leaf in leaves
        ],
        saved.tuples,
    )
    return tree, sum(leaf.nbytes for leaf in leaves)


def _parsed(sharding: str | None) -> dict[str, Any] | None:
    return (
        None if sharding is None else documents.parse_object(sharding.encode(), documents.SHARDING_DOCUMENT)
    )


def read_metrics(directory: Path) -> dict[str, Any] | None:
    """The metrics that a manager saved with a step, or None."""
    item = directory / documents.METRICS_ITEM
    if not (item / documents.METRICS_DOCUMENT).is_file():
        return None
    value = load_json(item, documents.METRICS_DOCUMENT)
    return value if isinstance(value, dict) else None
