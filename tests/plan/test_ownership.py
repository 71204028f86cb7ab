"""Who writes what: every chunk once, by a process that has it, and nobody much more than an even share."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from tests.plan.meshes import arrays, layouts

from storax.plan import boxes
from storax.plan.chunks import chunk_shape
from storax.plan.ownership import Plan, Shared, outline, owners, plan, writer


def _shared(
    shape: tuple[int, ...], sharding: NamedSharding, process_of: dict[int, int], most_bytes: int
) -> tuple[Shared, list[boxes.Box], tuple[int, ...]]:
    """The array as the plan sees it, its shards' boxes, and the chunk shape."""
    held: dict[boxes.Box, set[int]] = {}
    for device, index in sharding.devices_indices_map(shape).items():
        held.setdefault(boxes.from_index(index, shape), set()).add(process_of[device.id])
    chunk = chunk_shape(shape, sharding.shard_shape(shape), 4, most_bytes)
    shards = list(held)
    count = len(list(boxes.cells(shards[0], chunk)))
    holders = tuple(tuple(sorted(held[box])) for box in shards)
    return Shared(holders, count, 4 * math.prod(chunk)), shards, chunk


@settings(deadline=None, max_examples=150, derandomize=True, database=None)
@given(st.lists(arrays(), min_size=1, max_size=5), layouts(), st.sampled_from((16, 64, 1 << 20)))
def test_every_element_has_one_writer_that_holds_it(
    some: list[tuple[tuple[int, ...], NamedSharding]], process_of: dict[int, int], most_bytes: int
) -> None:
    known = [_shared(shape, sharding, process_of, most_bytes) for shape, sharding in some]
    count = max(process_of.values()) + 1
    plans = [plan([shared for shared, _, _ in known], count, i) for i in range(count)]
    assert len({p.loads for p in plans}) == 1, "every process comes to the same plan"
    written = [np.zeros(shape, int) for shape, _ in some]
    loads: Counter[int] = Counter()
    for process, found in enumerate(plans):
        for stretch in found.stretches:
            shared, shards, chunk = known[stretch.array]
            assert process in shared.holders[stretch.shard]
            loads[process] += (stretch.stop - stretch.start) * shared.chunk_bytes
            cells = list(boxes.cells(shards[stretch.shard], chunk))[stretch.start : stretch.stop]
            shape = some[stretch.array][0]
            for cell in cells:
                part = boxes.intersect(boxes.cell_box(cell, chunk), boxes.whole(shape))
                assert part is not None
                written[stretch.array][boxes.slices(part, boxes.whole(shape))] += 1
    assert all((array == 1).all() for array in written)
    assert tuple(loads[i] for i in range(count)) == plans[0].loads


@settings(deadline=None, max_examples=60, derandomize=True, database=None)
@given(st.lists(arrays(), min_size=1, max_size=4), layouts(), st.sampled_from((16, 64, 1 << 20)), st.data())
def test_everybody_can_tell_what_the_others_write(
    some: list[tuple[tuple[int, ...], NamedSharding]],
    process_of: dict[int, int],
    most_bytes: int,
    data: st.DataObject,
) -> None:
    known = [_shared(shape, sharding, process_of, most_bytes)[0] for shape, sharding in some]
    count = max(process_of.values()) + 1
    plans = [plan(known, count, i) for i in range(count)]
    sizes = [[(s.stop - s.start) * known[s.array].chunk_bytes for s in p.stretches] for p in plans]
    found = outline(known, count)
    assert found.loads == plans[0].loads == tuple(map(sum, sizes))
    assert found.chunks == tuple(sum(s.stop - s.start for s in p.stretches) for p in plans)
    assert found.largest == tuple(max(each, default=0) for each in sizes)
    process = data.draw(st.sampled_from([i for i in range(count) if plans[i].stretches]))
    stretch = data.draw(st.sampled_from(plans[process].stretches))
    chunk = data.draw(st.integers(stretch.start, stretch.stop - 1))
    assert writer(known, count, stretch.array, stretch.shard, chunk) == process


def _everywhere(count: int) -> tuple[tuple[int, ...], ...]:
    return (tuple(range(count)),)


def _balance(found: Plan) -> float:
    return max(found.loads) / (sum(found.loads) / len(found.loads))


def test_one_huge_replicated_leaf_and_ten_thousand_small_ones() -> None:
    everywhere = _everywhere(64)
    some = [Shared(everywhere, 64 * 40, 4 << 20), *[Shared(everywhere, 1, 4096)] * 10_000]
    assert _balance(plan(some, 64, 0)) <= 1.05


@given(
    st.integers(2, 40),
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 10_000)), min_size=1, max_size=30),
)
def test_of_what_all_hold_nobody_carries_more_than_a_chunk_above_an_even_share(
    processes: int, some: list[tuple[int, int]]
) -> None:
    shared = [Shared(_everywhere(processes), chunks, size) for chunks, size in some]
    loads = plan(shared, processes, 0).loads
    assert max(loads) <= sum(loads) / processes + max(size for _, size in some) + 1


def test_replicated_leaves_make_up_for_what_shards_leave_uneven() -> None:
    # Process 0 alone holds a large shard; the replicated leaf then goes to the others.
    some = [Shared(((0,),), 1, 900), Shared(_everywhere(4), 3000, 1)]
    found = plan(some, 4, 0)
    assert found.loads == (975, 975, 975, 975)


def test_where_bytes_allow_no_balance_nobody_else_gets_more() -> None:
    some = [Shared(((1,),), 1, 1000), Shared(_everywhere(3), 10, 10)]
    assert plan(some, 3, 0).loads == (50, 1000, 50)


def test_nothing_at_all() -> None:
    assert plan([], 3, 1) == Plan((), (0, 0, 0))
    assert plan([Shared(_everywhere(3), 0, 4)], 3, 0) == Plan((), (0, 0, 0))


def test_a_thousand_hosts_with_a_thousand_arrays() -> None:
    """Only counts: how long it takes is measured in bench/."""
    alone = tuple((device // 8,) for device in range(8000))
    pods = tuple(tuple(range(pod * 10, pod * 10 + 10)) for pod in range(100) for _ in range(8))
    everywhere = _everywhere(1000)
    some = [Shared((alone, pods, everywhere)[i % 3], 1 + i % 7, (1 << 20) + i * 1000) for i in range(1000)]
    assert _balance(plan(some, 1000, 0)) <= 1.05


def test_one_device_of_a_process_gives_its_copy() -> None:
    half, other = ((0, 4),), ((4, 8),)
    assert owners({3: half, 1: half, 2: other}) == {half: 1, other: 2}
