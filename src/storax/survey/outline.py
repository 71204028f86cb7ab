"""The upper branches of a very large tree, without making a value of every leaf.

A tree of 100,000 leaves has a document of 30 MB, and parsing all of it takes longer than somebody
wants to wait for ten lines. What ``outline`` needs is in two places that can be scanned: the key
paths in the document as it is written, and shapes and sizes in the database's index. Where a
document is not of the form that is scanned here, there is no outline, and ``branches.grow`` does it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from storax.arrays import zarr
from storax.ocdbt.index import MANIFEST_NAME, Index
from storax.ocdbt.nodes import Indirect
from storax.store.sealed import SealedDirectory
from storax.survey.branches import Branch, walk
from storax.survey.leaves import ONE_WRITER, SeenLeaf, parsed_sharding
from storax.tree import documents
from storax.tree.dtypes import dtype_name

# Below this a document is parsed in a fraction of a second.
LARGE_BYTES = 4 << 20

_ENTRY = b'": {"key_metadata": ['
_VALUE_TYPE = b'"value_type": "'
_KINDS = {"Dict": "dict", "List": "list", "Tuple": "tuple", "string": "str"}
_ZARR3 = b"/zarr.json"

# What the index says of one array: bytes of its values, bytes of its chunks on disk, its ``zarr.json``.
# A tuple, and names as bytes, since there are 100,000 of them.
_Array = tuple[int, int, bytes]
_NOTHING: _Array = (0, 0, b"")


def outline(directory: Path, depth: int, *, least_bytes: int = LARGE_BYTES) -> Branch | None:
    """The tree in a directory to a depth; None if its document is small, or not of the usual form.

    Args:
      directory: of a tree.
      depth: how many levels stay apart, at least 1.
      least_bytes: of the document.
    """
    path = directory / documents.TREE_DOCUMENT
    if not path.is_file() or path.stat().st_size < least_bytes or not (directory / MANIFEST_NAME).is_file():
        return None
    sealed = SealedDirectory(directory)
    text = sealed.read(documents.TREE_DOCUMENT) or b""
    # A backslash is an escape: of quotes within keys, or of letters beyond ASCII.
    if b"\\" in text or _has_keys_of_prng(sealed):
        return None
    arrays = _arrays(directory)
    if arrays is None:
        return None
    root = _grown(text.split(_ENTRY), arrays, depth)
    if root is not None:
        _add_shardings(root, sealed, directory)
    return root


def _has_keys_of_prng(sealed: SealedDirectory) -> bool:
    names = [name for name in sealed.names if name.startswith(f"{documents.ARRAY_DOCUMENTS}/")]
    return not names or any(b'"random_key_impl"' in (sealed.read(name) or b"") for name in names)


def _arrays(directory: Path) -> dict[bytes, _Array] | None:
    """All arrays by leaf name. Their chunks come before ``zarr.json`` in the order of the keys."""
    found: dict[bytes, _Array] = {}
    sizes: dict[bytes, int] = {}
    met: set[tuple[str, int]] = set()
    stored = 0
    for key, place in Index.open(directory).items():
        if isinstance(place, Indirect):
            if (place.file, place.offset) not in met:  # tied leaves have one place
                met.add((place.file, place.offset))
                stored += place.length
        elif not key.endswith(_ZARR3):
            stored += len(place.data)
        else:
            name, text = key[: -len(_ZARR3)], place.data
            if b"/" in name:
                return None
            nbytes = sizes.get(text)
            if nbytes is None:
                array = zarr.parse(text)
                nbytes = sizes[text] = math.prod(array.shape) * array.dtype.itemsize
            found[name] = nbytes, stored, text
            stored = 0
    return found if not stored else None


def _paths(parts: list[bytes]) -> Iterator[list[bytes] | None]:
    """The key paths, as ``path_text`` spells them at the end of every part but the last."""
    for part in parts[:-1]:
        text = part[part.rfind(b'"(') + 1 :]
        if text[:2] != b"('" or text[-1:] != b")":
            yield None
        elif text[-2:] == b",)":
            yield [text[2:-3]]
        else:
            yield text[2:-2].split(b"', '")


def _grown(parts: list[bytes], arrays: dict[bytes, _Array], depth: int) -> Branch | None:
    totals: dict[tuple[bytes, ...], list[int]] = {}
    whole: dict[tuple[bytes, ...], bytes] = {}
    for i, path in enumerate(_paths(parts)):
        if path is None:
            return None
        nbytes, stored, _ = arrays.get(b".".join(path), _NOTHING)
        shown = tuple(path[:depth])
        total = totals.get(shown)
        if total is None:
            total = totals[shown] = [0, 0, 0]
        total[0] += 1
        total[1] += nbytes
        total[2] += stored
        if len(path) <= depth:
            whole[shown] = parts[i + 1]
    root = Branch("", ())
    for shown, (leaves, nbytes, stored) in totals.items():
        path_text = tuple(part.decode("ascii") for part in shown)
        last = _add(root, path_text, leaves, nbytes, stored)
        if shown in whole:
            last.leaf = _leaf(path_text, whole[shown], arrays.get(b".".join(shown)))
        else:
            last.folded = True
    return root


def _add(root: Branch, path: tuple[str, ...], leaves: int, nbytes: int, stored: int) -> Branch:
    branch = root
    for i in range(len(path) + 1):
        if i:
            branch = branch.children.setdefault(path[i - 1], Branch(path[i - 1], path[:i]))
        branch.leaves += leaves
        branch.nbytes += nbytes
        branch.stored_bytes += stored
    return branch


def _leaf(path: tuple[str, ...], entry: bytes, found: _Array | None) -> SeenLeaf:
    at = entry.find(_VALUE_TYPE) + len(_VALUE_TYPE)
    kind = entry[at : entry.find(b'"', at)].decode("ascii")
    if found is None:
        return SeenLeaf(".".join(path), path, _KINDS.get(kind, kind))
    nbytes, stored, text = found
    array = zarr.parse(text)
    return SeenLeaf(
        ".".join(path),
        path,
        kind,
        array.shape,
        dtype_name(array.dtype),
        nbytes=nbytes,
        chunk_shape=array.chunk_shape,
        stored={ONE_WRITER: stored},
    )


def _add_shardings(root: Branch, sealed: SealedDirectory, directory: Path) -> None:
    leaves = [branch for _, branch in walk(root) if branch.leaf is not None]
    if not leaves:
        return
    text = sealed.read(documents.SHARDING_DOCUMENT)
    path = directory / documents.SHARDING_DOCUMENT
    shardings = {} if text is None else documents.parse_shardings(text, str(path))
    for branch in leaves:
        if branch.leaf is not None:
            sharding = parsed_sharding(shardings.get(branch.leaf.name))
            branch.leaf = replace(branch.leaf, sharding=sharding)
