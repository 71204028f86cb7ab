"""``storax.type_handlers``: arguments of leaves.

Handlers of leaf types are taken and do nothing: storax knows the types of leaves itself.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from storax.compat.leaf_args import ArrayRestoreArgs as ArrayRestoreArgs
from storax.compat.leaf_args import RestoreArgs as RestoreArgs
from storax.compat.leaf_args import SaveArgs as SaveArgs
from storax.compat.leaf_args import SingleReplicaArrayRestoreArgs as SingleReplicaArrayRestoreArgs
from storax.errors import BadOption

_BUILT_IN = ("jax", "jaxlib", "numpy", "builtins")


class TypeHandler:
    """What Orbax asks how to save a type of leaf. Derived classes are taken by ``register_type_handler``."""

    def __init__(self, *_: Any, **options: Any) -> None:
        self.options = options


class ArrayHandler(TypeHandler):
    """The handler of ``jax.Array``: that is storax's own matter."""


class SingleReplicaArrayHandler(ArrayHandler):
    """As ``ArrayHandler``: storax reads what each device needs."""


class NumpyHandler(TypeHandler):
    """The handler of numpy arrays: that is storax's own matter."""


def register_type_handler(ty: Any, handler: Any, func: Any = None, override: bool = False) -> None:
    """Takes a handler for a type that storax saves anyway, and does nothing.

    Raises:
      BadOption: for types that storax does not save as leaves.
    """
    module = getattr(ty, "__module__", "")
    if module.partition(".")[0] not in _BUILT_IN:
        raise BadOption(
            f"{module}.{getattr(ty, '__qualname__', ty)} cannot be a leaf: storax has no handlers of "
            "leaf types. Save such objects as items of their own, with save(directory) and load(directory)."
        )


def is_ocdbt_checkpoint(path: str | os.PathLike[str]) -> bool:
    """Whether the arrays of a tree are in a database."""
    return (Path(path) / "manifest.ocdbt").is_file()
