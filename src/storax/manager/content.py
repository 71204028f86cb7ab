"""What goes into a step and what comes out of it: from the caller's arguments to items, and back."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from storax.checkpoint import OpenCheckpoint, open_checkpoint
from storax.errors import BadOption
from storax.items import DEFAULT_ITEM, Composite, LoadItem, SaveItem, StagedJson, load_any
from storax.tree import documents

_log = logging.getLogger("storax")


def whole(step: Any) -> int:
    """A step as an int, from what training loops have."""
    array = np.asarray(step)
    if array.shape != () or array.dtype.kind not in "iu":
        raise BadOption(f"the step is {step!r}; it must be a whole number")
    return int(array)


def stage_items(args: Any, metrics: Mapping[str, Any] | None) -> dict[str | None, Any]:
    """Copies what must be copied of everything that goes into a step."""
    items = dict(args.items()) if isinstance(args, Composite) else {DEFAULT_ITEM: args}
    wrong = [
        f"{name} is a {type(item).__name__}" for name, item in items.items() if not isinstance(item, SaveItem)
    ]
    if wrong or not items:
        raise BadOption(
            f"nothing that can be saved: {'; '.join(wrong) or 'no items'}. Pass args=StandardSave(tree), or "
            "args=Composite(name=StandardSave(tree), config=JsonSave({...}))."
        )
    bad = [name for name in items if not _is_item_name(name)]
    if bad:
        raise BadOption(f"items cannot be called {', '.join(map(repr, bad))}")
    staged: dict[str | None, Any] = {name: item.stage() for name, item in items.items()}
    if metrics is not None:
        text = documents.encode_json({name: _number(value, name) for name, value in metrics.items()})
        staged[documents.METRICS_ITEM] = StagedJson(text, documents.METRICS_DOCUMENT)
    return staged


def _number(value: Any, name: str) -> float | int:
    array = np.asarray(value)
    if array.shape != () or array.dtype.kind not in "biufV":
        raise BadOption(f"the metric {name!r} is {value!r}; metrics are numbers")
    return float(array.astype(np.float64)) if array.dtype.kind in "fV" else int(array)


def _is_item_name(name: str) -> bool:
    return bool(name) and "/" not in name and name[0] != "." and name != documents.METRICS_ITEM


def only_item(checkpoint: OpenCheckpoint) -> Path | None:
    """The directory of the item, if the step has only one and it has no name of its own."""
    if not checkpoint.bare and list(checkpoint.items) == [DEFAULT_ITEM]:
        return checkpoint.items[DEFAULT_ITEM]
    return checkpoint.only_tree


def restore_items(path: Path, args: Any) -> Any:
    """The values of a step's items."""
    checkpoint = open_checkpoint(path)
    if args is None:
        if (tree := only_item(checkpoint)) is not None:
            return load_any(tree)
        return Composite(**{name: load_any(directory) for name, directory in checkpoint.every_item().items()})
    if isinstance(args, Composite):
        wishes = {name: (checkpoint.item(name), _wish(wish, name)) for name, wish in args.items()}
        return Composite(**{name: wish.load(directory) for name, (directory, wish) in wishes.items()})
    tree = checkpoint.directory if checkpoint.bare else checkpoint.item(DEFAULT_ITEM)
    return _wish(args, DEFAULT_ITEM).load(tree)


def _wish(wish: Any, name: str) -> LoadItem:
    if not isinstance(wish, LoadItem):
        raise BadOption(
            f"the item {name!r} is asked for with a {type(wish).__name__}; "
            "pass StandardRestore(target) or JsonRestore()"
        )
    return wish
