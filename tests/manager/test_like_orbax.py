"""The same program with both libraries: the same answers and the same steps in the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest

import storax

TREE = {"w": np.arange(3)}


def _loss(metrics: Any) -> float:
    return float(metrics["loss"])


def _run(library: Any, directory: Path, steps: list[int], losses: dict[int, float], **options: Any) -> Any:
    """What every save answered, every step that was there after it, and the best one."""
    options = {"enable_async_checkpointing": False, **options}
    seen = []
    with library.CheckpointManager(directory, options=library.CheckpointManagerOptions(**options)) as manager:
        for step in steps:
            metrics = {"loss": losses[step]} if step in losses else None
            should = bool(manager.should_save(step))
            saved = bool(manager.save(step, args=library.args.StandardSave(TREE), metrics=metrics))
            seen.append((should, saved, sorted(manager.all_steps()), manager.latest_step()))
        best = manager.best_step() if "best_fn" in options else None
    return seen, best, sorted(path.name for path in directory.iterdir())


LOSSES = {0: 5.0, 1: 1.0, 2: 3.0, 3: 0.5, 4: 2.0, 5: 4.0}
CASES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "interval": {"save_interval_steps": 3},
    "interval and steps": {"save_interval_steps": 4, "save_on_steps": [1, 5]},
    "function": {"should_save_fn": lambda step, latest: step % 2 == 1},
    "two": {"max_to_keep": 2},
    "one": {"max_to_keep": 1},
    "two and every third": {"max_to_keep": 2, "keep_period": 3},
    "interval and two": {"save_interval_steps": 2, "max_to_keep": 2},
    "prefix": {"step_prefix": "ckpt", "max_to_keep": 3},
    "digits": {"step_format_fixed_length": 8, "max_to_keep": 3},
    "prefix and digits": {"step_prefix": "ckpt", "step_format_fixed_length": 4},
    # The newest step is among those that stay in these, as storax never deletes it and Orbax may.
    "best is newest": {"max_to_keep": 2, "best_fn": lambda metrics: 1.0},
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_program_leaves_the_same_steps(tmp_path: Path, name: str):
    options = CASES[name]
    metrics = LOSSES if "best_fn" in options else {}
    steps = [0, 1, 2, 3, 4, 5, 5]
    ours = _run(storax, tmp_path / "ours", steps, metrics, **options)
    (tmp_path / "theirs").mkdir()
    theirs = _run(ocp, tmp_path / "theirs", steps, metrics, **options)
    assert ours == theirs


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("unmeasured", [True, False])
def test_the_best_stay_as_with_orbax_and_the_newest_besides(tmp_path: Path, mode: str, unmeasured: bool):
    options = {
        "max_to_keep": 2,
        "best_fn": _loss,
        "best_mode": mode,
        "keep_checkpoints_without_metrics": unmeasured,
    }
    losses = {step: loss for step, loss in LOSSES.items() if step != 4}
    (tmp_path / "theirs").mkdir()
    ours, our_best, _ = _run(storax, tmp_path / "ours", list(range(6)), losses, **options)
    theirs, their_best, _ = _run(ocp, tmp_path / "theirs", list(range(6)), losses, **options)
    assert our_best == their_best
    assert set(theirs[-1][2]) | {5} == set(ours[-1][2])


def test_a_nan_is_never_the_best(tmp_path: Path):
    options = {"best_fn": _loss, "max_to_keep": 2}
    losses = {0: 1.0, 1: float("nan"), 2: 3.0, 3: 2.0}
    for mode, best in (("max", 2), ("min", 0)):
        seen, found, _ = _run(storax, tmp_path / mode, list(range(4)), losses, best_mode=mode, **options)
        assert found == best
        assert best in seen[-1][2]
        assert 1 not in seen[-1][2]


def test_the_interval_counts_from_zero_and_the_first_save_always_happens(tmp_path: Path):
    ours = _run(storax, tmp_path / "ours", list(range(7, 14)), {}, save_interval_steps=5)
    (tmp_path / "theirs").mkdir()
    assert ours == _run(ocp, tmp_path / "theirs", list(range(7, 14)), {}, save_interval_steps=5)


def test_each_lists_and_restores_what_the_other_saved_and_goes_on(tmp_path: Path):
    with storax.CheckpointManager(tmp_path) as ours:
        for step in (1, 2):
            ours.save(step, args=storax.args.StandardSave({"w": np.full(3, step)}), metrics={"loss": step})
    # Orbax writes metrics only if it is to rank by them.
    with ocp.CheckpointManager(tmp_path, options=ocp.CheckpointManagerOptions(best_fn=_loss)) as theirs:
        assert sorted(theirs.all_steps()) == [1, 2]
        assert theirs.latest_step() == 2
        assert theirs.metrics(2) == {"loss": 2}
        found = theirs.restore(2, args=ocp.args.StandardRestore({"w": np.zeros(3, np.int64)}))
        assert np.array_equal(found["w"], [2, 2, 2])
        theirs.save(3, args=ocp.args.StandardSave({"w": np.full(3, 3)}), metrics={"loss": 3.0})
        theirs.wait_until_finished()
    with storax.CheckpointManager(tmp_path) as ours:
        assert ours.all_steps() == [1, 2, 3]
        assert ours.metrics(3) == {"loss": 3.0}
        assert np.array_equal(ours.restore(3)["w"], [3, 3, 3])
        assert not ours.should_save(3)
        assert ours.save(4, args=storax.args.StandardSave({"w": np.full(3, 4)}))
    with ocp.CheckpointManager(tmp_path) as theirs:
        assert sorted(theirs.all_steps()) == [1, 2, 3, 4]


@pytest.mark.parametrize("library", [storax, ocp], ids=["storax", "orbax"])
def test_what_is_missing_is_a_file_not_found_error(tmp_path: Path, library: Any):
    with library.CheckpointManager(tmp_path) as manager:
        assert manager.latest_step() is None
        assert sorted(manager.all_steps()) == []
        assert manager.save(1, args=library.args.StandardSave(TREE))
        manager.wait_until_finished()
        with pytest.raises(FileNotFoundError):
            manager.restore(9, args=library.args.StandardRestore(TREE))


def test_an_empty_directory_has_no_newest_step_to_restore(tmp_path: Path):
    with storax.CheckpointManager(tmp_path) as manager:
        with pytest.raises(storax.CheckpointNotFound, match="no committed step"):
            manager.restore(args=storax.args.StandardRestore(TREE))
        with pytest.raises(storax.CheckpointNotFound, match="There are: none"):
            manager.restore(9)
