"""Meshes, partition specs, arrays and layouts of processes, for properties that hold for all of them."""

from __future__ import annotations

import itertools
import math

import jax
import numpy as np
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec

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
