"""A saved tree folded into branches, with what is below each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from storax.survey.leaves import SeenLeaf

Order = Literal["tree", "size", "name"]


@dataclass(slots=True)
class Branch:
    """A leaf, or a container and what is in it.

    Attributes:
      name: the last part of its key path; of the root that of the item.
      path: the whole key path.
      leaf: if it is one.
      children: in the order of the tree.
      leaves, nbytes, stored_bytes: at it and below.
      folded: whether there is more below that was left out.
    """

    name: str
    path: tuple[str, ...]
    leaf: SeenLeaf | None = None
    children: dict[str, Branch] = field(default_factory=dict)
    leaves: int = 0
    nbytes: int = 0
    stored_bytes: int = 0
    folded: bool = False


def grow(leaves: Iterable[SeenLeaf], depth: int | None = None, name: str = "") -> Branch:
    """The tree that leaves spell.

    Args:
      leaves: in the order of the tree.
      depth: how many levels below the root stay apart; None is all.
      name: of the root.
    """
    root = Branch(name, ())
    for leaf in leaves:
        add(root, leaf, depth)
    return root


def add(root: Branch, leaf: SeenLeaf, depth: int | None = None) -> None:
    """Adds one leaf to a tree."""
    shown = leaf.path if depth is None else leaf.path[:depth]
    branch = root
    _count(branch, leaf)
    for i, part in enumerate(shown):
        child = branch.children.get(part)
        if child is None:
            child = branch.children[part] = Branch(part, leaf.path[: i + 1])
        branch = child
        _count(branch, leaf)
    if len(shown) == len(leaf.path):
        branch.leaf = leaf
    else:
        branch.folded = True


def _count(branch: Branch, leaf: SeenLeaf) -> None:
    branch.leaves += 1
    branch.nbytes += leaf.nbytes
    branch.stored_bytes += leaf.stored_bytes


def walk(branch: Branch, order: Order = "tree", depth: int = 0) -> Iterator[tuple[int, Branch]]:
    """All branches below one, each with its depth, parents first."""
    for child in ordered(list(branch.children.values()), order):
        yield depth, child
        yield from walk(child, order, depth + 1)


def ordered(branches: Sequence[Branch], order: Order) -> Sequence[Branch]:
    keys: dict[str, Callable[[Branch], object]] = {
        "size": lambda branch: (-branch.nbytes, branch.name),
        "name": lambda branch: branch.name,
    }
    return branches if order == "tree" else sorted(branches, key=keys[order])  # type: ignore[arg-type]
