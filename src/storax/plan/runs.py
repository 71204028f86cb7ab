"""From boxes to runs of bytes: what to read of a row-major array that lies in a file in one piece.

A box is one run only if it is cut along the leading dimensions alone; a cut along an inner one
makes a run per row. Reading each run by itself costs a request each; reading across the gaps
costs their bytes. With a price per request and a price per byte, the cheapest plan is simple: a
gap is read across if its bytes cost less than one more request. That is the whole rule, and the
store decides the price (``LOCAL_GAP``, ``BUCKET_GAP``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from storax.plan import boxes
from storax.plan.boxes import Box

# A run is (first element, first element after it), counted in row-major order.
Run = tuple[int, int]

# Bytes that cost as much as one request: a local read takes some ten microseconds at some GB/s, a
# request to a bucket some fifty milliseconds at some hundred MB/s.
LOCAL_GAP = 64 << 10
BUCKET_GAP = 4 << 20


def runs(box: Box, shape: Sequence[int], gap: int = 0) -> Iterator[Run]:
    """The runs of a row-major array that hold a box, in ascending order.

    Args:
      box: part of the array.
      shape: of the array.
      gap: runs that are at most so many elements apart are joined, gap included.

    >>> list(runs(((0, 2), (1, 3)), (4, 8)))
    [(1, 3), (9, 11)]
    >>> list(runs(((0, 2), (1, 3)), (4, 8), gap=6))
    [(1, 11)]
    >>> list(runs(((2, 4), (0, 8)), (4, 8)))
    [(16, 32)]
    """
    if not boxes.size(box):
        return
    first, length, stride = 0, 1, 1
    repeated: list[range] = []
    for (start, stop), extent in zip(reversed(box), reversed(shape), strict=True):
        first += start * stride
        if stop - start > 1:
            if not repeated and stride - length <= gap:
                length += (stop - start - 1) * stride
            else:
                repeated.append(range(0, (stop - start) * stride, stride))
        stride *= extent
    for offsets in itertools.product(*reversed(repeated)):
        begin = first + sum(offsets)
        yield begin, begin + length


def joined(found: Iterable[Run], gap: int) -> list[Run]:
    """Runs in ascending order, joined where they overlap or are at most ``gap`` apart.

    >>> joined([(20, 30), (0, 4), (5, 9)], gap=1)
    [(0, 9), (20, 30)]
    """
    result: list[Run] = []
    for start, stop in sorted(found):
        if result and start - result[-1][1] <= gap:
            result[-1] = (result[-1][0], max(stop, result[-1][1]))
        else:
            result.append((start, stop))
    return result


def spans(wanted: Iterable[Box], shape: Sequence[int], gap: int) -> list[Run]:
    """What to read so that all boxes can be filled: the cheapest plan where a request costs ``gap`` elements.

    >>> spans([((0, 2), (0, 1)), ((0, 2), (1, 2))], (2, 2), gap=0)
    [(0, 4)]
    """
    return joined((run for box in wanted for run in runs(box, shape, gap)), gap)


def pieces(found: Iterable[Run], most: int) -> Iterator[Run]:
    """Runs cut into pieces of at most ``most`` elements, so that several can be read at once.

    >>> list(pieces([(0, 5), (8, 9)], 3))
    [(0, 3), (3, 5), (8, 9)]
    """
    for start, stop in found:
        for begin in range(start, stop, most):
            yield begin, min(stop, begin + most)


def blocks(run: Run, shape: Sequence[int]) -> Iterator[Box]:
    """The boxes that a run is made of, in order; each is one run itself.

    >>> list(blocks((3, 9), (4, 4)))
    [((0, 1), (3, 4)), ((1, 2), (0, 4)), ((2, 3), (0, 1))]
    """
    start, stop = run
    if start >= stop:
        return
    if not shape:
        yield ()
        return
    stride = math.prod(shape[1:])
    first, last = -(-start // stride), stop // stride
    if first > last:  # within one row
        first = last = start // stride
        yield from _row((start, stop), last, stride, shape)
        return
    if start < first * stride:
        yield from _row((start, first * stride), first - 1, stride, shape)
    if first < last:
        yield ((first, last), *boxes.whole(shape[1:]))
    if last * stride < stop:
        yield from _row((last * stride, stop), last, stride, shape)


def _row(run: Run, row: int, stride: int, shape: Sequence[int]) -> Iterator[Box]:
    begin = row * stride
    for inner in blocks((run[0] - begin, run[1] - begin), shape[1:]):
        yield ((row, row + 1), *inner)


def position(element: int, box: Box, shape: Sequence[int]) -> int:
    """Where an element of an array is in the row-major memory of a box that has it.

    >>> position(9, ((1, 3), (1, 4)), (4, 8))
    0
    """
    found, stride = 0, 1
    for (start, stop), extent in zip(reversed(box), reversed(shape), strict=True):
        found += (element % extent - start) * stride
        element //= extent
        stride *= stop - start
    return found
