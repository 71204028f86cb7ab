"""Leaves back to nested containers: the plain dicts, lists and tuples that key paths spell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from storax.errors import Corrupt
from storax.tree.names import Key, KeyPath, path_text


def unflatten(leaves: Sequence[tuple[KeyPath, Any]], tuples: frozenset[str]) -> Any:
    """The tree of plain dicts, lists and tuples that the key paths spell.

    Args:
      leaves: each with its key path.
      tuples: the key paths, as ``path_text``, of the sequences that are tuples; others are lists.

    Raises:
      Corrupt: the paths spell no tree, as a leaf is also a container.

    >>> unflatten([((Key("key", "a"), Key("index", 0)), 1), ((Key("key", "b"),), 2)], frozenset())
    {'a': [1], 'b': 2}
    """
    if len(leaves) == 1 and not leaves[0][0]:
        return leaves[0][1]
    if not leaves:
        return {}
    root = _Node()
    for path, value in leaves:
        node: Any = root
        for key in path[:-1]:
            node = node.setdefault(key, _Node()) if isinstance(node, _Node) else None
        if not path or not isinstance(node, _Node) or path[-1] in node:
            raise Corrupt(
                f"the tree's document has a leaf at {path_text(path)}, and another one at or above it"
            )
        node[path[-1]] = value
    return _plain(root, (), tuples)


class _Node(dict[Key, Any]):
    """A container while a tree is being put together; leaves may be dicts too, but not of this class."""


def _plain(node: Mapping[Key, Any], path: KeyPath, tuples: frozenset[str]) -> Any:
    children = {
        key: _plain(value, (*path, key), tuples) if isinstance(value, _Node) else value
        for key, value in node.items()
    }
    if all(key.kind == "index" for key in children):
        in_order = [children[key] for key in sorted(children, key=lambda k: int(k.value))]
        return tuple(in_order) if path_text(path) in tuples else in_order
    return {key.value: value for key, value in children.items()}
