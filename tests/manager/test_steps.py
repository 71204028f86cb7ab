"""What is known of the steps in a directory."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import storax
from storax.manager.options import NumberedSteps
from storax.manager.steps import StepDirectory
from storax.store import posix


def save(directory: Path, step: int, **more: Any) -> None:
    with storax.CheckpointManager(directory) as mngr:
        mngr.save(step, args=storax.args.StandardSave({"w": np.ones(1)}), force=True, **more)


def test_a_new_step_in_the_place_of_a_deleted_one_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # File systems give the number of a deleted directory to the next one that is made.
    monkeypatch.setattr(posix, "identity", lambda path: (1, 1))
    state = posix.state
    monkeypatch.setattr(posix, "state", lambda path: (1, 1, state(path)[2]))
    steps = StepDirectory(tmp_path, NumberedSteps())
    save(tmp_path, 1, metrics={"x": 1.0})
    assert [(s.step, s.metrics) for s in steps.steps()] == [(1, {"x": 1.0})]
    shutil.rmtree(tmp_path / "1")
    save(tmp_path, 2, metrics={"x": 2.0})
    assert [(s.step, s.metrics) for s in steps.steps()] == [(2, {"x": 2.0})]
    shutil.rmtree(tmp_path / "2")
    save(tmp_path, 2, metrics={"x": 3.0})
    assert [(s.step, s.metrics) for s in steps.steps()] == [(2, {"x": 3.0})]


def test_a_step_is_read_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from storax import inspection

    save(tmp_path, 1)
    save(tmp_path, 2)
    save(tmp_path, 3)
    read: list[str] = []
    monkeypatch.setattr(inspection, "read_metrics", lambda path: read.append(path.name))
    steps = StepDirectory(tmp_path, NumberedSteps())
    for _ in range(3):
        assert [step.step for step in steps.steps()] == [1, 2, 3]
    assert read == ["1", "2", "3"]


def test_times_are_those_of_the_steps_documents(tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    (tmp_path / "3" / "default").mkdir(parents=True)
    (tmp_path / "3" / "default" / "_METADATA").write_text("older programs wrote no document of the step")
    first, second, third = StepDirectory(tmp_path, NumberedSteps()).steps()
    assert first.time < second.time
    assert third.time == (tmp_path / "3").stat().st_mtime


def test_the_metadata_of_a_run_is_written_once(tmp_path: Path) -> None:
    storax.CheckpointManager(tmp_path, metadata={"seed": 1})
    again = storax.CheckpointManager(tmp_path, metadata={"seed": 2})
    assert again.metadata() == {"seed": 1}
    assert storax.CheckpointManager(tmp_path / "none").metadata() == {}
