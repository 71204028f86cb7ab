"""Deleting in the background: at once from its name, then file by file, and never in the way of a save."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import storax
from storax.manager.deletion import Deletion, Pace
from storax.store import commit, posix


def save(mngr: storax.CheckpointManager, *steps: int) -> None:
    for step in steps:
        assert mngr.save(step, args=storax.args.StandardSave({"w": np.full(4, step)}))
    mngr.wait_until_finished()


def options(**more: Any) -> storax.CheckpointManagerOptions:
    return storax.CheckpointManagerOptions(**more)


def test_a_pace_lets_so_many_files_go_in_a_second() -> None:
    now = 0.0
    waited = []

    def wait(seconds: float) -> None:
        nonlocal now
        waited.append(seconds)
        now += seconds

    pace = Pace(4, clock=lambda: now, wait=wait)
    for _ in range(5):
        pace.pause()
    assert waited == [0.25] * 4
    now += 10
    pace.pause()
    pace.pause()
    assert waited == [0.25] * 5
    free = Pace(None, clock=lambda: now, wait=wait)
    free.pause()
    assert not free.limited


def test_a_save_does_not_wait_for_what_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    begun = threading.Event()
    delete = commit.delete_retired

    def slow(path: Path, *more: Any) -> bool:
        begun.set()
        assert go_on.wait(60)
        return delete(path, *more)

    monkeypatch.setattr(commit, "delete_retired", slow)
    mngr = storax.CheckpointManager(tmp_path, options=options(max_to_keep=1))
    save(mngr, 1, 2)
    assert begun.wait(60)
    save(mngr, 3, 4)  # while step 1 is still being deleted
    assert mngr.all_steps() == [4]
    assert sum(commit.is_draft(path) for path in tmp_path.iterdir()) == 3
    go_on.set()
    mngr.close()
    assert [path.name for path in tmp_path.iterdir()] == ["4"]


def test_a_limit_does_not_delay_a_save_and_close_hurries(tmp_path: Path) -> None:
    with storax.CheckpointManager(
        tmp_path, options=options(max_to_keep=1, deletions_per_second=0.01)
    ) as mngr:
        save(mngr, 1, 2, 3)  # at this rate, deleting one step takes half an hour
        assert mngr.all_steps() == [3]
    assert [path.name for path in tmp_path.iterdir()] == ["3"]


def test_a_deletion_that_was_cut_short_is_finished_by_the_next_manager(tmp_path: Path) -> None:
    mngr = storax.CheckpointManager(tmp_path)
    save(mngr, 1, 2)
    retired = commit.retire(tmp_path / "1")
    calls = iter([True, True, False])
    assert not commit.delete_retired(retired, lambda: next(calls))
    assert retired.is_dir()
    assert mngr.all_steps() == [2]
    storax.CheckpointManager(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["2"]


def test_what_cannot_be_deleted_does_not_stop_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x")
    remove = posix.remove_file

    def refuse(path: Path) -> None:
        if path.parent.name == "a":
            raise storax.StoreError("no")
        remove(path)

    monkeypatch.setattr(posix, "remove_file", refuse)
    deletion = Deletion()
    deletion.add(tmp_path / "a")
    deletion.add(tmp_path / "b")
    deletion.finish()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert "is not deleted yet: no" in caplog.text


def test_steps_are_moved_away_if_that_is_asked(tmp_path: Path) -> None:
    with storax.CheckpointManager(tmp_path, options=options(max_to_keep=1, todelete_subdir="trash")) as mngr:
        save(mngr, 1, 2)
        mngr.save(3, args=storax.args.StandardSave({"w": np.ones(1)}))
        mngr.wait_until_finished()
        assert mngr.all_steps() == [3]
    assert storax.load(tmp_path / "trash" / "1")["w"].tolist() == [1] * 4
    assert storax.load(tmp_path / "trash" / "2")["w"].tolist() == [2] * 4


def test_nothing_is_deleted_by_opening_and_closing(tmp_path: Path) -> None:
    with storax.CheckpointManager(tmp_path) as mngr:
        save(mngr, 1, 2, 3)
    with storax.CheckpointManager(tmp_path, options=options(max_to_keep=1)) as mngr:
        assert mngr.explain_retention().dropped == [1, 2]
    assert storax.CheckpointManager(tmp_path).all_steps() == [1, 2, 3]


def test_retention_can_be_applied_without_a_save(tmp_path: Path) -> None:
    with storax.CheckpointManager(tmp_path) as mngr:
        save(mngr, 1, 2, 3)
    with storax.CheckpointManager(tmp_path, options=options(max_to_keep=1)) as mngr:
        assert mngr.apply_retention() == [1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["3"]
