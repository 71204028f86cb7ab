"""Finding keys in a database on disk. Nodes are read and decoded when first needed, and kept."""

from __future__ import annotations

import os
import re
import stat
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from storax.errors import CheckpointNotFound, Corrupt, StoreError
from storax.ocdbt.compressed import dump_manifest, dump_node
from storax.ocdbt.manifest import NUMBERED, Manifest, Version, decode_manifest
from storax.ocdbt.nodes import (
    LONGEST_KEY,
    MOST_NODE_BYTES,
    Entry,
    Indirect,
    Inline,
    Interior,
    Leaf,
    Node,
    NodeReference,
    decode_node,
)
from storax.ocdbt.wire import CompressedNode
from storax.store import posix

MANIFEST_NAME = "manifest.ocdbt"

_NUMBERED_NAME = re.compile(r"manifest\.[0-9a-f]{16}")
_MOST_MANIFEST_BYTES = 64 << 20

# TensorStore can copy a subtree to a second prefix, so a node may be met twice. But a few
# nodes that refer to each other twice at each of 255 heights would have more keys than atoms.
_MOST_SHARED_ENTRIES = 1 << 20
_VISIT_ENTRIES = 16

# Decoded nodes are forgotten when they take more memory than this.
_MOST_HELD_BYTES = 1 << 30
_ENTRY_BYTES = 200


@dataclass(frozen=True, slots=True)
class _Place:
    """A node to visit: what its keys lack, and the keys that it may hold (``low`` <= key < ``high``)."""

    reference: NodeReference
    height: int
    prefix: bytes
    low: bytes
    high: bytes | None


class Index:
    """The newest version of one database. Values are found, not read."""

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        self.directory = directory
        self.manifest = manifest
        self.version: Version = manifest.versions[-1]
        self._nodes: dict[tuple[str, str, int, int], Node] = {}
        self._held = 0
        self._all: dict[bytes, Inline | Indirect] | None = None

    @classmethod
    def open(cls, directory: Path) -> Index:
        """Reads the manifest of the database in a directory.

        Raises:
          CheckpointNotFound: if there is none.
          Corrupt: if its bytes are wrong.
        """
        try:
            manifest = _read_manifest(directory / MANIFEST_NAME)
            if manifest.config.kind == NUMBERED:
                manifest = _read_manifest(_newest_numbered(directory))
        except CompressedNode:
            manifest = dump_manifest(directory)
        if not manifest.versions:
            raise Corrupt(f"{directory}: its manifests name no version.")
        return cls(directory, manifest)

    def prefetch(self) -> None:
        """Reads all of the index now: for who is going to ask for most of its keys."""
        if self._all is None:
            self._all = dict(self.items())
            self._nodes.clear()

    def get(self, key: bytes) -> Inline | Indirect | None:
        """Where the value of a key is, or None if there is no such key."""
        if self._all is not None:
            return self._all.get(key)
        place = self._root()
        while place is not None:
            if not key.startswith(place.prefix):
                return None
            node = self._visit(place)
            at = bisect_right(node.keys, key[len(place.prefix) :]) - 1
            if at < 0:
                return None
            if isinstance(node, Leaf):
                return node.values[at] if place.prefix + node.keys[at] == key else None
            place = self._child(place, node, at)
        return None

    def items(self, prefix: bytes = b"") -> Iterator[Entry]:
        """All keys that begin with a prefix, in ascending order, with the places of their values."""
        root = self._root()
        stack = [root] if root else []
        met: set[tuple[str, str, int, int]] = set()
        shared = 0
        while stack:
            place = stack.pop()
            node = self._visit(place)
            span = _span(node, place.prefix, prefix)
            name = _name(place.reference)
            if name in met:
                shared += len(node.keys) + _VISIT_ENTRIES
                if shared > _MOST_SHARED_ENTRIES:
                    raise Corrupt(f"{self._say(place.reference)}: the tree meets its own nodes too often.")
            met.add(name)
            if isinstance(node, Leaf):
                lead = place.prefix
                for i in span:
                    yield lead + node.keys[i], node.values[i]
            else:
                stack.extend(self._child(place, node, i) for i in reversed(span))

    def _root(self) -> _Place | None:
        root = self.version.root
        return _Place(root, self.version.root_height, b"", b"", None) if root else None

    def _child(self, place: _Place, node: Interior, at: int) -> _Place:
        low = place.prefix + node.keys[at]
        high = place.prefix + node.keys[at + 1] if at + 1 < len(node.keys) else place.high
        prefix = low[: len(place.prefix) + node.skipped[at]]
        return _Place(node.children[at], place.height - 1, prefix, low, high)

    def _visit(self, place: _Place) -> Node:
        """The node of a place, if it fits there. Keys then ascend over the whole tree."""
        node = self._node(place.reference)
        height = 0 if isinstance(node, Leaf) else node.height
        what = ""
        if height != place.height:
            what = f"the node has height {height}, its parent says {place.height}"
        elif place.prefix + node.keys[0] < place.low:
            what = "the node has a key below those that its parent promises"
        elif place.high is not None and place.prefix + node.keys[-1] >= place.high:
            what = "the node has a key that belongs to the next one"
        elif len(place.prefix) > LONGEST_KEY:
            what = "the keys of the node are too long"
        if what:
            raise Corrupt(f"{self._say(place.reference)}: {what}.")
        return node

    def _node(self, reference: NodeReference) -> Node:
        name = _name(reference)
        node = self._nodes.get(name)
        if node is None:
            path = self.directory / reference.file.path
            if not 0 < reference.length <= MOST_NODE_BYTES:
                raise Corrupt(f"{self._say(reference)}: no node has {reference.length:,} bytes.")
            try:
                data = _read(path, reference.offset, reference.length)
            except FileNotFoundError:
                raise Corrupt(f"{path} is missing; the index of {self.directory} needs it.") from None
            try:
                node = decode_node(data, reference.file.base, str(path), reference.offset)
            except CompressedNode:
                node = dump_node(self.directory, reference)
            self._held += sum(map(len, node.keys)) + _ENTRY_BYTES * len(node.keys)
            if self._held > _MOST_HELD_BYTES:
                self._nodes.clear()
                self._held = 0
            self._nodes[name] = node
        return node

    def _say(self, reference: NodeReference) -> str:
        return f"{self.directory / reference.file.path}, byte {reference.offset}"


