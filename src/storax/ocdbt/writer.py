"""Writing a whole new database: data files in parallel, then the nodes, then the manifest.

The order makes a crash harmless: the manifest, without which there is no database, is
written when everything that it refers to is durable.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import itemgetter
from pathlib import Path

from storax import progress
from storax.errors import BadOption, NameCollision
from storax.ocdbt.files import split
from storax.ocdbt.index import MANIFEST_NAME
from storax.ocdbt.layout import BYTES_PER_FILE, LARGEST_INLINE, Piece, file_mark, lay_out
from storax.ocdbt.manifest import Version, encode_manifest, new_config
from storax.ocdbt.nodes import (
    LONGEST_KEY,
    Entry,
    Indirect,
    Inline,
    Interior,
    NodeReference,
    Statistics,
    encode_interior,
    encode_leaf,
    shared_lengths,
)
from storax.ocdbt.wire import checksum
from storax.store import posix
from storax.store.budget import run_all
from storax.tracing import span

# Nodes are cut near these sizes: encoded, which a reader must fetch for one key, and as keys in memory.
_NODE_BYTES = 256 << 10
_NODE_KEY_BYTES = 4 << 20
# About what an entry takes besides its key and inline value.
_LEAF_ENTRY_BYTES = 16
_INTERIOR_ENTRY_BYTES = 32

_CHECKSUM_BYTES = 4


@dataclass(frozen=True, slots=True)
class Deferred:
    """Bytes that are made when they are written, and not kept: so that all of them never are at once."""

    nbytes: int
    make: Callable[[], memoryview | bytes]


@dataclass(frozen=True, slots=True)
class Encoded:
    """Bytes whose number is known only when they are made: of ``nbytes`` before they are encoded."""

    nbytes: int
    make: Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class Value:
    """One value to write.

    ``data`` must be C-contiguous and must not change until the write is over; with ``checksum``,
    what is stored is the data and its CRC-32C. ``also`` are further keys of the same value, which is
    stored once for all of them.
    """

    key: bytes
    data: memoryview | bytes | Deferred | Encoded
    checksum: bool
    also: tuple[bytes, ...] = ()


def write_database(directory: Path, values: Sequence[Value], *, workers: int) -> list[Entry]:
    """Writes a database into an empty directory and makes it durable; the directory's own name is not.

    Args:
      directory: exists and is empty.
      values: in any order, with different keys.
      workers: how many threads may write, the caller's included.

    Returns:
      The entries of the database, in the order of their keys.

    Raises:
      NameCollision: if two values have the same key.
      BadOption: if a key is too long.
      StoreError: if the file system refuses.
    """
    values = sorted(values, key=lambda value: value.key)
    _check_keys([value.key for value in values])
    posix.make_directory(directory / "d")
    encoded = [value for value in values if isinstance(value.data, Encoded)]
    sized = [value for value in values if not isinstance(value.data, Encoded)]
    progress.expect(sum(_length(value.data) for value in encoded))
    whole = _write_sized(directory, sized, workers) + _write_encoded(directory, encoded, workers)
    if encoded or any(value.also for value in values):
        whole = sorted(whole, key=itemgetter(0))
    write_nodes(directory, whole)
    return whole


def _write_sized(directory: Path, values: Sequence[Value], workers: int) -> list[Entry]:
    """Writes values of known sizes to the places that are laid out for them."""
    sizes = [_length(v.data) + (_CHECKSUM_BYTES if v.checksum else 0) for v in values]
    layout = lay_out(sizes, workers)
    progress.expect(sum(sizes))
    entries: list[Entry | None] = [None] * len(values)
    for i in layout.inline:
        entries[i] = (values[i].key, Inline(b"".join(_stored(values[i]))))
        progress.advance(sizes[i])
    tasks: list[Callable[[], None]] = []
    for pieces in layout.files:
        name = _new_name()
        for piece in pieces:
            offset = piece.offset
            for i in piece.members:
                entries[i] = (values[i].key, Indirect(name, offset, sizes[i]))
                offset += sizes[i]
        tasks.append(partial(_write_pieces, directory / name, pieces, values))
    run_all(tasks, workers)
    places = [entry[1] for entry in entries if entry is not None]
    return [
        (key, place) for value, place in zip(values, places, strict=True) for key in (value.key, *value.also)
    ]


def _write_encoded(directory: Path, values: Sequence[Value], workers: int) -> list[Entry]:
    """Encodes and writes values in turn, each thread to a file of its own; it holds one at a time."""
    waiting = deque(values)
    entries: list[Entry] = []
    useful = -(-sum(_length(value.data) for value in values) // BYTES_PER_FILE)

    def work() -> None:
        with contextlib.ExitStack() as stack:
            end = len(file_mark(""))
            file: posix.NewFile | None = None
            while (value := _next(waiting)) is not None:
                stored = _stored(value)
                size = sum(map(len, stored))
                if size <= LARGEST_INLINE:
                    place: Inline | Indirect = Inline(b"".join(stored))
                else:
                    if file is None:
                        name = _new_name()
                        stack.enter_context(span("write", file=str(directory / name)))
                        file = stack.enter_context(posix.new_file(directory / name))
                        file.write_at(0, [file_mark(name)])
                    place = Indirect(name, end, size)
                    end += file.write_at(end, stored)
                entries.extend([(key, place) for key in (value.key, *value.also)])
                progress.advance(_length(value.data))
            if file is not None:
                with span("fsync", file=str(directory / name)):
                    file.sync()

    def work_or_stop() -> None:
        try:
            work()
        except BaseException:
            waiting.clear()  # the others need not go on
            raise

    run_all([work_or_stop] * min(workers, useful), workers)
    return entries


def _next(waiting: deque[Value]) -> Value | None:
    try:
        return waiting.popleft()
    except IndexError:
        return None


def write_nodes(directory: Path, entries: Sequence[Entry]) -> None:
    """Writes the B-tree and the manifest for entries in ascending order of their keys, and syncs everything.

    ``directory/d`` must exist, and the data files must be durable.
    """
    name = _new_name()
    encoded, root, height = build_tree(entries, name)
    if encoded:
        with posix.new_file(directory / name) as file:
            file.write_at(0, encoded)
            file.sync()
    version = Version(1, height, root, time.time_ns())
    posix.write_file(directory / MANIFEST_NAME, encode_manifest(new_config(), version))
    posix.sync_directory(directory / "d")
    posix.sync_directory(directory)


def build_tree(entries: Sequence[Entry], file: str) -> tuple[list[bytes], NodeReference | None, int]:
    """The encoded nodes, which are to follow one another in a file, and the root's place and height. Pure."""
    keys = [key for key, _ in entries]
    _check_keys(keys)
    if not keys:
        return [], None, 0
    tree = _Tree(file)
    shared = shared_lengths(keys)
    extra = [_LEAF_ENTRY_BYTES + len(v.data if isinstance(v, Inline) else b"") for _, v in entries]
    firsts: list[bytes] = []
    level: list[NodeReference] = []
    for part in _cuts(keys, shared, extra, least=1):
        inside = entries[part]
        indirect = sum(value.length for _, value in inside if isinstance(value, Indirect))
        firsts.append(keys[part.start])
        level.append(tree.add(encode_leaf(inside, shared[part]), Statistics(len(inside), 0, indirect)))
    height = 0
    while len(level) > 1:
        height += 1
        keys, children, firsts, level = firsts, level, [], []
        for part in _cuts(keys, shared_lengths(keys), [_INTERIOR_ENTRY_BYTES] * len(keys), least=2):
            below = children[part]
            # Our nodes hold whole keys: nothing is skipped, since a key costs only what it does not share.
            encoded = encode_interior(Interior(height, keys[part], [0] * len(below), below))
            firsts.append(keys[part.start])
            level.append(tree.add(encoded, _total(below)))
    return tree.encoded, level[0], height


