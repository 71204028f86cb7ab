"""From Orbax's wish, an item and arguments for its leaves, to a target of storax."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding, SingleDeviceSharding

from storax import pytree
from storax.arrays.place import sharding_of
from storax.compat.leaf_args import as_sharding, is_restore_args, shape_wanted, sharding_wanted
from storax.compat.metadata import ArrayMetadata, Metadata, dtype_of, plain
from storax.inspection import LeafMetadata, tree_metadata
from storax.loading import PLACEHOLDER, Options, load_tree
from storax.tree.leaves import EMPTY
from storax.tree.names import leaf_name

_log = logging.getLogger("storax")
_ZEROS: dict[str, Any] = {"int": 0, "float": 0.0, "complex": 0j, "bool": False, "str": "", "None": None}
_EMPTY: dict[str, Any] = {"dict": {}, "list": [], "tuple": ()}


@dataclass(frozen=True, slots=True)
class Wish:
    """What a caller of Orbax asks of a tree.

    Attributes:
      item: the structure, or None for that of ``args``, or for the saved one.
      args: restore arguments for leaves, or None.
      values: whether ``item`` decides dtypes and kinds as well, as with ``StandardRestore``.
      strict: whether shapes must fit.
      fallback: the sharding of arrays that nothing else gives one.
      partial, missing, cast: as for ``storax.load``.
    """

    item: Any = None
    args: Any = None
    values: bool = False
    strict: bool = True
    fallback: Sharding | None = None
    partial: bool = False
    missing: Literal["error", "keep"] = "error"
    cast: bool = False

    def load(self, directory: Path) -> Any:
        """The tree in a directory."""
        options = Options(partial=self.partial, missing=self.missing, cast=self.cast)
        item, args = plain(self.item), plain(self.args)
        if item is None and args is None and self.fallback is None:
            return load_tree(directory, None, options)
        saved = _saved(directory)
        structure = item if item is not None else args
        if structure is None:
            structure = tree_metadata(directory)[0]
        pairs, shape = pytree.flatten(structure)
        by_name = {} if args is None else {leaf_name(path): arg for path, arg in pytree.flatten(args)[0]}
        ends = {leaf_name(path): self._end(leaf_name(path), value, saved, by_name) for path, value in pairs}
        filled = [name for name in ends if name not in saved and ends[name].target is not PLACEHOLDER]
        if self.missing == "keep" and filled:
            _log.warning("%s has no %s: the target's own values stay", directory, ", ".join(filled))
        values = load_tree(directory, shape.unflatten([end.target for end in ends.values()]), options)
        found, shape = pytree.flatten(values) if ends else ([], shape)
        loaded = {leaf_name(path): value for path, value in found}
        return shape.unflatten([end.finish(loaded[name], name) for name, end in ends.items()])

    def _end(self, name: str, value: Any, saved: Mapping[str, LeafMetadata], args: Mapping[str, Any]) -> _End:
        arg = args.get(name, value if is_restore_args(value) else None)
        if value is PLACEHOLDER or arg is PLACEHOLDER:
            return _End(PLACEHOLDER)
        if name not in saved:
            return _End(None if is_restore_args(value) else value)
        if arg is not None and is_restore_args(arg):
            return _wanted(saved[name], arg)
        if self.values and self.item is not None:
            return _like(saved[name], value, strict=self.strict, fallback=self.fallback)
        return _as_saved(saved[name], fallback=self.fallback)


@dataclass(frozen=True, slots=True)
class _End:
    """A leaf of a target, and what is done to the value that comes."""

    target: Any
    shape: tuple[int, ...] | None = None
    sharding: Sharding | None = None
    placed: bool = False

    def finish(self, value: Any, name: str) -> Any:
        if self.shape is not None and self.shape != np.shape(value):
            _log.warning("%r is padded or cut from %s to %s", name, np.shape(value), self.shape)
            value = fitted(np.asarray(value), self.shape)
        if self.placed and not isinstance(value, jax.Array):
            return jnp.asarray(value) if self.sharding is None else jax.device_put(value, self.sharding)
        return value


def fitted(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """An array cut to a shape, and padded with zeros where it is too small."""
    found = np.zeros(shape, value.dtype)
    common = tuple(slice(min(a, b)) for a, b in zip(value.shape, shape, strict=True))
    found[common] = value[common]
    return found


def _saved(directory: Path) -> dict[str, LeafMetadata]:
    pairs, _ = pytree.flatten(tree_metadata(directory)[0])
    return {leaf_name(path): leaf for path, leaf in pairs}


def _as_saved(leaf: LeafMetadata, dtype: Any = None, fallback: Sharding | None = None) -> _End:
    if leaf.kind in EMPTY:
        return _End(_EMPTY[leaf.kind])
    if leaf.kind in _ZEROS:
        return _End(_ZEROS[leaf.kind])
    if leaf.kind == "bytes":
        return _End(bytes(leaf.nbytes))
    if leaf.kind == "np.generic":
        return _End(np.dtype(dtype or dtype_of(leaf.dtype or "")).type(0))
    sharding = fallback if leaf.kind == "jax.Array" and not _has_sharding(leaf) else None
    return _End(_array(leaf.shape or (), dtype or dtype_of(leaf.dtype or ""), sharding))


def _has_sharding(leaf: LeafMetadata) -> bool:
    """Whether a sharding was saved that the devices here can hold."""
    return leaf.sharding is not None and sharding_of(json.dumps(dict(leaf.sharding))) is not None


def _array(shape: tuple[int, ...], dtype: Any, sharding: Sharding | None) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)  # type: ignore[no-untyped-call]


def _numpy(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """A numpy array of a shape, without its memory."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def _wanted(leaf: LeafMetadata, arg: Any) -> _End:
    """A leaf as restore arguments ask for it."""
    kind = arg.restore_type
    if kind is None or leaf.shape is None or leaf.dtype is None:
        return _as_saved(leaf, arg.dtype)
    if kind in (int, float, bool, complex, str):
        return _End(kind())
    dtype = dtype_of(leaf.dtype) if arg.dtype is None else arg.dtype
    asked = shape_wanted(arg)
    fit = None
    shape = leaf.shape
    if asked is not None and asked != shape:
        if getattr(arg, "strict", True):
            shape = asked  # the mismatch is reported together with all others
        else:
            fit = asked
    if kind is np.ndarray:
        return _End(_numpy(shape, dtype), fit)
    sharding = sharding_wanted(arg)
    if fit is not None:
        return _End(_numpy(shape, dtype), fit, sharding, placed=True)
    if leaf.kind != "jax.Array" and sharding is None:
        sharding = SingleDeviceSharding(jax.local_devices()[0])
    return _End(_array(shape, dtype, sharding))


