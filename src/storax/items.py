"""The named items of a checkpoint: what goes in, what comes out, and in which form on disk.

An item to be saved is anything with ``stage``, one to be loaded anything with ``load``; these two
are the whole protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from storax.checkpoint import load_json
from storax.loading import Options, load_tree
from storax.publishing import Staged
from storax.staged import Compression, stage_tree
from storax.tree import documents
from storax.tree.plain import encode_plain

DEFAULT_ITEM = "default"


@runtime_checkable
class SaveItem(Protocol):
    """Something that can be saved as one item."""

    def stage(self) -> Staged:
        """Copies what must be copied; afterwards the caller may change its values."""
        ...


@runtime_checkable
class LoadItem(Protocol):
    """A wish for one item."""

    def load(self, directory: Path) -> Any:
        """The item's value, from its directory."""
        ...


@dataclass(frozen=True, slots=True)
class TreeSave:
    """A pytree to be saved.

    Args:
      item: the tree.
      compression: as for ``storax.save``.
    """

    item: Any
    compression: Compression = None

    def stage(self) -> Staged:
        return stage_tree(self.item, hold=False, compression=self.compression)


@dataclass(frozen=True, slots=True)
class TreeRestore:
    """A pytree to be loaded.

    Args:
      item: the target, as for ``storax.load``; None loads the tree as it was saved.
      partial, missing, cast: as for ``storax.load``.
    """

    item: Any = None
    partial: bool = False
    missing: str = "error"
    cast: bool = False

    def load(self, directory: Path) -> Any:
        options = Options(partial=self.partial, missing=self.missing, cast=self.cast)  # type: ignore[arg-type]
        return load_tree(directory, self.item, options)


@dataclass(frozen=True, slots=True)
class JsonSave:
    """A value to be saved as JSON: dicts with str keys, lists, str, finite numbers, True, False, None.

    It comes back as it is, but tuples come back as lists. Other keys, NaN and infinity are refused.

    Args:
      item: the value.
    """

    item: Any

    def stage(self) -> Staged:
        return StagedJson(encode_plain(self.item, "the JSON item"))


@dataclass(frozen=True, slots=True)
class StagedJson:
    """The text of a JSON item, and the name of its file."""

    text: bytes
    file: str = documents.JSON_ITEM_DOCUMENT
    handler: str = field(default=documents.JSON_HANDLER)

    def write(self, directory: Path) -> Mapping[str, bytes]:
        return {self.file: self.text}


@dataclass(frozen=True, slots=True)
class JsonRestore:
    """A JSON item to be loaded.

    Args:
      item: ignored; Orbax has it.
    """

    item: Any = None

    def load(self, directory: Path) -> Any:
        return load_json(directory)


class Composite(Mapping[str, Any]):
    """Items by name: to be saved, to be loaded, or as they were loaded. Values also as attributes.

    Example:
      >>> found = Composite(params={"w": 1}, config={"lr": 0.1})
      >>> found["params"], found.config, "optimizer" in found, len(found)
      ({'w': 1}, {'lr': 0.1}, False, 2)
    """

    def __init__(self, /, **items: Any) -> None:
        self.__dict__["_items"] = items

    def __getitem__(self, name: str) -> Any:
        if name not in self._items:
            raise KeyError(f"no item {name!r}; there are {', '.join(self._items) or 'none'}")
        return self._items[name]

    def __getattr__(self, name: str) -> Any:
        items = self.__dict__.get("_items", {})
        if name not in items:
            raise AttributeError(f"no item {name!r}; there are {', '.join(items) or 'none'}")
        return items[name]

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a Composite does not change; make another one with {name}=...")

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"Composite({', '.join(f'{k}={v!r}' for k, v in self._items.items())})"


def load_any(directory: Path) -> Any:
    """An item's value when nobody says what it is: by what its files are."""
    is_tree = (directory / documents.TREE_DOCUMENT).is_file()
    return load_tree(directory) if is_tree else load_json(directory)
