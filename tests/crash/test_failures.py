"""The world fails at any moment: a clear error, no half step, nothing left, and the next save works."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.crash import scenarios
from tests.crash.watch import Operation, failing_at, recording, watched
from tests.same import assert_same

import storax

pytestmark = pytest.mark.usefixtures("without_waiting")

CODES = {
    "full": errno.ENOSPC,
    "quota": errno.EDQUOT,
    "broken": errno.EIO,
    "read-only": errno.EROFS,
    "forbidden": errno.EACCES,
}


def _count(directory: Path, act: Callable[[Path], None]) -> list[Operation]:
    seen: list[Operation] = []
    directory.mkdir()
    with watched(recording(seen)):
        act(directory)
    return seen


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def _check_message(error: storax.StoreError, code: int, place: Path) -> None:
    """It names what was being done, to what, and what to do about it."""
    text = str(error)
    assert error.errno == code
    assert os.strerror(code) in text
    assert str(place) in text
    assert error.filename is not None
    assert " while " in text
    if code in (errno.ENOSPC, errno.EDQUOT):
        assert "bytes are free" in text
        assert "Make room" in text
        assert "It needs" in text or "while writing" not in text
        assert "needs 0 bytes" not in text
    if code in (errno.EROFS, errno.EACCES):
        assert "Make the directory writable" in text


@pytest.mark.parametrize("what", CODES)
def test_a_save_that_fails_at_any_moment_leaves_nothing(memory: Path, what: str):
    code = CODES[what]

    def act(directory: Path) -> None:
        storax.save(directory / "deep" / "a", scenarios.tree(1))

    operations = _count(memory / "count", act)
    for number, operation in enumerate(operations, 1):
        place = memory / f"failed-{number}"
        place.mkdir()
        for half in (False, True) if operation.kind == "write" else (False,):
            with (
                watched(failing_at(number, code, half=half)),
                pytest.raises(storax.StoreError) as caught,
            ):
                act(place)
            _check_message(caught.value, code, place)
            assert [p for p in place.rglob("*") if p.name != "deep"] == [], (number, operation)
        act(place)
        assert_same(storax.load(place / "deep" / "a"), scenarios.tree(1))


@pytest.mark.parametrize("what", ["full", "broken"])
def test_a_replacement_that_fails_at_any_moment_changes_nothing(memory: Path, what: str):
    code = CODES[what]

    def act(directory: Path) -> None:
        storax.save(directory / "a", scenarios.tree(0))
        storax.save(directory / "a", scenarios.tree(1), overwrite=True)

    operations = _count(memory / "count", act)
    swap = next(n for n, o in enumerate(operations, 1) if o.kind == "exchange")
    rest = next(n for n, o in enumerate(operations, 1) if n > swap and o.kind in ("unlink", "rmdir"))
    drafts = [n for n, o in enumerate(operations, 1) if Path(o.path).parent == memory / "count"]
    first = [n for n in drafts if operations[n - 1].kind == "mkdir"][1]
    for number in range(first, rest):
        operation = operations[number - 1]
        if operation.kind == "rename":
            continue  # that it fails, as the name is taken, is what leads to the exchange
        place = memory / f"failed-{number}"
        place.mkdir()
        with watched(failing_at(number, code)), pytest.raises(storax.StoreError) as caught:
            act(place)
        _check_message(caught.value, code, place)
        assert _names(place) == ["a"], (number, operation)
        assert_same(storax.load(place / "a"), scenarios.tree(0))
        storax.save(place / "a", scenarios.tree(2), overwrite=True)
        assert_same(storax.load(place / "a"), scenarios.tree(2))


def test_if_the_replaced_tree_cannot_be_deleted_the_new_one_is_there_and_the_error_says_so(memory: Path):
    def act(directory: Path) -> None:
        storax.save(directory / "a", scenarios.tree(0))
        storax.save(directory / "a", scenarios.tree(1), overwrite=True)

    operations = _count(memory / "count", act)
    rest = next(n for n, o in enumerate(operations, 1) if o.kind == "unlink")
    place = memory / "failed"
    place.mkdir()
    open_before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    with watched(failing_at(rest, errno.EIO)), pytest.raises(storax.StoreError, match="deleting"):
        act(place)
    assert_same(storax.load(place / "a"), scenarios.tree(1))
    if open_before is not None:
        assert len(os.listdir("/proc/self/fd")) == open_before
    storax.save(place / "a", scenarios.tree(2), overwrite=True)
    assert _names(place) == ["a"]


def _fails_after_commit(operations: list[Operation], number: int) -> bool:
    return any(o.kind == "rename" and o.target.endswith("/3") for o in operations[: number - 1])


@pytest.mark.parametrize("what", ["full", "broken", "read-only"])
def test_a_manager_whose_save_fails_at_any_moment_goes_on(
    memory: Path, what: str, caplog: pytest.LogCaptureFixture
):
    """The step before stays, unless the new one is there; a failure of the deletion costs no step."""
    code = CODES[what]
    caplog.set_level(logging.ERROR, "storax")

    def prepare(directory: Path) -> Any:
        options = storax.CheckpointManagerOptions(max_to_keep=1)
        manager = storax.CheckpointManager(directory, options=options)
        manager.save(2, args=storax.args.StandardSave(scenarios.tree(2)))
        manager.close()
        return manager

    def act(manager: Any) -> None:
        manager.save(3, args=storax.args.StandardSave(scenarios.tree(3)), metrics={"loss": 1})
        manager.close()

    operations: list[Operation] = []
    manager = prepare(memory / "count")
    with watched(recording(operations)):
        act(manager)
    assert manager.all_steps() == [3]
    for number, operation in enumerate(operations, 1):
        place = memory / f"failed-{number}"
        manager = prepare(place)
        where = (number, operation)
        failed = None
        with watched(failing_at(number, code)):
            try:
                act(manager)
            except storax.StoreError as error:
                failed = error
        steps = manager.all_steps()
        if failed is not None:
            _check_message(failed, code, place)
            assert "step 3" in str(failed), where
        if not _fails_after_commit(operations, number) or (operation.kind == "sync" and 3 not in steps):
            assert failed is not None, where
            assert steps == [2], where
            assert _names(place) == ["2"], where
            assert manager.save(3, args=storax.args.StandardSave(scenarios.tree(3))), where
            manager.close()
            steps = manager.all_steps()
        assert 3 in steps, where
        for step in steps:
            assert_same(manager.restore(step), scenarios.tree(step))
        # What could not be deleted goes with the next manager.
        with storax.CheckpointManager(place, options=storax.CheckpointManagerOptions(max_to_keep=1)) as after:
            assert after.save(4, args=storax.args.StandardSave(scenarios.tree(4)))
        assert _names(place) == ["4"], where


def test_no_handle_is_left_open_by_a_save_that_fails(memory: Path):
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("this system does not list open files in /proc/self/fd")

    def act(directory: Path) -> None:
        storax.save(directory / "a", {"w": np.arange(5000)})

    operations = _count(memory / "count", act)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(1, len(operations) + 1):
        place = memory / f"failed-{number}"
        place.mkdir()
        with watched(failing_at(number, errno.EIO)), pytest.raises(storax.StoreError):
            act(place)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_draft_that_cannot_be_locked_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As when the process has too many files open."""
    real = os.open

    def refuse(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & os.O_DIRECTORY and ".orbax-checkpoint-tmp" in os.fspath(path):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(storax.StoreError, match="Too many open files"):
        storax.save(tmp_path / "a", {"w": 1})
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_a_clear_error(tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(storax.StoreError, match=r"Not a directory.*file"):
        storax.save(tmp_path / "file" / "a", {"w": 1})
    with pytest.raises(storax.CheckpointExists):
        storax.save(tmp_path / "file", {"w": 1})
    with pytest.raises(storax.BadOption, match="not a checkpoint"):
        storax.save(tmp_path / "file", {"w": 1}, overwrite=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(storax.BadOption, match="not a checkpoint"):
        storax.save(tmp_path / "mine", {"w": 1}, overwrite=True)
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years of work"
    assert (tmp_path / "file").read_text() == "mine"


def test_a_file_system_that_cannot_swap_keeps_the_old_tree_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from storax.store import posix

    def refuse(one: bytes, other: bytes) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    storax.save(tmp_path / "a", {"w": 1})
    monkeypatch.setattr(posix, "_exchange", refuse)
    with pytest.raises(storax.StoreError, match="cannot swap two directories"):
        storax.save(tmp_path / "a", {"w": 2}, overwrite=True)
    assert _names(tmp_path) == ["a"]
    assert storax.load(tmp_path / "a") == {"w": 1}
