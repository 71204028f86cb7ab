"""A source with the elements of another in another shape, as boxes of it wherever the shapes allow.

Two shapes are compared through the finest one that both can be made from by merging neighbouring
axes: (6, 8) and (2, 3, 8) have (2, 3, 8), and (4, 6) and (24,) have (4, 6). In that shape a box of
the result falls into a few boxes, and each of those into boxes of the input.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from storax.arrays.gather import View, Want, atom_of
from storax.arrays.read import Source, Wanted
from storax.plan.boxes import Box

# A range of one axis as boxes of the axes it is split into, each with its place in the range.
_Parts = list[tuple[Box, tuple[int, int]]]


def refined(shape: Sequence[int], other: Sequence[int]) -> tuple[int, ...] | None:
    """The finest shape that both shapes can be made from by merging axes, or None if there is none.

    >>> refined((6, 8), (2, 3, 8)), refined((4, 6), (24,)), refined((4, 6), (6, 4))
    ((2, 3, 8), (4, 6), None)
    """
    cuts = sorted({*_products(shape), *_products(other)})
    if any(b % a for a, b in itertools.pairwise(cuts)):
        return None
    return tuple(reversed([b // a for a, b in itertools.pairwise(cuts)]))


def _products(shape: Sequence[int]) -> list[int]:
    return list(itertools.accumulate(reversed(shape), lambda a, b: a * b, initial=1))


def _grouped(shape: Sequence[int], fine: Sequence[int]) -> list[tuple[int, ...]]:
    """For each axis of a shape the axes of the finer one that it is made of."""
    groups, used = [], len(fine)
    for length in reversed(shape):
        end, product = used, 1
        while product < length:
            used -= 1
            product *= fine[used]
        groups.append(tuple(range(used, end)))
    return groups[::-1]


@dataclass(frozen=True, slots=True, eq=False)
class Reshaped(View):
    """An input in another shape, of as many elements; the two have a ``refined`` shape."""

    source: Source
    into: tuple[int, ...]

    @property
    def inputs(self) -> tuple[Source, ...]:
        return (self.source,)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.into

    @property
    def atom(self) -> tuple[int, ...]:
        return reshaped_atom(atom_of(self.source), self.source.shape, self.shape)

    def pulls(self, wanted: Wanted) -> Iterator[Want]:
        box, memory = wanted
        fine = refined(self.source.shape, self.shape) or ()
        inner = _grouped(self.source.shape, fine)
        lengths = [[fine[i] for i in group] for group in _grouped(self.shape, fine)]
        parts = [_split(bounds, group) for bounds, group in zip(box, lengths, strict=True)]
        for chosen in itertools.product(*parts):
            index: Any = tuple(
                slice(p - start, q - start) for (_, (p, q)), (start, _) in zip(chosen, box, strict=True)
            )
            fine_box = tuple(bounds for part, _ in chosen for bounds in part)
            piece = memory[(*index, ...)].reshape([q - p for p, q in fine_box])
            for found, part in _merged(fine_box, piece, inner, fine):
                yield self.source, (found, part)

    def __str__(self) -> str:
        return f"reshape({self.source}; {', '.join(map(str, self.shape))})"


def _split(bounds: tuple[int, int], lengths: Sequence[int]) -> _Parts:
    """A range of a merged axis as boxes of the axes that it is made of.

    >>> _split((2, 9), (3, 4))
    [(((0, 1), (2, 4)), (2, 4)), (((1, 2), (0, 4)), (4, 8)), (((2, 3), (0, 1)), (8, 9))]
    """
    start, stop = bounds
    if not lengths:
        return [((), bounds)]
    if len(lengths) == 1:
        return [((bounds,), bounds)]
    inner = math.prod(lengths[1:])
    low, high = -(-start // inner), stop // inner
    if low > high:  # within one row, not touching its ends
        return _row(low - 1, start, stop, inner, lengths[1:])
    parts: _Parts = []
    if start < low * inner:
        parts += _row(low - 1, start, low * inner, inner, lengths[1:])
    if low < high:
        parts.append((((low, high), *((0, n) for n in lengths[1:])), (low * inner, high * inner)))
    if high * inner < stop:
        parts += _row(high, high * inner, stop, inner, lengths[1:])
    return parts


def _row(row: int, start: int, stop: int, inner: int, lengths: Sequence[int]) -> _Parts:
    origin = row * inner
    return [
        (((row, row + 1), *box), (p + origin, q + origin))
        for box, (p, q) in _split((start - origin, stop - origin), lengths)
    ]


def _merged(
    box: Box, memory: np.ndarray, groups: Sequence[Sequence[int]], fine: Sequence[int]
) -> Iterator[Wanted]:
    """A box in the finer shape as boxes of the input, whose axes are groups of the finer ones."""
    for group in groups:
        axis = _blocking(box, memory, group, fine)
        if axis is not None:
            start, stop = box[axis]
            for i in range(start, stop):
                one = (*box[:axis], (i, i + 1), *box[axis + 1 :])
                index: Any = (*(slice(None),) * axis, slice(i - start, i - start + 1), ...)
                yield from _merged(one, memory[index], groups, fine)
            return
    merged = []
    for group in groups:
        start = 0
        for axis in group:
            start = start * fine[axis] + box[axis][0]
        merged.append((start, start + math.prod(box[axis][1] - box[axis][0] for axis in group)))
    yield tuple(merged), memory.reshape([q - p for p, q in merged])


def _blocking(box: Box, memory: np.ndarray, group: Sequence[int], fine: Sequence[int]) -> int | None:
    """The axis that has to be taken one index at a time for a group to be one range, or None.

    Either the box is not one range of the merged axis, or the memory's axes are not one axis.
    """
    outer: int | None = None
    for axis in group:
        length = box[axis][1] - box[axis][0]
        if outer is not None:
            together = memory.strides[outer] == memory.strides[axis] * length
            if length != fine[axis] or (length > 1 and not together):
                return outer
        if length > 1:
            outer = axis
    return None


def reshaped_atom(atom: Sequence[int], shape: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    """An atom of an array, in another shape of it: as many of the last elements as one atom holds in a run.

    >>> reshaped_atom((2, 8), (6, 8), (2, 3, 8)), reshaped_atom((1, 6), (4, 6), (24,))
    ((1, 1, 8), (6,))
    """
    run = 1
    for length, full in zip(reversed(atom), reversed(shape), strict=True):
        run *= length
        if length != full:
            break
    found: list[int] = []
    for length in reversed(other):
        part = math.gcd(run, length)
        found.append(part)
        run = run // part if part == length else 1
    return tuple(reversed(found))
