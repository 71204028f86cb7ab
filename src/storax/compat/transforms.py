"""``Transform``: leaves that come from other names, from the target itself, or through a function."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from storax import pytree
from storax.compat.leaf_args import sharding_wanted
from storax.compat.metadata import plain
from storax.compat.targets import Wish
from storax.errors import BadOption, TreeMismatch
from storax.inspection import tree_metadata
from storax.loading import PLACEHOLDER


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
    by_name = _args_by_name(wish.restore_args)
    pairs, structure = pytree.flatten(plain(wish.item))
    sources = [_Source.of(wish, _slashed(path), value) for path, value in pairs]
    saved, values = _read(directory, sources)
    found, missing = [], []
    for source in sources:
        if source.is_fallback:
            found.append(source.fallback)
        elif source.transform is not None and source.transform.multi_value_fn is not None:
            found.append(source.transform.multi_value_fn(source.name, saved))
        elif source.original not in values:
            renamed = f" (from {source.original})" if source.original != source.name else ""
            missing.append(source.name + renamed)
        else:
            found.append(source.changed(_placed(values[source.original], by_name.get(source.name))))
    if missing:
        raise TreeMismatch(
            f"{directory} lacks what the transforms ask for: {', '.join(missing)}.",
            only_wanted=tuple(missing),
        )
    return structure.unflatten(found)


@dataclass(frozen=True)
class _Source:
    """Where one leaf comes from."""

    name: str
    original: str
    transform: Any
    fallback: Any
    is_fallback: bool

    @classmethod
    def of(cls, wish: Any, name: str, value: Any) -> _Source:
        transform, original = _chosen(wish.transforms, name)
        kept = transform is None and not wish.transforms_default_to_original
        return cls(name, original, transform, value, kept or getattr(transform, "use_fallback", False))

    def changed(self, value: Any) -> Any:
        function = getattr(self.transform, "value_fn", None)
        return value if function is None else function(value)


def _read(directory: Path, sources: list[_Source]) -> tuple[Any, dict[str, Any]]:
    """The saved tree, and its leaves by name; only those that are asked for are read."""
    described = tree_metadata(directory)[0]
    pairs, structure = pytree.flatten(described)
    asked = {source.original for source in sources if not source.is_fallback}
    if any(getattr(source.transform, "multi_value_fn", None) is not None for source in sources):
        asked = {_slashed(path) for path, _ in pairs}
    wanted = [value if _slashed(path) in asked else PLACEHOLDER for path, value in pairs]
    saved = Wish(structure.unflatten(wanted)).load(directory)
    values = {_slashed(path): value for path, value in pytree.flatten(saved)[0]}
    return saved, {name: value for name, value in values.items() if name in asked}


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
    array = value if args.dtype is None else value.astype(args.dtype)
    if args.restore_type is np.ndarray:
        return np.asarray(array)
    sharding = sharding_wanted(args)
    return array if sharding is None else jax.device_put(array, sharding)