def _like(leaf: LeafMetadata, value: Any, *, strict: bool, fallback: Sharding | None) -> _End:
    """A leaf as a target's value asks for it."""
    if isinstance(value, Metadata):
        if not isinstance(value, ArrayMetadata):
            return _as_saved(leaf)
        # Orbax has the sharding of numpy arrays as None, and so have we.
        sharding = as_sharding(value.sharding) or (None if _has_sharding(leaf) else fallback)
        if value.is_numpy:
            return _End(_numpy(value.shape, value.dtype))
        return (
            _as_saved(leaf)
            if type(value) is not ArrayMetadata
            else _End(_array(value.shape, value.dtype, sharding))
        )
    asked = getattr(value, "shape", None)
    if strict or asked is None or leaf.shape is None or tuple(asked) == leaf.shape:
        abstract = isinstance(value, jax.ShapeDtypeStruct) and value.sharding is None
        if fallback is not None and abstract and leaf.kind == "jax.Array" and not _has_sharding(leaf):
            return _End(_array(value.shape, value.dtype, fallback))
        if not isinstance(value, (jax.Array, np.ndarray, np.generic)) and hasattr(value, "sharding"):
            sharding = as_sharding(value.sharding)
            return _End(_array(tuple(value.shape), value.dtype, sharding))
        return _End(value)
    is_numpy = isinstance(value, np.ndarray)
    sharding = as_sharding(getattr(value, "sharding", None))
    return _End(_numpy(leaf.shape, value.dtype), tuple(asked), sharding, placed=not is_numpy)
