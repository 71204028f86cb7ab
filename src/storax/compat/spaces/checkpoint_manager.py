"""``storax.checkpoint_manager``."""

from __future__ import annotations

from storax.compat.manager import CheckpointInfo as CheckpointInfo
from storax.compat.manager import CheckpointManager as CheckpointManager
from storax.compat.options import AsyncOptions as AsyncOptions
from storax.compat.options import CheckpointManagerOptions as CheckpointManagerOptions
from storax.compat.options import FileOptions as FileOptions
from storax.compat.options import MultiprocessingOptions as MultiprocessingOptions
from storax.items import DEFAULT_ITEM
from storax.tree import documents

DEFAULT_ITEM_NAME = DEFAULT_ITEM
METRIC_ITEM_NAME = documents.METRICS_ITEM
METADATA_ITEM_NAME = "metadata"
