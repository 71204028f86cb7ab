"""All names that code for Orbax finds at the top: ``storax.X`` looks here for what is not storax's own."""

from __future__ import annotations

from storax.compat import args as args
from storax.compat import handlers as handlers
from storax.compat import options as options
from storax.compat import step as step
from storax.compat import v1 as v1
from storax.compat.checkpointers import AbstractCheckpointer as AbstractCheckpointer
from storax.compat.checkpointers import AsyncCheckpointer as AsyncCheckpointer
from storax.compat.checkpointers import Checkpointer as Checkpointer
from storax.compat.checkpointers import PyTreeCheckpointer as PyTreeCheckpointer
from storax.compat.checkpointers import StandardCheckpointer as StandardCheckpointer
from storax.compat.handlers import ArrayCheckpointHandler as ArrayCheckpointHandler
from storax.compat.handlers import AsyncCheckpointHandler as AsyncCheckpointHandler
from storax.compat.handlers import BasePyTreeCheckpointHandler as BasePyTreeCheckpointHandler
from storax.compat.handlers import CheckpointHandler as CheckpointHandler
from storax.compat.handlers import CompositeCheckpointHandler as CompositeCheckpointHandler
from storax.compat.handlers import JaxRandomKeyCheckpointHandler as JaxRandomKeyCheckpointHandler
from storax.compat.handlers import JsonCheckpointHandler as JsonCheckpointHandler
from storax.compat.handlers import NumpyRandomKeyCheckpointHandler as NumpyRandomKeyCheckpointHandler
from storax.compat.handlers import ProtoCheckpointHandler as ProtoCheckpointHandler
from storax.compat.handlers import PyTreeCheckpointHandler as PyTreeCheckpointHandler
from storax.compat.handlers import StandardCheckpointHandler as StandardCheckpointHandler
from storax.compat.leaf_args import ArrayRestoreArgs as ArrayRestoreArgs
from storax.compat.leaf_args import RestoreArgs as RestoreArgs
from storax.compat.leaf_args import SaveArgs as SaveArgs
from storax.compat.leaf_args import SingleReplicaArrayRestoreArgs as SingleReplicaArrayRestoreArgs
from storax.compat.manager import CheckpointManager as CheckpointManager
from storax.compat.options import AsyncOptions as AsyncOptions
from storax.compat.options import CheckpointManagerOptions as CheckpointManagerOptions
from storax.compat.registry import CheckpointHandlerRegistry as CheckpointHandlerRegistry
from storax.compat.registry import DefaultCheckpointHandlerRegistry as DefaultCheckpointHandlerRegistry
from storax.compat.spaces import checkpoint_manager as checkpoint_manager
from storax.compat.spaces import checkpoint_managers as checkpoint_managers
from storax.compat.spaces import checkpoint_utils as checkpoint_utils
from storax.compat.spaces import future as future
from storax.compat.spaces import multihost as multihost
from storax.compat.spaces import path as path
from storax.compat.spaces import test_utils as test_utils
from storax.compat.spaces import transform_utils as transform_utils
from storax.compat.spaces import tree as tree
from storax.compat.spaces import type_handlers as type_handlers
from storax.compat.spaces import utils as utils
from storax.compat.transforms import Transform as Transform
from storax.stateful import Stateful as StatefulCheckpointable
from storax.stateful import StatefulRestore as StatefulRestore
from storax.stateful import StatefulSave as StatefulSave

checkpoint_args = args

__all__ = [
    "AbstractCheckpointer",
    "ArrayCheckpointHandler",
    "ArrayRestoreArgs",
    "AsyncCheckpointHandler",
    "AsyncCheckpointer",
    "AsyncOptions",
    "BasePyTreeCheckpointHandler",
    "CheckpointHandler",
    "CheckpointHandlerRegistry",
    "CheckpointManager",
    "CheckpointManagerOptions",
    "Checkpointer",
    "CompositeCheckpointHandler",
    "DefaultCheckpointHandlerRegistry",
    "JaxRandomKeyCheckpointHandler",
    "JsonCheckpointHandler",
    "NumpyRandomKeyCheckpointHandler",
    "ProtoCheckpointHandler",
    "PyTreeCheckpointHandler",
    "PyTreeCheckpointer",
    "RestoreArgs",
    "SaveArgs",
    "SingleReplicaArrayRestoreArgs",
    "StandardCheckpointHandler",
    "StandardCheckpointer",
    "StatefulCheckpointable",
    "StatefulRestore",
    "StatefulSave",
    "Transform",
    "args",
    "checkpoint_args",
    "checkpoint_manager",
    "checkpoint_managers",
    "checkpoint_utils",
    "future",
    "handlers",
    "multihost",
    "options",
    "path",
    "step",
    "test_utils",
    "transform_utils",
    "tree",
    "type_handlers",
    "utils",
    "v1",
]
