"""The chunk grid of an array: bounded in bytes, cut along the leading dimensions of a shard.

So that a chunk is one run of the shard's memory (nothing is copied to write it), and a reader
that wants other rows does not read all of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

# Large enough that a disk works at full speed, small enough that a reader on another mesh reads little else.
MOST_BYTES = 16 << 20
# How many times more pieces than needed are fine, to find a number that divides the rows.
_MORE_PIECES = 4


def chunk_shape(
    shape: Sequence[int], shard_shape: Sequence[int], itemsize: int, most_bytes: int = MOST_BYTES
) -> tuple[int, ...]:
    """The shape of the chunks of an array whose shards all have one shape.

    Every shard is a whole number of chunks along each dimension that is sharded, so no chunk
    has two owners. Along a dimension that is not sharded the last chunk may reach beyond the
    array, where no divisor is near.

    >>> chunk_shape((8192, 1024), (1024, 1024), 4)
    (1024, 1024)
    >>> chunk_shape((8192, 4096), (8192, 4096), 4)
    (1024, 4096)
    >>> chunk_shape((0, 3), (0, 3), 4)
    (1, 3)
    """
    chunk = [max(1, n) for n in shard_shape]
    for axis, rows in enumerate(chunk):
        inner = math.prod(chunk[axis + 1 :]) * itemsize
        if rows * inner <= most_bytes:
            break
        may_overhang = shard_shape[axis] == shape[axis]
        chunk[axis] = _rows_per_chunk(rows, max(1, most_bytes // inner), may_overhang)
        if chunk[axis] > 1:
            break  # a further cut would make the chunk more than one run of memory
    return tuple(chunk)


def _rows_per_chunk(rows: int, most: int, may_overhang: bool) -> int:
    fewest = -(-rows // most)
    for pieces in range(fewest, min(rows, fewest * _MORE_PIECES) + 1):
        if rows % pieces == 0:
            return rows // pieces
    if may_overhang:
        return most
    return next(rows // pieces for pieces in range(fewest, rows + 1) if rows % pieces == 0)


def aligned_chunk_shape(
    shape: Sequence[int], atom: Sequence[int], itemsize: int, most_bytes: int = MOST_BYTES
) -> tuple[int, ...]:
    """The shape of chunks that are whole numbers of atoms, if they can be, and no larger than allowed.

    Grown from the last dimension on, so that a chunk is as nearly one run as its atoms let it be.
    An atom that is larger than a chunk may be is cut no further: it is read whole in any case.

    >>> aligned_chunk_shape((64, 1024, 4096), (1, 1, 4096), 4)
    (1, 1024, 4096)
    >>> aligned_chunk_shape((4096, 50000), (4096, 1), 4)
    (4096, 1000)
    """
    chunk = [max(1, min(a, n)) for a, n in zip(atom, shape, strict=True)]
    for axis in reversed(range(len(chunk))):
        others = math.prod(chunk[:axis]) * math.prod(chunk[axis + 1 :]) * itemsize
        step, rows = chunk[axis], max(1, shape[axis])
        if rows * others <= most_bytes:
            chunk[axis] = rows
        elif step < rows and 2 * step * others <= most_bytes:
            atoms = -(-rows // step)
            most = most_bytes // (step * others)
            chunk[axis] = min(rows, step * _rows_per_chunk(atoms, most, may_overhang=True))
    return tuple(chunk)
