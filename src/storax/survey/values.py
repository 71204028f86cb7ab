"""The values of saved leaves, a block at a time: slices, statistics, histograms."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from storax.arrays.read import Source
from storax.errors import BadOption
from storax.plan import boxes
from storax.plan.boxes import Box
from storax.store.budget import Budget
from storax.store.reading import read_all, split
from storax.survey.leaves import SeenLeaf
from storax.tree.dtypes import dtype_named

# Values of at most so many bytes are in memory at a time; many small leaves are read together.
BLOCK_BYTES = 8 << 20
_RUN = 1 << 18


@dataclass(frozen=True, slots=True)
class Block:
    """Some values of a leaf."""

    leaf: SeenLeaf
    box: Box
    values: np.ndarray


def blocks(leaves: Iterable[SeenLeaf], block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """All values of the leaves, in order, in blocks of whole chunks as far as they fit.

    Args:
      leaves: those without a source are passed over.
      block_bytes: held at a time.
    """
    waiting: list[Block] = []
    held = 0
    for leaf in leaves:
        if leaf.source is None:
            continue
        for box in _pieces(leaf, block_bytes):
            size = boxes.size(box) * leaf.source.dtype.itemsize
            if waiting and held + size > block_bytes:
                yield from _read(waiting)
                waiting, held = [], 0
            waiting.append(Block(leaf, box, np.empty(boxes.box_shape(box), leaf.source.dtype)))
            held += size
    yield from _read(waiting)


def _pieces(leaf: SeenLeaf, block_bytes: int) -> Iterator[Box]:
    """The array, cut into runs of chunks along its first dimension, or into chunks if those are too large."""
    shape = _source(leaf).shape
    if 0 in shape:
        return
    chunk = leaf.chunk_shape or shape
    itemsize = _source(leaf).dtype.itemsize
    row = math.prod(shape[1:]) * itemsize * chunk[0] if shape else 0
    if not shape or row <= block_bytes:
        step = chunk[0] * max(1, block_bytes // max(row, 1)) if shape else 0
        for start in range(0, shape[0], step) if shape else ():
            yield ((start, min(shape[0], start + step)), *((0, n) for n in shape[1:]))
        if not shape:
            yield ()
        return
    for cell in boxes.cells(boxes.whole(shape), chunk):
        part = boxes.intersect(boxes.cell_box(cell, chunk), boxes.whole(shape))
        if part is not None:
            yield part


def _source(leaf: SeenLeaf) -> Source:
    if leaf.source is None:
        raise BadOption(f"{leaf.name or 'the leaf'} is a {leaf.kind}, it has no array of values")
    return leaf.source


def _read(waiting: Sequence[Block]) -> Iterator[Block]:
    segments, acts = split(
        read for block in waiting for read in _source(block.leaf).reads([(block.box, block.values)])
    )
    read_all(segments, acts, budget=Budget(4 * BLOCK_BYTES))
    for block in waiting:
        yield Block(block.leaf, block.box, as_seen(block.leaf, block.values))


def as_seen(leaf: SeenLeaf, values: np.ndarray) -> np.ndarray:
    """Values of the disk in the leaf's own dtype; of PRNG keys their data."""
    dtype = leaf.dtype or "uint8"
    return values if dtype.startswith("key<") else values.view(dtype_named(dtype))


# --- one slice -----------------------------------------------------------------------------------

_INDEXED = re.compile(r"(?P<name>.*?)\[(?P<index>[-0-9:,. ]*)\]", re.DOTALL)


def split_name(text: str, names: Iterable[str]) -> tuple[str, tuple[Any, ...]]:
    """A leaf's name and an index from ``name[0:10, :, -1]``.

    >>> split_name("a.w[0:2, -1]", ["a.w"])
    ('a.w', (slice(0, 2, None), -1))
    >>> split_name("odd[1]", ["odd[1]"])
    ('odd[1]', ())
    """
    found = _INDEXED.fullmatch(text)
    if text in set(names) or found is None:
        return text, ()
    parts = [part.strip() for part in found["index"].split(",")]
    return found["name"], tuple(_index(part, text) for part in parts if part)


def _index(part: str, text: str) -> Any:
    try:
        if part == "...":
            return ...
        if ":" not in part:
            return int(part)
        numbers = [int(n) if n.strip() else None for n in part.split(":")]
        if len(numbers) > 3 or numbers[2:] == [0]:
            raise ValueError
        return slice(*numbers)
    except ValueError:
        raise BadOption(
            f"{text}: {part!r} is no index; write numbers and slices, as in w[0:10, :, -1]"
        ) from None


def read_slice(leaf: SeenLeaf, index: tuple[Any, ...]) -> np.ndarray:
    """``leaf[index]`` as numpy has it, reading little more than that.

    Raises:
      BadOption: the leaf has no array, or the index does not fit its shape.
    """
    shape = _source(leaf).shape
    own = len(leaf.shape or ())
    try:
        # Which elements numpy would take, along each dimension, without any memory.
        axes = _full(index, own)
        ranges = [
            range(n)[i] if isinstance(i, slice) else range(n)[range(n)[i] :][:1]
            for i, n in zip(axes, shape, strict=False)
        ]
    except IndexError as error:
        shown = list(leaf.shape or ())
        raise BadOption(f"{leaf.name}: the index does not fit the shape {shown}: {error}") from None
    around = [(min(r[0], r[-1]), max(r[0], r[-1]) + 1) if len(r) else (0, 0) for r in ranges]
    box = (*around, *((0, n) for n in shape[len(around) :]))
    values = np.empty(boxes.box_shape(box), _source(leaf).dtype)
    for block in _read([Block(leaf, box, values)]) if values.size else ():
        values = block.values
    values = values[tuple(_within(r, start) for r, (start, _) in zip(ranges, box, strict=False))]
    dropped = tuple(axis for axis, i in enumerate(axes) if not isinstance(i, slice))
    return values.reshape([n for axis, n in enumerate(values.shape) if axis not in dropped])


