"""Targets of ``jax.eval_shape`` on a mesh with explicit axes: their shardings have no devices yet."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import storax


def _mesh(shape: tuple[int, ...] = (4, 2)) -> Mesh:
    return jax.make_mesh(shape, ("data", "model"), axis_types=(AxisType.Explicit,) * 2)


def _state() -> dict[str, Any]:
    return {
        "w": jax.reshard(jnp.arange(32.0).reshape(8, 4), PartitionSpec("data", "model")),
        "b": jax.reshard(jnp.arange(4.0), PartitionSpec("model")),
        "step": 3,
    }


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Any, Any]:
    """A checkpoint, its tree, and the abstract target for it."""
    with jax.set_mesh(_mesh()):
        tree = jax.jit(_state)()
        target = jax.eval_shape(_state)
    storax.save(tmp_path / "a", tree)
    assert not isinstance(target["w"].sharding.mesh, Mesh)
    return tmp_path / "a", tree, target


def test_shardings_on_an_abstract_mesh_are_put_on_the_mesh_that_is_set(saved: tuple[Path, Any, Any]) -> None:
    path, tree, target = saved
    with jax.set_mesh(_mesh()):
        found = storax.load(path, target)
    for name in ("w", "b"):
        assert found[name].sharding == tree[name].sharding
        np.testing.assert_array_equal(found[name], tree[name])


@pytest.mark.parametrize("shape", [None, (2, 4)], ids=["no mesh", "another mesh"])
def test_without_a_mesh_that_fits_all_leaves_are_named(saved: tuple[Path, Any, Any], shape: Any) -> None:
    path, _, target = saved
    inside = contextlib.nullcontext() if shape is None else jax.set_mesh(_mesh(shape))
    with inside, pytest.raises(storax.TreeMismatch, match=r"abstract mesh(.|\n)*jax\.set_mesh") as raised:
        storax.load(path, target)
    assert {name for name, _ in raised.value.differ} == {"w", "b"}


def test_an_abstract_mesh_with_other_names_does_not_fit(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", {"x": np.zeros(8, np.float32)})
    abstract = NamedSharding(_mesh().abstract_mesh, PartitionSpec("data"))
    target = {"x": jax.ShapeDtypeStruct((8,), "float32", sharding=abstract)}
    with jax.set_mesh(jax.make_mesh((4, 2), ("x", "y"))), pytest.raises(storax.TreeMismatch, match="'x', 4"):
        storax.load(tmp_path / "a", target)
