"""What a path means to somebody who looks: a checkpoint, one item of it, or the newest step of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storax.checkpoint import OpenCheckpoint, load_json, open_checkpoint
from storax.errors import CheckpointNotFound, ItemNotFound
from storax.opening import open_safetensors
from storax.store.paths import resolve
from storax.survey import folders, run


@dataclass(frozen=True, slots=True)
class Place:
    """A checkpoint that was found.

    Attributes:
      path: its directory; of safetensors their file or directory.
      is_newest_of: the run that it is the newest step of, if the run was named and not the step.
      trees: where its trees are, by item; a bare or only tree has the name ``""``.
      others: its other items.
      custom: what was saved beside it.
      checkpoint: opened; None of safetensors.
    """

    path: Path
    is_newest_of: Path | None
    trees: Mapping[str, Path]
    others: tuple[str, ...]
    custom: Mapping[str, Any]
    checkpoint: OpenCheckpoint | None

    @property
    def has_items(self) -> bool:
        """Whether there is more than one item, so that names need the item's in front."""
        return len(self.trees) + len(self.others) > 1

    def load_json(self, item: str) -> Any:
        """The value of an item that is no tree."""
        if self.checkpoint is None:
            raise ItemNotFound(f"{self.path} has no items.")
        return load_json(self.checkpoint.item(item))


def find(path: str | Path, item: str | None = None) -> Place:
    """The checkpoint at a path; of a run directory its newest step.

    Args:
      path: a checkpoint, an item of one, or a run directory.
      item: only this item.

    Raises:
      CheckpointNotFound: nothing committed is there.
      ItemNotFound: there is no such item.
    """
    directory = resolve(path)
    newest_of = None
    if run.is_run(directory):
        newest_of, directory = directory, newest(directory)
    if (tensors := open_safetensors(directory)) is not None:
        if item is not None:
            raise ItemNotFound(f"{directory} is safetensors, it has no items.")
        return Place(directory, None, {"": directory}, (), tensors.metadata, None)
    if advice := folders.what_lies_in(directory):
        raise CheckpointNotFound(f"{directory} is neither a checkpoint nor a run. {advice}")
    checkpoint = open_checkpoint(directory)
    only = checkpoint.only_tree
    if item is not None and not (checkpoint.bare or item in checkpoint.items):
        checkpoint.item(item)  # says which there are
    if item is not None and checkpoint.bare:
        raise ItemNotFound(f"{directory} is one tree, it has no items.")
    if item is not None:
        trees = {item: checkpoint.items[item]} if checkpoint.is_tree(item) else {}
    elif only is not None:
        trees = {"": only}
    else:
        trees = {name: found for name, found in checkpoint.items.items() if checkpoint.is_tree(name)}
    taken = set(trees.values())
    others = tuple(
        name
        for name, found in checkpoint.items.items()
        if found not in taken and item in (None, name) and not checkpoint.is_tree(name)
    )
    return Place(directory, newest_of, trees, others, checkpoint.document.custom, checkpoint)


def newest(directory: Path) -> Path:
    """The newest committed step of a run. Raises ``CheckpointNotFound`` if there is none."""
    steps = [seen for seen in run.see_run(directory, sizes=False) if seen.state == "committed"]
    if not steps:
        raise CheckpointNotFound(f"{directory} has no committed step yet.")
    return steps[-1].path
