"""Many reads of many files at once: small neighbours joined, large ones straight into their final memory.

What is to be read is a list of *segments*, each a run of bytes of a file. Extra memory (for runs
that do not go straight to their place) is bounded by one budget, however many segments there are.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from storax.errors import Corrupt
from storax.store import posix
from storax.store.budget import WORKERS, Budget, run_all
from storax.tracing import span

# Reads of small runs that lie near each other are joined: one system call, at most so large.
_SMALL = 256 << 10
_JOINED = 8 << 20
_GAP = 64 << 10

Act = Callable[[], None]
# Makes memory of a shape and a numpy dtype.
Allocate = Callable[[tuple[int, ...], Any], Any]


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of bytes of a file that somebody waits for.

    Attributes:
      path: the file.
      offset, length: in bytes.
      then: called with the bytes when they are there, in any thread; they are gone afterwards.
      into: memory that the bytes go straight to, ``length`` bytes in all; then ``then`` gets nothing.
      begins: what the file must begin with, checked once.
      what: whose bytes they are, as text for messages.
      unwanted: how many of the bytes lie in gaps that it was cheaper to read than to leave out.
    """

    path: str
    offset: int
    length: int
    then: Callable[[memoryview], None]
    into: tuple[memoryview, ...] = ()
    begins: bytes = b""
    what: object = "bytes"
    unwanted: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """Something to compute from bytes that must be read first, into memory of its own.

    Attributes:
      nbytes: of that memory; the budget holds them while it is done.
      prepare: given what makes memory, the reads into it, and the act that follows them.
    """

    nbytes: int
    prepare: Callable[[Allocate], tuple[Sequence[Read], Act]]


Read = Segment | Act | Work


@dataclass(frozen=True, slots=True)
class Traffic:
    """How much was read of one file.

    Attributes:
      wanted_bytes: that somebody wanted.
      read_bytes: that the file gave.
      reads: calls.
      across: those of the calls that read a whole span, with gaps that nobody wanted, since that was
        cheaper than to read each run in it by itself.
    """

    wanted_bytes: int
    read_bytes: int
    reads: int
    across: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """How much was read: bytes that somebody wanted, bytes that the files gave, and calls.

    Attributes:
      wanted_bytes, read_bytes, reads: of all files.
      files: the same of each file, by path.
    """

    wanted_bytes: int
    read_bytes: int
    reads: int
    files: Mapping[str, Traffic] = field(default_factory=dict)


def read_all(
    segments: Iterable[Segment],
    acts: Sequence[Act | Work] = (),
    *,
    budget: Budget,
    workers: int = WORKERS,
    on_fault: Callable[[Segment, Corrupt], None] | None = None,
) -> Report:
    """Reads all segments, in any order and several at a time, and does some acts among them.

    Args:
      segments: what to read.
      acts: other work to be done on the same threads.
      budget: extra memory in flight.
      workers: threads, the caller's included.
      on_fault: called with a segment whose bytes are wrong, instead of raising; then none are joined.

    Returns:
      What was read, also for the works among the acts.

    Raises:
      Corrupt: a file is missing or ends early.
    """
    groups = list(_grouped(segments)) if on_fault is None else [[segment] for segment in segments]
    inner: list[Report] = []
    with _Files() as files:
        tasks = [_work(act, budget, inner) if isinstance(act, Work) else act for act in acts]
        reads = (_act(group, files, budget) for group in groups)
        if on_fault is not None:
            reads = (_tolerant(read, group[0], on_fault) for read, group in zip(reads, groups, strict=True))
        run_all([*tasks, *reads], workers=workers)
    return total([_report(groups), *inner])


def _tolerant(read: Act, segment: Segment, on_fault: Callable[[Segment, Corrupt], None]) -> Act:
    def run() -> None:
        try:
            read()
        except Corrupt as error:
            on_fault(segment, error)

    return run


def planned(segments: Iterable[Segment]) -> Report:
    """What ``read_all`` would read for these segments. Reads nothing."""
    return _report(list(_grouped(segments)))


