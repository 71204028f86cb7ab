"""``storax.args``: what to save and to restore, by the names that ``orbax.checkpoint`` has for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jax.sharding import Sharding

from storax.checkpoint import load_json
from storax.compat import extras
from storax.compat.casting import cast_leaves
from storax.compat.registry import CheckpointArgs, register_with_handler
from storax.compat.targets import Wish
from storax.compat.transforms import load_transformed
from storax.items import Composite, JsonSave, StagedJson, TreeSave
from storax.publishing import Staged
from storax.staged import Compression
from storax.stateful import StatefulRestore, StatefulSave
from storax.tree import documents

__all__ = [
    "ArrayRestore",
    "ArraySave",
    "CheckpointArgs",
    "Composite",
    "JaxRandomKeyRestore",
    "JaxRandomKeySave",
    "JsonRestore",
    "JsonSave",
    "NumpyRandomKeyRestore",
    "NumpyRandomKeySave",
    "ProtoRestore",
    "ProtoSave",
    "PyTreeRestore",
    "PyTreeSave",
    "StandardRestore",
    "StandardSave",
    "StatefulRestore",
    "StatefulSave",
    "register_with_handler",
]

JaxRandomKeyRestore = extras.JaxRandomKeyRestore
JaxRandomKeySave = extras.JaxRandomKeySave
NumpyRandomKeyRestore = extras.NumpyRandomKeyRestore
NumpyRandomKeySave = extras.NumpyRandomKeySave
ProtoRestore = extras.ProtoRestore
ProtoSave = extras.ProtoSave


@dataclass
class StandardSave(CheckpointArgs):
    """A pytree to be saved.

    Args:
      item: the tree.
      save_args: a tree of ``SaveArgs``; their ``dtype`` casts.
      custom_metadata: taken and not kept; give it to ``save``.
      compression: as for ``storax.save``.
    """

    item: Any
    save_args: Any = None
    custom_metadata: Any = None
    compression: Compression = None

    def stage(self) -> Staged:
        return TreeSave(cast_leaves(self.item, self.save_args), self.compression).stage()


@dataclass
class PyTreeSave(CheckpointArgs):
    """A pytree to be saved, as ``StandardSave``; how large files become is storax's own matter."""

    item: Any
    save_args: Any = None
    ocdbt_target_data_file_size: int | None = None
    custom_metadata: Any = None
    compression: Compression = None

    def stage(self) -> Staged:
        return TreeSave(cast_leaves(self.item, self.save_args), self.compression).stage()


@dataclass
class ArraySave(CheckpointArgs):
    """One array or number to be saved."""

    item: Any
    save_args: Any = None

    def stage(self) -> Staged:
        # In a tree of one leaf, under the name where Orbax looks for it.
        return TreeSave({extras.ARRAY: cast_leaves(self.item, self.save_args)}).stage()


@dataclass
class StandardRestore(CheckpointArgs):
    """A pytree to be restored; the target decides dtypes, shardings and kinds.

    Args:
      item: the target, as for ``storax.load``; None restores the tree as it was saved.
      strict: False pads or cuts arrays to the target's shapes, and the log names them.
      support_layout: nothing here.
      fallback_sharding: for arrays whose target has no sharding.
      partial, missing, cast: as for ``storax.load``.
    """

    item: Any = None
    strict: bool = True
    support_layout: bool = False
    fallback_sharding: Sharding | None = None
    partial: bool = False
    missing: Literal["error", "keep"] = "error"
    cast: bool = False

    def load(self, directory: Path) -> Any:
        wish = Wish(
            self.item,
            values=True,
            strict=self.strict,
            fallback=self.fallback_sharding,
            partial=self.partial,
            missing=self.missing,
            cast=self.cast,
        )
        return wish.load(directory)


@dataclass
class PyTreeRestore(CheckpointArgs):
    """A pytree to be restored into the structure of ``item``, leaf by leaf as ``restore_args`` say.

    Args:
      item: the structure; None is that of ``restore_args``, or the saved one.
      restore_args: a tree of ``RestoreArgs``; leaves without come as they were saved.
      transforms: ``{}`` restores what is asked for and keeps the item's own values of what was not
        saved, which the log names. Or a dict from names, also as regular expressions, to ``Transform``.
      transforms_default_to_original: False: leaves without a transform are taken from ``item``.
      legacy_transform_fn: not here.
      partial_restore: ignore what was saved and is not asked for.
    """

    item: Any = None
    restore_args: Any = None
    transforms: Mapping[str, Any] | None = None
    transforms_default_to_original: bool = True
    legacy_transform_fn: Any = None
    partial_restore: bool = False

    def load(self, directory: Path) -> Any:
        if self.legacy_transform_fn is not None or self.transforms:
            return load_transformed(self, directory)
        subset = self.transforms is not None
        wish = Wish(
            self.item,
            self.restore_args,
            partial=self.partial_restore or subset,
            missing="keep" if subset else "error",
        )
        return wish.load(directory)


@dataclass
class ArrayRestore(CheckpointArgs):
    """One array or number to be restored."""

    item: Any = None
    restore_args: Any = None

    def load(self, directory: Path) -> Any:
        item, args = extras.named_as_saved(directory, self.item, self.restore_args)
        found = Wish(item, args, values=args is None).load(directory)
        return found if item is self.item and args is self.restore_args else found[extras.ARRAY]


@dataclass
class JsonRestore(CheckpointArgs):
    """A JSON item to be restored. ``item`` does nothing."""

    item: Any = None

    def load(self, directory: Path) -> Any:
        return load_json(directory)


@dataclass(frozen=True, slots=True)
class NamedJsonSave:
    """A JSON item in a file of another name."""

    item: Any
    file: str

    def stage(self) -> Staged:
        return StagedJson(JsonSave(self.item).stage().text, self.file)  # type: ignore[union-attr]


@dataclass(frozen=True, slots=True)
class NamedJsonRestore:
    """A JSON item from a file of another name."""

    file: str

    def load(self, directory: Path) -> Any:
        name = self.file if (directory / self.file).is_file() else documents.JSON_ITEM_DOCUMENT
        return load_json(directory, name)
