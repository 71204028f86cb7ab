"""``storax.args``: what to save and to restore, by the names that ``orbax.checkpoint`` has for it."""

from __future__ import annotations

from storax.items import Composite, JsonRestore, JsonSave
from storax.items import TreeRestore as StandardRestore
from storax.items import TreeSave as StandardSave

__all__ = ["Composite", "JsonRestore", "JsonSave", "StandardRestore", "StandardSave"]
