"""An array that is not read yet: indexing it reads the box that is asked for, as numpy."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from storax.arrays.gather import gather
from storax.arrays.read import Source
from storax.errors import BadOption
from storax.plan import boxes
from storax.plan.boxes import Box
from storax.store.budget import Budget
from storax.store.reading import read_all, split


def read_box(source: Source, box: Box, budget: Budget | None = None) -> np.ndarray:
    """One box of a source, as a new array."""
    memory = np.empty(boxes.box_shape(box), source.dtype)
    segments, acts = split(gather([(source, (box, memory))]))
    read_all(segments, acts, budget=budget or Budget())
    return memory


@dataclass(frozen=True, eq=False)
class LazyArray:
    """An array of an opened checkpoint. It looks like a numpy array; values are read when it is indexed.

    Indices are integers, slices and ``...``; each reads no more than the box that it spans. For
    anything else read first: ``np.asarray(lazy)``.

    Attributes:
      name: the leaf's.
      shape, dtype: as numpy has them.
    """

    name: str
    source: Source = field(repr=False)
    dtype: np.dtype
    check: Callable[[], None] = field(repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape

    @property
    def ndim(self) -> int:
        return len(self.source.shape)

    @property
    def size(self) -> int:
        return boxes.size(boxes.whole(self.source.shape))

    @property
    def nbytes(self) -> int:
        """Bytes of the values, in memory."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"{self.name} has no dimensions, so no length")
        return self.shape[0]

    def __getitem__(self, index: Any) -> np.ndarray:
        box, after = _box(index, self.shape, self.name)
        self.check()
        values = read_box(self.source, box)
        self.check()
        found: np.ndarray = values.view(self.dtype)[after]
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError(f"{self.name} is not in memory yet, so it cannot be had without a copy")
        values = self[...]
        return values if dtype is None else values.astype(dtype)


def _box(index: Any, shape: tuple[int, ...], name: str) -> tuple[Box, tuple[Any, ...]]:
    """The box that holds what an index asks for, and the index of that in the box."""
    given = index if isinstance(index, tuple) else (index,)
    dots = [i for i, part in enumerate(given) if part is Ellipsis]
    if len(dots) > 1:
        raise IndexError(f"{name}: an index can have only one ...")
    missing = len(shape) - (len(given) - len(dots))
    if missing < 0:
        raise IndexError(f"{name} has {len(shape)} dimensions, the index {len(given) - len(dots)}")
    at = dots[0] if dots else len(given)
    parts = (*given[:at], *[slice(None)] * missing, *given[at + len(dots) :])
    cut = [_axis(part, extent, name) for part, extent in zip(parts, shape, strict=True)]
    return tuple(range_ for range_, _ in cut), (*(after for _, after in cut), ...) if cut else ()


def _axis(part: Any, extent: int, name: str) -> tuple[tuple[int, int], Any]:
    if isinstance(part, slice):
        steps = range(*part.indices(extent))
        if not steps:
            return (0, 0), slice(None)
        low, high = min(steps[0], steps[-1]), max(steps[0], steps[-1])
        return (low, high + 1), slice(None, None, steps.step)
    try:
        if isinstance(part, (bool, np.bool_)):
            raise TypeError
        position = operator.index(part)
    except TypeError:
        raise BadOption(
            f"{name} is not in memory, so it takes integers, slices and ..., not {part!r}. "
            "Read it first: np.asarray(lazy)[index]."
        ) from None
    if not -extent <= position < extent:
        raise IndexError(f"{name}: the index {position} is out of range; the dimension has {extent}")
    position %= extent
    return (position, position + 1), 0
