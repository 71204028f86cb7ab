"""How two trees differ: in names, shapes, dtypes and, read block by block, in values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from storax.survey.leaves import SeenLeaf
from storax.survey.values import as_numbers, blocks, read_slice, runs


@dataclass(slots=True)
class Difference:
    """One leaf that is not the same on both sides.

    Attributes:
      name: of the leaf.
      kind: ``only in A``, ``only in B``, ``shape``, ``dtype``, ``kind`` or ``values``.
      one, other: what it is on either side.
      count: how many values differ by more than the tolerance, of ``size``.
      absolute, relative: the largest differences.
    """

    name: str
    kind: str
    one: str = ""
    other: str = ""
    count: int = 0
    size: int = 0
    absolute: float = 0.0
    relative: float = 0.0


def compare(
    ones: Sequence[SeenLeaf], others: Sequence[SeenLeaf], *, rtol: float = 0.0, values: bool = True
) -> Iterator[Difference]:
    """Every leaf that differs, those of one side first.

    Args:
      ones, others: the two trees.
      rtol: values that differ by so much of the larger one, or less, count as equal.
      values: whether to read values where names, shapes and dtypes agree.
    """
    mine = {leaf.name: leaf for leaf in ones}
    theirs = {leaf.name: leaf for leaf in others}
    yield from (Difference(name, "only in A", one=mine[name].what) for name in mine if name not in theirs)
    yield from (Difference(name, "only in B", other=theirs[name].what) for name in theirs if name not in mine)
    for name, leaf in mine.items():
        if name not in theirs:
            continue
        other = theirs[name]
        if (kind := _differs(leaf, other)) is not None:
            yield Difference(name, kind, _shown(leaf), _shown(other))
        elif values and leaf.source is not None and other.source is not None:
            found = _compare_values(leaf, other, rtol)
            if found.count:
                yield found


def _shown(leaf: SeenLeaf) -> str:
    return leaf.what if leaf.value is None else f"{leaf.what} {leaf.value!r}"


def _differs(one: SeenLeaf, other: SeenLeaf) -> str | None:
    if one.shape != other.shape:
        return "shape"
    if one.dtype != other.dtype:
        return "dtype"
    if (one.source is None) != (other.source is None) or (one.source is None and one.kind != other.kind):
        return "kind"
    return None if one.value == other.value else "value"


def _compare_values(one: SeenLeaf, other: SeenLeaf, rtol: float) -> Difference:
    found = Difference(one.name, "values", one.what, other.what)
    for block in blocks([one]):
        index = tuple(slice(p, q) for p, q in block.box)[: len(one.shape or ())]
        _add(found, block.values, read_slice(other, index).reshape(block.values.shape), rtol)
    return found


def _add(found: Difference, a: np.ndarray, b: np.ndarray, rtol: float) -> None:
    for one, other in zip(runs(a), runs(b), strict=True):
        found.size += one.size
        if one.tobytes() != other.tobytes():
            _add_run(found, one, other, rtol)


def _add_run(found: Difference, a: np.ndarray, b: np.ndarray, rtol: float) -> None:
    if a.dtype.kind == "c":
        _count(found, np.abs(a - b), np.maximum(np.abs(a), np.abs(b)), rtol)
        return
    x, y = as_numbers(a), as_numbers(b)
    differ = ~((x == y) | (np.isnan(x) & np.isnan(y)))
    if a.dtype.kind in "iu" and a.dtype.itemsize == 8:
        differ |= a != b  # float64 does not tell all of them apart
    x, y = x[differ], y[differ]
    with np.errstate(invalid="ignore"):
        _count(found, np.abs(x - y), np.maximum(np.abs(x), np.abs(y)), rtol)


def _count(found: Difference, apart: np.ndarray, size: np.ndarray, rtol: float) -> None:
    """Counts those that are too far apart; a NaN or Inf on one side is as far as can be."""
    apart = np.where(np.isnan(apart) | np.isinf(apart), np.inf, apart)
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = np.where(np.isinf(apart), np.inf, apart / np.where(size == 0, 1, size))
    far = (relative > rtol) | ((apart == 0) & (rtol == 0) & (size != 0))
    if far.any():
        found.count += int(far.sum())
        found.absolute = max(found.absolute, float(apart[far].max()))
        found.relative = max(found.relative, float(relative[far].max()))
