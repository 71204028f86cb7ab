"""Box arithmetic. A box is one ``(start, stop)`` per dimension of an array."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

Box = tuple[tuple[int, int], ...]


def whole(shape: Sequence[int]) -> Box:
    """The box of a whole array.

    >>> whole((2, 3))
    ((0, 2), (0, 3))
    """
    return tuple((0, n) for n in shape)


def from_index(index: Sequence[slice], shape: Sequence[int]) -> Box:
    """The box of a tuple of slices with step one, as ``jax.sharding`` gives them."""
    return tuple((s.start or 0, n if s.stop is None else s.stop) for s, n in zip(index, shape, strict=True))


def box_shape(box: Box) -> tuple[int, ...]:
    return tuple(stop - start for start, stop in box)


def size(box: Box) -> int:
    """How many elements."""
    return math.prod(box_shape(box))


def intersect(a: Box, b: Box) -> Box | None:
    """What two boxes share, or None.

    >>> intersect(((0, 4),), ((2, 8),))
    ((2, 4),)
    """
    both = tuple((max(p, r), min(q, s)) for (p, q), (r, s) in zip(a, b, strict=True))
    return None if any(start >= stop for start, stop in both) else both


def relative(box: Box, origin: Box) -> Box:
    """A box counted from the start of another one.

    >>> relative(((5, 7),), ((4, 8),))
    ((1, 3),)
    """
    return tuple((p - o, q - o) for (p, q), (o, _) in zip(box, origin, strict=True))


def slices(box: Box, origin: Box) -> tuple[slice, ...]:
    """A box as slices of an array that holds the box ``origin``."""
    return tuple(slice(p - o, q - o) for (p, q), (o, _) in zip(box, origin, strict=True))


def is_contiguous(part: Box, of: Box) -> bool:
    """Whether a part of a C-ordered array is one run of its memory.

    >>> is_contiguous(((1, 2), (0, 3)), ((0, 4), (0, 3)))
    True
    >>> is_contiguous(((0, 2), (0, 1)), ((0, 4), (0, 3)))
    False
    """
    narrowed = False
    for (p, q), (r, s) in zip(reversed(part), reversed(of), strict=True):
        if narrowed and q - p != 1:
            return False
        narrowed = narrowed or (p, q) != (r, s)
    return True


def cells(box: Box, cell: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The grid coordinates of all cells of a regular grid that a box touches, in C order."""
    return itertools.product(
        *(range(start // c, -(-stop // c)) for (start, stop), c in zip(box, cell, strict=True))
    )


def cell_box(coordinates: Sequence[int], cell: Sequence[int]) -> Box:
    """The box of one cell of a regular grid; at the upper edge it may reach beyond the array."""
    return tuple((i * c, (i + 1) * c) for i, c in zip(coordinates, cell, strict=True))
