"""What a target may ask for: kinds, casts, parts of the tree, and the report when it does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.devices import on_mesh, on_one, plain, sharding
from tests.leaves import dtypes
from tests.same import abstract, assert_same, bits

import storax


def struct(shape: tuple[int, ...], dtype: str, where: Any = None) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtypes.dtype(dtype), sharding=where)


def loaded(path: Path, saved: Any, target: Any, **options: Any) -> Any:
    storax.save(path, {"x": saved}, overwrite=True)
    return storax.load(path, {"x": target}, **options)["x"]


# --- kinds -----------------------------------------------------------------------------------------

W = np.arange(8, dtype=np.float32)


def test_numpy_becomes_jax_and_jax_becomes_numpy_as_the_target_says(tmp_path: Path) -> None:
    for saved in (W, jnp.asarray(W), on_mesh(W, "data")):
        assert_same(loaded(tmp_path / "a", saved, np.zeros(8, np.float32)), W)
        assert_same(loaded(tmp_path / "a", saved, jnp.zeros(8)), jnp.asarray(W))
        wanted = on_mesh(W, "model")
        assert_same(loaded(tmp_path / "a", saved, wanted), wanted, shardings=True)
        assert_same(loaded(tmp_path / "a", saved, abstract(wanted)), wanted, shardings=True)
        one = on_one(W, 3)
        assert_same(loaded(tmp_path / "a", saved, struct((8,), "float32", one.sharding)), one, shardings=True)


def test_an_abstract_leaf_without_a_sharding_is_as_it_was_saved(tmp_path: Path) -> None:
    for saved in (W, jnp.asarray(W), on_mesh(W, "data")):
        assert_same(loaded(tmp_path / "a", saved, struct((8,), "float32")), saved, shardings=True)


def test_scalars_of_each_kind_into_each_other(tmp_path: Path) -> None:
    kinds = {"float": 2.0, "np": np.float64(2), "array": np.array(2.0), "jax": plain(np.float64(2))}
    for saved in kinds.values():
        for wanted in kinds.values():
            assert_same(loaded(tmp_path / "a", saved, wanted), wanted)


def test_a_big_endian_target(tmp_path: Path) -> None:
    wanted = W.astype(">f4")
    assert_same(loaded(tmp_path / "a", W, wanted), wanted)
    assert_same(loaded(tmp_path / "a", wanted, W), W)
    assert_same(loaded(tmp_path / "a", wanted, jnp.asarray(W)), jnp.asarray(W))


def test_a_deleted_array_is_a_target_like_an_abstract_one(tmp_path: Path) -> None:
    saved = on_mesh(W, "data")
    target = on_mesh(W, "model")
    target.delete()
    assert_same(loaded(tmp_path / "a", saved, target), on_mesh(W, "model"), shardings=True)


@pytest.mark.parametrize("name", ["float64", "int64", "uint64", "complex128"])
def test_64_bits_stay_64_bits_where_jax_is_set_to_32(name: str, tmp_path: Path) -> None:
    assert not jax.config.jax_enable_x64
    values = dtypes.values(name, (8, 4))
    tree = {"one": plain(values), "mesh": on_mesh(values, "data", "model"), "scalar": plain(values[0, 0])}
    storax.save(tmp_path / "a", tree)
    assert_same(storax.load(tmp_path / "a"), tree, shardings=True)
    assert_same(storax.load(tmp_path / "a", abstract(tree)), tree, shardings=True)
    host = jax.tree.map(np.asarray, tree)
    assert_same(storax.load(tmp_path / "a", host), host)


# --- casts -----------------------------------------------------------------------------------------

FINE = [
    *[("float32", to) for to in "float64 float16 bfloat16 float8_e4m3fn float8_e5m2".split()],
    *[("bfloat16", to) for to in "float32 float64 float16".split()],
    *[("float8_e5m2", "float32"), ("float8_e5m2", "float8_e8m0fnu"), ("float4_e2m1fn", "float16")],
    ("float64", "float32"),
    *[("int8", to) for to in "int16 int32 int64 float32 float16 bfloat16".split()],
    *[("uint8", to) for to in "int16 uint16 uint64 int64 bfloat16".split()],
    *[("int4", "int8"), ("uint4", "uint8"), ("uint4", "int8"), ("int2", "int4"), ("int16", "float32")],
    *[("int32", "float64"), ("uint16", "float32")],
    *[("bool", to) for to in "int8 int32 uint8".split()],
    *[("complex64", "complex128"), ("complex128", "complex64"), ("float32", "complex64")],
]
LOSSY = [
    *[("float32", to) for to in "int32 int64 uint8 int4 bool".split()],
    *[("int32", to) for to in "int16 uint32 uint64 float32 bfloat16 bool int4".split()],
    *[("int64", "float64"), ("uint8", "int8"), ("int8", "uint8"), ("int8", "uint64"), ("uint64", "int64")],
    *[("complex64", "float32"), ("complex64", "int32"), ("bfloat16", "int8"), ("int4", "uint4")],
    *[("int16", "float16"), ("int16", "bfloat16")],
]


@pytest.mark.parametrize(("saved", "wanted"), FINE)
def test_a_cast_that_is_fine(saved: str, wanted: str, tmp_path: Path) -> None:
    values = np.array([0, 1, 1, 0], np.float32).astype(dtypes.dtype(saved)).reshape(2, 2)
    expected = np.array([0, 1, 1, 0], np.float32).astype(dtypes.dtype(wanted)).reshape(2, 2)
    assert_same(loaded(tmp_path / "a", values, np.zeros_like(expected)), expected)
    assert_same(loaded(tmp_path / "a", plain(values), struct((2, 2), wanted)), plain(expected))
    assert_same(loaded(tmp_path / "a", plain(values), plain(np.zeros_like(expected))), plain(expected))


@pytest.mark.parametrize(("saved", "wanted"), LOSSY)
def test_a_cast_that_can_lose_values(saved: str, wanted: str, tmp_path: Path) -> None:
    values = np.array([0, 1, 1, 0], np.float32).astype(dtypes.dtype(saved))
    with pytest.raises(storax.TreeMismatch, match=rf"x: saved {saved}\[4\], wanted {wanted}\[4\]"):
        loaded(tmp_path / "a", values, struct((4,), wanted))
    expected = values.real.astype(np.float32).astype(dtypes.dtype(wanted))
    assert_same(loaded(tmp_path / "a", values, np.zeros_like(expected), cast=True), expected)


def test_numbers_of_python(tmp_path: Path) -> None:
    where = tmp_path / "a"
    assert_same(loaded(where, 3, np.int32(0)), np.int32(3))
    assert_same(loaded(where, 3, jnp.int32(0)), jnp.int32(3))
    assert_same(loaded(where, 3, jnp.uint8(0)), jnp.uint8(3))
    assert_same(loaded(where, np.int8(3), 0), 3)
    assert_same(loaded(where, jnp.int32(3), 0), 3)
    assert_same(loaded(where, np.uint64(2**64 - 1), 0), 2**64 - 1)
    assert_same(loaded(where, 0.5, jnp.float32(0)), jnp.float32(0.5))
    assert_same(loaded(where, np.float16(0.5), 0.0), 0.5)
    assert_same(loaded(where, True, 0), 1)
    assert_same(loaded(where, 10**50, 0), 10**50)
    assert_same(loaded(where, 3, 10**50), 3)


@pytest.mark.parametrize(
    ("saved", "wanted"),
    [
        *[(300, jnp.uint8(0)), (-1, jnp.uint32(0)), (2**40, jnp.int32(0)), (2**40, np.int32(0))],
        *[(0.5, 0), (3, True), (1j, 0.0), (10**50, np.int64(0)), (10**50, 0.0), (2.0, np.int32(1))],
        *[("a", 0), (0, "a"), ("a", b"a"), (b"a", "a"), (b"a", np.zeros(1, np.uint8)), (None, 0), (0, None)],
        *[("a", None), (None, "a"), ({}, 0), (0, {}), ([], 0), ({}, None), (None, {}), ("a", {})],
        *[(3, np.zeros(1, np.int64)), (np.zeros(1), 0.0), (jax.random.key(0), jnp.zeros(2, jnp.uint32))],
        *[(jnp.zeros(2, jnp.uint32), jax.random.key(0)), (jax.random.key(0), jax.random.key(0, impl="rbg"))],
        (jax.random.split(jax.random.key(0), 3), jax.random.key(0)),
    ],
    ids=lambda value: f"{type(value).__name__}{getattr(value, 'shape', '')}",
)
def test_what_does_not_fit(saved: Any, wanted: Any, tmp_path: Path) -> None:
    with pytest.raises(storax.TreeMismatch) as raised:
        loaded(tmp_path / "a", saved, wanted)
    assert [name for name, _ in raised.value.differ] == ["x"]


def test_a_target_with_leaves_that_no_checkpoint_holds(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", {"x": 1, "y": 2})
    with pytest.raises(storax.UnsupportedLeaf) as raised:
        storax.load(tmp_path / "a", {"x": print, "y": object()})
    assert "x: a builtins" in str(raised.value)
    assert "y: a builtins.object" in str(raised.value)


# --- the report ------------------------------------------------------------------------------------


def test_all_differences_are_reported_at_once(tmp_path: Path) -> None:
    saved = {
        "opt": {"mu": {"head": np.zeros(2)}, "nu": {"head": np.zeros(2)}},
        "params": {"embed": np.zeros((50, 8), np.float32), "kernel": np.zeros(3, np.float32)},
        "step": 1,
    }
    target = {
        "params": {"embed": struct((54, 8), "float32"), "kernel": struct((3,), "int32"), "lora": np.zeros(1)},
        "opt": {"mu": {"heads": np.zeros(2)}},
        "step": "one",
    }
    storax.save(tmp_path / "a", saved)
    with pytest.raises(storax.TreeMismatch) as raised:
        storax.load(tmp_path / "a", target)
    error = raised.value
    assert isinstance(error, ValueError)
    assert set(error.only_saved) == {"opt.mu.head", "opt.nu.head"}
    assert set(error.only_wanted) == {"params.lora", "opt.mu.heads"}
    assert {name for name, _ in error.differ} == {"params.embed", "params.kernel", "step"}
    message = str(error)
    for part in (
        str(tmp_path / "a"),
        "params.embed: saved float32[50,8], wanted float32[54,8]",
        "params.kernel: saved float32[3], wanted int32[3]",
        "step: saved int, wanted str",
        "opt.mu.heads   float64[2]   (close: opt.mu.head)",
        "partial=True",
        "missing='keep'",
        "cast=True",
    ):
        assert part in message


def test_a_report_of_thousands_is_cut_but_its_attributes_are_whole(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", {f"saved{i}": i for i in range(1000)})
    with pytest.raises(storax.TreeMismatch) as raised:
        storax.load(tmp_path / "a", {f"wanted{i}": i for i in range(500)})
    assert (len(raised.value.only_saved), len(raised.value.only_wanted)) == (1000, 500)
    assert len(str(raised.value).splitlines()) < 60


@pytest.mark.parametrize("target", [{}, [], 0, None, {"a": {"b": 1}}], ids=repr)
def test_a_target_of_another_form(target: Any, tmp_path: Path) -> None:
    storax.save(tmp_path / "a", {"a": 1, "b": [2]})
    if target is None:  # no target at all
        assert_same(storax.load(tmp_path / "a", target), {"a": 1, "b": [2]})
        return
    with pytest.raises(storax.TreeMismatch):
        storax.load(tmp_path / "a", target)


def test_every_dtype_into_every_other_one(tmp_path: Path) -> None:
    saved = {name: np.ones(3, np.float32).astype(dtypes.dtype(name)) for name in dtypes.ALL}
    storax.save(tmp_path / "a", saved)
    for wanted in dtypes.ALL:
        expected = np.ones(3, np.float32).astype(dtypes.dtype(wanted))
        target = dict.fromkeys(dtypes.ALL, np.zeros(3, np.float32).astype(expected.dtype))
        found = storax.load(tmp_path / "a", target, cast=True)
        # One bit with a sign holds 0 and -1, so of int1 only the dtype counts.
        special = {name for name in dtypes.ALL if "int1" in (name, wanted)}
        assert {array.dtype for array in found.values()} == {expected.dtype}
        assert [n for n in dtypes.ALL if n not in special and bits(found[n]) != bits(expected)] == []


def test_a_sharding_that_does_not_divide_the_shape(tmp_path: Path) -> None:
    with pytest.raises(storax.TreeMismatch, match=r"x: Sharding .* partitioned 4 times"):
        loaded(tmp_path / "a", np.zeros((6, 3)), struct((6, 3), "float64", sharding("data", "model")))


# --- parts -----------------------------------------------------------------------------------------

TREE = {"a": {"x": np.arange(3), "y": 2}, "b": [np.ones(2, np.float32), "s", None], "c": {}}


def test_partial_ignores_what_the_target_does_not_ask_for(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", TREE)
    found = storax.load(tmp_path / "a", {"a": {"x": np.zeros(3, int)}}, partial=True)
    assert_same(found, {"a": {"x": np.arange(3)}})
    with pytest.raises(storax.TreeMismatch) as raised:
        storax.load(tmp_path / "a", {"a": {"x": np.zeros(3, int), "z": 1}}, partial=True)
    assert (raised.value.only_saved, raised.value.only_wanted) == ((), ("a.z",))
    with pytest.raises(storax.TreeMismatch) as raised:
        storax.load(tmp_path / "a", {"a": {"x": np.zeros(4, int)}}, partial=True)
    assert [name for name, _ in raised.value.differ] == ["a.x"]


def test_missing_keep_keeps_the_targets_own_values(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", TREE)
    own = on_mesh(np.full(8, 7, np.float32), "data")
    target = {**TREE, "lora": own, "n": 5, "none": None, "empty": []}
    found = storax.load(tmp_path / "a", target, missing="keep")
    assert_same(found, target, shardings=True)
    assert found["lora"] is own
    # What only the checkpoint has is still an error.
    with pytest.raises(storax.TreeMismatch) as raised:
        storax.load(tmp_path / "a", {"a": TREE["a"], "n": 5}, missing="keep")
    assert (raised.value.only_saved, raised.value.only_wanted) == (("b.0", "b.1", "b.2", "c"), ())
    assert_same(storax.load(tmp_path / "a", {"n": 5}, missing="keep", partial=True), {"n": 5})


def test_missing_keep_needs_values_to_keep(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", TREE)
    with pytest.raises(storax.TreeMismatch, match="lora") as raised:
        storax.load(tmp_path / "a", {**TREE, "lora": struct((2,), "float32")}, missing="keep")
    assert raised.value.only_wanted == ("lora",)


def test_missing_has_two_values(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", TREE)
    with pytest.raises(storax.BadOption, match="missing"):
        storax.load(tmp_path / "a", TREE, missing="ignore")  # type: ignore[arg-type]


def test_the_placeholder_stands_for_leaves_and_subtrees(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", TREE)
    assert storax.PLACEHOLDER is ...
    found = storax.load(tmp_path / "a", {"a": {"x": ..., "y": 0}, "b": ..., "c": {}})
    assert_same(found, {"a": {"x": ..., "y": 2}, "b": ..., "c": {}})
    assert storax.load(tmp_path / "a", ...) is ...
    # What it does not stand for must still match.
    with pytest.raises(storax.TreeMismatch) as raised:
        storax.load(tmp_path / "a", {"a": ..., "d": 1})
    assert (set(raised.value.only_saved), raised.value.only_wanted) == ({"b.0", "b.1", "b.2", "c"}, ("d",))


def test_the_placeholder_is_not_read(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", {"large": np.random.default_rng(0).bytes(1 << 20), "small": 3})
    for file in (tmp_path / "a" / "ocdbt.process_0" / "d").iterdir():
        data = bytearray(file.read_bytes())
        for i in range(0, len(data) - 200_000, 50_000):
            data[i] ^= 1
        file.write_bytes(data)
    assert storax.load(tmp_path / "a", {"large": ..., "small": 0}) == {"large": ..., "small": 3}
    assert storax.load(tmp_path / "a", {"small": 0}, partial=True) == {"small": 3}
    with pytest.raises(storax.Corrupt, match="large"):
        storax.load(tmp_path / "a")
