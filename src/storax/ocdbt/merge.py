"""One database over several: its index holds all their keys, its values stay in their data files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from pathlib import Path

from storax.errors import Corrupt
from storax.ocdbt.nodes import Entry, Indirect
from storax.ocdbt.writer import write_nodes
from storax.store import posix


def merge(directory: Path, parts: Mapping[str, Sequence[Entry]]) -> None:
    """Writes the root database of a directory over the databases in directories below it.

    Args:
      directory: has the parts' directories in it, and no database of its own.
      parts: the entries of each part, by the name of its directory (``"ocdbt.process_0"``).

    Raises:
      Corrupt: if two parts have the same key.
      StoreError: if the file system refuses.
    """
    found: list[tuple[bytes, Entry, str]] = []
    for part, entries in parts.items():
        paths: dict[str, str] = {}
        for key, value in entries:
            if isinstance(value, Indirect):
                path = paths.setdefault(value.file, f"{part}/{value.file}")
                value = Indirect(path, value.offset, value.length)
            found.append((key, (key, value), part))
    found.sort(key=itemgetter(0))
    for (before, _, one), (key, _, other) in pairwise(found):
        if before == key:
            raise Corrupt(f"{directory}: both {one} and {other} have the key {key!r}.")
    posix.make_directory(directory / "d")
    write_nodes(directory, [entry for _, entry, _ in found])
