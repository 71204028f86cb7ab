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
    return _plain(root, tuples)


class _Node(dict[Key, Any]):
    """A container while a tree is being put together; leaves may be dicts too, but not of this class."""


def _plain(root: _Node, tuples: frozenset[str]) -> Any:
    """The plain containers, made from below: no recursion, as trees may be deeper than Python's stack."""
    found: list[_Placed] = [(root, None)]
    for place in found:
        found += [(child, (key, place)) for key, child in place[0].items() if isinstance(child, _Node)]
    made: Any = None
    for node, where in reversed(found):
        made = _container(node, where, tuples)
        if where is not None:
            key, (above, _) = where
            above[key] = made
    return made


# A node, with the key and the node that it is under; the root is under none.
_Placed = tuple[_Node, tuple[Key, Any] | None]


def _container(children: Mapping[Key, Any], where: tuple[Key, Any] | None, tuples: frozenset[str]) -> Any:
    if all(key.kind == "index" for key in children):
        in_order = [children[key] for key in sorted(children, key=lambda k: int(k.value))]
        return tuple(in_order) if tuples and path_text(_path(where)) in tuples else in_order
    return {key.value: value for key, value in children.items()}


def _path(where: tuple[Key, Any] | None) -> KeyPath:
    keys = []
    while where is not None:
        key, (_, where) = where
        keys.append(key)
    return tuple(reversed(keys))
