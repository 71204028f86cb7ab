"""Where entries come from: checkpoints, safetensors files, and trees in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from storax import pytree
from storax.checkpoint import SavedLeaf, SavedTree, open_checkpoint
from storax.errors import BadOption
from storax.opening import Tree, open_safetensors
from storax.store.paths import resolve
from storax.surgery.entries import Entries, entry_of
from storax.surgery.memory import MemoryArray
from storax.tree.leaves import Leaf
from storax.tree.names import Key, KeyPath


@dataclass(frozen=True, slots=True)
class MemoryTree:
    """A tree in memory, as what ``load`` reads from."""

    found: tuple[SavedLeaf, ...]
    tuples: frozenset[str]
    directory: Path = Path("(memory)")

    def leaves(self, names: Any = None) -> list[SavedLeaf]:
        return list(self.found)


def memory_tree(tree: Any) -> MemoryTree:
    """The leaves of a tree, each with the source of its values. Copies nothing.

    Raises:
      UnsupportedLeaf: for values that no checkpoint can hold.
    """
    pairs, structure = pytree.flatten(tree)
    leaves = pytree.describe(pairs)
    found = tuple(_memory_leaf(leaf, value) for leaf, (_, value) in zip(leaves, pairs, strict=True))
    return MemoryTree(found, pytree.tuples(structure, [path for path, _ in pairs]))


def _memory_leaf(leaf: Leaf, value: Any) -> SavedLeaf:
    if leaf.is_in_document:
        return SavedLeaf(leaf, None)
    return SavedLeaf(leaf, MemoryArray(pytree.array_of(leaf, value)))


def is_path(source: Any) -> bool:
    return isinstance(source, (str, os.PathLike))


def open_tree(source: Any) -> Tree:
    """The tree at a path, or a tree in memory.

    Raises:
      CheckpointNotFound: nothing committed is there.
      BadOption: several items are there, and none is chosen.
    """
    if not is_path(source):
        return memory_tree(source)
    path = resolve(source)
    if (tensors := open_safetensors(path)) is not None:
        return tensors
    checkpoint = open_checkpoint(path)
    if (only := checkpoint.only_tree) is not None:
        return SavedTree.open(only)
    trees = [name for name in checkpoint.items if checkpoint.is_tree(name)]
    if not trees:
        raise BadOption(f"{path} has no tree, only {', '.join(checkpoint.items)}")
    raise BadOption(
        f"{path} has the items {', '.join(checkpoint.items)}. Name one: {str(path / trees[0])!r}; or "
        "several of them with a prefix each: {" + ", ".join(f"{t!r}: {str(path / t)!r}" for t in trees) + "}."
    )


def opened(source: Any) -> tuple[Entries, Path, frozenset[str]]:
    """Entries, where they are, and which nodes are tuples: of a checkpoint, a tree, or several by prefix."""
    if not is_several(source):
        tree = open_tree(source)
        return {found.leaf.name: entry_of(found) for found in tree.leaves()}, tree.directory, tree.tuples
    entries: Entries = {}
    for prefix, one in source.items():
        entries |= entries_of(one, str(prefix))
    return entries, Path(" + ".join(f"{prefix}: {one}" for prefix, one in source.items())), frozenset()


def is_several(source: Any) -> bool:
    """Whether it is a dict of paths by prefix. A model is never a dict of nothing but strings."""
    return isinstance(source, Mapping) and bool(source) and all(is_path(one) for one in source.values())


def paths_of(source: Any) -> list[Path]:
    """The checkpoints that a source names; none for a tree in memory."""
    if is_several(source):
        return [resolve(one) for one in source.values()]
    return [resolve(source)] if is_path(source) else []


def entries_of(source: Any, prefix: str = "") -> Entries:
    """The entries of a checkpoint or of a tree in memory, with a prefix before their names."""
    found: Entries = {}
    keys: KeyPath = tuple(Key("key", key) for key in prefix.split(".")) if prefix else ()
    for saved in open_tree(source).leaves():
        leaf = replace(saved.leaf, path=(*keys, *saved.leaf.path))
        found[leaf.name] = entry_of(SavedLeaf(leaf, saved.source))
    return found
