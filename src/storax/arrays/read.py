"""Boxes of saved arrays into memory: which chunks, from where, and whether their bytes are right.

A *source* is a shape, a dtype and a way to turn wanted boxes into reads. The sources here are
arrays of a database that storax reads itself; ``foreign`` has those that TensorStore decodes.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import crc32c
import numpy as np

from storax.arrays import zarr
from storax.errors import Corrupt
from storax.ocdbt.index import Index
from storax.ocdbt.layout import file_mark
from storax.ocdbt.nodes import Indirect, Inline
from storax.plan import boxes
from storax.plan.boxes import Box
from storax.plan.runs import LOCAL_GAP, Run, blocks, spans
from storax.progress import advance
from storax.store.reading import Act, Read, Segment
from storax.tree.names import display

# Below this a copy costs less than a system call of its own.
_WORTH_A_CALL = 256 << 10

Wanted = tuple[Box, np.ndarray]


class Source(Protocol):
    """Anything that boxes can be read from."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype: ...

    def reads(self, wanted: Sequence[Wanted]) -> Iterable[Read]:
        """How to fill each array with its box: runs of files to read, or work to do. In any order."""
        ...


@dataclass(frozen=True, slots=True)
class _ChunkRead:
    """One chunk to read, and where its parts go. As text: the leaf and the index range, for messages.

    Attributes:
      name: of the leaf.
      box: of the chunk; at the upper edge of the array it reaches beyond.
      targets: (box of the array, memory for it).
      file, offset: where the chunk is; for one that the index itself holds, the database.
      marked: whether the data file begins with its own name.
    """

    name: str
    array: zarr.ZarrArray
    box: Box
    targets: tuple[Wanted, ...]
    file: str
    offset: int | None
    marked: bool

    def __str__(self) -> str:
        return f"{display(self.name)}[{', '.join(f'{p}:{q}' for p, q in self.box)}]"

    @property
    def where(self) -> str:
        """Where the chunk is, for messages."""
        if self.offset is None:
            return f"the database in {self.file}"
        return f"{self.file} at offset {self.offset:,}"

    @property
    def begins(self) -> bytes:
        """What the data file must begin with."""
        return file_mark(self.file) if self.marked else b""

    @property
    def nbytes(self) -> int:
        """Bytes of the chunk without its checksum."""
        return math.prod(self.array.chunk_shape) * self.array.dtype.itemsize

    def whole_memory(self) -> memoryview | None:
        """The memory that the whole chunk goes to, if it is one run: then nothing is copied."""
        if len(self.targets) != 1:
            return None
        box, memory = self.targets[0]
        if box != self.box or not memory.flags.c_contiguous:
            return None
        return memory.reshape(-1).view(np.uint8).data


@dataclass(frozen=True, slots=True)
class DatabaseArray:
    """A source: one array of a database, in raw chunks, with or without checksums.

    Attributes:
      index, where: the database, and the checkpoint as messages name it.
      marked: whether data files begin with their own names.
      exact: whether of chunks that are wanted in part only that part is read, unchecked.
      tied: the name of the leaf that this one is the same array as.
    """

    name: str
    array: zarr.ZarrArray
    index: Index
    where: str
    marked: bool
    exact: bool = False
    tied: str | None = None

    @property
    def stored(self) -> tuple[int, str]:
        """The same for two leaves that were one array in memory, and are stored once."""
        return id(self.index), self.tied or self.name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def atom(self) -> tuple[int, ...]:
        return self.array.chunk_shape

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype

    def reads(self, wanted: Sequence[Wanted]) -> Iterator[Segment | Act]:
        by_chunk: dict[tuple[int, ...], list[Wanted]] = defaultdict(list)
        for box, memory in wanted:
            if not boxes.size(box):
                continue
            for cell in boxes.cells(box, self.array.chunk_shape):
                by_chunk[cell].append((box, memory))
        for cell, wants in by_chunk.items():
            read, place = self._found(cell, wants)
            partly = sum(boxes.size(box) for box, _ in read.targets) < math.prod(self.array.chunk_shape)
            unchecked = self.exact or not self.array.checksum_bytes
            if partly and unchecked and isinstance(place, Indirect):
                yield from _exact(read, place)
            else:
                yield _whole(read, place)

    @property
    def chunk_bytes(self) -> int:
        """Bytes of one chunk without its checksum."""
        return math.prod(self.array.chunk_shape) * self.array.dtype.itemsize

    def chunk(self, cell: tuple[int, ...], wants: Sequence[Wanted] = ()) -> Segment | Act:
        """The read of one chunk; with nothing wanted of it, its bytes are only checked.

        Raises:
          Corrupt: the database has no such chunk.
        """
        return _whole(*self._found(cell, wants))

    def _found(self, cell: tuple[int, ...], wants: Sequence[Wanted]) -> tuple[_ChunkRead, Inline | Indirect]:
        """What is wanted of a chunk, and where the chunk is."""
        chunk = boxes.cell_box(cell, self.array.chunk_shape)
        key = zarr.key_of(self.name, self.array.chunk_key(cell))
        place = self.index.get(key.encode())
        if place is None:
            raise Corrupt(f"{self.where}: {display(self.name)} lacks the chunk {key} in the database")
        is_whole = len(wants) == 1 and wants[0][0] == chunk
        targets = tuple(wants if is_whole else _parts_of(chunk, wants))
        if isinstance(place, Inline):
            return _ChunkRead(self.name, self.array, chunk, targets, self.where, None, False), place
        file = f"{self.index.directory}/{place.file}"
        return _ChunkRead(self.name, self.array, chunk, targets, file, place.offset, self.marked), place


