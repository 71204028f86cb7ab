"""Trees of all kinds that Orbax supports, and what Orbax makes of them without a target."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from flax.core import FrozenDict
from tests.devices import on_mesh, on_one, plain, sharding
from tests.leaves import dtypes

# What TensorStore, and so Orbax, has no dtype for.
_LACKING = {"int1", "uint1", "uint2", "uint4", "float6_e2m3fn", "float6_e3m2fn", "float8_e4m3"}
FOREIGN_DTYPES = [name for name in dtypes.ALL if name in _LACKING]
COMMON = [name for name in dtypes.ALL if name not in _LACKING]


class Point(NamedTuple):
    x: Any
    y: Any


W = np.arange(16 * 8, dtype=np.float32).reshape(16, 8) / 3
PARAMS = {"w": on_mesh(W, "data", "model"), "b": on_mesh(W[0], "model")}
KEY = jax.random.key(3)

# By name: the tree, and the tree as it comes back without a target if that differs.
TREES: dict[str, tuple[Any, Any]] = {
    "numpy arrays": ({n: dtypes.values(n, (5, 3)) for n in COMMON}, None),
    "jax arrays": ({n: plain(dtypes.values(n, (5, 3))) for n in COMMON}, None),
    "0-d": ({n: plain(dtypes.values(n, ())) for n in COMMON}, None),
    "layouts": (
        {
            "data": on_mesh(W, "data"),
            "model": on_mesh(W, None, "model"),
            "both": on_mesh(W, "model", "data"),
            "all": on_mesh(W, ("data", "model")),
            "replicated": on_mesh(W),
            "one": on_one(W, 3),
            "bfloat16": on_mesh(dtypes.values("bfloat16", (16, 8)), "data", "model"),
            "scalar": on_mesh(np.float32(2.5)),
        },
        None,
    ),
    "keys": (
        {
            "threefry": KEY,
            "batch": jax.random.split(KEY, (4, 2)),
            "mesh": jax.device_put(jax.random.split(KEY, 8), sharding("data")),
            "rbg": jax.random.key(1, impl="rbg"),
            "unsafe": jax.random.key(2, impl="unsafe_rbg"),
        },
        None,
    ),
    "numbers": ({"int": 3, "negative": -(2**60), "float": 0.1, "bool": True, "inf": float("inf")}, None),
    "nothing": ({"w": W, "none": None, "d": {}, "l": [], "t": ()}, None),
    "lists": ([W, [W[0], [1, 2.5]], {"a": [{}]}], None),
    "tuples": ({"t": (W, (1,)), "u": [(2,)]}, {"t": [W, [1]], "u": [[2]]}),
    "named tuples": ({"p": Point(W, {"q": 1})}, {"p": {"x": W, "y": {"q": 1}}}),
    "frozen": (FrozenDict({"a": {"b": W}}), {"a": {"b": W}}),
    "int keys": ({"layers": {0: W, 10: 3}}, {"layers": {"0": W, "10": 3}}),
    "odd keys": ({"a/b": W, "c.d": {"ü 日": 1}, "e f": 2, "'\"": 3, "\\": 4, "": 5}, None),
    "slashes and dots in keys": ({"a/b": W, "c.d": {"ü 日": 1}, "e f": [2]}, None),
    "optimizer": (
        {"params": PARAMS, "opt": optax.adamw(1e-3).init(PARAMS), "step": 7},
        {
            "params": PARAMS,
            "opt": [
                {"count": plain(np.int32(0)), "mu": dict.fromkeys("wb"), "nu": dict.fromkeys("wb")},
                {},
                {},
            ],
            "step": 7,
        },
    ),
    "a bare array": (on_mesh(W, "data"), None),
    "a bare numpy array": (W, None),
    "a bare number": (3, None),
    "the empty tree": ({}, None),
    "only empty containers": ({"a": {}, "b": [[], {}]}, None),
    "many chunks": ({"w": on_mesh(np.arange(17 << 20, dtype=np.uint8).reshape(17, -1), None, "model")}, None),
}
TREES["optimizer"][1]["opt"][0].update(
    mu={name: on_mesh(np.zeros_like(x), *x.sharding.spec) for name, x in PARAMS.items()},
    nu={name: on_mesh(np.zeros_like(x), *x.sharding.spec) for name, x in PARAMS.items()},
)
STRINGS = {"w": W, "s": "schön", "empty": "", "nested": ["a", {"b": "c"}]}


def without_target(name: str) -> Any:
    tree, found = TREES[name]
    return tree if found is None else found


def from_orbax(name: str) -> Any:
    """The same if Orbax wrote it: of an empty named tuple it keeps None."""
    found = without_target(name)
    if name == "optimizer":
        return {**found, "opt": [found["opt"][0], None, None]}
    return found
