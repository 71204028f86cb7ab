"""How a mesh spreads arrays, beside what JAX says of every device."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from tests.plan.meshes import arrays, layouts

from storax.plan import boxes
from storax.plan.spread import spec_of, spread


@settings(deadline=None, max_examples=200, derandomize=True, database=None)
@given(arrays(), layouts(), st.booleans())
def test_every_device_holds_the_shard_that_jax_says(
    array: tuple[tuple[int, ...], NamedSharding], process_of: dict[int, int], pad: bool
) -> None:
    shape, sharding = array
    parts = list(sharding.spec) + [None] * (len(shape) - len(sharding.spec)) * pad
    found = spread(dict(sharding.mesh.shape), spec_of(parts))
    assert found.shard_shape(shape) == sharding.shard_shape(shape)
    devices = list(sharding.mesh.devices.flat)
    indices = sharding.devices_indices_map(shape)
    for device, shard in zip(devices, found.shard_of, strict=True):
        assert found.box(int(shard), shape) == boxes.from_index(indices[device], shape)
    holders = found.holders(np.array([process_of[device.id] for device in devices]))
    held: list[set[int]] = [set() for _ in range(found.count)]
    for device, shard in zip(devices, found.shard_of, strict=True):
        held[shard].add(process_of[device.id])
    assert [set(one) for one in holders] == held
    assert all(list(one) == sorted(set(one)) for one in holders)
