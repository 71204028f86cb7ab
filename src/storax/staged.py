"""A pytree in host memory, as far as this process writes it."""

from __future__ import annotations

import contextlib
import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

import crc32c
import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from storax import pytree
from storax.arrays import zarr
from storax.arrays.place import sharding_text
from storax.arrays.shares import Shares, stage_shares
from storax.arrays.staging import StagedArray, stage, start_copies
from storax.arrays.write import as_bytes, values_of
from storax.errors import BadOption, Corrupt, ProcessesDisagree
from storax.garbage import uncollected
from storax.ocdbt.index import Index
from storax.ocdbt.merge import merge
from storax.ocdbt.nodes import Entry
from storax.ocdbt.writer import write_database
from storax.plan import boxes
from storax.processes import Message, Processes, Solo, named, present
from storax.store import posix
from storax.store.budget import WORKERS
from storax.tracing import span
from storax.tree import documents
from storax.tree.leaves import Leaf
from storax.tree.names import display

Compression = Literal["zstd"] | None

# Fingerprints of leaves that a process hands in: more leaves than this share some.
_MOST_FINGERPRINTS = 4096
# A message names at most so many keys.
_MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class StagedTree:
    """A tree in host memory: all its leaves, and of its arrays the parts that this process writes.

    Attributes:
      processes: of the job.
      content: a checksum of the values of each array that every process has for itself.
      shares: who writes what; None for a process alone.
    """

    leaves: tuple[Leaf, ...]
    tuples: frozenset[str]
    arrays: tuple[StagedArray, ...]
    compression: Compression
    processes: Processes = field(default_factory=Solo)
    content: tuple[int | None, ...] = ()
    shares: Shares | None = None

    @property
    def handler(self) -> str:
        has_strings = any(leaf.value is not None for leaf in self.leaves)
        return documents.TREE_HANDLER_WITH_STRINGS if has_strings else documents.TREE_HANDLER

    def documents(self) -> Mapping[str, bytes]:
        """The documents of the tree, by their paths below its directory."""
        named = {leaf.name: leaf for leaf in self.leaves if leaf.tied is not None}
        return {
            documents.TREE_DOCUMENT: documents.TreeDocument(self.leaves, self.tuples).encode(),
            documents.SHARDING_DOCUMENT: documents.encode_shardings(self.leaves),
            **({documents.STRINGS_DOCUMENT: text} if (text := documents.encode_strings(self.leaves)) else {}),
            f"{documents.ARRAY_DOCUMENTS}/process_{self.processes.index}": documents.encode_array_document(
                (leaf, array.shape, array.chunk_shape)
                for array in self.arrays
                if array.leaf.kind == "jax.Array"
                for leaf in (array.leaf, *(replace(array.leaf, path=named[name].path) for name in array.also))
            ),
        }

    def write_part(self, directory: Path) -> Message:
        """The database and the documents of this process; see ``publishing.StagedParts``."""
        index, count = self.processes.index, self.processes.count
        part = directory / _part(index)
        posix.make_directory(part)
        write_database(part, values_of(self.arrays, self.compression), workers=WORKERS)
        with contextlib.suppress(FileExistsError):
            posix.make_directory(directory / documents.ARRAY_DOCUMENTS)
        *common, (own, text) = self.documents().items()
        # Documents are somebody's too: every process could write any, so they take turns.
        mine = {own: text} | {name: text for i, (name, text) in enumerate(common) if i % count == index}
        for name, text in mine.items():
            posix.write_file(directory / name, text)
        posix.sync_directory(directory / documents.ARRAY_DOCUMENTS)
        posix.sync_directory(directory)
        return {
            "sums": {name: crc32c.crc32c(text) for name, text in mine.items()},
            "leaves": len(self.leaves),
            "fingerprints": _encoded(self._fingerprints()) if count > 1 else "",
        }

    def merge_parts(self, directory: Path, messages: Sequence[Message]) -> Mapping[str, bytes]:
        """One database over those of all processes, after checking that it is whole."""
        self._check_agreement(messages)
        expected = [_part(index) for index in range(self.processes.count)]
        _refuse_strays(directory, "ocdbt.process_*", expected)
        arrays = directory / documents.ARRAY_DOCUMENTS
        _refuse_strays(arrays, "process_*", [f"process_{i}" for i in range(self.processes.count)])
        parts = {part: list(Index.open(directory / part).items()) for part in expected}
        self._check_whole(parts)
        merge(directory, parts)
        return {}

    def _fingerprints(self) -> list[int]:
        """What this process means to save, leaf by leaf: equal on all processes that mean the same."""
        chunks = {array.leaf.name: array.chunk_shape for array in self.arrays}
        content = dict(zip((array.leaf.name for array in self.arrays), self.content, strict=True))
        numbers = [
            zlib.crc32(
                repr(
                    (leaf.name, str(leaf), leaf.value, leaf.sharding, chunks.get(leaf.name),
                     content.get(leaf.name), self.compression)
                ).encode()
            )
            for leaf in self.leaves
        ]  # fmt: skip
        each = _leaves_per_fingerprint(len(numbers))
        return [zlib.crc32(repr(numbers[i : i + each]).encode()) for i in range(0, len(numbers), each)]

    def _check_agreement(self, messages: Sequence[Message]) -> None:
        """All processes saved the same tree, in the same way; else names the first leaf that differs."""
        mine = (messages[0]["leaves"], messages[0]["fingerprints"])
        others = [i for i, m in enumerate(messages) if (m["leaves"], m["fingerprints"]) != mine]
        if not others:
            return
        number = min(_first_difference(mine[1], messages[i]["fingerprints"]) for i in others)
        each = _leaves_per_fingerprint(len(self.leaves))
        leaf = self.leaves[min(number * each, len(self.leaves) - 1)]
        about = "" if each == 1 else f", or one of the {each - 1} after it,"
        counts = sorted({messages[i]["leaves"] for i in others} - {mine[0]})
        trees = f" Process 0 saves {mine[0]} leaves, others {', '.join(map(str, counts))}." if counts else ""
        raise ProcessesDisagree(
            f"the processes do not save the same: the leaf {display(leaf.name)}{about} differs between "
            f"process 0 (where it is {leaf}) and {named(others)}: another name, shape, dtype, sharding or "
            f"option, or values that only one process has.{trees} Give every process the same tree; make "
            "arrays that differ between processes parts of one global array."
        )

    def _check_whole(self, parts: Mapping[str, Sequence[Entry]]) -> None:
        """Every array has its metadata and every chunk of its grid, once, and there is nothing else."""
        expected = dict(pair for array in self.arrays for pair in _keys(array))
        written = Counter(key.decode() for entries in parts.values() for key, _ in entries)
        lost = sorted(expected.keys() - written.keys())
        unknown = sorted(written.keys() - expected.keys())
        if lost or unknown:
            shown = [
                f"{display(expected[key])} lacks {key}{self._by(key, expected[key])}"
                for key in lost[:_MOST_SHOWN]
            ]
            shown += [f"nobody knows {key}" for key in unknown[:_MOST_SHOWN]]
            more = max(0, len(lost) - _MOST_SHOWN) + max(0, len(unknown) - _MOST_SHOWN)
            shown += [f"and {more:,} more"] if more else []
            raise Corrupt(
                f"the parts of the processes do not make the whole tree: {'; '.join(shown)}. Save again."
            )

    def _by(self, key: str, name: str) -> str:
        """Which process was to write a key of a leaf."""
        if self.shares is None:
            return ""
        number = next(i for i, array in enumerate(self.arrays) if name in (array.leaf.name, *array.also))
        if key == zarr.key_of(name, zarr.METADATA_KEY):
            writer = self.shares.describer(number)
        else:
            cells = _cells(self.arrays[number])
            cell = next(cell for cell in cells if zarr.key_of(name, zarr.chunk_key(cell)) == key)
            writer = self.shares.writer(number, cell)
        return f", which process {writer} was to write"


