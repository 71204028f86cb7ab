"""Boxes of saved arrays into memory: which chunks, from where, and whether their bytes are right.

A *source* is a shape, a dtype and a way to turn wanted boxes into reads. The sources here are
arrays of a database that storax reads itself; ``foreign`` has those that TensorStore decodes.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import crc32c
import numpy as np

from storax.arrays import zarr
from storax.errors import CheckpointChanged, Corrupt
from storax.ocdbt.index import Index
from storax.ocdbt.nodes import Indirect, Inline
from storax.plan import boxes
from storax.plan.boxes import Box
from storax.store import posix
from storax.tree.names import display

# Reads of small chunks that lie near each other are joined: one system call, at most so large.
_SMALL = 256 << 10
_JOINED = 8 << 20
_GAP = 64 << 10

Wanted = tuple[Box, np.ndarray]
Task = Callable[[], None]


class Source(Protocol):
    """Anything that boxes can be read from."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype: ...

    def reads(self, wanted: Sequence[Wanted]) -> Iterable[ChunkRead | Task]:
        """How to fill each array with its box. Arrays are C-ordered and of the source's dtype."""
        ...


@dataclass(frozen=True, slots=True)
class ChunkRead:
    """One chunk to read, and where its parts go.

    Attributes:
      what: the leaf and the index range, for messages.
      targets: (box of the array, memory for it).
    """

    what: str
    place: Inline | Indirect
    array: zarr.ZarrArray
    box: Box
    targets: tuple[Wanted, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the chunk without its checksum."""
        return math.prod(self.array.chunk_shape) * self.array.dtype.itemsize


@dataclass(frozen=True, slots=True)
class DatabaseArray:
    """A source: one array of a database, in raw chunks with checksums."""

    name: str
    array: zarr.ZarrArray
    index: Index
    where: str

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype

    def reads(self, wanted: Sequence[Wanted]) -> Iterator[ChunkRead]:
        by_chunk: dict[tuple[int, ...], list[Wanted]] = defaultdict(list)
        for box, memory in wanted:
            if not boxes.size(box):
                continue
            for cell in boxes.cells(box, self.array.chunk_shape):
                by_chunk[cell].append((box, memory))
        for cell, wants in by_chunk.items():
            yield self._chunk_read(cell, wants)

    def _chunk_read(self, cell: tuple[int, ...], wants: Sequence[Wanted]) -> ChunkRead:
        chunk = boxes.cell_box(cell, self.array.chunk_shape)
        what = f"{display(self.name)}[{', '.join(f'{p}:{q}' for p, q in chunk)}]"
        key = zarr.key_of(self.name, zarr.chunk_key(cell))
        place = self.index.get(key.encode())
        if place is None:
            raise Corrupt(f"{self.where}: the chunk {what} is not in the database (key {key})")
        targets = []
        for box, memory in wants:
            part = boxes.intersect(chunk, box)
            if part is not None:
                # The dots: a view, also of 0-d memory.
                index: Any = (*boxes.slices(part, box), ...)
                targets.append((part, memory[index]))
        return ChunkRead(what, place, self.array, chunk, tuple(targets))


def open_array(index: Index, name: str, where: str) -> DatabaseArray | None:
    """The array of a leaf; None if TensorStore has to decode it. Raises ``Corrupt`` if it is not there."""
    key = zarr.key_of(name, zarr.METADATA_KEY)
    entry = index.get(key.encode())
    if entry is None:
        raise Corrupt(f"{where}: the leaf {display(name)} has no array in the database (key {key})")
    if not isinstance(entry, Inline):
        return None
    array = zarr.parse(entry.data, f"{where}: {key}")
    return DatabaseArray(name, array, index, where) if array.codec == "crc32c" else None


# --- acting --------------------------------------------------------------------------------------


class Files:
    """The data files of one load, each opened once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: dict[str, int] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()

    def path(self, file: str) -> Path:
        return self._directory / file

    def read(self, file: str, buffers: Sequence[memoryview], offset: int) -> None:
        """Fills the buffers. Raises ``Corrupt`` if the file is shorter."""
        need = sum(b.nbytes for b in buffers)
        got = posix.read_into(self._descriptor(file), buffers, offset)
        if got != need:
            raise Corrupt(
                f"{self.path(file)} ends early: {need:,} bytes wanted at offset {offset:,}, {got:,} there"
            )

    def _descriptor(self, file: str) -> int:
        with self._lock:
            if file not in self._open:
                try:
                    self._open[file] = os.open(self.path(file), os.O_RDONLY)
                except FileNotFoundError:
                    if self._directory.exists():
                        raise Corrupt(f"{self.path(file)} is missing; the database names it") from None
                    raise CheckpointChanged(f"{self._directory} was deleted while it was read") from None
            return self._open[file]


def tasks_of(reads: Iterable[ChunkRead], files: Files) -> list[Task]:
    """Reads as acts that can run in any order and side by side: large chunks alone, small ones joined."""
    tasks: list[Task] = []
    small: dict[str, list[tuple[Indirect, ChunkRead]]] = defaultdict(list)
    inline: list[ChunkRead] = []
    for read in reads:
        if isinstance(read.place, Inline):
            inline.append(read)
        elif read.place.length <= _SMALL:
            small[read.place.file].append((read.place, read))
        else:
            tasks.append(_large_task(read, read.place, files))
    if inline:
        tasks.append(lambda: _deliver_inline(inline))
    for file, found in small.items():
        found.sort(key=lambda pair: pair[0].offset)
        tasks += [_joined_task(file, group, files) for group in _joined(found)]
    return tasks


def _deliver_inline(reads: Sequence[ChunkRead]) -> None:
    for read in reads:
        assert isinstance(read.place, Inline)
        _deliver(read, memoryview(read.place.data), "an inline value of the database")


def _joined(found: Sequence[tuple[Indirect, ChunkRead]]) -> Iterator[list[tuple[Indirect, ChunkRead]]]:
    group: list[tuple[Indirect, ChunkRead]] = []
    for place, read in found:
        if group:
            end = group[-1][0].offset + group[-1][0].length
            if place.offset - end > _GAP or place.offset + place.length - group[0][0].offset > _JOINED:
                yield group
                group = []
        group.append((place, read))
    if group:
        yield group


def _joined_task(file: str, group: Sequence[tuple[Indirect, ChunkRead]], files: Files) -> Task:
    def run() -> None:
        start = group[0][0].offset
        stop = max(place.offset + place.length for place, _ in group)
        memory = memoryview(bytearray(stop - start))
        files.read(file, [memory], start)
        for place, read in group:
            value = memory[place.offset - start : place.offset - start + place.length]
            _deliver(read, value, f"{files.path(file)} at offset {place.offset:,}")

    return run


def _large_task(read: ChunkRead, place: Indirect, files: Files) -> Task:
    def run() -> None:
        where = f"{files.path(place.file)} at offset {place.offset:,}"
        _check_length(read, place.length, where)
        direct = _direct_memory(read)
        memory = direct if direct is not None else np.empty(read.nbytes, np.uint8).data
        checksum = memoryview(bytearray(4))
        files.read(place.file, [memory, checksum], place.offset)
        _verify(read, memory, checksum, where)
        if direct is None:
            _scatter(read, memory)

    return run


def _direct_memory(read: ChunkRead) -> memoryview | None:
    """The memory that the whole chunk goes to, if it is one run: then nothing is copied."""
    if len(read.targets) != 1:
        return None
    box, memory = read.targets[0]
    if box != read.box or not memory.flags.c_contiguous:
        return None
    return memory.reshape(-1).view(np.uint8).data


def _deliver(read: ChunkRead, value: memoryview, where: str) -> None:
    _check_length(read, value.nbytes, where)
    _verify(read, value[:-4], value[-4:], where)
    _scatter(read, value[:-4])


def _check_length(read: ChunkRead, length: int, where: str) -> None:
    if length != read.nbytes + 4:
        raise Corrupt(f"{read.what}: {where} has {length:,} bytes, the chunk needs {read.nbytes + 4:,}")


def _verify(read: ChunkRead, data: memoryview, checksum: memoryview, where: str) -> None:
    if crc32c.crc32c(data) != int.from_bytes(checksum, "little"):
        raise Corrupt(
            f"{read.what}: the checksum does not fit the bytes in {where}. The file was damaged after it "
            "was written; load another step."
        )


def _scatter(read: ChunkRead, data: memoryview) -> None:
    chunk = np.frombuffer(data, read.array.dtype).reshape(read.array.chunk_shape)
    for box, memory in read.targets:
        memory[...] = chunk[boxes.slices(box, read.box)]


@contextlib.contextmanager
def open_files(directory: Path) -> Iterator[Files]:
    """The data files of a database, closed at the end."""
    with Files(directory) as files:
        yield files
