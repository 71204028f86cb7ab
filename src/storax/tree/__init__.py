"""What a checkpoint holds: names, leaves, documents, and how a saved tree fits a target. Pure values."""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    # Code for Orbax looks for functions on pytrees in a module of this name. They need JAX.
    if name in ("to_flat_dict", "from_flat_dict", "serialize_tree", "deserialize_tree", "get_param_names"):
        return getattr(importlib.import_module("storax.compat.spaces.tree"), name)
    raise AttributeError(f"module 'storax.tree' has no attribute {name!r}")
