"""The leaves of a saved tree as somebody looks at them: shape, dtype, sharding, chunks, bytes by writer."""

from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from storax.arrays.read import Source
from storax.checkpoint import SavedTree
from storax.ocdbt.index import MANIFEST_NAME, Index
from storax.ocdbt.nodes import Indirect
from storax.opening import Tree, open_safetensors
from storax.tree import documents
from storax.tree.leaves import Leaf

_ARRAY_DOCUMENTS = ("/zarr.json", "/.zarray", "/.zattrs", "/.zgroup")
_WRITER = re.compile(r"ocdbt\.process_([0-9]+)/")
# A database that one process wrote, or that others have compacted, does not say who wrote what.
ONE_WRITER = "0"


@dataclass(frozen=True, slots=True)
class SeenLeaf:
    """One leaf.

    Attributes:
      name: as on disk.
      path: its key path, as text.
      kind: what it was in memory.
      shape, dtype: None where it has none.
      sharding: the document of its sharding, or None.
      nbytes: bytes of its values.
      chunk_shape: None where its value is in a document.
      stored: bytes on disk of its chunks, by the process that wrote them.
      tied: the name of the leaf that it is the same array as; the bytes are stored once, for that one.
      value: of strings and of whole numbers too large for an array.
      source: where its values can be read from.
    """

    name: str
    path: tuple[str, ...]
    kind: str
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    sharding: Mapping[str, Any] | None = None
    nbytes: int = 0
    chunk_shape: tuple[int, ...] | None = None
    stored: Mapping[str, int] = field(default_factory=dict)
    tied: str | None = None
    value: str | int | None = None
    source: Source | None = None

    @property
    def grid(self) -> tuple[int, ...]:
        """How many chunks there are along each dimension."""
        if self.source is None and self.chunk_shape is None:
            return ()
        shape = self.source.shape if self.source is not None else self.shape or ()
        return tuple(-(-n // c) for n, c in zip(shape, self.chunk_shape or (), strict=False))

    @property
    def chunks(self) -> int:
        """How many chunks it has."""
        return 0 if self.chunk_shape is None else math.prod(self.grid)

    @property
    def stored_bytes(self) -> int:
        return sum(self.stored.values())

    @property
    def what(self) -> str:
        """Kind and shape in short: ``float32[8,512]``, ``int``, ``None``."""
        if self.kind in ("dict", "list", "tuple"):
            return f"empty {self.kind}"
        if self.shape is None or self.dtype is None or (self.kind in _PLAIN and not self.shape):
            return self.kind
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


_PLAIN = frozenset({"int", "float", "complex", "bool", "str", "bytes", "None"})


def see_leaves(
    path: Path, wanted: Callable[[str], bool] | None = None, *, weigh: bool = True
) -> list[SeenLeaf]:
    """The leaves of the tree in a directory, or of safetensors files, in its order.

    Args:
      path: of either.
      wanted: which, by name; the others are not opened. None is all.
      weigh: whether to find out the bytes on disk of each, for which the whole index is read.
    """
    if (tensors := open_safetensors(path)) is not None:
        every = [_seen_tensor(found.leaf, found.source) for found in tensors.leaves()]
        return [leaf for leaf in every if wanted is None or wanted(leaf.name)]
    saved = SavedTree.open(path)
    names = None if wanted is None else set(filter(wanted, _names(saved)))
    stored = stored_bytes(path) if weigh else {}
    return [
        _seen(found.leaf, found.source, stored.get(found.leaf.name, {}))
        for found in saved.leaves(names)
        if names is None or found.leaf.name in names
    ]


def leaf_names(path: Path) -> list[str]:
    """The names of all leaves, without opening any."""
    return _names(open_safetensors(path) or SavedTree.open(path))


def _names(tree: Tree) -> list[str]:
    return [found.leaf.name for found in tree.leaves(())]


def _seen_tensor(leaf: Leaf, source: Source | None) -> SeenLeaf:
    """A tensor: its name has dots where a tree has branches, and it is one run of its file."""
    seen = _seen(leaf, source, {ONE_WRITER: leaf.nbytes})
    return replace(seen, path=tuple(leaf.name.split(".")))


def _seen(leaf: Leaf, source: Source | None, stored: Mapping[str, int]) -> SeenLeaf:
    return SeenLeaf(
        name=leaf.name,
        path=tuple(map(str, leaf.path)),
        kind=leaf.kind,
        shape=leaf.shape,
        dtype=leaf.dtype,
        sharding=parsed_sharding(leaf.sharding),
        nbytes=leaf.nbytes,
        chunk_shape=None if source is None else chunk_shape_of(source),
        stored=stored,
        tied=getattr(source, "tied", None),
        value=leaf.value,
        source=source,
    )


def parsed_sharding(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    return documents.parse_object(text.encode(), documents.SHARDING_DOCUMENT)


def chunk_shape_of(source: Source) -> tuple[int, ...]:
    """The shape of a source's chunks; all of it for sources that have none."""
    array = getattr(source, "array", None)
    if array is not None:
        return tuple(array.chunk_shape)
    store = getattr(source, "store", None)
    if store is not None:
        return tuple(store.chunk_layout.read_chunk.shape or source.shape)
    return source.shape


def stored_bytes(directory: Path) -> dict[str, dict[str, int]]:
    """Bytes on disk of every array's chunks, by leaf name and writing process."""
    if (directory / MANIFEST_NAME).is_file():
        return _stored_in_database(directory)
    return {
        name: {ONE_WRITER: _file_bytes(os.path.join(directory, name))} for name in _directories(directory)
    }


def _stored_in_database(directory: Path) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    writers: dict[str, str] = {}
    met: set[tuple[str, int]] = set()
    for key, place in Index.open(directory).items():
        text = key.decode(errors="replace")
        if text.endswith(_ARRAY_DOCUMENTS):
            continue
        name = leaf_of_key(text)
        if isinstance(place, Indirect):
            if (place.file, place.offset) in met:
                continue  # tied leaves have one place; it counts for the first of them
            met.add((place.file, place.offset))
            if place.file not in writers:
                match = _WRITER.match(place.file)
                writers[place.file] = match[1] if match else ONE_WRITER
            found[name][writers[place.file]] += place.length
        else:
            found[name][ONE_WRITER] += len(place.data)
    return {name: dict(parts) for name, parts in found.items()}


def leaf_of_key(key: str) -> str:
    """The leaf that a chunk's key belongs to: zarr3's ``name/c/0/1``, zarr2's ``name/0.1``.

    >>> leaf_of_key("a.b/c/0/1"), leaf_of_key("a.b/c"), leaf_of_key("a.b/0.1"), leaf_of_key("x/y/c/0")
    ('a.b', 'a.b', 'a.b', 'x/y')
    """
    match = _ZARR3_KEY.search(key)
    if match:
        return key[: match.start()]
    return key.rpartition("/")[0]


_ZARR3_KEY = re.compile(r"(?:^|/)c(?:/[0-9]+)*$")


def _directories(directory: Path) -> list[str]:
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())


def _file_bytes(directory: str) -> int:
    total = 0
    for parent, _, files in os.walk(directory):
        total += sum(
            os.path.getsize(os.path.join(parent, file))
            for file in files
            if f"/{file}" not in _ARRAY_DOCUMENTS
        )
    return total


def as_json(leaf: SeenLeaf) -> dict[str, Any]:
    """A leaf as a JSON object."""
    return {
        "name": leaf.name,
        "kind": leaf.kind,
        "shape": None if leaf.shape is None else list(leaf.shape),
        "dtype": leaf.dtype,
        "nbytes": leaf.nbytes,
        "stored_bytes": leaf.stored_bytes,
        "stored_by_process": dict(leaf.stored),
        "chunk_shape": None if leaf.chunk_shape is None else list(leaf.chunk_shape),
        "chunks": leaf.chunks,
        "sharding": leaf.sharding,
        **({} if leaf.tied is None else {"tied": leaf.tied}),
        **({} if leaf.value is None else {"value": leaf.value}),
    }
