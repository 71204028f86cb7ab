"""How one leaf is saved or restored, as Orbax has it: ``SaveArgs``, ``RestoreArgs`` and their kind.

Other packages make such objects with the classes of Orbax itself, so they are told by their
attributes, never by their class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, Sharding

from storax import pytree
from storax.arrays.place import sharding_of
from storax.compat.metadata import plain
from storax.errors import BadOption


@dataclass
class SaveArgs:
    """How a leaf is saved. ``dtype`` casts it; the sizes are storax's own matter."""

    aggregate: bool = False
    dtype: Any = None
    chunk_byte_size: int | None = None
    shard_axes: tuple[int, ...] = ()


@dataclass
class RestoreArgs:
    """How a leaf is restored: as ``restore_type`` (None: as it was saved), cast to ``dtype``."""

    restore_type: Any = None
    dtype: Any = None


@dataclass
class ArrayRestoreArgs(RestoreArgs):
    """How an array is restored: with a sharding, or one of ``mesh`` and ``mesh_axes``.

    ``global_shape`` is checked; with ``strict=False`` the array is padded or cut to it.
    """

    restore_type: Any = jax.Array
    mesh: Any = None
    mesh_axes: Any = None
    sharding: Any = None
    global_shape: tuple[int, ...] | None = None
    shape: tuple[int, ...] | None = None
    strict: bool = True


@dataclass
class SingleReplicaArrayRestoreArgs(ArrayRestoreArgs):
    """As ``ArrayRestoreArgs``: storax reads what each device needs, so nothing is broadcast."""

    single_replica_sharding: Any = None
    primary_replica_ids: Any = None


def is_save_args(value: Any) -> bool:
    return hasattr(value, "aggregate") and hasattr(value, "dtype")


def is_restore_args(value: Any) -> bool:
    return hasattr(value, "restore_type") and hasattr(value, "dtype")


def as_sharding(value: Any) -> Sharding | None:
    """A sharding, from one, from saved metadata of one, or from a format that has one."""
    if value is None or isinstance(value, Sharding):
        return value
    if callable(convert := getattr(value, "to_jax_sharding", None)):
        made: Sharding | None = convert()
        return made
    if isinstance(inner := getattr(value, "sharding", None), Sharding):
        return inner
    if isinstance(value, str):
        return sharding_of(value)
    raise BadOption(f"a {type(value).__name__} is not a sharding")


def sharding_wanted(args: Any) -> Sharding | None:
    """The sharding that restore arguments ask for, or None."""
    if (sharding := as_sharding(getattr(args, "sharding", None))) is not None:
        return sharding
    mesh, axes = getattr(args, "mesh", None), getattr(args, "mesh_axes", None)
    return None if mesh is None or axes is None else NamedSharding(mesh, axes)


def shape_wanted(args: Any) -> tuple[int, ...] | None:
    """The shape that restore arguments ask for, or None."""
    for name in ("global_shape", "shape"):
        if (shape := getattr(args, name, None)) is not None:
            return tuple(shape)
    return None


def construct_restore_args(
    target: Any,
    sharding_tree: Any = None,
    set_global_shape: bool = True,
    support_layout: bool = False,
    strict: bool = True,
) -> Any:
    """Restore arguments for each leaf of a target: its type, dtype, shape and sharding.

    Args:
      target: a tree of arrays, numbers, or anything with a shape and a dtype.
      sharding_tree: shardings of the same structure, instead of those of the target.
      set_global_shape: whether shapes are checked.
      support_layout: nothing here.
      strict: False lets arrays be padded or cut to the target's shapes.
    """
    pairs, structure = pytree.flatten(plain(target))
    shardings: dict[Any, Any] = {}
    if sharding_tree is not None:
        shardings = dict(pytree.flatten(plain(sharding_tree))[0])

    def args(path: Any, value: Any) -> Any:
        if isinstance(value, (np.ndarray, np.generic)):
            return RestoreArgs(restore_type=np.ndarray, dtype=value.dtype)
        if isinstance(value, (bool, int, float, str)):
            return RestoreArgs(restore_type=type(value))
        if not hasattr(value, "dtype") or not hasattr(value, "shape"):
            return RestoreArgs()
        sharding = shardings.get(path) or getattr(value, "sharding", None)
        return ArrayRestoreArgs(
            restore_type=jax.Array,
            dtype=value.dtype,
            sharding=sharding,
            global_shape=tuple(value.shape) if set_global_shape else None,
            strict=strict,
        )

    return structure.unflatten([args(path, value) for path, value in pairs])
