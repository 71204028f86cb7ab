"""Casts that save arguments ask for."""

from __future__ import annotations

from typing import Any

import numpy as np

from storax import pytree
from storax.compat.leaf_args import is_save_args
from storax.compat.metadata import plain


def cast_leaves(item: Any, save_args: Any) -> Any:
    """The tree, with each leaf in the dtype that its save arguments name, if they name one."""
    if save_args is None:
        return item
    pairs, structure = pytree.flatten(item)
    dtypes = {
        path: args.dtype
        for path, args in pytree.flatten(plain(save_args))[0]
        if is_save_args(args) and args.dtype is not None
    }
    return structure.unflatten([_cast(value, dtypes[p]) if p in dtypes else value for p, value in pairs])


def _cast(value: Any, dtype: Any) -> Any:
    if hasattr(value, "astype"):
        return value.astype(dtype)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return np.asarray(value, dtype)[()].item()
    return value
