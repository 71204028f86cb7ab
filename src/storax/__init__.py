"""storax: checkpoints for JAX that are whole or not there, checked to the byte, and readable by Orbax.

The names below are resolved when they are first used, so that importing storax, and the rooms
that need no JAX, stays quick.
"""

from __future__ import annotations

import atexit
import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from storax.background import SaveHandle as SaveHandle
    from storax.compat.doors import *  # noqa: F403
    from storax.compat.metadata import metadata as metadata
    from storax.conversion import convert as convert
    from storax.errors import BadOption as BadOption
    from storax.errors import CheckpointChanged as CheckpointChanged
    from storax.errors import CheckpointExists as CheckpointExists
    from storax.errors import CheckpointInUse as CheckpointInUse
    from storax.errors import CheckpointNotFound as CheckpointNotFound
    from storax.errors import Corrupt as Corrupt
    from storax.errors import DirectoryNotShared as DirectoryNotShared
    from storax.errors import ItemNotFound as ItemNotFound
    from storax.errors import Misuse as Misuse
    from storax.errors import NameCollision as NameCollision
    from storax.errors import ProcessesDisagree as ProcessesDisagree
    from storax.errors import ProcessFailed as ProcessFailed
    from storax.errors import StoraxError as StoraxError
    from storax.errors import StoreError as StoreError
    from storax.errors import TransformMismatch as TransformMismatch
    from storax.errors import TreeMismatch as TreeMismatch
    from storax.errors import UnsupportedLeaf as UnsupportedLeaf
    from storax.errors import WorldFailed as WorldFailed
    from storax.explaining import explain as explain
    from storax.loading import PLACEHOLDER as PLACEHOLDER
    from storax.loading import Salvaged as Salvaged
    from storax.loading import load as load
    from storax.opening import open as open
    from storax.rewriting import rewrite as rewrite
    from storax.rewriting import transform as transform
    from storax.safetensors.saving import save_safetensors as save_safetensors
    from storax.saving import save as save
    from storax.saving import save_async as save_async
    from storax.verification import Fault as Fault
    from storax.verification import Verification as Verification
    from storax.verification import verify as verify

__version__ = "0.1.0"

_ERRORS = (
    "BadOption CheckpointChanged CheckpointExists CheckpointInUse CheckpointNotFound Corrupt"
    " DirectoryNotShared ItemNotFound Misuse NameCollision ProcessFailed ProcessesDisagree StoraxError"
    " StoreError TransformMismatch TreeMismatch"
    " UnsupportedLeaf WorldFailed"
)
# Where each public name lives.
_HOMES = {
    **dict.fromkeys(_ERRORS.split(), "storax.errors"),
    "PLACEHOLDER": "storax.loading",
    "SaveHandle": "storax.background",
    "convert": "storax.conversion",
    "explain": "storax.explaining",
    "Salvaged": "storax.loading",
    "load": "storax.loading",
    "metadata": "storax.compat.metadata",
    "open": "storax.opening",
    "rewrite": "storax.rewriting",
    "save": "storax.saving",
    "save_async": "storax.saving",
    "save_safetensors": "storax.safetensors.saving",
    "Fault": "storax.verification",
    "Verification": "storax.verification",
    "transform": "storax.rewriting",
    "verify": "storax.verification",
}
# Names that code for Orbax looks for; they are in storax.compat.doors.
_DOORS = (
    "AbstractCheckpointer ArrayCheckpointHandler ArrayRestoreArgs AsyncCheckpointHandler"
    " AsyncCheckpointer AsyncOptions BasePyTreeCheckpointHandler CheckpointHandler"
    " CheckpointHandlerRegistry CheckpointManager CheckpointManagerOptions Checkpointer"
    " CompositeCheckpointHandler DefaultCheckpointHandlerRegistry JaxRandomKeyCheckpointHandler"
    " JsonCheckpointHandler NumpyRandomKeyCheckpointHandler ProtoCheckpointHandler"
    " PyTreeCheckpointHandler PyTreeCheckpointer RestoreArgs SaveArgs SingleReplicaArrayRestoreArgs"
    " StandardCheckpointHandler StandardCheckpointer StatefulCheckpointable StatefulRestore"
    " StatefulSave Transform args checkpoint_args checkpoint_manager checkpoint_managers"
    " checkpoint_utils future handlers multihost options path step test_utils transform_utils"
    " type_handlers utils v1"
).split()
__all__ = sorted([*_HOMES, *_DOORS])


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name) or ("storax.compat.doors" if name in _DOORS else None)
    if home is not None:
        value: Any = getattr(importlib.import_module(home), name)
    elif name == "tree":
        value = importlib.import_module("storax.tree")
    else:
        raise AttributeError(f"module 'storax' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _at_exit() -> None:
    if (background := sys.modules.get("storax.background")) is not None:
        background.report_at_exit()


# Registered now and not with the first save: exit handlers run in the reverse order, so all that are
# registered after this import run before it, also if it has to end the process with an exit code.
atexit.register(_at_exit)
