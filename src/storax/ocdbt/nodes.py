"""The nodes of the B-tree, to bytes and back. Pure.

Hostile bytes can do no more than raise ``Corrupt``: each count, length and sum is compared
with the bytes that are there before anything is made of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

from storax.ocdbt.files import DataFile, decode_table, encode_table, split
from storax.ocdbt.wire import BTREE_NODE, U64, Reader, frame, unframe, varint, varints

# Limits of the format.
LONGEST_KEY = 65535
MOST_ENTRIES = 1 << 20
LONGEST_INLINE = 1 << 20

# Limits of ours, against nodes that are small on disk and huge in memory. What keys share is stored
# once; TensorStore keeps a node to 8 MiB as keys in memory, unless told otherwise.
MOST_NODE_BYTES = 256 << 20
_MOST_KEY_BYTES = 256 << 20
_SURELY_KEY_BYTES = 16 << 20
_MOST_EXPANSION = 256


@dataclass(frozen=True, slots=True)
class Inline:
    """A value that is stored in the node itself."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Indirect:
    """A value in a data file; the path is relative to the database's own directory."""

    file: str
    offset: int
    length: int


Entry = tuple[bytes, Inline | Indirect]


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a subtree holds, itself included."""

    keys: int
    tree_bytes: int
    indirect_bytes: int


@dataclass(frozen=True, slots=True)
class NodeReference:
    """Where an encoded node is."""

    file: DataFile
    offset: int
    length: int
    statistics: Statistics


@dataclass(frozen=True, slots=True)
class Leaf:
    """Keys, ascending, and their values. The keys lack the prefix that the parent knows."""

    keys: list[bytes]
    values: list[Inline | Indirect]


@dataclass(frozen=True, slots=True)
class Interior:
    """Children, each with the smallest key that it may hold.

    ``skipped`` says of each child how much of that key all its keys begin with; its node leaves it out.
    """

    height: int
    keys: list[bytes]
    skipped: list[int]
    children: list[NodeReference]


Node = Leaf | Interior


def shared_lengths(keys: Sequence[bytes]) -> list[int]:
    """How many bytes each key has in common with the one before it; 0 for the first."""
    shared = [0] * len(keys)
    number = int.from_bytes
    previous = b""
    for i, key in enumerate(keys):
        n = min(len(previous), len(key))
        # As numbers, the first byte that differs is the highest bit of their XOR: no loop over bytes.
        differ = number(previous[:n], "big") ^ number(key[:n], "big")
        shared[i] = n - (differ.bit_length() + 7 >> 3)
        previous = key
    return shared


def encode_leaf(entries: Sequence[Entry], shared: Sequence[int] | None = None) -> bytes:
    """A leaf of entries with ascending keys. ``shared`` is ``shared_lengths`` of the keys, if known."""
    keys = [key for key, _ in entries]
    indirect = [value for _, value in entries if isinstance(value, Indirect)]
    inline = [value.data for _, value in entries if isinstance(value, Inline)]
    kinds = bytes([isinstance(value, Indirect) for _, value in entries])
    lengths = [v.length if isinstance(v, Indirect) else len(v.data) for _, v in entries]
    files = {path: split(path) for path in {value.file for value in indirect}}
    table, numbers = encode_table(files.values())
    number_of = {path: numbers[file] for path, file in files.items()}
    body = [
        b"\0",
        table,
        varint(len(entries)),
        *_encode_keys(keys, shared, ()),
        varints(lengths),
        kinds,
        varints([number_of[value.file] for value in indirect]),
        varints([value.offset for value in indirect]),
        *inline,
    ]
    return frame(BTREE_NODE, body)


def encode_interior(node: Interior) -> bytes:
    """A node above others."""
    table, numbers = encode_table(child.file for child in node.children)
    body = [
        bytes((node.height,)),
        table,
        varint(len(node.keys)),
        *_encode_keys(node.keys, None, node.skipped),
        *encode_references(node.children, numbers),
    ]
    return frame(BTREE_NODE, body)


def _encode_keys(keys: list[bytes], shared: Sequence[int] | None, skipped: Sequence[int]) -> list[bytes]:
    # The first key of a node has none before it, whatever came before in the database.
    common = [0, *(shared_lengths(keys) if shared is None else shared)[1:]]
    tails = [key[n:] for key, n in zip(keys, common, strict=True)]
    return [varints(common[1:]), varints([len(t) for t in tails]), varints(list(skipped)), *tails]


def encode_references(references: Sequence[NodeReference], numbers: dict[DataFile, int]) -> list[bytes]:
    """The columns of places and statistics that interior nodes and manifests share."""
    return [
        varints([numbers[r.file] for r in references]),
        varints([r.offset for r in references]),
        varints([r.length for r in references]),
        varints([r.statistics.keys for r in references]),
        varints([r.statistics.tree_bytes for r in references]),
        varints([r.statistics.indirect_bytes for r in references]),
    ]


def decode_node(data: bytes, base: str, file: str, origin: int) -> Node:
    """Decodes a node.

    Args:
      data: exactly the bytes of the node.
      base: the base of the file it was read from (``DataFile.base``).
      file, origin: where it was read from, for messages.

    Raises:
      Corrupt: if the bytes are wrong.
      CompressedNode: if they are compressed.
    """
    reader = unframe(data, BTREE_NODE, file, origin)
    most_key_bytes = min(_MOST_KEY_BYTES, max(_SURELY_KEY_BYTES, _MOST_EXPANSION * len(data)))
    height = reader.byte("the height")
    files = decode_table(reader, base)
    count = reader.count("entries", MOST_ENTRIES)
    if count == 0:
        reader.wrong("the node is empty")
    node: Node
    if height == 0:
        keys, _ = _decode_keys(reader, count, most_key_bytes, with_skipped=False)
        node = Leaf(keys, _decode_values(reader, count, files))
    else:
        keys, skipped = _decode_keys(reader, count, most_key_bytes, with_skipped=True)
        node = Interior(height, keys, skipped, decode_children(reader, count, files))
    reader.finish()
    return node


def _decode_keys(
    reader: Reader, count: int, most: int, *, with_skipped: bool
) -> tuple[list[bytes], list[int]]:
    shared = [0, *reader.varints(count - 1, "a shared key length", LONGEST_KEY)]
    own = reader.varints(count, "a key length", LONGEST_KEY)
    skipped = reader.varints(count, "a subtree prefix length", LONGEST_KEY) if with_skipped else []
    tail_bytes = sum(own)
    if tail_bytes > reader.left:
        reader.wrong(f"the keys need {tail_bytes:,} bytes, {reader.left:,} are left")
    if tail_bytes + sum(shared) > most:
        reader.wrong(f"the keys would take {tail_bytes + sum(shared):,} bytes of memory")
    tails = reader.take(tail_bytes, "the keys")
    keys: list[bytes] = []
    previous, at = b"", 0
    for common, length in zip(shared, own, strict=True):
        if common > len(previous):
            reader.wrong("a key shares more than the previous one has")
        key = previous[:common] + tails[at : at + length]
        at += length
        if key <= previous and keys:
            reader.wrong("the keys are not in ascending order")
        keys.append(key)
        previous = key
    if len(max(keys, key=len)) > LONGEST_KEY:
        reader.wrong("a key is too long")
    for key, length in zip(keys, skipped, strict=False):
        if length > len(key):
            reader.wrong("the prefix of a subtree is longer than its key")
    return keys, skipped


def _decode_values(reader: Reader, count: int, files: list[DataFile]) -> list[Inline | Indirect]:
    lengths = reader.varints(count, "a value length")
    kinds = reader.take(count, "the kinds of the values")
    if kinds.translate(None, b"\0\1"):
        reader.wrong("a value has an unknown kind")
    indirect = kinds.count(1)
    numbers = _decode_numbers(reader, indirect, files)
    offsets = reader.varints(indirect, "the offset of a value")
    for offset, length in zip(offsets, compress(lengths, kinds), strict=True):
        if offset + length > U64:
            reader.wrong("a value ends beyond the end of any file")
    paths = [file.path for file in files]
    if indirect == count:
        return [
            Indirect(paths[n], offset, length)
            for n, offset, length in zip(numbers, offsets, lengths, strict=True)
        ]
    places = iter(zip(numbers, offsets, strict=True))
    inline_bytes = sum(lengths) - sum(compress(lengths, kinds))
    if inline_bytes != reader.left:
        reader.wrong(f"the inline values take {inline_bytes:,} bytes, {reader.left:,} are left")
    rest, at = reader.take(inline_bytes, "the inline values"), 0
    values: list[Inline | Indirect] = []
    for kind, length in zip(kinds, lengths, strict=True):
        if kind:
            number, offset = next(places)
            values.append(Indirect(paths[number], offset, length))
        elif length > LONGEST_INLINE:
            reader.wrong(f"an inline value of {length:,} bytes is too long")
        else:
            values.append(Inline(rest[at : at + length]))
            at += length
    return values


def decode_children(reader: Reader, count: int, files: list[DataFile]) -> list[NodeReference]:
    """The columns of ``encode_references``, of nodes that exist."""
    references = decode_references(reader, count, files)
    for reference in references:
        if not reference.file.name:
            reader.wrong("a node is said to be in a file without a name")
        if reference.offset + reference.length > U64:
            reader.wrong("a node ends beyond the end of any file")
    return references


def decode_references(reader: Reader, count: int, files: list[DataFile]) -> list[NodeReference]:
    """The columns of ``encode_references``; the caller judges the places."""
    numbers = _decode_numbers(reader, count, files, empty=True)
    offsets = reader.varints(count, "the offset of a node")
    lengths = reader.varints(count, "the length of a node")
    names = ("number of keys", "tree bytes", "value bytes")
    counts = [reader.varints(count, f"the {name} of a subtree") for name in names]
    statistics = [Statistics(*three) for three in zip(*counts, strict=True)]
    found = (files[n] for n in numbers)
    return [NodeReference(*four) for four in zip(found, offsets, lengths, statistics, strict=True)]


def _decode_numbers(reader: Reader, count: int, files: list[DataFile], *, empty: bool = False) -> list[int]:
    numbers = reader.varints(count, "the number of a data file")
    if numbers and max(numbers) >= len(files):
        reader.wrong(f"data file {max(numbers)} is not in the table of {len(files)}")
    if not empty and any(not files[n].name for n in set(numbers)):
        reader.wrong("a value is said to be in a file without a name")
    return numbers
