"""Key path <-> leaf name.

A leaf's name is the parts of its key path joined with dots, as Orbax has it: the array
at ``tree['params'][0]['w']`` is ``params.0.w``. The name is the key of the array in the
database, so two leaves must not share one; Orbax lets them, and then both restore as the
same values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from storax.errors import NameCollision


@dataclass(frozen=True, slots=True)
class Key:
    """One step of a key path: the index of a sequence, or the key or field of anything else."""

    kind: Literal["index", "key"]
    value: str | int

    def __str__(self) -> str:
        return str(self.value)


KeyPath = tuple[Key, ...]


def leaf_name(path: KeyPath) -> str:
    """The name of a leaf on disk.

    >>> leaf_name((Key("key", "params"), Key("index", 0), Key("key", "w")))
    'params.0.w'
    """
    return ".".join(str(key) for key in path)


def path_text(path: KeyPath) -> str:
    """How the tree's document spells a key path: the ``str`` of a tuple of strings.

    >>> path_text((Key("key", "a"), Key("index", 1)))
    "('a', '1')"
    """
    return str(tuple(str(key) for key in path))


def display(name: str) -> str:
    """A name as messages show it; the whole tree of a bare array has the empty name."""
    return name or "(the whole tree)"


def check_distinct(paths: Iterable[KeyPath]) -> None:
    """Raises ``NameCollision`` if two leaves have one name, listing all such groups."""
    by_name: dict[str, list[KeyPath]] = defaultdict(list)
    for path in paths:
        by_name[leaf_name(path)].append(path)
    clashes = [(name, group) for name, group in by_name.items() if len(group) > 1]
    if clashes:
        lines = [f"  {display(name)}: " + " and ".join(map(spelled, group)) for name, group in clashes]
        raise NameCollision(
            "these leaves would share a name on disk:\n"
            + "\n".join(lines)
            + "\nRename one key of each group; names are the keys of the path joined with dots."
        )


def spelled(path: KeyPath) -> str:
    """A key path as Python has it.

    >>> spelled((Key("key", "a"), Key("index", 0)))
    "tree['a'][0]"
    """
    return "tree" + "".join(f"[{key.value!r}]" for key in path)
