"""Every source of surgery, box by box, against numpy on whole arrays."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.surgery.whole import Chunked, fill, read

from storax.arrays.gather import atom_of
from storax.plan import boxes
from storax.plan.chunks import aligned_chunk_shape
from storax.surgery.computing import Added, Applied, Cast, LowRank, Reread, Scaled
from storax.surgery.memory import MemoryArray, filled
from storax.surgery.reshaping import Reshaped, refined
from storax.surgery.views import Input, Joined, Picked, Repeated, Sliced, Stacked, Transposed

shapes = st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple)
_counter = iter(range(1, 1 << 40, 10_000))


def values(shape, dtype=np.float32):
    """An array in which no two elements of a test are equal."""
    start = next(_counter) % 1_000_000
    return np.arange(start, start + math.prod(shape)).reshape(shape).astype(dtype)


def chunked(draw, array):
    return Chunked(array, tuple(draw(st.integers(1, n)) for n in array.shape))


def any_box(draw, shape):
    found = []
    for n in shape:
        start = draw(st.integers(0, n - 1))
        found.append((start, draw(st.integers(start + 1, n))))
    return tuple(found)


def strided(draw, shape, dtype):
    """Memory of a shape that is part of something larger, perhaps with its axes in another order."""
    order = draw(st.permutations(range(len(shape))))
    steps = [draw(st.integers(1, 2)) for _ in shape]
    large = np.zeros([shape[axis] * steps[axis] for axis in order], dtype)
    back = sorted(range(len(shape)), key=lambda i: order[i])
    return large.transpose(back)[tuple(slice(None, None, step) for step in steps)]


def assert_boxes(draw, source, whole):
    """Some boxes of a source at once, into memory of any layout, are those of the array."""
    assert source.shape == whole.shape
    assert source.dtype == whole.dtype
    wants = []
    for _ in range(draw(st.integers(1, 3))):
        box = any_box(draw, whole.shape)
        wants.append((source, (box, strided(draw, boxes.box_shape(box), source.dtype))))
    fill(wants)
    for _, (box, memory) in wants:
        np.testing.assert_array_equal(memory, whole[boxes.slices(box, boxes.whole(whole.shape))])


def operation(draw, source, whole):
    """One more source over a source, and the same done by numpy."""
    ndim = whole.ndim
    axis = draw(st.integers(0, ndim - 1))
    kind = draw(st.sampled_from("stack join slice pick transpose repeat reshape cast scale".split()))
    if kind == "stack":
        other = values(whole.shape, whole.dtype)
        axis = draw(st.integers(0, ndim))
        parts = (source, chunked(draw, other), source)
        return Stacked(parts, axis), np.stack([whole, other, whole], axis)
    if kind == "join":
        shape = (*whole.shape[:axis], draw(st.integers(1, 4)), *whole.shape[axis + 1 :])
        other = values(shape, whole.dtype)
        return Joined((source, chunked(draw, other)), axis), np.concatenate([whole, other], axis)
    if kind == "slice":
        box = any_box(draw, whole.shape)
        return Sliced(source, box), whole[boxes.slices(box, boxes.whole(whole.shape))]
    if kind == "pick" and ndim > 1:
        index = draw(st.integers(0, whole.shape[axis] - 1))
        return Picked(source, axis, index), whole.take(index, axis)
    if kind == "transpose":
        order = tuple(draw(st.permutations(range(ndim))))
        return Transposed(source, order), whole.transpose(order)
    if kind == "repeat":
        count = draw(st.integers(1, 3))
        return Repeated(source, axis, count), np.repeat(whole, count, axis)
    if kind == "reshape":
        shape = draw(st.sampled_from(factored(whole.size)))
        made = Reread if refined(whole.shape, shape) is None else Reshaped
        return made(source, shape), whole.reshape(shape)
    if kind == "scale":
        return Scaled(source, 0.5), (whole.astype(np.float32) * np.float32(0.5)).astype(whole.dtype)
    return Cast(source, np.dtype(np.float64)), whole.astype(np.float64)


def factored(size):
    """Shapes of so many elements."""
    found = [(size,), (1, size), (size, 1)]
    for a in range(2, size):
        if size % a == 0:
            found.append((a, size // a))
            found += [(a, b, size // a // b) for b in range(1, size) if (size // a) % b == 0]
    return found


@given(st.data(), shapes)
@settings(max_examples=300, deadline=None)
def test_boxes_of_any_composition_are_those_of_numpy(data, shape):
    whole = values(shape)
    source = chunked(data.draw, whole)
    for _ in range(data.draw(st.integers(1, 4))):
        if whole.size > 3000:
            break
        source, whole = operation(data.draw, source, whole)
    assert_boxes(data.draw, source, whole)


@given(st.data(), shapes, shapes)
@settings(max_examples=200, deadline=None)
def test_reshapes_in_both_directions(data, shape, other):
    joint = (*shape, *other)
    whole = values(joint)
    flat = (math.prod(shape), math.prod(other))
    assert_boxes(data.draw, Reshaped(chunked(data.draw, whole), flat), whole.reshape(flat))
    assert_boxes(data.draw, Reshaped(chunked(data.draw, whole.reshape(flat)), joint), whole)


@given(st.data(), st.integers(1, 9), st.integers(1, 9), st.integers(1, 4), st.booleans())
@settings(max_examples=100, deadline=None)
def test_low_rank_products_by_blocks(data, rows, columns, rank, batched):
    outer = (3,) if batched else ()
    base, b, a = (
        values((*outer, rows, columns)),
        values((*outer, rows, rank)),
        values((*outer, rank, columns)),
    )
    b, a = b % 13, a % 7  # small integers: the products are exact, in whatever order they are added up
    source = LowRank(chunked(data.draw, base), chunked(data.draw, b), chunked(data.draw, a), 2.0)
    assert_boxes(data.draw, source, base + 2 * (b @ a))


@given(st.data(), shapes)
@settings(max_examples=50, deadline=None)
def test_a_delta_is_added(data, shape):
    base, delta = values(shape), values(shape)
    source = Added(chunked(data.draw, base), chunked(data.draw, delta), 0.5)
    assert_boxes(data.draw, source, base + np.float32(0.5) * delta)


@given(st.data(), shapes)
@settings(max_examples=50, deadline=None)
def test_a_function_of_whole_arrays_is_called_once_for_all_boxes(data, shape):
    whole, calls = values(shape), []

    def cumulated(array):
        calls.append(array.shape)
        return np.cumsum(array.astype(np.int64), 0)

    source = Applied((chunked(data.draw, whole),), cumulated, shape, np.dtype(np.int64), "cumulated")
    assert_boxes(data.draw, source, np.cumsum(whole.astype(np.int64), 0))
    assert calls == [shape]


@given(st.data(), shapes)
@settings(max_examples=50, deadline=None)
def test_memory_and_fills_are_sources(data, shape):
    whole = values(shape)
    assert_boxes(data.draw, Input(MemoryArray(whole), "w", whole.dtype), whole)
    assert_boxes(data.draw, filled(shape, np.dtype(np.int8), 3.7), np.full(shape, 3, np.int8))


@given(st.data(), shapes)
@settings(max_examples=200, deadline=None)
def test_reading_whole_chunks_of_atoms_reads_each_input_chunk_once(data, shape):
    """What a rewrite does: however its array was made, the chunks that it writes read nothing twice."""
    whole = values(shape)
    chunks = tuple(data.draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0])) for n in shape)
    source, root = Chunked(whole, chunks), None
    root = source
    kind = data.draw(st.sampled_from(["transpose", "stack", "merge", "cast", "repeat"]))
    if kind == "transpose":
        source = Transposed(source, tuple(data.draw(st.permutations(range(len(shape))))))
    elif kind == "stack":
        source = Stacked((source,), data.draw(st.integers(0, len(shape))))
    elif kind == "merge":
        source = Joined((source,), 0)
    elif kind == "repeat":
        source = Repeated(source, data.draw(st.integers(0, len(shape) - 1)), 2)
    else:
        source = Cast(source, np.dtype(np.float64))
    most = data.draw(st.integers(1, 400))
    grid = aligned_chunk_shape(source.shape, atom_of(source), source.dtype.itemsize, most)
    for cell in boxes.cells(boxes.whole(source.shape), grid):
        box = boxes.intersect(boxes.cell_box(cell, grid), boxes.whole(source.shape))
        read(source, box)
    assert len(root.read) == len(set(root.read))


def test_views_copy_nothing():
    """What is asked of the input is memory of the caller, not a copy of it."""
    whole = values((6, 8))
    memory = np.zeros((3, 4, 8), np.float32)
    inner = Transposed(Reshaped(Stacked((MemoryArray(whole),) * 4, 1), (6, 4, 8)), (0, 1, 2))
    waiting = [(inner, (((0, 3), (0, 4), (0, 8)), memory))]
    roots = 0
    while waiting:
        source, wanted = waiting.pop()
        if hasattr(source, "pulls"):
            waiting.extend(source.pulls(wanted))
        else:
            assert np.shares_memory(wanted[1], memory)
            roots += wanted[1].size
    assert roots == memory.size
