"""What goes into a step and what comes out of it: from the caller's arguments to items, and back."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from storax.checkpoint import OpenCheckpoint, open_checkpoint
from storax.errors import BadOption
from storax.items import DEFAULT_ITEM, Composite, LoadItem, SaveItem, StagedJson, load_any
from storax.store import commit, layout
from storax.store.paths import MOST_IN_A_NAME
from storax.tree import documents

_log = logging.getLogger("storax")


def whole(step: Any) -> int:
    """A step as an int, from what training loops have."""
    if isinstance(step, int) and not isinstance(step, bool) and abs(step) >= 1 << 63:
        raise BadOption("the step is beyond 64 bits; steps are whole numbers below 2**63")
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
    bad = [f"{name!r} ({why})" for name in items if (why := _wrong_name(name))]
    if bad:
        raise BadOption(f"items cannot be called {', '.join(bad)}. Rename them in args.Composite.")
    staged: dict[str | None, Any] = {name: item.stage() for name, item in items.items()}
    if metrics is not None:
        if not isinstance(metrics, Mapping):
            raise BadOption(
                f"metrics is a {type(metrics).__name__}; give a dict of numbers: metrics={{'loss': 0.5}}"
            )
        text = documents.encode_json({name: _number(value, name) for name, value in metrics.items()})
        staged[documents.METRICS_ITEM] = StagedJson(text, documents.METRICS_DOCUMENT)
    return staged


def _number(value: Any, name: str) -> float | int:
    if type(value) is int:
        return value  # of any size
    array = np.asarray(value)
    if array.shape != () or array.dtype.kind not in "biufV":
        raise BadOption(f"the metric {name!r} is {value!r}; metrics are numbers")
    return float(array.astype(np.float64)) if array.dtype.kind in "fV" else int(array)


def _wrong_name(name: str) -> str:
    """Why an item cannot have a name; empty if it can."""
    if not name:
        return "it is empty"
    if "/" in name or "\0" in name:
        return "it must be the name of one directory"
    if name[0] == ".":
        return "it begins with a dot"
    if name == documents.METRICS_ITEM:
        return "save(..., metrics=) has that name"
    if name in layout.DOCUMENTS:
        return "a step has a document of that name"
    if commit.DRAFT_SUFFIX in name:
        return "such names are those of unfinished checkpoints"
    if (size := len(os.fsencode(name))) > MOST_IN_A_NAME:
        return f"it has {size} bytes, and file systems take {MOST_IN_A_NAME}"
    return ""


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
