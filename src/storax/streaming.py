"""A checkpoint's tree written from sources, a bounded part at a time: no array is ever in memory as a whole.

Each batch of chunks becomes a database of its own, as if another process had written it, and at
the end all of them are merged into one. Of several processes each copies a share of the batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from storax.arrays import zarr
from storax.arrays.foreign import open_arrays
from storax.arrays.gather import Want, atom_of, gather
from storax.arrays.read import Source, Wanted, open_array
from storax.arrays.staging import StagedArray
from storax.arrays.write import values_of
from storax.checkpoint import SavedLeaf
from storax.errors import Corrupt
from storax.ocdbt.index import Index
from storax.ocdbt.merge import merge
from storax.ocdbt.writer import write_database
from storax.plan import boxes
from storax.plan.boxes import Box
from storax.plan.chunks import MOST_BYTES, aligned_chunk_shape, chunk_shape
from storax.processes import Message, Processes, present
from storax.progress import advance, watching
from storax.staged import Compression, StagedTree
from storax.store import posix
from storax.store.budget import WORKERS, Budget
from storax.store.reading import Act, Allocate, Read, Report, Work, read_all, split
from storax.tree.dtypes import converted, dtype_named, on_disk
from storax.tree.leaves import Leaf
from storax.tree.names import display

BATCH_BYTES = 256 << 20
_MOST_LINES = 20


@dataclass(frozen=True, slots=True)
class Stream:
    """An array on its way into a checkpoint.

    Attributes:
      leaf: as it will be saved.
      source: of its values.
      saved: the dtype of the values; that of the source may be their raw bytes.
      wanted: the dtype that they get.
      chunk_shape: of what is written.
    """

    leaf: Leaf
    source: Source
    saved: np.dtype
    wanted: np.dtype
    chunk_shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the values as they are read."""
        return boxes.size(boxes.whole(self.source.shape)) * self.saved.itemsize

    def cells(self) -> Iterator[Box]:
        """The boxes of its chunks; at the upper edge they end with the array."""
        whole = boxes.whole(self.source.shape)
        if boxes.size(whole):
            for cell in boxes.cells(whole, self.chunk_shape):
                part = boxes.intersect(boxes.cell_box(cell, self.chunk_shape), whole)
                assert part is not None
                yield part

    def values(self, memory: np.ndarray) -> np.ndarray:
        """Values as they are wanted, from memory as it was read."""
        values = memory.view(self.saved)
        return values if self.saved == self.wanted else converted(values, self.wanted)

    def as_source(self) -> Source:
        """A source of the values as they are wanted."""
        same = self.source.dtype == self.saved == self.wanted
        return self.source if same else _StreamSource(self)


@dataclass(frozen=True, slots=True)
class _StreamSource:
    """A source: the values of another one, in the dtype that is wanted."""

    of: Stream

    @property
    def shape(self) -> tuple[int, ...]:
        return self.of.source.shape

    @property
    def dtype(self) -> np.dtype:
        return self.of.wanted

    @property
    def atom(self) -> tuple[int, ...]:
        return atom_of(self.of.source)

    def reads(self, wanted: Sequence[Wanted]) -> Iterator[Work]:
        for box, memory in wanted:
            yield Work(boxes.size(box) * self.of.source.dtype.itemsize, partial(self._prepare, box, memory))

    def _prepare(self, box: Box, memory: np.ndarray, allocate: Allocate) -> tuple[Sequence[Read], Act]:
        read = allocate(boxes.box_shape(box), self.of.source.dtype)

        def deliver() -> None:
            memory[...] = self.of.values(read)

        return gather([(self.of.source, (box, read))]), deliver


