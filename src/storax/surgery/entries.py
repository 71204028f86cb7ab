"""What transforms work on: names and, for each, a source and what is known of the leaf."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from storax.arrays.read import Source
from storax.checkpoint import SavedLeaf
from storax.surgery.views import Input
from storax.tree.dtypes import dtype_name, dtype_named
from storax.tree.leaves import Kind, Leaf

# For each axis of a result the axis of the input that it is, or None.
Axes = Sequence[int | None]


@dataclass(frozen=True, slots=True)
class Entry:
    """One named leaf on its way through the transforms.

    Attributes:
      leaf: its kind, and its key path while its name is still the one that it was read under.
      source: of its values; None if the documents alone hold it.
      broken: a transform could not make it, and has said so. Nothing more is said of it.
    """

    leaf: Leaf
    source: Source | None
    broken: bool = False

    def __str__(self) -> str:
        """As messages show it: ``float32[8,512]``, ``str``."""
        if self.source is None or self.leaf.prng:
            return str(self.leaf)
        return f"{dtype_name(self.source.dtype)}[{','.join(map(str, self.source.shape))}]"


Entries = dict[str, Entry]

BROKEN = Entry(Leaf((), "None"), None, broken=True)


def entry_of(saved: SavedLeaf) -> Entry:
    """A saved leaf as an entry; explanations call it by the name that it has now."""
    leaf, source = saved.leaf, saved.source
    if source is None:
        return Entry(leaf, None)
    logical = source.dtype if leaf.prng else dtype_named(leaf.dtype or dtype_name(source.dtype))
    return Entry(leaf, Input(source, leaf.name, logical))


def made(source: Source, parts: Sequence[Entry], axes: Axes | None = None) -> Entry:
    """The entry of an array that was made from others.

    Args:
      source: the array.
      parts: what it was made from.
      axes: of the first of these, as the axes of the result; then its sharding is kept where it fits.
    """
    first = parts[0].leaf
    # Numbers and bytes of Python become arrays: what is made of them is not what they were.
    kind: Kind = "jax.Array" if any(part.leaf.kind == "jax.Array" for part in parts) else "np.ndarray"
    sharding = None if axes is None or kind != "jax.Array" else _carried(first.sharding, axes, source.shape)
    return Entry(replace(first, kind=kind, prng=None, byteorder="<", sharding=sharding), source)


def finished(entry: Entry, path: Any) -> SavedLeaf:
    """An entry as a saved leaf with its final key path."""
    source, leaf = entry.source, entry.leaf
    if source is None:
        return SavedLeaf(replace(leaf, path=path), None)
    nbytes = source.dtype.itemsize
    for length in source.shape:
        nbytes *= length
    if leaf.prng:
        return SavedLeaf(replace(leaf, path=path, shape=source.shape[:-1], nbytes=nbytes), source)
    name = dtype_name(source.dtype)
    return SavedLeaf(replace(leaf, path=path, shape=source.shape, dtype=name, nbytes=nbytes), source)


def _carried(text: str | None, axes: Axes, shape: Sequence[int]) -> str | None:
    """The text of a sharding for an array whose axes are those of another; None if it does not fit."""
    if text is None:
        return None
    document = json.loads(text)
    if document.get("sharding_type") != "NamedSharding":
        return text
    old = document["partition_spec"]
    spec = [old[axis] if axis is not None and axis < len(old) else None for axis in axes]
    sizes = dict(zip(document["axis_names"], document["shape"], strict=True))
    for part, length in zip(spec, shape, strict=True):
        ways = 1
        for name in part if isinstance(part, list) else [part] if part else []:
            ways *= sizes[name]
        if length % ways:
            return None
    while spec and spec[-1] is None:
        spec.pop()
    return json.dumps({**document, "partition_spec": spec})
