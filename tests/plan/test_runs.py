"""Boxes to runs, against numpy: the elements of a slice of ``arange`` are those of the runs, no others."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from storax.plan import boxes
from storax.plan.boxes import Box
from storax.plan.runs import BUCKET_GAP, LOCAL_GAP, blocks, joined, pieces, position, runs, spans

SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)


@st.composite
def cut(draw: st.DrawFn) -> tuple[tuple[int, ...], Box]:
    """A shape and a box in it, empty ones among them."""
    shape = draw(SHAPES)
    ends = [sorted((draw(st.integers(0, n)), draw(st.integers(0, n)))) for n in shape]
    return shape, tuple((start, stop) for start, stop in ends)


def elements(box: Box, shape: tuple[int, ...]) -> list[int]:
    numbered = np.arange(math.prod(shape)).reshape(shape)
    return numbered[tuple(slice(*ends) for ends in box)].reshape(-1).tolist()


def covered(found: list[tuple[int, int]]) -> list[int]:
    return [i for start, stop in found for i in range(start, stop)]


@given(cut())
def test_runs_are_exactly_the_elements_of_the_slice(given_cut: tuple[tuple[int, ...], Box]) -> None:
    shape, box = given_cut
    found = list(runs(box, shape))
    assert covered(found) == elements(box, shape)
    assert all(b - a > 0 for (_, a), (b, _) in itertools.pairwise(found)), "neighbours are one run"


@given(cut(), st.integers(0, 30))
def test_runs_with_a_gap_are_the_exact_ones_joined(given_cut: tuple[tuple[int, ...], Box], gap: int) -> None:
    shape, box = given_cut
    assert list(runs(box, shape, gap)) == joined(runs(box, shape), gap)


@given(SHAPES.flatmap(lambda shape: st.tuples(st.just(shape), st.data())), st.integers(0, 30))
def test_spans_hold_all_boxes(shape_and_data: tuple[tuple[int, ...], st.DataObject], gap: int) -> None:
    shape, data = shape_and_data
    wanted = [
        tuple(tuple(sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n))))) for n in shape)
        for _ in range(data.draw(st.integers(0, 3)))
    ]
    needed = sorted({i for box in wanted for i in elements(box, shape)})
    exact = spans(wanted, shape, 0)
    assert covered(exact) == needed
    assert spans(wanted, shape, gap) == joined(exact, gap)
    assert set(needed) <= set(covered(spans(wanted, shape, gap)))


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=7), st.integers(0, 12))
def test_no_other_way_to_join_costs_less(gaps_and_lengths: list[tuple[int, int]], gap: int) -> None:
    found, end = [], 0
    for before, length in gaps_and_lengths:
        found.append((end + before, end + before + length))
        end += before + length

    def cost(plan: list[tuple[int, int]]) -> int:
        return sum(stop - start for start, stop in plan) + gap * len(plan)

    every = []
    for breaks in itertools.product((False, True), repeat=len(found) - 1):
        plan = [found[0]]
        for run, apart in zip(found[1:], breaks, strict=True):
            plan = [*plan, run] if apart else [*plan[:-1], (plan[-1][0], run[1])]
        every.append(cost(plan))
    assert cost(joined(found, gap)) == min(every)


@given(cut(), st.integers(1, 7))
def test_pieces_are_the_runs_again_and_none_is_too_long(
    given_cut: tuple[tuple[int, ...], Box], most: int
) -> None:
    shape, box = given_cut
    found = list(pieces(runs(box, shape), most))
    assert covered(found) == elements(box, shape)
    assert all(0 < stop - start <= most for start, stop in found)


@given(
    SHAPES.flatmap(
        lambda s: st.tuples(st.just(s), st.integers(0, math.prod(s)), st.integers(0, math.prod(s)))
    )
)
def test_blocks_are_boxes_that_are_one_run_each(given_run: tuple[tuple[int, ...], int, int]) -> None:
    shape, a, b = given_run
    start, stop = min(a, b), max(a, b)
    found = list(blocks((start, stop), shape))
    assert [i for box in found for i in elements(box, shape)] == list(range(start, stop))
    assert all(boxes.is_contiguous(box, boxes.whole(shape)) for box in found)
    assert len(found) <= max(1, 2 * len(shape) - 1)


@given(cut())
def test_positions_count_through_the_box(given_cut: tuple[tuple[int, ...], Box]) -> None:
    shape, box = given_cut
    found = elements(box, shape)
    assert [position(element, box, shape) for element in found] == list(range(len(found)))


def test_the_store_decides_between_strided_runs_and_a_whole_span() -> None:
    shape = (1024, 1 << 20)  # bytes
    box = ((0, 1024), (0, 1 << 18))  # a quarter of each row: the gaps are 768 KiB
    local, bucket = spans([box], shape, LOCAL_GAP), spans([box], shape, BUCKET_GAP)
    assert len(local) == 1024
    assert sum(stop - start for start, stop in local) == boxes.size(box)
    assert bucket == [(0, 1023 * (1 << 20) + (1 << 18))]


def test_a_narrow_column_of_a_huge_array_is_planned_without_counting_its_rows() -> None:
    shape = (1 << 40, 8)
    assert spans([((0, 1 << 40), (3, 4))], shape, LOCAL_GAP) == [(3, (1 << 43) - 4)]