def _within(taken: range, start: int) -> slice:
    """A range of an array, as a slice of the part of it that begins at ``start``."""
    if not taken:
        return slice(0, 0)
    end = taken[-1] - start + (1 if taken.step > 0 else -1)
    return slice(taken[0] - start, end if end >= 0 else None, taken.step)


def _full(index: tuple[Any, ...], dimensions: int) -> list[Any]:
    given = [i for i in index if i is not ...]
    if len(given) > dimensions or index.count(...) > 1:
        raise IndexError(f"{len(given)} indices for {dimensions} dimensions")
    at = index.index(...) if ... in index else len(index)
    fill = [slice(None)] * (dimensions - len(given))
    return [*index[:at], *fill, *index[at + 1 :]]


def portable(values: np.ndarray) -> np.ndarray:
    """Values in a dtype that a ``.npy`` file can name, wide enough for each of them."""
    if values.dtype.kind in "biufc":
        return values
    name = values.dtype.name
    return values.astype(np.int8 if name.startswith(("int", "uint")) else np.float32)


# --- statistics ----------------------------------------------------------------------------------


@dataclass(slots=True)
class Statistics:
    """What a leaf's values are like. Of complex numbers: of their absolute values.

    Attributes:
      count: how many values there are.
      nans, infs, zeros: how many of each.
      low, high, mean, std, norm: of the finite ones; None if there are none.
    """

    name: str
    what: str
    count: int = 0
    nans: int = 0
    infs: int = 0
    zeros: int = 0
    low: float | None = None
    high: float | None = None
    _finite: int = 0
    _mean: float = 0.0
    _square: float = 0.0  # the sum of squared distances from the mean
    _norm: float = 0.0
    histogram: tuple[int, ...] = field(default=())

    def add(self, values: np.ndarray) -> None:
        """More values."""
        for run in runs(values):
            self._add(as_numbers(run))

    def _add(self, numbers: np.ndarray) -> None:
        """Sums are joined as Chan, Golub and LeVeque do, which keeps the digits."""
        finite = np.isfinite(numbers)
        self.count += numbers.size
        self.nans += int(np.isnan(numbers).sum())
        self.infs += int(np.isinf(numbers).sum())
        if not finite.all():
            numbers = numbers[finite]
        if not numbers.size:
            return
        self.zeros += int(numbers.size - np.count_nonzero(numbers))
        low, high, mean = float(numbers.min()), float(numbers.max()), float(numbers.mean())
        self.low = low if self.low is None else min(low, self.low)
        self.high = high if self.high is None else max(high, self.high)
        both = self._finite + numbers.size
        apart = mean - self._mean
        self._square += float(np.square(numbers - mean).sum()) + apart**2 * self._finite * numbers.size / both
        self._mean += apart * numbers.size / both
        self._finite = both
        self._norm = math.hypot(self._norm, float(np.linalg.norm(numbers)))

    @property
    def mean(self) -> float | None:
        return self._mean if self._finite else None

    @property
    def std(self) -> float | None:
        return math.sqrt(self._square / self._finite) if self._finite else None

    @property
    def norm(self) -> float | None:
        return self._norm if self._finite else None


def runs(values: np.ndarray) -> Iterator[np.ndarray]:
    """Values in one dimension, so few at a time that copies of them in float64 cost little."""
    flat = values.reshape(-1)
    for start in range(0, flat.size, _RUN):
        yield flat[start : start + _RUN]


def as_numbers(values: np.ndarray) -> np.ndarray:
    """Values as float64 in one dimension; of complex numbers their absolute values."""
    flat = values.reshape(-1)
    return np.abs(flat).astype(np.float64) if flat.dtype.kind == "c" else flat.astype(np.float64)


def statistics(leaves: Sequence[SeenLeaf], *, bins: int = 0) -> list[Statistics]:
    """Of all leaves that have arrays, in order. With ``bins``, small or twice-read values are also counted.

    Args:
      leaves: as ``see_leaves`` gives them.
      bins: of a histogram from the lowest to the highest value; the values are then read twice.
    """
    found = {leaf.name: Statistics(leaf.name, leaf.what) for leaf in leaves if leaf.source is not None}
    for block in blocks(leaves):
        found[block.leaf.name].add(block.values)
    if bins:
        counts = {name: np.zeros(bins, np.int64) for name in found}
        for block in blocks(leaves):
            _count(found[block.leaf.name], block.values, counts[block.leaf.name])
        for name, counted in counts.items():
            found[name].histogram = tuple(counted.tolist())
    return list(found.values())


def _count(seen: Statistics, values: np.ndarray, counts: np.ndarray) -> None:
    for run in runs(values):
        numbers = as_numbers(run)
        _count_run(seen, numbers[np.isfinite(numbers)], counts)


def _count_run(seen: Statistics, numbers: np.ndarray, counts: np.ndarray) -> None:
    if numbers.size and seen.low is not None and seen.high is not None:
        spread = seen.high - seen.low
        edge = len(counts) - 1
        if not math.isfinite(spread) or spread == 0:
            counts[edge // 2] += numbers.size
            return
        at = np.minimum((numbers - seen.low) / spread * len(counts), edge).astype(np.int64)
        counts += np.bincount(at, minlength=len(counts))
