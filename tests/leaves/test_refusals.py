"""What cannot be saved is refused: all of it in one message, before a byte is written."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import storax


def _generator() -> Any:
    yield 1


class Subclass(np.ndarray):
    pass


class Text(str):
    __slots__ = ()


def deleted() -> jax.Array:
    array = jnp.arange(3.0)
    array.delete()
    return array


def donated() -> jax.Array:
    array = jnp.arange(3.0)
    jax.jit(lambda x: x + 1, donate_argnums=0)(array)
    return array


LEAVES: dict[str, Any] = {
    "function": lambda: 1,
    "builtin": print,
    "class": int,
    "iterator": iter([1, 2]),
    "generator": _generator(),
    "set": {1, 2},
    "range": range(3),
    "object": object(),
    "object array": np.array([1, None], object),
    "datetime64": np.array(["2020-01-01"], "datetime64[D]"),
    "a datetime64 scalar": np.datetime64("2020-01-01"),
    "timedelta64": np.array([1], "timedelta64[s]"),
    "str array": np.array(["a", "bc"]),
    "a str scalar of numpy": np.str_("a"),
    "bytes array": np.array([b"a", b"bc"]),
    "a bytes scalar of numpy": np.bytes_(b"a"),
    "structured array": np.zeros(2, [("a", "i4"), ("b", "f4")]),
    "void": np.zeros(2, "V3"),
    "masked array": np.ma.masked_array([1, 2], [True, False]),
    "subclass of ndarray": np.zeros(2).view(Subclass),
    "subclass of str": Text("a"),
    "bytearray": bytearray(b"a"),
    "memoryview": memoryview(b"a"),
    "abstract array": jax.ShapeDtypeStruct((2,), "float32"),
    "placeholder": ...,
    "deleted": deleted(),
    "donated": donated(),
}
if np.dtype(np.longdouble).itemsize != 8:
    LEAVES["long double"] = np.zeros(2, np.longdouble)


@pytest.mark.parametrize("case", LEAVES)
def test_a_leaf_that_no_checkpoint_holds(case: str, tmp_path: Path) -> None:
    for tree in ({"fine": 1, "bad": [LEAVES[case]]}, LEAVES[case]):
        with pytest.raises(storax.UnsupportedLeaf) as raised:
            storax.save(tmp_path / "a", tree)
        assert isinstance(raised.value, TypeError)
        with pytest.raises(storax.UnsupportedLeaf):
            storax.save_async(tmp_path / "a", tree)
    assert list(tmp_path.iterdir()) == []


def test_all_of_them_are_listed_at_once(tmp_path: Path) -> None:
    tree = {"fine": 1, "bad": dict(LEAVES), "list": [1, print, None]}
    with pytest.raises(storax.UnsupportedLeaf) as raised:
        storax.save(tmp_path / "a", tree)
    message = str(raised.value)
    assert [name for name in LEAVES if f"bad.{name}:" not in message] == []
    assert "list.1:" in message
    assert "fine" not in message
    assert f"{len(LEAVES) + 1} of {len(LEAVES) + 4} leaves" in message
    assert list(tmp_path.iterdir()) == []


def test_a_manager_refuses_them_too(tmp_path: Path) -> None:
    with storax.CheckpointManager(tmp_path) as manager:
        with pytest.raises(storax.UnsupportedLeaf, match="f: a builtins"):
            manager.save(1, args=storax.args.StandardSave({"f": print}))
        assert manager.all_steps() == []
        assert manager.save(1, args=storax.args.StandardSave({"f": 1}))
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_tracers(tmp_path: Path) -> None:
    @jax.jit
    def step(x: jax.Array) -> jax.Array:
        with pytest.raises(storax.UnsupportedLeaf, match="w: a tracer"):
            storax.save(tmp_path / "a", {"w": x})
        return x

    step(jnp.ones(2))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "key", [1.5, True, None, ("a", 1), b"a", "\ud800", frozenset()], ids=lambda k: type(k).__name__ + ascii(k)
)
def test_keys_that_no_name_can_hold(key: Any, tmp_path: Path) -> None:
    with pytest.raises(storax.UnsupportedLeaf):
        storax.save(tmp_path / "a", {"x": {key: 1}})
    assert list(tmp_path.iterdir()) == []


def test_keys_that_cannot_be_sorted(tmp_path: Path) -> None:
    with pytest.raises(storax.UnsupportedLeaf):
        storax.save(tmp_path / "a", {"x": 1, 3: 2})


COLLISIONS: dict[str, tuple[Any, list[str]]] = {
    "dots": ({"a.b": 1, "a": {"b": 2}}, ["a.b"]),
    "two groups": ({"a.b": 1, "a": {"b": 2}, "c": {"d.e": 3, "d": {"e": 4}}}, ["a.b", "c.d.e"]),
    "empty containers": ({"a.b": {}, "a": {"b": None}}, ["a.b"]),
    "int and str": (collections.OrderedDict([(1, 2), ("1", 3)]), ["1"]),
    "an index and a key": ({"a": [1], "a.0": 2}, ["a.0"]),
    "empty keys": ({".": 1, "": {"": 2}}, ["."]),
}


@pytest.mark.parametrize("case", COLLISIONS)
def test_two_leaves_with_one_name(case: str, tmp_path: Path) -> None:
    tree, names = COLLISIONS[case]
    with pytest.raises(storax.NameCollision) as raised:
        storax.save(tmp_path / "a", tree)
    assert [name for name in names if f"  {name}: tree" not in str(raised.value)] == []
    assert list(tmp_path.iterdir()) == []
