"""Who writes what: every chunk once, by a process that has it, and nobody much more than an even share."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from storax.plan import boxes
from storax.plan.chunks import chunk_shape
from storax.plan.ownership import Plan, Shared, owners, plan

_AXES = ("a", "b", "c", "d")
_MESHES = [
    shape
    for n in (1, 2, 3, 4)
    for shape in itertools.product((1, 2, 4, 8), repeat=n)
    if math.prod(shape) == 8
]


@st.composite
def meshes(draw: st.DrawFn) -> Mesh:
    """Eight devices in any order, on one to four axes."""
    shape = draw(st.sampled_from(_MESHES))
    devices = draw(st.permutations(jax.devices()))
    return Mesh(np.array(devices).reshape(shape), _AXES[: len(shape)])


@st.composite
def specs(draw: st.DrawFn, mesh: Mesh, rank: int) -> PartitionSpec:
    """Each axis of the mesh for at most one dimension; several for one, and none, are possible too."""
    free = list(draw(st.permutations(mesh.axis_names)))
    parts: list[str | tuple[str, ...] | None] = []
    for _ in range(draw(st.integers(0, rank))):
        taken = tuple(free.pop() for _ in range(min(len(free), draw(st.integers(0, 2)))))
        parts.append(taken if len(taken) > 1 else taken[0] if taken else None)
    return PartitionSpec(*parts)


@st.composite
def arrays(draw: st.DrawFn) -> tuple[tuple[int, ...], NamedSharding]:
    mesh = draw(meshes())
    rank = draw(st.integers(1, 3))
    spec = draw(specs(mesh, rank))
    shape = []
    for dim in range(rank):
        names = spec[dim] if dim < len(spec) else None
        axes = names if isinstance(names, tuple) else (names,) if names else ()
        shape.append(math.prod(mesh.shape[a] for a in axes) * draw(st.integers(1, 6)))
    return tuple(shape), NamedSharding(mesh, spec)


@st.composite
def layouts(draw: st.DrawFn) -> dict[int, int]:
    """Which process each device belongs to: any, of one to eight processes."""
    count = draw(st.sampled_from((1, 2, 4, 8)))
    order = draw(st.permutations(range(8)))
    return {device: place * count // 8 for place, device in enumerate(order)}


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


def _everywhere(count: int) -> tuple[tuple[int, ...], ...]:
    return (tuple(range(count)),)


def _balance(found: Plan) -> float:
    return max(found.loads) / (sum(found.loads) / len(found.loads))


def test_one_huge_replicated_leaf_and_ten_thousand_small_ones() -> None:
    everywhere = _everywhere(64)
    some = [Shared(everywhere, 64 * 40, 4 << 20), *[Shared(everywhere, 1, 4096)] * 10_000]
    assert _balance(plan(some, 64, 0)) <= 1.05


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