def stream(found: SavedLeaf, wanted: np.dtype | None = None, chunk_bytes: int = MOST_BYTES) -> Stream:
    """How a saved leaf that has a source is copied, perhaps to another dtype."""
    source = found.source
    assert source is not None
    leaf = found.leaf
    saved = np.dtype(np.uint32) if leaf.prng else dtype_named(leaf.dtype or "uint8")
    if leaf.prng is None and wanted is not None and wanted != saved:
        leaf = replace(leaf, dtype=wanted.name)
    else:
        wanted = saved
    chunk = aligned_chunk_shape(source.shape, atom_of(source), wanted.itemsize, chunk_bytes)
    # Chunks that are read may be larger than those that are wanted; then each becomes several.
    chunk = chunk_shape(source.shape, chunk, wanted.itemsize, chunk_bytes)
    return Stream(leaf, source, saved, wanted, chunk)


@dataclass(frozen=True, slots=True)
class StreamedTree:
    """An item of a checkpoint whose arrays are read while they are written.

    Attributes:
      leaves: those that the documents alone hold.
      streams: the others.
      order: the names of all, as the tree has them.
      verify: whether to read everything back and compare it before the checkpoint gets its name.
      reports: what was read, once it is written.
      processes: of the job; each copies a share of the chunks.
      check_sources: raises if what was read is not what was opened any more.
    """

    leaves: tuple[Leaf, ...]
    streams: tuple[Stream, ...]
    order: tuple[str, ...]
    tuples: frozenset[str]
    compression: Compression = None
    verify: bool = False
    reports: list[Report] = field(default_factory=list, compare=False)
    processes: Processes = field(default_factory=present)
    check_sources: Callable[[], None] = field(default=lambda: None, compare=False)

    @property
    def handler(self) -> str:
        return self._staged.handler

    @property
    def _staged(self) -> StagedTree:
        """The tree without the values: what the documents are made of."""
        by_name = {leaf.name: leaf for leaf in (*self.leaves, *(one.leaf for one in self.streams))}
        arrays = tuple(_staged(one, ()) for one in self.streams)
        return StagedTree(tuple(by_name[name] for name in self.order), self.tuples, arrays, self.compression)

    def write_part(self, directory: Path) -> Message:
        """The chunks that this process copies; see ``publishing.StagedParts``."""
        parts: list[str] = []
        batches, begun = self._share()
        for batch in batches:
            parts.append(f"ocdbt.process_{self.processes.index}_{len(parts)}")
            part = directory / parts[-1]
            posix.make_directory(part)
            arrays = _read(batch, self.reports)
            # The metadata of an array whose first chunks are in an earlier part is there already.
            there = {zarr.key_of(name, zarr.METADATA_KEY).encode() for name in begun}
            values = [value for value in values_of(arrays, self.compression) if value.key not in there]
            with watching(_nobody):
                write_database(part, values, workers=WORKERS)
            begun |= {array.leaf.name for array in arrays}
            advance(sum(one.saved.itemsize * boxes.size(box) for one, box in batch))
            del arrays, values  # before the next batch is read, not after
        posix.sync_directory(directory)
        self.check_sources()
        return {"parts": parts}

    @property
    def local_bytes(self) -> int:
        """Bytes of the values that this process reads."""
        return sum(boxes.size(box) * one.saved.itemsize for batch in self._share()[0] for one, box in batch)

    def _share(self) -> tuple[list[list[tuple[Stream, Box]]], set[str]]:
        """The batches of this process, and the arrays whose first chunks others write, before it."""
        index, count = self.processes.index, self.processes.count
        total = sum(one.nbytes for one in self.streams)
        every = list(batches(self.streams, min(BATCH_BYTES, -(-total // count) or 1)))
        start, stop = (len(every) * i // count for i in (index, index + 1))
        return every[start:stop], {one.leaf.name for batch in every[:start] for one, _ in batch}

    def merge_parts(self, directory: Path, messages: Sequence[Message]) -> Mapping[str, bytes]:
        """One database over all parts, compared with the sources if that is wanted."""
        names = [name for message in messages for name in message["parts"]]
        merge(directory, {name: list(Index.open(directory / name).items()) for name in names})
        if self.verify:
            self._check(directory)
        return self._staged.documents()

    def _check(self, directory: Path) -> None:
        index = Index.open(directory)
        names = [one.leaf.name for one in self.streams]
        written: dict[str, Source | None] = {
            name: open_array(index, name, str(directory), marked=True) for name in names
        }
        compressed = [name for name in names if written[name] is None]
        opened = open_arrays(directory, compressed, ocdbt=True, zarr3=True, complete=True)
        written |= dict(zip(compressed, opened, strict=True))
        compare([(one, written[one.leaf.name]) for one in self.streams], str(directory))


def compare(pairs: Sequence[tuple[Stream, Source | None]], where: str) -> None:
    """Reads sources and what was written from them, a bounded part at a time, and compares them bit for bit.

    Raises:
      Corrupt: lists every leaf that differs.
    """
    copies = {one.leaf.name: source for one, source in pairs}
    wrong: dict[str, None] = {}
    for batch in batches([one for one, _ in pairs]):
        wants: list[Want] = []
        both = []
        for one, box in batch:
            copy = copies[one.leaf.name]
            if copy is None or copy.shape != one.source.shape:
                wrong[one.leaf.name] = None
                continue
            memory = np.empty(boxes.box_shape(box), one.source.dtype)
            again = np.empty(boxes.box_shape(box), copy.dtype)
            wants += [(one.source, (box, memory)), (copy, (box, again))]
            both.append((one, memory, again))
        _fetch(wants)
        for one, memory, again in both:
            if one.values(memory).tobytes() != again.tobytes():
                wrong[one.leaf.name] = None
    if wrong:
        names = ", ".join(display(name) for name in list(wrong)[:_MOST_LINES])
        raise Corrupt(f"{where}: {len(wrong)} leaves are not what was read: {names}. It was not committed.")


def batches(streams: Sequence[Stream], most_bytes: int | None = None) -> Iterator[list[tuple[Stream, Box]]]:
    """All chunks of all arrays, and arrays without any, in parts of bounded size."""
    most_bytes = most_bytes or BATCH_BYTES
    batch: list[tuple[Stream, Box]] = []
    size = 0
    for one in streams:
        for box in list(one.cells()) or [boxes.whole(one.source.shape)]:
            nbytes = boxes.size(box) * max(one.saved.itemsize, one.wanted.itemsize)
            if batch and size + nbytes > most_bytes:
                yield batch
                batch, size = [], 0
            batch.append((one, box))
            size += nbytes
    yield batch


def _read(batch: Sequence[tuple[Stream, Box]], reports: list[Report]) -> list[StagedArray]:
    memory = [np.empty(boxes.box_shape(box), one.source.dtype) for one, box in batch]
    wants = [(one.source, (box, part)) for (one, box), part in zip(batch, memory, strict=True)]
    reports.append(_fetch(wants))
    held: dict[str, tuple[Stream, list[tuple[Box, np.ndarray]]]] = {}
    for (one, box), part in zip(batch, memory, strict=True):
        parts = held.setdefault(one.leaf.name, (one, []))[1]
        if part.size:
            values = np.ascontiguousarray(one.values(part)).reshape(part.shape)
            parts.append((box, values.view(on_disk(one.wanted))))
    return [_staged(one, tuple(parts)) for one, parts in held.values()]


def _fetch(wants: Sequence[Want]) -> Report:
    segments, acts = split(gather(wants))
    with watching(_nobody):
        return read_all(segments, acts, budget=Budget(BATCH_BYTES))


def _staged(one: Stream, parts: tuple[tuple[Box, np.ndarray], ...]) -> StagedArray:
    return StagedArray(one.leaf, one.source.shape, on_disk(one.wanted), one.chunk_shape, parts)


def _nobody(_done: int, _total: int) -> None:
    """Who copies counts what it copies once, not once when it is read and once when it is written."""