def _refuse_strays(directory: Path, pattern: str, expected: Sequence[str]) -> None:
    strays = sorted({path.name for path in directory.glob(pattern)} - set(expected))
    if strays:
        raise Corrupt(
            f"{directory}: {', '.join(strays)} is of no process of this save. Does another job write there?"
        )


def _leaves_per_fingerprint(leaves: int) -> int:
    return -(-leaves // _MOST_FINGERPRINTS) or 1


def _encoded(numbers: Sequence[int]) -> str:
    return "".join(f"{number:08x}" for number in numbers)


def _first_difference(one: str, other: str) -> int:
    """The number of the first fingerprint that differs, or that only one of them has."""
    pairs = zip_longest(*([text[i : i + 8] for i in range(0, len(text), 8)] for text in (one, other)))
    return next((number for number, (a, b) in enumerate(pairs) if a != b), 0)


def _part(index: int) -> str:
    return f"ocdbt.process_{index}"


def _keys(array: StagedArray) -> Iterator[tuple[str, str]]:
    """Every key that the database must have for an array, and the leaf that it is for."""
    for name in (array.leaf.name, *array.also):
        yield zarr.key_of(name, zarr.METADATA_KEY), name
        for cell in _cells(array):
            yield zarr.key_of(name, zarr.chunk_key(cell)), name


def _cells(array: StagedArray) -> Iterator[tuple[int, ...]]:
    if math.prod(array.shape):
        yield from boxes.cells(boxes.whole(array.shape), array.chunk_shape)


@uncollected()
def stage_tree(
    tree: Any, *, hold: bool, compression: Compression = None, processes: Processes | None = None
) -> StagedTree:
    """Flattens a tree and brings what this process writes of it to host memory.

    Args:
      tree: the tree.
      hold: whether numpy memory may be used as it is, as the caller waits until all is written.
      compression: as for ``save``.
      processes: of the job; those that are running by default.
    """
    if compression not in (None, "zstd"):
        raise BadOption(f"compression is {compression!r}; it must be None or 'zstd'")
    processes = processes or present()
    with span("flatten"):
        pairs, structure = pytree.flatten(tree)
        leaves = _with_ties(pytree.describe(pairs), [value for _, value in pairs])
        tuples = pytree.tuples(structure, [path for path, _ in pairs])
        both = [
            (leaf, pytree.array_of(leaf, value))
            for leaf, (_, value) in zip(leaves, pairs, strict=True)
            if not leaf.is_in_document and leaf.tied is None
        ]
    with span("stage"):
        if processes.count == 1:
            if not hold:
                start_copies([value for _, value in both])
            arrays = _tied([stage(leaf, value, hold=hold) for leaf, value in both], leaves)
            return StagedTree(tuple(leaves), tuples, tuple(arrays), compression, processes)
        arrays, shares = stage_shares([leaf for leaf, _ in both], [v for _, v in both], processes, hold=hold)
        arrays = _tied(arrays, leaves)
        content = tuple(_content(value) for _, value in both)
        local = {
            name
            for array, checksum in zip(arrays, content, strict=True)
            if checksum is not None
            for name in (array.leaf.name, *array.also)
        }
        # Each process has these on a device of its own; what is written down is the first one's.
        first = next(device for device in jax.devices() if device.process_index == 0)
        where = sharding_text(SingleDeviceSharding(first))
        leaves = [
            replace(leaf, sharding=where) if leaf.sharding and leaf.name in local else leaf for leaf in leaves
        ]
        return StagedTree(tuple(leaves), tuples, tuple(arrays), compression, processes, content, shares)


def _with_ties(leaves: Sequence[Leaf], values: Sequence[Any]) -> list[Leaf]:
    """The leaves, told which of them are an array that an earlier one is, too."""
    first: dict[int, str] = {}
    found = []
    for leaf, value in zip(leaves, values, strict=True):
        same = first.setdefault(id(value), leaf.name) if isinstance(value, jax.Array) else leaf.name
        found.append(leaf if same == leaf.name else replace(leaf, tied=same))
    return found


def _tied(arrays: Sequence[StagedArray], leaves: Sequence[Leaf]) -> list[StagedArray]:
    """The arrays, told the names of the leaves that are tied to theirs."""
    also: dict[str, list[str]] = defaultdict(list)
    for leaf in leaves:
        if leaf.tied is not None:
            also[leaf.tied].append(leaf.name)
    return [
        replace(array, also=tuple(also[array.leaf.name])) if array.leaf.name in also else array
        for array in arrays
    ]


def _content(value: Any) -> int | None:
    """A checksum of values that every process has for itself; None for arrays that they hold together."""
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        return None
    return int(crc32c.crc32c(as_bytes(np.asarray(value))))