def _name(reference: NodeReference) -> tuple[str, str, int, int]:
    return reference.file.base, reference.file.name, reference.offset, reference.length


def _span(node: Node, lead: bytes, prefix: bytes) -> range:
    """Which entries of a node, whose keys lack ``lead``, can have keys that begin with ``prefix``."""
    if lead.startswith(prefix):
        return range(len(node.keys))
    if not prefix.startswith(lead):
        return range(0)
    wanted = prefix[len(lead) :]
    first = end = bisect_left(node.keys, wanted)
    while end < len(node.keys) and node.keys[end].startswith(wanted):
        end += 1
    # The child before the first that is not below the prefix may reach into it.
    if not isinstance(node, Leaf) and first > 0:
        first -= 1
    return range(first, end)


def _read_manifest(path: Path) -> Manifest:
    try:
        data = _read(path, 0, None)
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointNotFound(f"{path} does not exist: there is no database.") from None
    return decode_manifest(data, str(path))


def _newest_numbered(directory: Path) -> Path:
    names = [name for name in os.listdir(directory) if _NUMBERED_NAME.fullmatch(name)]
    if not names:
        raise CheckpointNotFound(f"{directory} has no numbered manifest: there is no database.")
    return directory / max(names)


def _read(path: Path, offset: int, length: int | None) -> bytes:
    """Bytes of a file: ``length`` of them, or all. Raises ``FileNotFoundError`` if it is not there."""
    try:
        # Not blocking: if someone put a pipe there, opening it would wait for ever.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise StoreError.of(error, "opening", path) from error
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise Corrupt(f"{path} is not a regular file.")
        if length is None and status.st_size > _MOST_MANIFEST_BYTES:
            raise Corrupt(f"{path} has {status.st_size:,} bytes, too many for a manifest.")
        length = status.st_size if length is None else length
        if offset + length > status.st_size:
            raise Corrupt(f"{path} ends at {status.st_size:,}, but byte {offset:,} + {length:,} is needed.")
        data = bytearray(length)
        if posix.read_into(fd, [memoryview(data)], offset) != length:
            raise Corrupt(f"{path} ends before byte {offset + length:,}.")
        return bytes(data)
    except StoreError:
        raise
    except OSError as error:
        raise StoreError.of(error, "reading", path) from error
    finally:
        os.close(fd)