def _parts_of(chunk: Box, wants: Sequence[Wanted]) -> Iterator[Wanted]:
    for box, memory in wants:
        part = boxes.intersect(chunk, box)
        if part is not None:
            # The dots: a view, also of 0-d memory.
            index: Any = (*boxes.slices(part, box), ...)
            yield part, memory[index]


def open_array(
    index: Index, name: str, where: str, *, marked: bool, tied: str | None = None
) -> DatabaseArray | None:
    """The array of a leaf; None if TensorStore has to decode it. Raises ``Corrupt`` if there is none."""
    key = zarr.key_of(name, zarr.METADATA_KEY)
    parse = zarr.parse
    entry = index.get(key.encode())
    if entry is None:
        parse = zarr.parse_2
        entry = index.get(zarr.key_of(name, zarr.METADATA_KEY_2).encode())
    if entry is None:
        raise Corrupt(f"{where}: the leaf {display(name)} has no array in the database (key {key})")
    if not isinstance(entry, Inline):
        return None
    try:
        array = parse(entry.data)
    except Corrupt as error:
        raise Corrupt(f"{where}: {key}: {error}") from None
    return None if array.codec == "other" else DatabaseArray(name, array, index, where, marked, tied=tied)


# --- one chunk -----------------------------------------------------------------------------------


def _whole(read: _ChunkRead, place: Inline | Indirect) -> Segment | Act:
    if isinstance(place, Inline):
        data = memoryview(place.data)
        return lambda: _deliver(read, data)
    _check_length(read, place.length)
    deliver = functools.partial(_deliver, read)
    direct = read.whole_memory() if read.nbytes >= _WORTH_A_CALL else None
    if direct is None:
        return Segment(read.file, place.offset, place.length, deliver, begins=read.begins, what=read)
    checksum = memoryview(bytearray(read.array.checksum_bytes))
    return Segment(
        read.file,
        place.offset,
        place.length,
        lambda _: _verify(read, direct, checksum),
        into=(direct, checksum),
        begins=read.begins,
        what=read,
    )


def _exact(read: _ChunkRead, place: Indirect) -> Iterator[Segment]:
    """The bytes that are wanted of a chunk and no others (but for small gaps). Nothing can be checked."""
    _check_length(read, place.length)
    itemsize = read.array.dtype.itemsize
    inner = [boxes.relative(box, read.box) for box, _ in read.targets]
    for span in spans(inner, read.array.chunk_shape, LOCAL_GAP // itemsize):
        yield Segment(
            read.file,
            place.offset + span[0] * itemsize,
            (span[1] - span[0]) * itemsize,
            functools.partial(_scatter, read, span),
            begins=read.begins,
            what=read,
        )


def _scatter(read: _ChunkRead, span: Run, value: memoryview) -> None:
    """Copies what is wanted of a run of a chunk to where it is wanted."""
    values = np.frombuffer(value, read.array.dtype)
    start = 0
    for block in blocks(span, read.array.chunk_shape):
        held = values[start : start + boxes.size(block)].reshape(boxes.box_shape(block))
        start += held.size
        for box, memory in read.targets:
            inner = boxes.relative(box, read.box)
            part = boxes.intersect(block, inner)
            if part is not None:
                memory[boxes.slices(part, inner)] = held[boxes.slices(part, block)]


def _deliver(read: _ChunkRead, value: memoryview) -> None:
    """Checks the bytes of a chunk and copies its parts to where they are wanted."""
    _check_length(read, value.nbytes)
    nbytes = read.nbytes
    data = value[:nbytes]
    _verify(read, data, value[nbytes:])
    chunk = np.frombuffer(data, read.array.dtype).reshape(read.array.chunk_shape)
    for box, memory in read.targets:
        memory[...] = chunk if box == read.box else chunk[boxes.slices(box, read.box)]


def _verify(read: _ChunkRead, data: memoryview, checksum: memoryview) -> None:
    if checksum.nbytes and crc32c.crc32c(data) != int.from_bytes(checksum, "little"):
        raise Corrupt(
            f"{read}: the checksum does not fit the bytes in {read.where}. The file was damaged after it "
            "was written; load another step."
        )
    advance(sum(memory.nbytes for _, memory in read.targets))


def _check_length(read: _ChunkRead, length: int) -> None:
    need = read.nbytes + read.array.checksum_bytes
    if length != need:
        raise Corrupt(f"{read}: {read.where} has {length:,} bytes, the chunk needs {need:,}")
