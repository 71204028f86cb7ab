"""Weak dtypes: ``jnp.asarray(0.1)`` gives way to bfloat16 before a save and after a load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from tests.devices import on_mesh, sharding
from tests.same import abstract, assert_same

import storax

WEAK: dict[str, Any] = {
    "float": jnp.asarray(0.1),
    "int": jnp.asarray(7),
    "complex": jnp.asarray(1j),
    "many": jnp.full((3, 2), -0.0),
    "none": jnp.full((0, 2), 0.5),
    "one device": jax.device_put(jnp.asarray(0.3), jax.devices()[3]),
    "mesh": jax.device_put(jnp.full(8, 0.2), sharding("data")),
    "replicated": jax.device_put(jnp.asarray(0.2), sharding()),
}


@pytest.mark.parametrize("name", WEAK)
def test_a_weak_dtype_comes_back_weak(name: str, tmp_path: Path) -> None:
    value = WEAK[name]
    assert value.weak_type
    strong = np.asarray(value)
    storax.save(tmp_path / "a", {"x": value, "strong": strong})
    struct = jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=value.sharding, weak_type=True)
    for target in (None, {"x": value, "strong": strong}, {"x": struct, "strong": strong}):
        found = storax.load(tmp_path / "a", target)
        assert found["x"].weak_type
        assert found["x"].committed == value.committed or target is not None
        assert_same(found["x"], value, shardings=True)
        if not value.ndim and value.dtype.kind == "f":
            one = jax.device_put(jnp.ones((), jnp.bfloat16), found["x"].sharding)
            assert (found["x"] * one).dtype == jnp.bfloat16


def test_the_target_decides_whether_a_dtype_is_weak(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", {"x": jnp.asarray(0.1)})
    storax.save(tmp_path / "b", {"x": jnp.float32(0.1)})
    strong, weak = jnp.float32(0), jax.eval_shape(lambda: jnp.asarray(0.1))
    for path in ("a", "b"):
        assert not storax.load(tmp_path / path, {"x": strong})["x"].weak_type
        assert not storax.load(tmp_path / path, {"x": abstract(strong)})["x"].weak_type
        assert storax.load(tmp_path / path, {"x": weak})["x"].weak_type
        assert type(storax.load(tmp_path / path, {"x": np.float32(0)})["x"]) is np.float32
    assert not storax.load(tmp_path / "b")["x"].weak_type


def test_every_bit_of_a_weak_array_stays(tmp_path: Path) -> None:
    patterns = np.array([0x7FC12345, 0x00000001, 0x80000000, 0xFF800000, 0x7F800001], np.uint32)
    value = jnp.zeros_like(jnp.full(5, 0.0)).at[...].set(patterns.view(np.float32))
    assert value.weak_type
    storax.save(tmp_path / "a", {"x": value})
    assert_same(storax.load(tmp_path / "a")["x"], value)


def test_a_weak_array_on_explicit_axes(tmp_path: Path) -> None:
    mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))
    value = jax.device_put(jnp.full(8, 0.5), NamedSharding(mesh, PartitionSpec("x")))
    storax.save(tmp_path / "a", {"x": value})
    found = storax.load(tmp_path / "a")["x"]
    assert (found.weak_type, found.sharding) == (True, value.sharding)


def test_64_bits_stay_weak_where_jax_is_set_to_32(tmp_path: Path) -> None:
    with jax.enable_x64(True):
        value = jnp.asarray(0.1)
    storax.save(tmp_path / "a", {"x": value})
    found = storax.load(tmp_path / "a")["x"]
    assert (found.dtype, found.weak_type) == (np.float64, True)


def test_a_dtype_that_python_has_no_number_for_is_never_weak(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", {"x": jnp.asarray(0.5)})
    target = jax.ShapeDtypeStruct((), "bfloat16", weak_type=True)
    assert_same(storax.load(tmp_path / "a", {"x": target})["x"], jnp.bfloat16(0.5))


def test_a_strong_array_stays_strong(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", {"x": on_mesh(np.ones(8, np.float32), "data"), "y": jnp.ones(3)})
    assert not any(leaf.weak_type for leaf in storax.load(tmp_path / "a").values())
