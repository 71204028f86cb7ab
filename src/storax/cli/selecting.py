"""From what was typed to the leaves that are meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from storax.cli.printing import say
from storax.errors import BadOption
from storax.survey.leaves import SeenLeaf, leaf_names, see_leaves
from storax.survey.places import Place, find
from storax.survey.values import split_name


def found(path: str, item: str | None = None) -> Place:
    """The checkpoint that a path means; says which step, if it was a run."""
    place = find(path, item)
    if place.is_newest_of is not None:
        say(f"{path} is a run; its newest step is {place.path.name}.")
    return place


def matching(pattern: str | None) -> Callable[[str], bool] | None:
    """Whether a name has a regular expression; None if every name is wanted."""
    if pattern is None:
        return None
    try:
        regex = re.compile(pattern)
    except re.error as error:
        raise BadOption(f"--match {pattern!r} is no regular expression: {error}") from None
    return lambda name: regex.search(name) is not None


def all_leaves(place: Place, pattern: str | None = None) -> list[tuple[str, SeenLeaf]]:
    """Of all trees of a checkpoint the leaves that match, each with what it is called here.

    With several items that is ``item/leaf``.
    """
    wanted = matching(pattern)
    return [
        (_called(place, item, leaf.name), leaf)
        for item, directory in place.trees.items()
        for leaf in see_leaves(directory, wanted, weigh=False)
    ]


def one_leaf(place: Place, text: str) -> tuple[SeenLeaf, tuple[Any, ...]]:
    """The leaf that a text such as ``params.w[0:2]`` means, and the index. Opens no other leaf.

    Raises:
      BadOption: no leaf, or several items' leaves, are called so; says which are called nearly so.
    """
    candidates = {text, split_name(text, ())[0]}
    found = {
        _called(place, item, leaf.name): leaf
        for item, directory in place.trees.items()
        for leaf in see_leaves(directory, partial(_is_meant, place, item, candidates), weigh=False)
    }
    typed, index = split_name(text, {*found, *(leaf.name for leaf in found.values())})
    exact = {shown: leaf for shown, leaf in found.items() if shown == typed}
    meant = exact or {shown: leaf for shown, leaf in found.items() if leaf.name == typed}
    if len(meant) != 1:
        raise BadOption(f"there is no one leaf {typed!r}. {_advice(place, typed, list(meant))}")
    (leaf,) = meant.values()
    return leaf, index


def _is_meant(place: Place, item: str, candidates: set[str], name: str) -> bool:
    return name in candidates or _called(place, item, name) in candidates


def _advice(place: Place, typed: str, close: list[str]) -> str:
    names = [_called(place, item, name) for item, tree in place.trees.items() for name in leaf_names(tree)]
    close = close or difflib.get_close_matches(typed, names, n=5, cutoff=0.5)
    close = close or [name for name in names if typed in name][:5]
    if close:
        return f"Did you mean {', '.join(close)}?"
    return f"All {len(names):,}: storax show {place.path} -d 0"


def _called(place: Place, item: str, name: str) -> str:
    return f"{item}/{name}" if item and place.has_items else name
