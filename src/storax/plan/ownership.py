"""Which process writes what: a pure function of shapes and shardings, the same on every process.

Every shard is held by one or more processes (its *holders*). A shard with one holder is that
process's. Shards with the same several holders are laid on a line, leaf after leaf, chunk by chunk,
and the line is cut into one stretch per holder, longest for those that have least to write so far.
So a huge replicated leaf is shared by all, ten thousand small ones are dealt out whole, no message
is needed, and nobody carries more than a chunk above an even share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from storax.plan.boxes import Box
from storax.plan.chunks import MOST_BYTES
from storax.plan.spread import Holders

# An even share is at least so many chunks, unless they would be smaller than a system call is worth.
_CHUNKS_PER_SHARE = 40
_LEAST_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Shared:
    """One array, as the plan sees it.

    Attributes:
      holders: of each of its shards, the processes that have it, ascending. All arrays with the
        same sharding should share one tuple.
      chunks: how many chunks each shard has.
      chunk_bytes: bytes of one chunk, at least 1.
    """

    holders: tuple[Holders, ...]
    chunks: int
    chunk_bytes: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive chunks of one shard of one array, in C order: ``start`` up to ``stop``."""

    array: int
    shard: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Who writes what, as far as one process needs to know it.

    Attributes:
      stretches: what this process writes.
      loads: bytes that each process writes.
    """

    stretches: tuple[Stretch, ...]
    loads: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Outline:
    """How much each process writes.

    Attributes:
      loads: bytes.
      chunks: how many chunks.
      largest: bytes of the largest stretch.
    """

    loads: tuple[int, ...]
    chunks: tuple[int, ...]
    largest: tuple[int, ...]


def most_chunk_bytes(shared_bytes: int, processes: int) -> int:
    """How large a chunk that can be shared out may be, for the shares to come out even.

    Args:
      shared_bytes: of all shards that several processes hold, each counted once.
      processes: how many there are.
    """
    return min(MOST_BYTES, max(_LEAST_BYTES, shared_bytes // (processes * _CHUNKS_PER_SHARE)))


def plan(arrays: Sequence[Shared], processes: int, process: int) -> Plan:
    """What one of some processes writes, and how much every one of them does.

    Args:
      arrays: in an order that is the same on every process.
      processes: how many there are.
      process: the index of the one that asks.

    >>> everywhere = ((0, 1),)
    >>> plan([Shared(everywhere, 4, 100), Shared(((0,), (1,)), 1, 60)], 2, 1)
    Plan(stretches=(Stretch(array=1, shard=1, start=0, stop=1), Stretch(array=0, shard=0, start=2, stop=4)), \
loads=(260, 260))
    """
    groups = _Groups(arrays)
    loads = np.zeros(processes, np.int64)
    stretches: list[Stretch] = []
    for holders, line, cuts in groups.deal(loads):
        if process in holders:
            rank = holders.index(process)
            stretches += line.between(groups.parts(holders), int(cuts[rank]), int(cuts[rank + 1]))
    return Plan(tuple(stretches), tuple(loads.tolist()))


def outline(arrays: Sequence[Shared], processes: int) -> Outline:
    """How much each of some processes writes. Arguments as for ``plan``.

    >>> outline([Shared(((0, 1),), 4, 100), Shared(((0,), (1,)), 1, 60)], 2)
    Outline(loads=(260, 260), chunks=(3, 3), largest=(200, 200))
    """
    groups = _Groups(arrays)
    loads = np.zeros(processes, np.int64)
    chunks = np.zeros(processes, np.int64)
    largest = np.zeros(processes, np.int64)
    for holders, line, cuts in groups.deal(loads):
        members = np.array(holders)
        chunks[members] += np.diff(line.chunks_before(cuts))
        largest[members] = np.maximum(largest[members], line.largest_between(cuts))
    return Outline(tuple(loads.tolist()), tuple(chunks.tolist()), tuple(largest.tolist()))


def writer(arrays: Sequence[Shared], processes: int, array: int, shard: int, chunk: int) -> int:
    """Which process writes one chunk. Arguments as for ``plan``, and of ``Stretch``.

    >>> writer([Shared(((0, 1),), 4, 100), Shared(((0,), (1,)), 1, 60)], 2, array=0, shard=0, chunk=3)
    1
    """
    groups = _Groups(arrays)
    wanted = arrays[array].holders[shard]
    for holders, line, cuts in groups.deal(np.zeros(processes, np.int64)):
        if holders == wanted:
            part = groups.parts(holders).index((array, shard))
            before = line.chunks_before(cuts)
            return holders[int(np.searchsorted(before, line.first_chunk(part) + chunk, side="right")) - 1]
    raise ValueError(f"nobody holds shard {shard} of array {array}")


def _quotas(loads: np.ndarray, total: int) -> np.ndarray:
    """How to pour so many bytes onto loads so that the lowest end up level; whole numbers that add up."""
    order = np.argsort(loads, kind="stable")
    rising = loads[order]
    # What it takes to lift the first k to the height of the k-th, for every k.
    lift = rising * np.arange(1, len(rising) + 1) - np.cumsum(rising)
    count = int(np.searchsorted(lift, total, side="right"))
    filled = rising[:count].sum() + total
    quotas = np.zeros(len(loads), np.int64)
    quotas[order[:count]] = filled // count - rising[:count]
    quotas[order[: int(filled % count)]] += 1
    return quotas


class _Line:
    """The chunks of all shards that the same processes hold, one after another; a part is one shard."""

    def __init__(self, chunks: np.ndarray, sizes: np.ndarray) -> None:
        self._chunks = chunks
        self._sizes = sizes
        self._starts = np.concatenate([[0], np.cumsum(chunks * sizes)])
        self._firsts = np.concatenate([[0], np.cumsum(chunks)])

    @property
    def nbytes(self) -> int:
        return int(self._starts[-1])

    def first_chunk(self, part: int) -> int:
        """How many chunks of the line come before a part."""
        return int(self._firsts[part])

    def bytes_before(self, cuts: np.ndarray) -> np.ndarray:
        part, count = self._locate(cuts)
        found: np.ndarray = self._starts[part] + count * self._sizes[part]
        return found

    def chunks_before(self, cuts: np.ndarray) -> np.ndarray:
        part, count = self._locate(cuts)
        found: np.ndarray = self._firsts[part] + count
        return found

    def between(self, parts: Sequence[tuple[int, int]], start: int, stop: int) -> list[Stretch]:
        """The chunks whose middle lies between two places of the line."""
        chosen, first, last = self._range(start, stop)
        return [
            Stretch(*parts[i], int(a), int(b)) for i, a, b in zip(chosen, first, last, strict=True) if a < b
        ]

    def largest_between(self, cuts: np.ndarray) -> np.ndarray:
        """Bytes of the largest stretch between each cut and the next."""
        found = []
        for start, stop in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            chosen, first, last = self._range(start, stop)
            found.append(((last - first) * self._sizes[chosen.start : chosen.stop]).max(initial=0))
        return np.array(found, np.int64)

    def _range(self, start: int, stop: int) -> tuple[range, np.ndarray, np.ndarray]:
        (one, other), (skipped, taken) = (x.tolist() for x in self._locate(np.array([start, stop])))
        chosen = range(one, min(other + 1, len(self._chunks)))
        first = np.zeros(len(chosen), np.int64)
        last = self._chunks[one : chosen.stop].copy()
        if chosen:
            first[0] = skipped
            last[other - one :] = taken
        return chosen, first, last

    def _locate(self, cuts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The part that each cut is in, and how many of its chunks have their middle before it.

        In whole numbers: nothing is rounded, so that all processes come to the same.
        """
        if not len(self._chunks):
            return np.zeros(len(cuts), np.int64), np.zeros(len(cuts), np.int64)
        part = np.minimum(np.searchsorted(self._starts, cuts, side="right") - 1, len(self._chunks) - 1)
        size = self._sizes[part]
        doubled = 2 * (cuts - self._starts[part]) - size
        counts = np.clip(-(-doubled // (2 * size)), 0, self._chunks[part])
        return part, counts


# Which sets of arrays share some shards, and how many shards of each.
_Signature = tuple[tuple[int, int], ...]


class _Groups:
    """The shards of all arrays, by their holders. Arrays with one sharding are looked at once."""

    def __init__(self, arrays: Sequence[Shared]) -> None:
        self._chunks = np.array([array.chunks for array in arrays], np.int64)
        self._sizes = np.array([array.chunk_bytes for array in arrays], np.int64)
        self._members: dict[int, list[int]] = defaultdict(list)
        self._groups: dict[Holders, dict[int, list[int]]] = defaultdict(dict)
        self._lines: dict[_Signature, _Line] = {}
        for number, array in enumerate(arrays):
            key = id(array.holders)
            if key not in self._members:
                for holders, shards in _by_holders(array.holders).items():
                    self._groups[holders][key] = shards
            self._members[key].append(number)

    def deal(self, loads: np.ndarray) -> Iterator[tuple[Holders, _Line, np.ndarray]]:
        """Deals out all lines: the holders of each, the line, and where it is cut. Adds to the loads."""
        # The least flexible first, so that the others can make up for what these leave uneven.
        for holders in sorted(self._groups, key=lambda h: (len(h), h)):
            line = self._line(holders)
            if len(holders) == 1:
                cuts = np.array([0, line.nbytes])
                loads[holders[0]] += line.nbytes
            else:
                members = np.array(holders)
                cuts = np.concatenate([[0], np.cumsum(_quotas(loads[members], line.nbytes))])
                loads[members] += np.diff(line.bytes_before(cuts))
            yield holders, line, cuts

    def parts(self, holders: Holders) -> list[tuple[int, int]]:
        """The array and the shard of each part of a line."""
        group = self._groups[holders]
        numbers = [(number, key) for key in group for number in self._members[key]]
        return [(number, shard) for number, key in sorted(numbers) for shard in group[key]]

    def _line(self, holders: Holders) -> _Line:
        """Lines of the same arrays and as many shards are the same: most groups of a mesh look alike."""
        signature = tuple((key, len(shards)) for key, shards in self._groups[holders].items())
        if signature not in self._lines:
            pairs = sorted((number, count) for key, count in signature for number in self._members[key])
            numbers = np.repeat(
                np.array([number for number, _ in pairs], np.int64), [count for _, count in pairs]
            )
            self._lines[signature] = _Line(self._chunks[numbers], self._sizes[numbers])
        return self._lines[signature]


def _by_holders(holders: Sequence[Holders]) -> Mapping[Holders, list[int]]:
    found: dict[Holders, list[int]] = defaultdict(list)
    for shard, processes in enumerate(holders):
        found[processes].append(shard)
    return found


def owners(boxes: Mapping[int, Box]) -> dict[Box, int]:
    """Of the devices of one process that hold the same box, the one with the lowest id gives its copy.

    Args:
      boxes: the box that each device holds, by device id.

    >>> owners({3: ((0, 4),), 1: ((0, 4),), 2: ((4, 8),)})
    {((0, 4),): 1, ((4, 8),): 2}
    """
    found: dict[Box, int] = {}
    for device in sorted(boxes):
        found.setdefault(boxes[device], device)
    return found
