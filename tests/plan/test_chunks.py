"""The chunk grid: every shard is tiled, in bounded pieces that are runs of its memory."""

from __future__ import annotations

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from storax.plan import boxes
from storax.plan.chunks import chunk_shape

DIMENSIONS = st.tuples(st.integers(1, 40), st.integers(1, 4))  # rows of a shard, number of shards
CASES = st.tuples(
    st.lists(DIMENSIONS, max_size=3), st.sampled_from([1, 2, 4, 8, 16]), st.sampled_from([16, 64, 100, 1000])
)
Case = tuple[list[tuple[int, int]], int, int]


def shapes(case: Case) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    dimensions, itemsize, most = case
    shard = tuple(rows for rows, _ in dimensions)
    shape = tuple(rows * count for rows, count in dimensions)
    return shape, shard, chunk_shape(shape, shard, itemsize, most)


@given(CASES)
def test_a_chunk_is_bounded(case: Case) -> None:
    _, shard, chunk = shapes(case)
    _, itemsize, most = case
    assert len(chunk) == len(shard)
    assert all(1 <= c <= n for c, n in zip(chunk, shard, strict=True))
    assert math.prod(chunk) * itemsize <= max(most, itemsize)


@given(CASES)
def test_no_chunk_has_two_owners(case: Case) -> None:
    shape, shard, chunk = shapes(case)
    for n, rows, c in zip(shape, shard, chunk, strict=True):
        assert rows % c == 0 or rows == n


@given(CASES)
def test_a_chunk_is_one_run_of_its_shard(case: Case) -> None:
    _, shard, chunk = shapes(case)
    whole = boxes.whole(shard)
    for at in boxes.cells(whole, chunk):
        part = boxes.intersect(boxes.cell_box(at, chunk), whole)
        assert part is not None
        assert boxes.is_contiguous(part, whole)


@given(CASES)
def test_the_chunks_of_all_shards_are_the_grid(case: Case) -> None:
    shape, shard, chunk = shapes(case)
    if math.prod(shape) > 4000:
        return
    origins = itertools.product(*(range(0, n, rows) for n, rows in zip(shape, shard, strict=True)))
    seen = [
        at
        for origin in origins
        for at in boxes.cells(tuple((o, o + rows) for o, rows in zip(origin, shard, strict=True)), chunk)
    ]
    assert sorted(seen) == list(boxes.cells(boxes.whole(shape), chunk))


@given(CASES)
def test_chunks_are_not_needlessly_small(case: Case) -> None:
    shape, shard, chunk = shapes(case)
    _, itemsize, most = case
    if math.prod(shard) * itemsize <= most:
        assert chunk == shard
    # Along the axis that is cut, an eighth of what would fit is the least, unless no divisor is near.
    for axis, (n, rows, c) in enumerate(zip(shape, shard, chunk, strict=True)):
        inner = math.prod(shard[axis + 1 :]) * itemsize
        if c < rows and inner <= most and rows == n:
            assert c * 8 > min(rows, most // inner)


@given(st.lists(st.integers(0, 3), max_size=3))
def test_a_dimension_of_zero(shape: list[int]) -> None:
    assert chunk_shape(shape, shape, 4) == tuple(max(1, n) for n in shape)
