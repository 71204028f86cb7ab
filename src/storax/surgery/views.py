"""Sources that only rearrange others: each box of the result is boxes of the inputs, and nothing is copied.

Each knows its shape from its inputs alone; the transforms have made sure before that the inputs fit.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from storax.arrays.gather import View, Want, atom_of
from storax.arrays.read import Source, Wanted
from storax.plan.boxes import Box


def _at(ndim: int, axis: int, index: Any) -> tuple[Any, ...]:
    """An index of one axis, all of the others; always giving a view."""
    return (*(slice(None),) * axis, index, *(slice(None),) * (ndim - axis - 1), ...)


@dataclass(frozen=True, slots=True, eq=False)
class Input(View):
    """An array of a checkpoint, a file or memory, under the name that it has there.

    Attributes:
      source: the array; on disk some dtypes go as plain bytes.
      label: what it is called.
      logical: the dtype of its values.
    """

    source: Source
    label: str
    logical: np.dtype

    @property
    def inputs(self) -> tuple[Source, ...]:
        return (self.source,)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape

    @property
    def dtype(self) -> np.dtype:
        return self.logical

    @property
    def atom(self) -> tuple[int, ...]:
        return atom_of(self.source)

    def pulls(self, wanted: Wanted) -> Iterator[Want]:
        box, memory = wanted
        yield self.source, (box, memory.view(self.source.dtype))

    def __str__(self) -> str:
        return self.label


@dataclass(frozen=True, slots=True, eq=False)
class Stacked(View):
    """Inputs of one shape, along a new axis."""

    parts: tuple[Source, ...]
    axis: int

    @property
    def inputs(self) -> tuple[Source, ...]:
        return self.parts

    @property
    def shape(self) -> tuple[int, ...]:
        inner = self.parts[0].shape
        return (*inner[: self.axis], len(self.parts), *inner[self.axis :])

    @property
    def atom(self) -> tuple[int, ...]:
        inner = _widest([atom_of(part) for part in self.parts])
        return (*inner[: self.axis], 1, *inner[self.axis :])

    def pulls(self, wanted: Wanted) -> Iterator[Want]:
        box, memory = wanted
        start, stop = box[self.axis]
        rest = (*box[: self.axis], *box[self.axis + 1 :])
        for i in range(start, stop):
            yield self.parts[i], (rest, memory[_at(memory.ndim, self.axis, i - start)])

    def __str__(self) -> str:
        return f"stack({_listed(self.parts)}; axis {self.axis})"


@dataclass(frozen=True, slots=True, eq=False)
class Joined(View):
    """Inputs one after another along an axis that they have."""

    parts: tuple[Source, ...]
    axis: int

    @property
    def inputs(self) -> tuple[Source, ...]:
        return self.parts

    @property
    def shape(self) -> tuple[int, ...]:
        inner = self.parts[0].shape
        length = sum(part.shape[self.axis] for part in self.parts)
        return (*inner[: self.axis], length, *inner[self.axis + 1 :])

    @property
    def atom(self) -> tuple[int, ...]:
        atoms = [atom_of(part) for part in self.parts]
        inner = list(_widest(atoms))
        along = {atom[self.axis] for atom in atoms}
        lengths = [part.shape[self.axis] for part in self.parts]
        fits = len(along) == 1 and all(length % inner[self.axis] == 0 for length in lengths[:-1])
        if not fits:
            inner[self.axis] = 1 if min(along) == 1 else sum(lengths)
        return tuple(inner)

    def pulls(self, wanted: Wanted) -> Iterator[Want]:
        box, memory = wanted
        start, stop = box[self.axis]
        ends = list(accumulate(part.shape[self.axis] for part in self.parts))
        for i in range(bisect_right(ends, start), len(self.parts)):
            before = ends[i] - self.parts[i].shape[self.axis]
            if before >= stop:
                break
            low, high = max(start, before), min(stop, ends[i])
            inner = (*box[: self.axis], (low - before, high - before), *box[self.axis + 1 :])
            yield (
                self.parts[i],
                (inner, memory[_at(memory.ndim, self.axis, slice(low - start, high - start))]),
            )

    def __str__(self) -> str:
        return f"concatenate({_listed(self.parts)}; axis {self.axis})"


@dataclass(frozen=True, slots=True, eq=False)
class Sliced(View):
    """One box of an input."""

    source: Source
    box: Box

    @property
    def inputs(self) -> tuple[Source, ...]:
        return (self.source,)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(stop - start for start, stop in self.box)

    @property
    def atom(self) -> tuple[int, ...]:
        # Atoms that the box does not begin on would straddle two of the input's.
        inner = atom_of(self.source)
        return tuple(
            a if start % a == 0 else math.gcd(a, start) for a, (start, _) in zip(inner, self.box, strict=True)
        )

    def pulls(self, wanted: Wanted) -> Iterator[Want]:
        box, memory = wanted
        moved = tuple((p + start, q + start) for (p, q), (start, _) in zip(box, self.box, strict=True))
        yield self.source, (moved, memory)

    def __str__(self) -> str:
        whole = zip(self.box, self.source.shape, strict=True)
        index = ", ".join(":" if b == (0, n) else f"{b[0]}:{b[1]}" for b, n in whole)
        return f"{self.source}[{index}]"


@dataclass(frozen=True, slots=True, eq=False)
class Picked(View):
    """One index of an axis of an input, without that axis."""

    source: Source
    axis: int
    index: int

    @property
    def inputs(self) -> tuple[Source, ...]:
        return (self.source,)

    @property
    def shape(self) -> tuple[int, ...]:
        return _without(self.source.shape, self.axis)

    @property
    def atom(self) -> tuple[int, ...]:
        return _without(atom_of(self.source), self.axis)

    def pulls(self, wanted: Wanted) -> Iterator[Want]:
        box, memory = wanted
        inner = (*box[: self.axis], (self.index, self.index + 1), *box[self.axis :])
        yield self.source, (inner, memory[_at(memory.ndim + 1, self.axis, None)])

    def __str__(self) -> str:
        return f"{self.source}[{':, ' * self.axis}{self.index}]"


@dataclass(frozen=True, slots=True, eq=False)
class Transposed(View):
    """An input with its axes in another order: axis i of the result is axis ``order[i]`` of the input."""

    source: Source
    order: tuple[int, ...]

    @property
    def inputs(self) -> tuple[Source, ...]:
        return (self.source,)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.source.shape[axis] for axis in self.order)

    @property
    def atom(self) -> tuple[int, ...]:
        inner = atom_of(self.source)
        return tuple(inner[axis] for axis in self.order)

    def pulls(self, wanted: Wanted) -> Iterator[Want]:
        box, memory = wanted
        back = sorted(range(len(self.order)), key=lambda i: self.order[i])
        yield self.source, (tuple(box[i] for i in back), memory.transpose(back))

    def __str__(self) -> str:
        return f"transpose({self.source}; {', '.join(map(str, self.order))})"


@dataclass(frozen=True, slots=True, eq=False)
class Repeated(View):
    """Each element of an axis of an input, ``count`` times in a row."""

    source: Source
    axis: int
    count: int

    @property
    def inputs(self) -> tuple[Source, ...]:
        return (self.source,)

    @property
    def shape(self) -> tuple[int, ...]:
        inner = self.source.shape
        return (*inner[: self.axis], inner[self.axis] * self.count, *inner[self.axis + 1 :])

    @property
    def atom(self) -> tuple[int, ...]:
        inner = atom_of(self.source)
        return (*inner[: self.axis], inner[self.axis] * self.count, *inner[self.axis + 1 :])

    def pulls(self, wanted: Wanted) -> Iterator[Want]:
        box, memory = wanted
        start, stop = box[self.axis]
        for copy in range(self.count):
            # The elements of the result that are this copy of an element: every count-th one.
            first = -(-(start - copy) // self.count)
            last = -(-(stop - copy) // self.count)
            if first < last:
                inner = (*box[: self.axis], (first, last), *box[self.axis + 1 :])
                every = slice(first * self.count + copy - start, None, self.count)
                yield self.source, (inner, memory[_at(memory.ndim, self.axis, every)])

    def __str__(self) -> str:
        return f"repeat({self.source}; axis {self.axis}, {self.count} times)"


def _without(numbers: Sequence[int], axis: int) -> tuple[int, ...]:
    return (*numbers[:axis], *numbers[axis + 1 :])


def _widest(atoms: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(max(lengths) for lengths in zip(*atoms, strict=True))


def _listed(parts: Sequence[Source]) -> str:
    if len(parts) <= 4:
        return ", ".join(map(str, parts))
    return f"{parts[0]}, {parts[1]}, … {parts[-1]}: {len(parts)}"