def total(reports: Sequence[Report]) -> Report:
    """All of them together."""
    return Report(
        sum(report.wanted_bytes for report in reports),
        sum(report.read_bytes for report in reports),
        sum(report.reads for report in reports),
        _by_file(found for report in reports for found in report.files.items()),
    )


def split(reads: Iterable[Read]) -> tuple[list[Segment], list[Act | Work]]:
    """The runs of files among some reads, and the rest."""
    segments: list[Segment] = []
    acts: list[Act | Work] = []
    for read in reads:
        if isinstance(read, Segment):
            segments.append(read)
        else:
            acts.append(read)
    return segments, acts


def _by_file(found: Iterable[tuple[str, Traffic]]) -> dict[str, Traffic]:
    files: dict[str, list[Traffic]] = defaultdict(list)
    for path, traffic in found:
        files[path].append(traffic)
    return {
        path: Traffic(
            sum(t.wanted_bytes for t in parts),
            sum(t.read_bytes for t in parts),
            sum(t.reads for t in parts),
            sum(t.across for t in parts),
        )
        for path, parts in files.items()
    }


def _report(groups: Sequence[Sequence[Segment]]) -> Report:
    files = _by_file((group[0].path, _traffic(group)) for group in groups)
    return Report(
        sum(traffic.wanted_bytes for traffic in files.values()),
        sum(traffic.read_bytes for traffic in files.values()),
        len(groups),
        files,
    )


def _traffic(group: Sequence[Segment]) -> Traffic:
    wanted = sum(segment.length - segment.unwanted for segment in group)
    read = _length(group)
    return Traffic(wanted, read, 1, across=int(read > wanted))


def _length(group: Sequence[Segment]) -> int:
    return max(segment.offset + segment.length for segment in group) - group[0].offset


def _work(work: Work, budget: Budget, reports: list[Report]) -> Act:
    def run() -> None:
        with budget.holding(work.nbytes):
            reads, then = work.prepare(np.empty)
            segments, acts = split(reads)
            # On this thread alone: whoever holds part of the budget must not wait for others to get some.
            reports.append(read_all(segments, acts, budget=budget, workers=1))
            then()

    return run


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
        files.fill(first, first.into)
        first.then(memoryview(b""))

    def through_memory() -> None:
        length = _length(group)
        with budget.holding(length):
            memory = np.empty(length, np.uint8).data
            files.fill(first, [memory])
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

    def fill(self, segment: Segment, memory: Sequence[memoryview]) -> None:
        """Fills memory from where a segment begins."""
        need = sum(part.nbytes for part in memory)
        with span("read", file=segment.path, nbytes=need):
            got = posix.read_into(self._descriptor(segment), memory, segment.offset)
        if got != need:
            raise Corrupt(
                f"{segment.what}: {segment.path} ends early: "
                f"{need:,} bytes wanted at {segment.offset:,}, {got:,} there"
            )

    def _descriptor(self, segment: Segment) -> int:
        with self._lock:
            fd = self._open.get(segment.path)
            if fd is None:
                try:
                    fd = posix.open_to_read(segment.path)
                except FileNotFoundError:
                    raise _missing(segment) from None
                try:
                    _check_beginning(segment, fd)
                except Corrupt:
                    os.close(fd)  # and whoever wants another part of it is told as well
                    raise
                self._open[segment.path] = fd
            return fd


def _check_beginning(segment: Segment, fd: int) -> None:
    found = bytearray(len(segment.begins))
    posix.read_into(fd, [memoryview(found)], 0)
    if found != segment.begins:
        raise Corrupt(f"{segment.what}: {segment.path} is not the file that was written: it begins otherwise")


def _missing(segment: Segment) -> Corrupt:
    # If the whole checkpoint was deleted or replaced meanwhile, ``unchanged`` finds out.
    return Corrupt(f"{segment.what}: {segment.path} is missing; the checkpoint names it")
