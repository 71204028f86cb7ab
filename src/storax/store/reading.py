"""Many reads of many files at once: small neighbours joined, large ones straight into their final memory.

What is to be read is a list of *segments*, each a run of bytes of a file. Extra memory (for runs
that do not go straight to their place) is bounded by one budget, however many segments there are.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from storax.errors import CheckpointChanged, Corrupt
from storax.store import posix
from storax.store.budget import WORKERS, Budget, run_all

# Reads of small runs that lie near each other are joined: one system call, at most so large.
_SMALL = 256 << 10
_JOINED = 8 << 20
_GAP = 64 << 10

Act = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of bytes of a file that somebody waits for.

    Attributes:
      path: the file.
      offset, length: in bytes.
      then: called with the bytes when they are there, in any thread; they are gone afterwards.
      into: memory that the bytes go straight to, ``length`` bytes in all; then ``then`` gets nothing.
    """

    path: str
    offset: int
    length: int
    then: Callable[[memoryview], None]
    into: tuple[memoryview, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """How much was read: bytes that somebody wanted, bytes that the files gave, and calls."""

    wanted_bytes: int
    read_bytes: int
    reads: int


def read_all(segments: Iterable[Segment], acts: Sequence[Act] = (), *, budget: Budget) -> Report:
    """Reads all segments, in any order and several at a time, and does some acts among them.

    Args:
      segments: what to read.
      acts: other work to be done on the same threads.
      budget: extra memory in flight.

    Raises:
      Corrupt: a file is missing or ends early.
      CheckpointChanged: its directory is gone.
    """
    every = list(segments)
    groups = list(_grouped(every))
    with _Files() as files:
        run_all([*acts, *(_act(group, files, budget) for group in groups)], workers=WORKERS)
    return Report(
        sum(segment.length for segment in every),
        sum(group[-1].offset + group[-1].length - group[0].offset for group in groups),
        len(groups),
    )


def _grouped(segments: Iterable[Segment]) -> Iterator[list[Segment]]:
    """Segments that one call reads together; those with memory of their own are read alone, and first."""
    small: dict[str, list[Segment]] = defaultdict(list)
    for segment in segments:
        if segment.length > _SMALL or segment.into:
            yield [segment]
        else:
            small[segment.path].append(segment)
    for found in small.values():
        found.sort(key=lambda segment: (segment.offset, segment.offset + segment.length))
        yield from _joined(found)


def _joined(found: Sequence[Segment]) -> Iterator[list[Segment]]:
    group: list[Segment] = []
    for segment in found:
        if group:
            gap = segment.offset - (group[-1].offset + group[-1].length)
            if gap > _GAP or segment.offset + segment.length - group[0].offset > _JOINED:
                yield group
                group = []
        group.append(segment)
    if group:
        yield group


def _act(group: Sequence[Segment], files: _Files, budget: Budget) -> Act:
    first = group[0]

    def straight() -> None:
        files.fill(first.path, first.into, first.offset)
        first.then(memoryview(b""))

    def through_memory() -> None:
        length = max(segment.offset + segment.length for segment in group) - first.offset
        with budget.holding(length):
            memory = memoryview(bytearray(length))
            files.fill(first.path, [memory], first.offset)
            for segment in group:
                start = segment.offset - first.offset
                segment.then(memory[start : start + segment.length])

    return straight if first.into else through_memory


class _Files:
    """Files, each opened once, closed at the end."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._open.values():
            os.close(fd)

    def fill(self, path: str, memory: Sequence[memoryview], offset: int) -> None:
        need = sum(part.nbytes for part in memory)
        got = posix.read_into(self._descriptor(path), memory, offset)
        if got != need:
            raise Corrupt(f"{path} ends early: {need:,} bytes wanted at offset {offset:,}, {got:,} there")

    def _descriptor(self, path: str) -> int:
        with self._lock:
            if path not in self._open:
                try:
                    self._open[path] = posix.open_to_read(path)
                except FileNotFoundError:
                    raise _missing(path) from None
            return self._open[path]


def _missing(path: str) -> Exception:
    directory = os.path.dirname(path)
    if os.path.isdir(directory):
        return Corrupt(f"{path} is missing; the checkpoint names it")
    return CheckpointChanged(f"{directory} was deleted while it was read")
