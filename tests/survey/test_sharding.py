"""Shardings read from documents agree with JAX."""

from __future__ import annotations

import json
import math
from pathlib import Path

import hypothesis.strategies as st
import jax
import numpy as np
from hypothesis import given
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tests.cli.command import FIXTURES

from storax.arrays.place import sharding_text
from storax.survey.leaves import see_leaves
from storax.survey.sharding import device_boxes, in_short, mesh_of


@st.composite
def shardings(draw: st.DrawFn) -> tuple[NamedSharding, tuple[int, ...]]:
    sizes = draw(st.sampled_from([(8,), (4, 2), (2, 2, 2), (1, 4), (2, 1, 3)]))
    axes = [f"axis{i}" for i in range(len(sizes))]
    devices = draw(st.permutations(jax.devices()))[: math.prod(sizes)]
    mesh = Mesh(np.array(devices, dtype=object).reshape(sizes), tuple(axes))
    free = draw(st.permutations(axes))
    spec: list[tuple[str, ...] | str | None] = []
    shape = []
    for _ in range(draw(st.integers(0, 3))):
        taken = [free.pop() for _ in range(min(len(free), draw(st.integers(0, 2))))]
        spec.append(None if not taken else taken[0] if len(taken) == 1 else tuple(taken))
        shape.append(draw(st.integers(1, 4)) * math.prod(mesh.shape[axis] for axis in taken))
    cut = draw(st.integers(0, len(spec)))
    while len(spec) > cut and spec[-1] is None:
        spec.pop()
    return NamedSharding(mesh, PartitionSpec(*spec)), tuple(shape)


@given(shardings())
def test_every_device_holds_the_box_that_jax_gives_it(case: tuple[NamedSharding, tuple[int, ...]]):
    sharding, shape = case
    document = json.loads(sharding_text(sharding) or "null")
    expected = {
        device.id: tuple(part.indices(n)[:2] for part, n in zip(index, shape, strict=True))
        for device, index in sharding.devices_indices_map(shape).items()
    }
    assert dict(device_boxes(document, shape)) == expected


def test_documents_of_every_release_of_orbax_are_understood():
    seen = 0
    for path in FIXTURES.glob("*/pytree"):
        for leaf in see_leaves(path):
            if leaf.sharding is not None and leaf.sharding["sharding_type"] == "NamedSharding":
                seen += 1
                mesh = mesh_of(leaf.sharding)
                assert mesh is not None
                assert dict(mesh.axes) == {"data": 4, "model": 2}
                assert len(device_boxes(leaf.sharding, leaf.shape or ())) == 8
    assert seen >= 3 * 4


def test_what_is_no_named_sharding_has_no_boxes():
    for document in (
        None,
        {},
        {"sharding_type": "SingleDeviceSharding", "device_str": "cpu:0"},
        {"sharding_type": "NamedSharding", "axis_names": ["a"], "shape": [0], "partition_spec": []},
        {
            "sharding_type": "NamedSharding",
            "axis_names": ["a"],
            "shape": [2],
            "partition_spec": ["a", "b", "c"],
        },
    ):
        assert device_boxes(document, (4, 4)) == []
        assert isinstance(in_short(document), str)


def test_the_bytes_of_every_writer_add_up_to_the_files(tmp_path: Path):
    for leaf in see_leaves(FIXTURES / "0.12.8" / "standard"):
        assert leaf.source is None or leaf.stored_bytes > 0
