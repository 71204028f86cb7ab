"""Box arithmetic against numpy's own slicing."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from storax.plan import boxes
from storax.plan.boxes import Box

SHAPES = st.lists(st.integers(1, 5), max_size=3).map(tuple)


@st.composite
def inside(draw: st.DrawFn, shape: tuple[int, ...], count: int) -> tuple[Box, ...]:
    def one() -> Box:
        ends = (sorted(draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in shape)
        return tuple((a, b) for a, b in ends)

    return tuple(one() for _ in range(count))


def with_boxes(count: int) -> Any:
    return SHAPES.flatmap(lambda shape: st.tuples(st.just(shape), inside(shape, count)))


def mask(shape: tuple[int, ...], box: Box) -> np.ndarray:
    found = np.zeros(shape, bool)
    found[boxes.slices(box, boxes.whole(shape))] = True
    return found


@given(with_boxes(2))
def test_intersect(case: Any) -> None:
    shape, (a, b) = case
    both = mask(shape, a) & mask(shape, b)
    found = boxes.intersect(a, b)
    if found is None:
        assert not both.any()
    else:
        assert (mask(shape, found) == both).all()
        assert boxes.size(found) == both.sum()
    assert found == boxes.intersect(b, a)


@given(with_boxes(1))
def test_sizes_and_shapes(case: Any) -> None:
    shape, (box,) = case
    part = np.zeros(shape)[boxes.slices(box, boxes.whole(shape))]
    assert boxes.box_shape(box) == part.shape
    assert boxes.size(box) == part.size


@given(with_boxes(2))
def test_slices_of_a_part(case: Any) -> None:
    shape, (outer, other) = case
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    part = boxes.intersect(outer, other)
    if part is not None:
        inner = values[boxes.slices(outer, boxes.whole(shape))][boxes.slices(part, outer)]
        assert (inner == values[boxes.slices(part, boxes.whole(shape))]).all()


@given(with_boxes(1))
def test_is_contiguous_says_what_the_memory_is(case: Any) -> None:
    shape, (box,) = case
    if boxes.size(box) == 0:
        return
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    flat = values[boxes.slices(box, boxes.whole(shape))].reshape(-1)
    assert boxes.is_contiguous(box, boxes.whole(shape)) == bool((np.diff(flat) == 1).all())


@given(with_boxes(1), st.lists(st.integers(1, 4), min_size=3, max_size=3))
def test_cells_are_those_that_a_box_touches(case: Any, sizes: list[int]) -> None:
    shape, (box,) = case
    cell = sizes[: len(shape)]
    grid = itertools.product(*(range(-(-n // c)) for n, c in zip(shape, cell, strict=True)))
    touched = [at for at in grid if boxes.intersect(boxes.cell_box(at, cell), box) is not None]
    if boxes.size(box):
        assert list(boxes.cells(box, cell)) == touched


@given(with_boxes(1))
def test_from_index_of_slices(case: Any) -> None:
    shape, (box,) = case
    assert boxes.from_index([slice(*ends) for ends in box], shape) == box
    assert boxes.from_index([slice(None)] * len(shape), shape) == boxes.whole(shape)
