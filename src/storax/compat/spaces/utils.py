"""``storax.utils``: what code for Orbax finds there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax
import numpy as np

from storax.compat.metadata import ShardingMetadata
from storax.compat.spaces.tree import deserialize_tree as deserialize_tree
from storax.compat.spaces.tree import from_flat_dict as from_flat_dict
from storax.compat.spaces.tree import (
    fully_replicated_host_local_array_to_global_array as fully_replicated_host_local_array_to_global_array,
)
from storax.compat.spaces.tree import serialize_tree as serialize_tree
from storax.compat.spaces.tree import to_flat_dict as to_flat_dict
from storax.compat.step import checkpoint_steps as checkpoint_steps
from storax.compat.step import checkpoint_steps_paths as checkpoint_steps_paths
from storax.compat.step import is_path_finalized
from storax.compat.step import is_path_temporary as is_tmp_checkpoint
from storax.store.commit import DRAFT_SUFFIX
from storax.store.paths import resolve

TMP_DIR_SUFFIX = DRAFT_SUFFIX
is_checkpoint_finalized = is_path_finalized


def any_checkpoint_step(checkpoint_dir: str | os.PathLike[str]) -> int | None:
    """Some committed step, or None."""
    return next(iter(checkpoint_steps(checkpoint_dir)), None)


def tmp_checkpoints(checkpoint_dir: str | os.PathLike[str]) -> list[str]:
    """The names of the drafts in a directory."""
    directory = resolve(checkpoint_dir)
    return sorted(p.name for p in directory.iterdir() if is_tmp_checkpoint(p)) if directory.is_dir() else []


def get_save_directory(
    step: int, directory: str | os.PathLike[str], name: str | None = None, step_prefix: str | None = None
) -> Path:
    """Where a step, or an item of it, is."""
    path = Path(directory) / (f"{step_prefix}_{step}" if step_prefix else str(step))
    return path / name if name else path


def to_shape_dtype_struct(arr: Any, dtype: Any = None, scalar_dtype: Any = None, **_: Any) -> Any:
    """The abstract form of an array or of its metadata; numbers stay, cast to ``scalar_dtype``.

    Args:
      arr: anything with a shape and a dtype, or a number.
      dtype: instead of its own.
      scalar_dtype: ``int`` or ``float``, for numbers.
    """
    if isinstance(arr, (bool, int, float)):
        return arr if scalar_dtype is None else scalar_dtype(arr)
    sharding = getattr(arr, "sharding", None)
    if isinstance(sharding, ShardingMetadata) or hasattr(sharding, "to_jax_sharding"):
        sharding = sharding.to_jax_sharding()  # type: ignore[union-attr]
    kind = arr.dtype if dtype is None else np.dtype(dtype)
    return jax.ShapeDtypeStruct(tuple(arr.shape), kind, sharding=sharding)  # type: ignore[no-untyped-call]


def is_scalar(x: Any) -> bool:
    """Whether a value is a number."""
    return isinstance(x, (int, float, np.number))


def leaf_is_placeholder(leaf: Any) -> bool:
    """Whether a leaf stands for one that is not read."""
    return leaf is ...
