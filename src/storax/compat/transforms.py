"""``Transform``: leaves that come from other names, from the target itself, or through a function."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storax import pytree
from storax.compat.metadata import plain
from storax.compat.targets import Wish
from storax.errors import BadOption, TreeMismatch


@dataclass(frozen=True)
class Transform:
    """Where a leaf of the target comes from.

    Args:
      original_key: the saved name, with ``/`` between its parts; may have groups of the pattern (``\\1``).
      use_fallback: take the target's own value.
      value_fn: applied to the value.
      multi_value_fn: ``(name, saved tree) -> value``.
    """

    original_key: str | tuple[str, ...] | None = None
    use_fallback: bool = False
    value_fn: Callable[[Any], Any] | None = None
    multi_value_fn: Callable[[str, Any], Any] | None = None


def load_transformed(wish: Any, directory: Path) -> Any:
    """A tree restored through transforms. ``wish`` is a ``PyTreeRestore``."""
    if wish.legacy_transform_fn is not None:
        raise BadOption(
            "legacy_transform_fn is not supported: load without a target and change the tree, "
            "or use storax.load(..., transforms=[...])."
        )
    if wish.item is None:
        raise BadOption("transforms need the item: the tree that is to come out of them")
    saved = Wish().load(directory)
    values = {_slashed(path): value for path, value in pytree.flatten(saved)[0]}
    by_name = _args_by_name(wish.restore_args)
    pairs, structure = pytree.flatten(plain(wish.item))
    found, missing = [], []
    for path, value in pairs:
        name = _slashed(path)
        transform, original = _chosen(wish.transforms, name)
        if transform is None and not wish.transforms_default_to_original:
            transform = Transform(use_fallback=True)
        if transform is not None and transform.use_fallback:
            found.append(value)
        elif transform is not None and transform.multi_value_fn is not None:
            found.append(transform.multi_value_fn(name, saved))
        elif original not in values:
            missing.append(f"{name} (from {original})" if original != name else name)
        else:
            taken = _placed(values[original], by_name.get(name))
            changed = transform is not None and transform.value_fn is not None
            found.append(transform.value_fn(taken) if changed else taken)
    if missing:
        raise TreeMismatch(
            f"{directory} lacks what the transforms ask for: {', '.join(missing)}.",
            only_wanted=tuple(missing),
        )
    return structure.unflatten(found)


def _slashed(path: Any) -> str:
    return "/".join(str(key) for key in path)


def _chosen(transforms: Mapping[str, Any], name: str) -> tuple[Any, str]:
    """The transform of a leaf, if there is one, and the saved name of the leaf."""
    for pattern, transform in _flat(transforms).items():
        if matched := re.fullmatch(pattern, name):
            original = transform.original_key
            if original is None:
                return transform, name
            text = "/".join(original) if isinstance(original, tuple) else original
            return transform, matched.expand(text)
    return None, name


def _flat(transforms: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in transforms.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}/")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _args_by_name(restore_args: Any) -> dict[str, Any]:
    if restore_args is None:
        return {}
    return {_slashed(path): args for path, args in pytree.flatten(plain(restore_args))[0]}


def _placed(value: Any, args: Any) -> Any:
    """A value as restore arguments ask for it."""
    if args is None or getattr(args, "restore_type", None) is None or not hasattr(value, "dtype"):
        return value
    import jax
    import numpy as np

    from storax.compat.leaf_args import sharding_wanted

    array = value if args.dtype is None else value.astype(args.dtype)
    if args.restore_type is np.ndarray:
        return np.asarray(array)
    sharding = sharding_wanted(args)
    return array if sharding is None else jax.device_put(array, sharding)
