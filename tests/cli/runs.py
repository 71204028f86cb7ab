"""Runs and checkpoints to look at, made quickly."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import storax
from storax.store import commit


def tree(scale: float = 1.0) -> dict:
    return {
        "params": {"w": np.arange(24, dtype=np.float32).reshape(4, 6) * scale, "b": np.zeros(6, np.float32)},
        "step": 7,
        "note": "hello",
    }


def make_run(path: Path, steps: tuple[int, ...] = (1, 2, 3)) -> Path:
    """A run whose loss falls from step to step."""
    options = storax.CheckpointManagerOptions(enable_async_checkpointing=False)
    with storax.CheckpointManager(path, options=options) as manager:
        for step in steps:
            manager.save(step, args=storax.args.StandardSave(tree(step)), metrics={"loss": 1 / step})
    return path


def leave_draft(run: Path, step: int) -> Path:
    """What a process leaves behind that dies in a save."""
    draft = commit.begin(run / str(step))
    (draft.path / "half").write_bytes(b"x" * 1000)
    commit._let_go(draft)  # as the system does for the dead
    return draft.path