class _Tree:
    """The nodes that were encoded so far, one after another in one file."""

    def __init__(self, file: str) -> None:
        self.encoded: list[bytes] = []
        self._file = split(file)
        self._end = 0

    def add(self, node: bytes, content: Statistics) -> NodeReference:
        size = len(node)
        counted = Statistics(content.keys, content.tree_bytes + size, content.indirect_bytes)
        reference = NodeReference(self._file, self._end, size, counted)
        self.encoded.append(node)
        self._end += size
        return reference


def _total(children: Sequence[NodeReference]) -> Statistics:
    counted = [child.statistics for child in children]
    return Statistics(
        sum(s.keys for s in counted),
        sum(s.tree_bytes for s in counted),
        sum(s.indirect_bytes for s in counted),
    )


def _cuts(
    keys: Sequence[bytes], shared: Sequence[int], extra: Sequence[int], *, least: int
) -> Iterator[slice]:
    """Cuts a level into nodes of at least ``least`` entries and, beyond that, of bounded size."""
    start = encoded = expanded = 0
    for i, (key, common, more) in enumerate(zip(keys, shared, extra, strict=True)):
        size = len(key) - common + more
        full = encoded + size > _NODE_BYTES or expanded + len(key) > _NODE_KEY_BYTES
        if full and i - start >= least and len(keys) - i >= least:
            yield slice(start, i)
            start, encoded, expanded = i, common, 0
        encoded += size
        expanded += len(key)
    yield slice(start, len(keys))


def _check_keys(keys: Sequence[bytes]) -> None:
    for before, key in pairwise(keys):
        if before == key:
            raise NameCollision(f"Two values have the same key {key!r}.")
        if before > key:
            raise BadOption(f"The keys {before!r} and {key!r} are not in ascending order.")
    longest = max(keys, key=len, default=b"")
    if len(longest) > LONGEST_KEY:
        shown = longest[:40]
        raise BadOption(f"The key {shown!r}... has {len(longest):,} bytes; {LONGEST_KEY:,} are possible.")


def _write_pieces(path: Path, pieces: Sequence[Piece], values: Sequence[Value]) -> None:
    with span("write", file=str(path)), posix.new_file(path) as file:
        file.write_at(0, [file_mark(path.name)])
        for piece in pieces:
            parts = [part for i in piece.members for part in _stored(values[i])]
            # One large value goes from the caller's memory as it is; many small ones go as one buffer.
            written = file.write_at(piece.offset, parts if len(piece.members) == 1 else [b"".join(parts)])
            progress.advance(written)
        with span("fsync", file=str(path)):
            file.sync()


def _stored(value: Value) -> list[memoryview | bytes]:
    data = _flat(value.data)
    return [data, checksum(data)] if value.checksum else [data]


def _length(data: memoryview | bytes | Deferred | Encoded) -> int:
    return len(data) if isinstance(data, bytes) else data.nbytes


def _flat(data: memoryview | bytes | Deferred | Encoded) -> memoryview | bytes:
    if isinstance(data, (Deferred, Encoded)):
        data = data.make()
    if isinstance(data, bytes):
        return data
    # A view with a zero in its shape cannot be cast.
    return data.cast("B") if data.nbytes else b""


def _new_name() -> str:
    return f"d/{os.urandom(16).hex()}"
