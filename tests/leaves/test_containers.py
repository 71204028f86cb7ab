"""Every container goes down and comes back: with a target as it was, without one as dict, list or tuple."""

from __future__ import annotations

import collections
import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from flax.core import FrozenDict
from tests.devices import on_mesh
from tests.same import abstract, assert_same, bits

import storax


class Point(NamedTuple):
    x: Any
    y: Any


class Nothing(NamedTuple):
    """An empty state, such as optax has many of."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    weight: Any
    bias: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class NoFields:
    pass


@dataclasses.dataclass
class WithKeys:
    """A node of its own kind, whose flattening names its children."""

    first: Any
    second: Any


jax.tree_util.register_pytree_with_keys(
    WithKeys,
    lambda n: (((jax.tree_util.GetAttrKey("first"), n.first), (jax.tree_util.DictKey("2"), n.second)), None),
    lambda _, children: WithKeys(*children),
)


class WithoutKeys:
    """A node of its own kind, whose children have no names; the static part is not saved."""

    def __init__(self, *children: Any, static: str = "") -> None:
        self.children, self.static = children, static


jax.tree_util.register_pytree_node(
    WithoutKeys, lambda n: (n.children, n.static), lambda static, c: WithoutKeys(*c, static=static)
)

X, Y = np.arange(3, dtype=np.int16), np.float32(2.5)
CONTAINERS: dict[str, tuple[Any, Any]] = {
    # what is saved, and what comes back without a target
    "namedtuple": (Point(X, Y), {"x": X, "y": Y}),
    "empty namedtuple": ({"a": Nothing(), "b": 1}, {"a": {}, "b": 1}),
    "dataclass": (Layer(X, {"y": Y}), {"weight": X, "bias": {"y": Y}}),
    "empty dataclass": ([NoFields(), 1], [{}, 1]),
    "custom node with keys": (WithKeys(X, [Y]), {"first": X, "2": [Y]}),
    "custom node without keys": (WithoutKeys(X, Y, static="s"), {0: X, 1: Y}),
    "empty custom node": ((WithoutKeys(static="s"), 1), ({}, 1)),
    "FrozenDict": (FrozenDict({"a": {"b": X}}), {"a": {"b": X}}),
    "empty FrozenDict": ({"a": FrozenDict({})}, {"a": {}}),
    "OrderedDict": (collections.OrderedDict(b=X, a=Y), {"a": Y, "b": X}),
    "defaultdict": (collections.defaultdict(int, {"a": X}), {"a": X}),
    "nodes in nodes": (
        (Point(Layer([X], ()), None), WithKeys({}, Point(Y, []))),
        ({"x": {"weight": [X], "bias": ()}, "y": None}, {"first": {}, "2": {"x": Y, "y": []}}),
    ),
}
PLAIN: dict[str, Any] = {
    "dict": {"a": X, "b": {"c": Y}},
    "list": [X, [Y, [1]]],
    "tuple": (X, (Y, (1,))),
    "tuples in lists in tuples": ([(X,), [Y]], {"a": ([1], (2,))}),
    "eleven items, in order": [list(range(11)), tuple(range(11))],
    "int keys": {1: X, 10: Y, -3: 1, 2: 2, 2**70: 3},
    "int keys below str keys": {"layers": {0: {"w": X}, 1: {"w": Y}}},
    "digits as str keys": {"0": X, "1": Y},
    "lists and str keys of digits": {"a": [1, 2], "b": {"0": 1, "1": 2}, "c": {0: 1, 1: 2}},
    "keys with slashes": {"a/b": X, "/": Y, "a": {"c/0": 1, "c": 2}, "../x": 3, "..": 4},
    "keys with dots": {"a.b": X, ".": Y, "a": {"c.d": 1}},
    "keys of unicode": {"schön": X, "日本": Y, "🦀": 1, "a\u0301": 2, "\xe1": 3},
    "keys with quotes and backslashes": {"'": X, '"': Y, "\\": 1, "a'b\"c": 2, "\n\t\x00": 3},
    "keys with blanks": {" ": X, "a b": Y, "a ": 1},
    "the empty key": {"": X},
    "the empty key, nested": {"": {"": Y, "a": X}},
    "keys that files are called": {"_METADATA": X, "zarr.json": Y, "manifest.ocdbt": 1, "c": {"0": 3}},
    "a long key": {"k" * 3000: X},
    "empty containers": {"d": {}, "l": [], "t": (), "n": None},
    "empty containers in lists": [{}, [], (), None, [[]], ((),), {"a": {}}],
    "the empty dict": {},
    "the empty list": [],
    "the empty tuple": (),
    "only empty containers": {"a": {"b": {}}, "c": [[], ()]},
    "a bare array": X,
    "a bare scalar": Y,
    "a bare int": 3,
    "a bare str": "a",
    "a bare None": None,
    "sixty levels": None,
}
deep: Any = X
for _ in range(30):
    deep = {"a": [deep]}
PLAIN["sixty levels"] = deep


@pytest.mark.parametrize("case", PLAIN)
def test_plain_containers_come_back_as_such(case: str, tmp_path: Path) -> None:
    tree = PLAIN[case]
    storax.save(tmp_path / "a", tree)
    assert_same(storax.load(tmp_path / "a"), tree)
    assert_same(storax.load(tmp_path / "a", tree), tree)


@pytest.mark.parametrize("case", CONTAINERS)
def test_other_containers_come_back_as_dicts_or_as_the_target_has_them(case: str, tmp_path: Path) -> None:
    tree, without_target = CONTAINERS[case]
    storax.save(tmp_path / "a", tree)
    assert_same(storax.load(tmp_path / "a"), without_target)
    found = storax.load(tmp_path / "a", tree)
    assert jax.tree.structure(found) == jax.tree.structure(tree)
    assert [bits(a) for a in jax.tree.leaves(found)] == [bits(b) for b in jax.tree.leaves(tree)]


def test_keys_of_numpy_integers_come_back_as_int(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", {np.int64(3): X})
    assert_same(storax.load(tmp_path / "a"), {3: X})


def test_the_target_decides_the_containers(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", {"x": [X, {}], "y": ()})
    assert_same(storax.load(tmp_path / "a", Point((X, ()), {})), Point((X, ()), {}))


@pytest.mark.parametrize("wanted", [{}, [], (), Nothing(), FrozenDict({})], ids=repr)
def test_an_empty_container_fits_any_other_one(wanted: Any, tmp_path: Path) -> None:
    for i, saved in enumerate([{}, [], (), Nothing()]):
        storax.save(tmp_path / str(i), {"a": saved, "b": 1})
        found = storax.load(tmp_path / str(i), {"a": wanted, "b": 0})["a"]
        assert type(found) is type(wanted)


# --- frameworks ------------------------------------------------------------------------------------


class Net(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.layers = nnx.List([nnx.Linear(4, 4, rngs=rngs) for _ in range(2)])
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        for layer in self.layers:
            x = layer(x)
        return self.drop(self.norm(x))


def same_leaves(found: Any, wanted: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    assert [bits(a) for a in jax.tree.leaves(found)] == [bits(b) for b in jax.tree.leaves(wanted)]
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert not isinstance(b, jax.Array) or a.sharding == b.sharding


def test_the_state_of_a_flax_module(tmp_path: Path) -> None:
    net = Net(nnx.Rngs(0))
    net(jnp.ones((2, 4)))
    state = nnx.state(net)
    storax.save(tmp_path / "a", state)
    same_leaves(storax.load(tmp_path / "a", state), state)
    other = nnx.eval_shape(lambda: Net(nnx.Rngs(1)))
    found = storax.load(tmp_path / "a", nnx.state(other))
    same_leaves(found, state)
    nnx.update(net, found)
    pure = storax.load(tmp_path / "a")
    assert set(pure["layers"]) == {0, 1}
    assert bits(pure["norm"]["mean"]["value"]) == bits(net.norm.mean[...])


def test_the_state_of_a_flax_optimizer(tmp_path: Path) -> None:
    optimizer = nnx.Optimizer(Net(nnx.Rngs(0)), optax.adamw(1e-3), wrt=nnx.Param)
    state = nnx.state(optimizer)
    storax.save(tmp_path / "a", state)
    same_leaves(storax.load(tmp_path / "a", state), state)


PARAMS = {"w": np.ones((8, 2), np.float32), "b": np.zeros(2, np.float32)}
OPTIMIZERS = {
    "adamw": optax.adamw(1e-3),
    "chain": optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(optax.linear_schedule(0, 1, 2), 0.9)),
    "masked": optax.masked(optax.adam(1e-3), {"w": True, "b": False}),
    "injected": optax.inject_hyperparams(optax.adam)(1e-3),
    "skipping NaN": optax.apply_if_finite(optax.adafactor(1e-3), 3),
    "several steps": optax.MultiSteps(optax.lion(1e-3), 4).gradient_transformation(),
    "of several kinds": optax.partition({"a": optax.adam(1), "z": optax.set_to_zero()}, {"w": "a", "b": "z"}),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optax_states(name: str, tmp_path: Path) -> None:
    params = {"w": on_mesh(PARAMS["w"], "data", "model"), "b": on_mesh(PARAMS["b"])}
    state = OPTIMIZERS[name].init(params)
    storax.save(tmp_path / "a", {"opt": state})
    same_leaves(storax.load(tmp_path / "a", {"opt": state}), {"opt": state})
    same_leaves(storax.load(tmp_path / "a", abstract({"opt": state})), {"opt": state})
    leaves = jax.tree.leaves(storax.load(tmp_path / "a"))
    assert sorted(map(str, map(bits, leaves))) == sorted(map(str, map(bits, jax.tree.leaves(state))))


def test_equinox_modules(tmp_path: Path) -> None:
    model = equinox.nn.MLP(2, 3, 4, 2, key=jax.random.key(0))
    arrays, static = equinox.partition(model, equinox.is_array)
    storax.save(tmp_path / "a", arrays)
    same_leaves(storax.load(tmp_path / "a", arrays), arrays)
    whole = equinox.combine(storax.load(tmp_path / "a", arrays), static)
    assert bits(whole(jnp.ones(2))) == bits(model(jnp.ones(2)))
    assert set(storax.load(tmp_path / "a")["layers"][0]) == {"weight", "bias"}
