"""Steps in a directory: when to save, what to keep, which is the newest, and one save at a time."""

from __future__ import annotations

from storax.manager.options import ManagerOptions as ManagerOptions
from storax.manager.run import CheckpointManager as CheckpointManager
from storax.manager.watching import checkpoints_iterator as checkpoints_iterator
from storax.manager.watching import wait_for_new_checkpoint as wait_for_new_checkpoint

__all__ = ["CheckpointManager", "ManagerOptions", "checkpoints_iterator", "wait_for_new_checkpoint"]
