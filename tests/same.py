"""Whether two trees are the same, bit for bit: containers, kinds, dtypes, bytes and, if asked, shardings."""

from __future__ import annotations

import struct
from typing import Any

import jax
import numpy as np
from jax.tree_util import tree_flatten_with_path


def bits(value: Any) -> tuple[Any, ...]:
    """All there is to compare of one leaf: equal for equal bits, also of NaN and of negative zero."""
    if isinstance(value, jax.Array):
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            return ("keys", str(jax.random.key_impl(value)), bits(jax.random.key_data(value)))
        return ("jax.Array", value.dtype, value.shape, np.asarray(value).tobytes())
    if isinstance(value, (np.ndarray, np.generic)):
        return (type(value), value.dtype, value.shape, value.tobytes())
    if type(value) is float:
        return (float, struct.pack("d", value))
    if type(value) is complex:
        return (complex, struct.pack("dd", value.real, value.imag))
    return (type(value), value)


def leaves(tree: Any) -> tuple[dict[str, Any], Any]:
    """The leaves by key path, None and empty containers among them, and the structure."""
    pairs, structure = tree_flatten_with_path(tree, is_leaf=lambda node: node is None or _is_empty(node))
    return {jax.tree_util.keystr(path): value for path, value in pairs}, structure


def _is_empty(node: Any) -> bool:
    return isinstance(node, (dict, list, tuple)) and not node


def assert_same(found: Any, wanted: Any, *, shardings: bool = False) -> None:
    """Fails unless two trees are the same, and names what differs."""
    found_leaves, found_structure = leaves(found)
    wanted_leaves, wanted_structure = leaves(wanted)
    assert found_structure == wanted_structure
    different = {
        name: (_short(found_leaves[name]), _short(value))
        for name, value in wanted_leaves.items()
        if bits(found_leaves[name]) != bits(value)
    }
    assert different == {}
    if shardings:
        arrays = {name: value for name, value in wanted_leaves.items() if isinstance(value, jax.Array)}
        assert {name: found_leaves[name].sharding for name in arrays} == {
            name: value.sharding for name, value in arrays.items()
        }


def _short(value: Any) -> str:
    return f"{type(value).__name__} {getattr(value, 'dtype', '')} {str(value)[:80]}"


def abstract(tree: Any, *, shardings: bool = True) -> Any:
    """The tree with a ``ShapeDtypeStruct`` for each ``jax.Array``."""

    def one(value: Any) -> Any:
        if not isinstance(value, jax.Array):
            return value
        sharding = value.sharding if shardings else None
        return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding)

    return jax.tree.map(one, tree)
