"""What a checkpoint holds, in the forms that Orbax has given it: those of today, and those of before.

Code written for older releases indexes the metadata of a checkpoint as a dict and maps over it as a
tree; code for newer ones asks for ``.item_metadata`` and ``.tree``. Both work here.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding

from storax import inspection, pytree
from storax.arrays.place import sharding_of
from storax.checkpoint import open_checkpoint
from storax.inspection import CheckpointMetadata, LeafMetadata
from storax.items import Composite
from storax.store.paths import resolve
from storax.tree.dtypes import dtype_named
from storax.tree.leaves import EMPTY


@dataclass(frozen=True)
class ShardingMetadata:
    """A saved sharding, that may be of devices that are not here."""

    document: Mapping[str, Any]

    def to_jax_sharding(self) -> Sharding | None:
        """The sharding, or None if the devices here cannot hold it."""
        return sharding_of(json.dumps(dict(self.document)))


@dataclass
class Metadata:
    """A saved leaf.

    Attributes:
      name: the parts of its key path, joined with dots.
      directory: of the tree.
    """

    name: str
    directory: Path | None = None


@dataclass
class ArrayMetadata(Metadata):
    """A saved array."""

    shape: tuple[int, ...] = ()
    sharding: Any = None
    dtype: Any = None
    storage: Any = None
    nbytes: int = field(default=0, compare=False)
    is_numpy: bool = field(default=False, compare=False)


@dataclass
class ScalarMetadata(ArrayMetadata):
    """A saved number."""


@dataclass
class StringMetadata(Metadata):
    """A saved string."""


class TreeMetadata:
    """A tree of metadata. It is a pytree, and answers as the tree itself does."""

    def __init__(self, tree: Any, custom_metadata: Mapping[str, Any] | None = None) -> None:
        self.tree = tree
        self.custom_metadata = custom_metadata

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.tree, name)

    def __getitem__(self, key: Any) -> Any:
        return self.tree[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tree)

    def __len__(self) -> int:
        return len(self.tree)

    def __contains__(self, key: object) -> bool:
        return key in self.tree

    def __eq__(self, other: object) -> bool:
        return bool(self.tree == plain(other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TreeMetadata({self.tree!r})"


pytree.register(TreeMetadata, lambda node: node.tree, TreeMetadata)


def plain(value: Any) -> Any:
    """The tree itself, from a tree of metadata, of storax or of Orbax."""
    if isinstance(value, StepMetadata):
        return plain(value.item_metadata)
    is_tree = hasattr(value, "tree") and hasattr(value, "custom_metadata")
    return value.tree if is_tree else value


@dataclass
class StepMetadata:
    """A checkpoint. Answers as its items' metadata do, for code of older releases, and is a pytree."""

    item_handlers: Any = None
    item_metadata: Any = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    performance_metrics: Mapping[str, Any] = field(default_factory=dict)
    init_timestamp_nsecs: int | None = None
    commit_timestamp_nsecs: int | None = None
    custom_metadata: Mapping[str, Any] = field(default_factory=dict)
    path: Path | None = None
    nbytes: int = 0

    def __getitem__(self, key: Any) -> Any:
        return self.item_metadata[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.item_metadata)

    def __len__(self) -> int:
        return len(self.item_metadata)

    def __contains__(self, key: object) -> bool:
        return key in self.item_metadata

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "item_metadata":
            raise AttributeError(name)
        return getattr(self.item_metadata, name)


pytree.register(StepMetadata, lambda node: plain(node.item_metadata), lambda tree: tree)


class RootMetadata(dict[str, Any]):
    """What was saved about a whole run: a dict, and by attribute as Orbax has it."""

    internal_metadata: Mapping[str, Any] = {}

    @property
    def custom_metadata(self) -> dict[str, Any]:
        return dict(self)


def step_metadata(found: CheckpointMetadata) -> StepMetadata:
    """Orbax's form of what storax knows of a checkpoint."""
    checkpoint = open_checkpoint(found.path)
    document = checkpoint.document
    if checkpoint.only_tree is not None and checkpoint.bare:
        items: Any = tree_of(found.item_metadata, checkpoint.only_tree)
    else:
        items = _items(found)
    return StepMetadata(
        document.item_handlers,
        items,
        found.metrics or {},
        {},
        found.init_timestamp_nsecs,
        found.commit_timestamp_nsecs,
        dict(found.custom_metadata),
        found.path,
        found.nbytes,
    )


def _items(found: CheckpointMetadata) -> Composite:
    checkpoint = open_checkpoint(found.path)
    if checkpoint.only_tree is not None:
        (name,) = checkpoint.items
        trees = {name: found.item_metadata}
    else:
        trees = found.item_metadata
    return Composite(
        **{name: None if tree is None else tree_of(tree, found.path / name) for name, tree in trees.items()},
        **dict.fromkeys(checkpoint.custom),
    )


def tree_of(tree: Any, directory: Path) -> TreeMetadata:
    """A tree of Orbax's metadata, from one of storax's."""
    return TreeMetadata(jax.tree.map(lambda leaf: leaf_metadata(leaf, directory), tree))


def leaf_metadata(leaf: LeafMetadata, directory: Path) -> Any:
    """Orbax's metadata of a leaf; empty containers and None stand for themselves."""
    if leaf.kind in EMPTY:
        return {"dict": {}, "list": [], "tuple": ()}[leaf.kind]
    if leaf.kind == "None":
        return None
    if leaf.kind == "str" or leaf.dtype is None:
        return StringMetadata(leaf.name, directory)
    dtype = dtype_of(leaf.dtype)
    kind = ArrayMetadata if leaf.kind in ("jax.Array", "np.ndarray", "bytes") else ScalarMetadata
    sharding = None if leaf.sharding is None else ShardingMetadata(leaf.sharding)
    is_numpy = leaf.kind == "np.ndarray"
    return kind(leaf.name, directory, leaf.shape or (), sharding, dtype, None, leaf.nbytes, is_numpy)


def dtype_of(name: str) -> Any:
    """A dtype, from its name; also that of typed PRNG keys."""
    if name.startswith("key<"):
        return jax.eval_shape(functools.partial(jax.random.key, impl=name[4:-1]), 0).dtype
    return np.dtype(dtype_named(name))


def get_step_metadata(path: str | os.PathLike[str]) -> StepMetadata:
    """A step's or a checkpoint's document: handlers, times, custom metadata."""
    return step_metadata(inspection.metadata(resolve(path)))


# ``storax.metadata`` is a function here and a module in Orbax: it is called, and has names in it.
metadata = inspection.metadata
for _kind in (
    ArrayMetadata,
    ScalarMetadata,
    StringMetadata,
    Metadata,
    TreeMetadata,
    StepMetadata,
    RootMetadata,
):
    setattr(metadata, _kind.__name__, _kind)
setattr(metadata, get_step_metadata.__name__, get_step_metadata)
