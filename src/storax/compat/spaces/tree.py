"""``storax.tree`` for code that knows Orbax: trees as flat dicts of key paths, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax

from storax import pytree
from storax.compat.metadata import plain
from storax.errors import BadOption
from storax.tree.names import KeyPath


def _keys(path: KeyPath) -> tuple[str, ...]:
    return tuple(map(str, path))


def to_flat_dict(
    tree: Any,
    sep: str | None = None,
    keep_empty_nodes: bool = False,
    is_leaf: Callable[[Any], bool] | None = None,
) -> dict[Any, Any]:
    """Leaves by key path: tuples of keys, or with ``sep`` their texts joined.

    Args:
      tree: the tree.
      sep: between the keys.
      keep_empty_nodes: whether None and empty containers are leaves.
      is_leaf: what else is a leaf.
    """
    pairs = pytree.flatten(plain(tree))[0] if is_leaf is None else pytree.flatten_to(plain(tree), is_leaf)
    found: dict[Any, Any] = {}
    for path, value in pairs:
        if not keep_empty_nodes and (value is None or _is_empty(value)):
            continue
        keys = _keys(path)
        found[keys if sep is None else sep.join(map(str, keys))] = value
    return found


def _is_empty(value: Any) -> bool:
    return isinstance(value, (dict, list, tuple)) and not value


def from_flat_dict(flat_dict: Mapping[Any, Any], target: Any = None, sep: str | None = None, **_: Any) -> Any:
    """The tree of a flat dict: in the structure of ``target``, or as nested dicts."""
    keyed = {tuple(key.split(sep)) if sep is not None else tuple(key): v for key, v in flat_dict.items()}
    if target is not None:
        pairs, structure = pytree.flatten(plain(target))
        by_text = {tuple(map(str, key)): value for key, value in keyed.items()}
        texts = [tuple(map(str, _keys(path))) for path, _ in pairs]
        if missing := [text for text in texts if text not in by_text]:
            raise BadOption(f"the flat dict lacks {', '.join('/'.join(text) for text in missing)}")
        return structure.unflatten([by_text[text] for text in texts])
    root: dict[Any, Any] = {}
    for key, value in keyed.items():
        node = root
        for part in key[:-1]:
            node = node.setdefault(part, {})
        node[key[-1]] = value
    return root


def serialize_tree(tree: Any, keep_empty_nodes: bool = False) -> Any:
    """The tree as nested dicts and lists, with plain keys."""
    from storax.tree.nesting import unflatten

    pairs = pytree.flatten(plain(tree))[0]
    kept = [(path, v) for path, v in pairs if keep_empty_nodes or not (v is None or _is_empty(v))]
    return unflatten(kept, frozenset())


def deserialize_tree(serialized: Any, target: Any, keep_empty_nodes: bool = False) -> Any:
    """What ``serialize_tree`` made, in the structure of ``target``."""
    found = to_flat_dict(serialized, keep_empty_nodes=True)
    pairs, structure = pytree.flatten(plain(target))
    by_text = {tuple(map(str, key)): value for key, value in found.items()}
    return structure.unflatten([by_text.get(tuple(map(str, _keys(path))), value) for path, value in pairs])


def get_param_names(item: Any, *, include_empty_nodes: bool = True) -> Any:
    """The tree with the name of each leaf instead of its value."""
    pairs, structure = pytree.flatten(plain(item))
    return structure.unflatten([".".join(map(str, _keys(path))) for path, _ in pairs])


def intersect_trees(*trees: Any, target: Any = None) -> Any:
    """The leaves of the last tree that all trees have, as nested dicts, or in ``target``'s structure."""
    flat = [to_flat_dict(tree, keep_empty_nodes=True) for tree in trees]
    common = {key: value for key, value in flat[-1].items() if all(key in other for other in flat)}
    return from_flat_dict(common, target)


def fully_replicated_host_local_array_to_global_array(array: jax.Array) -> jax.Array:
    """An array that every process has, as one global array, replicated over all devices."""
    mesh = jax.sharding.Mesh(jax.devices(), ("all",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())  # type: ignore[no-untyped-call]
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])
