"""The manifest of a database, to bytes and back. Pure.

Only what a reader of the newest version needs is decoded. Older versions may live in
version-tree nodes, which the manifest refers to; those references are checked and kept.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from storax.ocdbt.files import DataFile, decode_table, encode_table
from storax.ocdbt.nodes import (
    LONGEST_INLINE,
    NodeReference,
    Statistics,
    decode_references,
    encode_references,
)
from storax.ocdbt.wire import MANIFEST, U64, VERSION_NODE, Reader, frame, unframe, varint, varints

SINGLE, NUMBERED = 0, 1

_U32 = (1 << 32) - 1
_MOST_ARITY_LOG2 = 16
_MOST_VERSION_NODES = 64
# An empty database has no root; its place is then the largest numbers, in a file without a name.
_NOWHERE = NodeReference(DataFile("", ""), U64, U64, Statistics(0, 0, 0))


@dataclass(frozen=True, slots=True)
class Config:
    """How a database is written. ``zstd_level`` is None if its nodes are not compressed."""

    uuid: bytes
    kind: int
    max_inline_value_bytes: int
    max_decoded_node_bytes: int
    version_tree_arity_log2: int
    zstd_level: int | None


@dataclass(frozen=True, slots=True)
class Version:
    """One committed state. ``root`` is None if it was empty."""

    generation: int
    root_height: int
    root: NodeReference | None
    commit_time: int


@dataclass(frozen=True, slots=True)
class OlderVersions:
    """Where a version-tree node is."""

    generation: int
    file: DataFile
    offset: int
    length: int
    generations: int
    commit_time: int
    height: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The versions in ascending order; none if ``config.kind`` says that they are in numbered manifests."""

    config: Config
    versions: list[Version]
    older: list[OlderVersions]


def new_config() -> Config:
    """What storax writes: nothing compressed, everything else as TensorStore has it."""
    return Config(os.urandom(16), SINGLE, 1024, 8 << 20, 4, None)


def encode_manifest(config: Config, version: Version) -> bytes:
    """The manifest of an uncompressed database with one version."""
    root = version.root or _NOWHERE
    table, numbers = encode_table([root.file])
    body = [
        config.uuid,
        bytes((config.kind,)),
        varints([config.max_inline_value_bytes, config.max_decoded_node_bytes]),
        bytes((config.version_tree_arity_log2,)),
        varint(0),
        table,
        varint(1),
        varint(version.generation),
        bytes((version.root_height,)),
        *encode_references([root], numbers),
        version.commit_time.to_bytes(8, "little"),
        varint(0),
    ]
    return frame(MANIFEST, body)


def decode_manifest(data: bytes, file: str) -> Manifest:
    """Decodes the bytes of a manifest file.

    Raises:
      Corrupt: if the bytes are wrong.
      CompressedNode: if they are compressed.
    """
    reader = unframe(data, MANIFEST, file, 0)
    config = _decode_config(reader)
    if config.kind == NUMBERED:
        reader.finish()
        return Manifest(config, [], [])
    files = decode_table(reader, "")
    versions = _decode_versions(reader, files, 1 << config.version_tree_arity_log2)
    older = _decode_older(reader, files)
    reader.finish()
    return Manifest(config, versions, older)


def _decode_config(reader: Reader) -> Config:
    uuid = reader.take(16, "the UUID")
    kind = reader.byte("the kind of manifest")
    if kind not in (SINGLE, NUMBERED):
        reader.wrong(f"manifests of kind {kind} are unknown")
    inline = reader.varint("max_inline_value_bytes", LONGEST_INLINE)
    node = reader.varint("max_decoded_node_bytes", _U32)
    arity = reader.byte("version_tree_arity_log2")
    if not 1 <= arity <= _MOST_ARITY_LOG2:
        reader.wrong(f"version_tree_arity_log2 is {arity}, not in 1 to {_MOST_ARITY_LOG2}")
    compression = reader.varint("the compression of the database")
    if compression > 1:
        reader.wrong(f"compression {compression} is unknown")
    level = int.from_bytes(reader.take(4, "the zstd level"), "little", signed=True) if compression else None
    return Config(uuid, kind, inline, node, arity, level)


def _decode_versions(reader: Reader, files: list[DataFile], most: int) -> list[Version]:
    count = reader.count("versions", most)
    if count == 0:
        reader.wrong("there is no version")
    generations = _decode_generations(reader, count)
    heights = reader.take(count, "the heights of the roots")
    roots = decode_references(reader, count, files)
    times = [int.from_bytes(reader.take(8, "a commit time"), "little") for _ in range(count)]
    for root, height in zip(roots, heights, strict=True):
        if root.offset == U64 and root.length == U64:
            if height or root.statistics != _NOWHERE.statistics:
                reader.wrong("an empty version has a root")
        elif root.offset + root.length > U64 or not root.file.name:
            reader.wrong("a root is at no place that there can be")
    return [
        Version(generation, height, None if root.length == U64 else root, time)
        for generation, height, root, time in zip(generations, heights, roots, times, strict=True)
    ]


def decode_version_node(
    data: bytes, reference: OlderVersions, file: str
) -> list[Version] | list[OlderVersions]:
    """Decodes a version-tree node: versions at height 0, above that references to further nodes.

    Args:
      data: the bytes of the node.
      reference: what led to it.
      file: where the bytes come from, for messages.

    Raises:
      Corrupt: if the bytes are wrong, or are not what the reference promised.
      CompressedNode: if they are compressed.
    """
    reader = unframe(data, VERSION_NODE, file, reference.offset)
    arity = 1 << min(reader.byte("version_tree_arity_log2"), _MOST_ARITY_LOG2)
    height = reader.byte("the height of a version-tree node")
    if height != reference.height:
        reader.wrong(f"the node has height {height}, its parent says {reference.height}")
    files = decode_table(reader, reference.file.base)
    found: list[Version] | list[OlderVersions]
    if height == 0:
        found = _decode_versions(reader, files, arity)
    else:
        found = _decode_older(reader, files, arity, height - 1)
    reader.finish()
    if not found or found[-1].generation != reference.generation:
        reader.wrong("its newest generation is not the one that its parent says")
    return found


def _decode_older(
    reader: Reader, files: list[DataFile], most: int = _MOST_VERSION_NODES, height: int | None = None
) -> list[OlderVersions]:
    """References to version-tree nodes: of the given height, or each with its own."""
    count = reader.count("version-tree nodes", most)
    generations = _decode_generations(reader, count)
    numbers = reader.varints(count, "the number of a data file")
    if numbers and max(numbers) >= len(files):
        reader.wrong(f"data file {max(numbers)} is not in the table of {len(files)}")
    offsets = reader.varints(count, "the offset of a version-tree node")
    lengths = reader.varints(count, "the length of a version-tree node")
    contained = reader.varints(count, "the number of older versions")
    times = [int.from_bytes(reader.take(8, "a commit time"), "little") for _ in range(count)]
    heights = (
        reader.take(count, "the heights of version-tree nodes") if height is None else bytes([height]) * count
    )
    found = [files[n] for n in numbers]
    columns = zip(generations, found, offsets, lengths, contained, times, heights, strict=True)
    return [OlderVersions(*seven) for seven in columns]


def _decode_generations(reader: Reader, count: int) -> list[int]:
    generations = reader.varints(count, "a generation number")
    if any(b <= a for a, b in zip([0, *generations], generations, strict=False)):
        reader.wrong("the generation numbers are not ascending")
    return generations
