"""Where each value of a new database goes: a decision, made before anything is written. Pure."""

from __future__ import annotations

import functools
import heapq
from collections.abc import Sequence
from dataclasses import dataclass

# Values up to this size live in the leaf nodes.
LARGEST_INLINE = 1024
# Values from this size on are written straight from the caller's memory, at aligned offsets.
SMALLEST_LARGE = 64 << 10
# Smaller ones are joined into buffers of this size, each written by one call.
PACK_BYTES = 8 << 20
# A second data file is worth its fsync only if each gets this much.
BYTES_PER_FILE = 32 << 20

_ALIGNMENT = 4096
_MARK = b"storax data file"


# Values, by number, that are written by one call.
Group = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """Values that lie one after another in a data file and are written at once."""

    offset: int
    members: Group


@dataclass(frozen=True, slots=True)
class Layout:
    """The values, by number, that are inline, and the pieces of each data file."""

    inline: Group
    files: tuple[tuple[Piece, ...], ...]


def lay_out(sizes: Sequence[int], workers: int) -> Layout:
    """Decides for values of these sizes, given in the order of their keys."""
    inline = tuple(i for i, size in enumerate(sizes) if size <= LARGEST_INLINE)
    groups = _groups(sizes)
    weights = [sum(sizes[i] for i in group) for group in groups]
    useful = -(-sum(weights) // BYTES_PER_FILE)
    count = max(1, min(workers, useful, len(groups)))
    # The heaviest first, each to the file that has least: no file is left much heavier than another.
    loads = [(0, file) for file in range(count)]
    chosen: list[list[int]] = [[] for _ in range(count)]
    for group in sorted(range(len(groups)), key=lambda g: -weights[g]):
        load, file = heapq.heappop(loads)
        chosen[file].append(group)
        heapq.heappush(loads, (load + weights[group], file))
    # In a file, the order of the keys: neighbours are mostly read together.
    files = (_place(sorted(numbers), groups, weights) for numbers in chosen)
    return Layout(inline, tuple(pieces for pieces in files if pieces))


def _groups(sizes: Sequence[int]) -> list[Group]:
    groups: list[Group] = []
    pack: list[int] = []
    packed = 0
    for i, size in enumerate(sizes):
        if size <= LARGEST_INLINE:
            continue
        if size >= SMALLEST_LARGE:
            groups.append((i,))
            continue
        if packed + size > PACK_BYTES:
            groups.append(tuple(pack))
            pack, packed = [], 0
        pack.append(i)
        packed += size
    if pack:
        groups.append(tuple(pack))
    return groups


def _place(numbers: Sequence[int], groups: Sequence[Group], weights: Sequence[int]) -> tuple[Piece, ...]:
    pieces = []
    end = len(file_mark(""))
    for number in numbers:
        small = weights[number] < SMALLEST_LARGE
        offset = end if small else -(-end // _ALIGNMENT) * _ALIGNMENT
        pieces.append(Piece(offset, groups[number]))
        end = offset + weights[number]
    return tuple(pieces)


@functools.lru_cache(maxsize=64)
def file_mark(name: str) -> bytes:
    """What a data file begins with, its own name in it: so one put in another's place is found out.

    A checksum does not tell two intact files of the same layout apart.

    >>> len(file_mark("d/00112233445566778899aabbccddeeff"))
    48
    """
    return _MARK + name.rpartition("/")[2].encode()[:32].ljust(32, b"\0")
