"""Reads what a dead process left, with storax and with Orbax, and says what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp
from tests.crash import scenarios
from tests.same import assert_same

import storax


class Verdicts:
    """What was found wrong at all kill points, by kind."""

    def __init__(self) -> None:
        self.lost: list[str] = []
        self.unreadable: list[str] = []
        self.unclean: list[str] = []

    def __str__(self) -> str:
        return f"{len(self.lost)} lost, {len(self.unreadable)} unreadable, {len(self.unclean)} unclean"

    @property
    def all(self) -> list[str]:
        return self.lost + self.unreadable + self.unclean


def storax_steps(directory: Path) -> list[int]:
    options = storax.CheckpointManagerOptions(read_only=True)
    with storax.CheckpointManager(directory, options=options) as manager:
        return manager.all_steps()


def orbax_steps(directory: Path) -> list[int]:
    return sorted(ocp.utils.checkpoint_steps(directory))


def orbax_manager_steps(directory: Path) -> list[int]:
    options = ocp.CheckpointManagerOptions(read_only=True)
    with ocp.CheckpointManager(directory, options=options) as manager:
        return sorted(manager.all_steps())


def check_step_with_storax(directory: Path, step: int, composite: bool) -> None:
    """Fails unless a step is there, bit for bit."""
    options = storax.CheckpointManagerOptions(read_only=True)
    with storax.CheckpointManager(directory, options=options) as manager:
        found = manager.restore(step)
        assert_same(dict(found) if composite else found, _wanted(step, composite))
        if composite:
            assert set(manager.metrics(step) or ()) == {"loss"}


def check_step_with_orbax(directory: Path, step: int, composite: bool) -> None:
    options = ocp.CheckpointManagerOptions(read_only=True)
    with ocp.CheckpointManager(directory, options=options) as manager:
        if not composite:
            assert_same(
                _plain(manager.restore(step, args=ocp.args.StandardRestore())), _plain(_wanted(step, False))
            )
            return
        restored = manager.restore(
            step,
            args=ocp.args.Composite(
                params=ocp.args.StandardRestore(),
                optimizer=ocp.args.StandardRestore(),
                config=ocp.args.JsonRestore(),
            ),
        )
        found = {name: restored[name] for name in ("params", "optimizer", "config")}
        assert_same(_plain(found), _plain(_wanted(step, True)))


def check_tree_with_orbax(path: Path, wanted: Any) -> None:
    with ocp.StandardCheckpointer() as reader:
        assert_same(_plain(reader.restore(path)), _plain(wanted))


def _wanted(step: int, composite: bool) -> Any:
    if not composite:
        return scenarios.tree(step)
    return {
        "params": scenarios.tree(step),
        "optimizer": scenarios.optimizer(step),
        "config": scenarios.config(step),
    }


def _plain(tree: Any) -> Any:
    """As Orbax gives it back: it has no numpy scalars."""
    import jax
    import numpy as np

    return jax.tree.map(lambda leaf: leaf.item() if isinstance(leaf, np.generic) else leaf, tree)
