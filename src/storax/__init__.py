"""storax: checkpoints for JAX that are whole or not there, checked to the byte, and readable by Orbax.

The names below are resolved when they are first used, so that importing storax, and the rooms
that need no JAX, stays quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from storax.compat import args as args
    from storax.compat.checkpointers import StandardCheckpointer as StandardCheckpointer
    from storax.errors import BadOption as BadOption
    from storax.errors import CheckpointChanged as CheckpointChanged
    from storax.errors import CheckpointExists as CheckpointExists
    from storax.errors import CheckpointNotFound as CheckpointNotFound
    from storax.errors import Corrupt as Corrupt
    from storax.errors import ItemNotFound as ItemNotFound
    from storax.errors import Misuse as Misuse
    from storax.errors import NameCollision as NameCollision
    from storax.errors import StoraxError as StoraxError
    from storax.errors import StoreError as StoreError
    from storax.errors import TreeMismatch as TreeMismatch
    from storax.errors import UnsupportedLeaf as UnsupportedLeaf
    from storax.errors import WorldFailed as WorldFailed
    from storax.inspection import metadata as metadata
    from storax.loading import PLACEHOLDER as PLACEHOLDER
    from storax.loading import load as load
    from storax.manager import CheckpointManager as CheckpointManager
    from storax.manager import CheckpointManagerOptions as CheckpointManagerOptions
    from storax.saving import SaveHandle as SaveHandle
    from storax.saving import save as save
    from storax.saving import save_async as save_async

__version__ = "0.1.0"

_ERRORS = (
    "BadOption CheckpointChanged CheckpointExists CheckpointNotFound Corrupt ItemNotFound Misuse"
    " NameCollision StoraxError StoreError TreeMismatch UnsupportedLeaf WorldFailed"
)
# Where each public name lives.
_HOMES = {
    **dict.fromkeys(_ERRORS.split(), "storax.errors"),
    "CheckpointManager": "storax.manager",
    "CheckpointManagerOptions": "storax.manager",
    "PLACEHOLDER": "storax.loading",
    "SaveHandle": "storax.saving",
    "StandardCheckpointer": "storax.compat.checkpointers",
    "load": "storax.loading",
    "metadata": "storax.inspection",
    "save": "storax.saving",
    "save_async": "storax.saving",
}
__all__ = sorted([*_HOMES, "args"])


def __getattr__(name: str) -> Any:
    if name == "args":
        value: Any = importlib.import_module("storax.compat.args")
    elif name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'storax' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
