"""The table of leaf kinds: each goes down and comes back bit for bit, with a target and without one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding
from tests.devices import mesh, on_mesh, on_one, plain, sharding
from tests.leaves import dtypes
from tests.resealed import reseal
from tests.same import abstract, assert_same

import storax

SHAPES = [(), (0,), (3, 0, 2), (16,), (8, 4)]
LAYOUTS: list[tuple[Any, ...]] = [
    (),
    ("data",),
    ("model",),
    (None, "model"),
    ("data", "model"),
    ("model", "data"),
    (("data", "model"),),
    (None, ("model", "data")),
]


def check(path: Path, tree: Any, *, shardings: bool = False) -> None:
    """Down, and back in every way."""
    storax.save(path, tree)
    assert_same(storax.load(path), tree, shardings=shardings)
    assert_same(storax.load(path, tree), tree, shardings=shardings)
    assert_same(storax.load(path, abstract(tree)), tree, shardings=shardings)
    assert_same(storax.load(path, abstract(tree, shardings=False)), tree, shardings=shardings)


# --- arrays ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", dtypes.IN_JAX)
def test_a_jax_array_of_every_dtype(name: str, tmp_path: Path) -> None:
    tree = {f"{i}": plain(dtypes.values(name, shape)) for i, shape in enumerate(SHAPES)}
    assert {array.dtype for array in tree.values()} == {dtypes.dtype(name)}
    check(tmp_path / "a", tree, shardings=True)


@pytest.mark.parametrize("name", dtypes.ALL)
def test_a_numpy_array_and_a_numpy_scalar_of_every_dtype(name: str, tmp_path: Path) -> None:
    arrays = {f"{i}": dtypes.values(name, shape) for i, shape in enumerate(SHAPES)}
    check(tmp_path / "a", {**arrays, "scalar": dtypes.values(name, (4,))[2]})


@pytest.mark.parametrize("name", sorted(dtypes.NOT_IN_JAX))
def test_what_jax_has_no_arrays_of_is_still_so(name: str) -> None:
    with pytest.raises(Exception, match="Unknown NumPy dtype"):
        plain(dtypes.values(name, (4,)))


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int4", "uint4", "float64", "bool", "complex128"])
def test_an_array_on_a_mesh_in_every_layout(name: str, tmp_path: Path) -> None:
    values = dtypes.values(name, (16, 8))
    tree = {str(i): on_mesh(values, *spec) for i, spec in enumerate(LAYOUTS)}
    storax.save(tmp_path / "a", tree)
    assert_same(storax.load(tmp_path / "a"), tree, shardings=True)
    assert_same(storax.load(tmp_path / "a", abstract(tree)), tree, shardings=True)
    # Each in the layout of the next one.
    turned = {str(i): on_mesh(values, *LAYOUTS[i - 1]) for i in range(len(LAYOUTS))}
    assert_same(storax.load(tmp_path / "a", abstract(turned)), turned, shardings=True)


def test_zero_dimensions_and_zero_sizes_on_a_mesh(tmp_path: Path) -> None:
    tree = {
        "scalar": on_mesh(np.float32(2.5)),
        "empty": on_mesh(np.zeros((0, 4), np.float32), "data", "model"),
        "thin": on_mesh(np.zeros((8, 0), np.int32), "data"),
        "keys": jax.device_put(jax.random.split(jax.random.key(0), 8)[:0], sharding("data")),
    }
    storax.save(tmp_path / "a", tree)
    assert_same(storax.load(tmp_path / "a"), tree, shardings=True)
    assert_same(storax.load(tmp_path / "a", abstract(tree)), tree, shardings=True)


def test_an_array_on_one_device_that_is_not_the_first(tmp_path: Path) -> None:
    tree = {"w": on_one(np.arange(6.0, dtype=np.float32), 5)}
    check(tmp_path / "a", tree, shardings=True)


def test_an_array_of_the_default_device_comes_back_uncommitted(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", {"w": jnp.arange(4.0), "m": on_mesh(np.ones(4, np.float32), "data")})
    found = storax.load(tmp_path / "a")
    assert not found["w"].committed
    assert jax.jit(lambda a, b: a + b)(found["w"], found["m"]).shape == (4,)


def test_a_saved_mesh_that_is_not_here_gives_way_to_the_default_device(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tree = {"a": on_mesh(np.arange(8), "data"), "b": on_mesh(np.arange(6), "model")}
    storax.save(tmp_path / "a", tree)
    document = tmp_path / "a" / "_sharding"
    document.write_text(document.read_text().replace(r"\"id\": 7", r"\"id\": 70"))
    reseal(tmp_path / "a")
    found = storax.load(tmp_path / "a")
    assert_same(found, tree)
    assert {type(array.sharding) for array in found.values()} == {SingleDeviceSharding}
    assert not any(array.committed for array in found.values())
    assert [record.levelname for record in caplog.records if record.name == "storax"] == ["WARNING"]
    # With a target there is nothing to say.
    caplog.clear()
    assert_same(storax.load(tmp_path / "a", abstract(tree)), tree, shardings=True)
    assert caplog.records == []


def test_a_smaller_mesh_and_an_uneven_grid_of_chunks(tmp_path: Path) -> None:
    values = np.arange(12 * 10, dtype=np.float32).reshape(12, 10)
    small = jax.sharding.NamedSharding(mesh(3, 2), jax.sharding.PartitionSpec("data", "model"))
    tree = {"w": jax.device_put(values, small)}
    storax.save(tmp_path / "a", tree)
    assert_same(storax.load(tmp_path / "a"), tree, shardings=True)
    other = {"w": on_mesh(values, "data", "model")}
    assert_same(storax.load(tmp_path / "a", abstract(other)), other, shardings=True)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_typed_prng_keys(impl: str, tmp_path: Path) -> None:
    key = jax.random.key(42, impl=impl)
    batch = jax.random.split(key, 8)
    tree = {
        "one": key,
        "batch": batch,
        "square": jax.random.split(key, (4, 2)),
        "none": batch[:0],
        "sharded": jax.device_put(batch, sharding("data")),
        "replicated": jax.device_put(batch, sharding()),
        "other": jax.device_put(key, jax.devices()[3]),
    }
    storax.save(tmp_path / "a", tree)
    assert_same(storax.load(tmp_path / "a"), tree, shardings=True)
    assert_same(storax.load(tmp_path / "a", tree), tree, shardings=True)
    assert_same(storax.load(tmp_path / "a", abstract(tree)), tree, shardings=True)
    a, b = storax.load(tmp_path / "a")["one"], key
    assert bool(jnp.all(jax.random.bits(a, (3,)) == jax.random.bits(b, (3,))))


def test_old_style_keys_are_arrays_of_uint32(tmp_path: Path) -> None:
    check(tmp_path / "a", {"key": jax.random.PRNGKey(3)}, shardings=True)


BIG = np.arange(60, dtype=np.int32).reshape(5, 12)
NUMPY_ARRAYS = {
    "every second column": BIG[:, ::2],
    "backwards": BIG[::-1, ::-1],
    "Fortran order": np.asfortranarray(BIG),
    "transposed": BIG.T,
    "broadcast": np.broadcast_to(np.float32(1.5), (3, 4)),
    "big-endian": BIG.astype(">i4"),
    "big-endian floats, transposed": BIG.astype(">f8").T,
    "big-endian complex": BIG.astype(">c16"),
    "big-endian 0-d": np.array(7, ">u2"),
    "read-only": np.frombuffer(bytes(range(8)), np.uint8),
    "unaligned": np.frombuffer(bytes(range(17)), np.uint8)[1:].view(np.float64),
    "bfloat16, strided": BIG.astype(ml_dtypes.bfloat16)[:, 1::3],
    "uint4, Fortran order": np.asfortranarray((BIG % 16).astype(ml_dtypes.uint4)),
    "five dimensions": np.arange(72, dtype=np.int16).reshape(2, 3, 2, 3, 2),
    "one of each": np.ones((1, 1, 1), bool),
}


@pytest.mark.parametrize("case", NUMPY_ARRAYS)
def test_numpy_arrays_of_any_layout(case: str, tmp_path: Path) -> None:
    check(tmp_path / "a", {"w": NUMPY_ARRAYS[case]})
    check(tmp_path / "bare", NUMPY_ARRAYS[case])


def test_a_memory_map(tmp_path: Path) -> None:
    file = np.memmap(tmp_path / "file", np.float32, "w+", shape=(4, 3))
    file[...] = 2.5
    storax.save(tmp_path / "a", {"w": file})
    assert_same(storax.load(tmp_path / "a"), {"w": np.full((4, 3), 2.5, np.float32)})


# --- values ----------------------------------------------------------------------------------------

VALUES = {
    "int": [0, 1, -1, 2**63 - 1, -(2**63)],
    "int beyond 64 bits": [2**63, -(2**63) - 1, 2**64, 10**50, -(10**50)],
    "int of 5001 digits": [10**5000, -(10**5000) - 1],
    "float": [0.0, -0.0, 0.1, math.inf, -math.inf, math.nan, -math.nan, 5e-324, 1.7976931348623157e308],
    "complex": [0j, complex(-0.0, math.nan), complex(math.inf, -0.0), 1.5 - 2j],
    "bool": [True, False],
    "str": ["", "a", "schön", "日本", "\x00\n\"'\\", "🦀", "a" * 100_000],
    "str with lone surrogates": ["\ud800", "a\udfffb"],
    "bytes": [b"", b"\x00", bytes(range(256)), b"x" * 3_000_000],
    "None": [None],
    "numpy scalar": [np.float32(1.5), np.int8(-3), np.bool_(True), np.complex64(1j), np.uint64(2**64 - 1)],
    "numpy NaN": [np.float32("nan"), np.float64("nan"), np.float16("-inf")],
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_of_python(kind: str, tmp_path: Path) -> None:
    check(tmp_path / "list", VALUES[kind])
    for i, value in enumerate(VALUES[kind]):
        check(tmp_path / f"bare{i}", value)


def test_numpy_booleans_and_python_booleans_are_told_apart(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", [True, 1, np.bool_(True), np.int64(1), 1.0, np.float64(1)])
    assert [type(leaf) for leaf in storax.load(tmp_path / "a")] == [
        *(bool, int, np.bool_, np.int64),
        *(float, np.float64),
    ]


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_all_kinds_in_one_tree_compressed_and_not(compression: Any, tmp_path: Path) -> None:
    tree = {
        "numpy": {name: dtypes.values(name, (5, 3)) for name in dtypes.ALL},
        "jax": {name: plain(dtypes.values(name, (5, 3), 1)) for name in dtypes.IN_JAX},
        "empty": {name: dtypes.values(name, (0, 3)) for name in dtypes.ALL},
        "mesh": [on_mesh(dtypes.values("float32", (16, 8)), *spec) for spec in LAYOUTS],
        "values": [*VALUES["float"], *VALUES["str"], b"", None, 10**50, np.int8(3)],
        "keys": jax.random.split(jax.random.key(1), 3),
    }
    storax.save(tmp_path / "a", tree, compression=compression)
    assert_same(storax.load(tmp_path / "a"), tree, shardings=True)
    assert_same(storax.load(tmp_path / "a", abstract(tree)), tree, shardings=True)


def test_a_shard_of_several_chunks_comes_back(tmp_path: Path) -> None:
    # 17 MB in one shard: two chunks, the second of which is cut off.
    values = np.random.default_rng(0).integers(0, 255, (17, 1 << 20), np.uint8)
    tree = {"numpy": values, "mesh": on_mesh(values[:16], None, "model")}
    storax.save(tmp_path / "a", tree)
    assert_same(storax.load(tmp_path / "a"), tree, shardings=True)
    wanted = {"numpy": values, "mesh": on_mesh(values[:16], "data", "model")}
    assert_same(storax.load(tmp_path / "a", abstract(wanted)), wanted, shardings=True)
