"""Steps that somebody reads: they stay while they are open, and go afterwards."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import storax
from storax.errors import CheckpointChanged, CheckpointInUse, CheckpointNotFound
from storax.store import commit, posix


def manager(directory: Path, **options: Any) -> storax.CheckpointManager:
    return storax.CheckpointManager(directory, options=storax.CheckpointManagerOptions(**options))


def save(mngr: storax.CheckpointManager, *steps: int) -> None:
    for step in steps:
        assert mngr.save(step, args=storax.args.StandardSave({"w": np.full(4, step)}))
    mngr.wait_until_finished()


_READER = """
import sys
from pathlib import Path
from storax.store import commit
with commit.lease(Path(sys.argv[1])):
    print("open", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def another_process_reads(path: Path) -> Iterator[subprocess.Popen[str]]:
    reader = subprocess.Popen(
        [sys.executable, "-c", _READER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert reader.stdout is not None
    assert reader.stdin is not None
    assert reader.stdout.readline() == "open\n"
    try:
        yield reader
    finally:
        reader.stdin.close()
        reader.wait(30)
        reader.stdout.close()


def test_a_step_that_another_process_reads_stays_until_it_is_closed(tmp_path: Path) -> None:
    mngr = manager(tmp_path, max_to_keep=1)
    save(mngr, 1)
    with another_process_reads(tmp_path / "1"):
        save(mngr, 2, 3)
        assert mngr.all_steps() == [1, 3]
        assert "a reader holds it open" in str(mngr.explain_retention()[0])
        with pytest.raises(CheckpointInUse):
            mngr.delete(1)
    save(mngr, 4)
    assert mngr.all_steps() == [4]


def test_a_reader_that_is_killed_holds_nothing(tmp_path: Path) -> None:
    mngr = manager(tmp_path, max_to_keep=1)
    save(mngr, 1)
    with another_process_reads(tmp_path / "1") as reader:
        reader.kill()
        reader.wait(30)
        save(mngr, 2)
        assert mngr.all_steps() == [2]


def test_what_was_open_goes_when_the_manager_is_closed(tmp_path: Path) -> None:
    mngr = manager(tmp_path, max_to_keep=1)
    save(mngr, 1)
    with mngr.reading(1) as path:
        save(mngr, 2)
        assert storax.load(path)["w"][0] == 1
    mngr.close()
    assert [p.name for p in tmp_path.iterdir()] == ["2"]


def test_an_item_that_is_read_keeps_its_step(tmp_path: Path) -> None:
    mngr = manager(tmp_path)
    save(mngr, 1)
    with commit.lease(tmp_path / "1" / "default"), pytest.raises(CheckpointInUse):
        mngr.delete(1)
    mngr.delete(1)
    assert mngr.all_steps() == []


def test_loading_holds_the_step_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mngr = manager(tmp_path)
    save(mngr, 1)
    seen = []
    identity = posix.identity

    def watched(path: Path) -> tuple[int, int]:
        seen.append(commit.is_leased(tmp_path / "1"))
        return identity(path)

    monkeypatch.setattr(posix, "identity", watched)
    storax.load(tmp_path / "1")
    assert True in seen
    assert not commit.is_leased(tmp_path / "1")


def test_where_there_are_no_locks_a_reader_is_told_that_its_step_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mngr = manager(tmp_path)
    save(mngr, 1)
    monkeypatch.setattr(posix, "share_directory", lambda path: None)
    identity = posix.identity

    def deleted_meanwhile(path: Path) -> tuple[int, int]:
        found = identity(path)
        if path.is_dir():
            commit.delete(path)
        return found

    monkeypatch.setattr(posix, "identity", deleted_meanwhile)
    with pytest.raises((CheckpointChanged, CheckpointNotFound)):
        storax.load(tmp_path / "1")


def test_pinned_steps_stay_for_every_manager_and_orbax_reads_them(tmp_path: Path) -> None:
    import orbax.checkpoint

    mngr = manager(tmp_path, max_to_keep=1)
    save(mngr, 1)
    mngr.pin(1, "for the paper")
    save(mngr, 2, 3)
    assert mngr.all_steps() == [1, 3]
    other = manager(tmp_path, max_to_keep=1)
    save(other, 4)
    assert other.all_steps() == [1, 4]
    assert str(other.explain_retention()[0]).endswith("keep    it is pinned: for the paper")
    assert storax.verify(tmp_path / "1").ok
    assert orbax.checkpoint.CheckpointManager(tmp_path).restore(1)["w"].tolist() == [1] * 4
    other.unpin(1)
    save(other, 5)
    assert other.all_steps() == [5]


def test_an_unknown_step_cannot_be_pinned(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFound):
        manager(tmp_path).pin(3)
