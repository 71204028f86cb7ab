"""One save at a time; what went wrong is told to whoever asks next."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import storax
from storax.store import posix

TREE = {"w": np.arange(2000.0), "step": 3}


class Gate:
    """Stops the first write of each save until it is opened, and notes which drafts were written."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.reached = threading.Event()
        self.written: list[str] = []

    def open(self) -> None:
        self.opened.set()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    write_at = posix.NewFile.write_at

    def waits(self: Any, *arguments: Any) -> int:
        gate.reached.set()
        assert gate.opened.wait(60)
        gate.written.append(str(self._path))
        return write_at(self, *arguments)

    monkeypatch.setattr(posix.NewFile, "write_at", waits)
    yield gate
    gate.open()


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A disk that is full until the function is called."""
    pwritev = os.pwritev

    def refuse(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwritev", refuse)
    return lambda: monkeypatch.setattr(os, "pwritev", pwritev)


def test_save_async_returns_before_the_checkpoint_is_there(tmp_path: Path, gate: Gate):
    handle = storax.save_async(tmp_path / "a", TREE)
    assert gate.reached.wait(60)
    assert not handle.done()
    assert not (tmp_path / "a").exists()
    with pytest.raises(TimeoutError):
        handle.result(timeout=0.01)
    with pytest.raises(storax.CheckpointNotFound, match="begun and not committed"):
        storax.load(tmp_path / "a")
    gate.open()
    handle.result()
    assert handle.done()
    handle.result()
    assert storax.load(tmp_path / "a")["step"] == 3


def test_a_second_save_waits_for_the_first(tmp_path: Path, gate: Gate):
    first = storax.save_async(tmp_path / "a", TREE)
    assert gate.reached.wait(60)
    handles = []
    second = threading.Thread(target=lambda: handles.append(storax.save_async(tmp_path / "b", TREE)))
    second.start()
    second.join(0.2)
    assert second.is_alive()
    assert handles == []
    gate.open()
    second.join(60)
    assert first.done()
    handles[0].result()
    order = [Path(path).relative_to(tmp_path).parts[0][0] for path in gate.written]
    assert order == sorted(order)


def test_a_step_is_visible_only_once_it_is_committed(tmp_path: Path, gate: Gate):
    manager = storax.CheckpointManager(tmp_path)
    other = storax.CheckpointManager(tmp_path, options=storax.CheckpointManagerOptions(read_only=True))
    manager.save(5, args=storax.args.StandardSave(TREE))
    assert gate.reached.wait(60)
    for each in (manager, other):
        assert each.latest_step() is None
        assert each.all_steps() == []
    assert manager.is_saving_in_progress()
    assert not manager.should_save(5)  # it is on its way
    gate.open()
    manager.wait_until_finished()
    assert not manager.is_saving_in_progress()
    for each in (manager, other):
        assert each.latest_step() == 5
        assert each.all_steps() == [5]
    manager.close()


def test_a_failed_save_is_told_at_result(tmp_path: Path, full: Callable[[], None]):
    handle = storax.save_async(tmp_path / "a", TREE)
    for _ in range(2):
        with pytest.raises(storax.StoreError, match="No space left") as caught:
            handle.result()
        assert caught.value.errno == errno.ENOSPC
        assert str(tmp_path / "a") in str(caught.value)
    full()
    storax.save(tmp_path / "a", TREE)


def _next_save(manager: Any) -> None:
    manager.save(8, args=storax.args.StandardSave(TREE))


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda manager: manager.wait_until_finished(), id="wait_until_finished"),
        pytest.param(lambda manager: manager.close(), id="close"),
        pytest.param(_next_save, id="save"),
        pytest.param(lambda manager: manager.restore(6), id="restore"),
        pytest.param(lambda manager: manager.delete(6), id="delete"),
    ],
)
def test_a_failed_save_is_told_at_the_next_call_once(
    tmp_path: Path, full: Callable[[], None], ask: Callable[[Any], None]
):
    manager = storax.CheckpointManager(tmp_path)
    manager.save(7, args=storax.args.StandardSave(TREE))
    with pytest.raises(storax.StoreError, match=rf"step 7 in {tmp_path}.*No space left"):
        ask(manager)
    full()
    # It was told; the run goes on, the same step included.
    assert manager.save(7, args=storax.args.StandardSave(TREE))
    manager.close()
    assert manager.all_steps() == [7]


def test_check_for_errors_tells_without_waiting(tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch):
    manager = storax.CheckpointManager(tmp_path)
    manager.save(1, args=storax.args.StandardSave(TREE))
    assert gate.reached.wait(60)
    manager.check_for_errors()
    assert manager.is_saving_in_progress()

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", broken)
    gate.open()
    deadline = time.monotonic() + 60
    while manager.is_saving_in_progress():
        assert time.monotonic() < deadline
    with pytest.raises(storax.StoreError, match=r"step 1.*syncing"):
        manager.check_for_errors()
    monkeypatch.undo()
    manager.check_for_errors()


def test_an_error_of_no_kind_of_ours_keeps_its_type_and_names_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: Any) -> int:
        raise ZeroDivisionError("quite unexpected")

    monkeypatch.setattr(posix.NewFile, "write_at", broken)
    manager = storax.CheckpointManager(tmp_path)
    manager.save(4, args=storax.args.StandardSave(TREE))
    with pytest.raises(ZeroDivisionError, match="quite unexpected") as caught:
        manager.close()
    assert any("step 4" in note for note in caught.value.__notes__)
    assert list(tmp_path.iterdir()) == []


def test_an_error_at_the_end_of_a_with_block_does_not_hide_the_blocks_own(
    tmp_path: Path, full: Callable[[], None]
):
    def block() -> None:
        with storax.CheckpointManager(tmp_path) as manager:
            manager.save(2, args=storax.args.StandardSave(TREE))
            raise KeyError("own")

    with pytest.raises(KeyError, match="own") as caught:
        block()
    assert any("StoreError" in note and "step 2" in note for note in caught.value.__notes__)


def test_without_async_the_error_comes_from_save_itself(tmp_path: Path, full: Callable[[], None]):
    options = storax.CheckpointManagerOptions(enable_async_checkpointing=False)
    with storax.CheckpointManager(tmp_path, options=options) as manager:
        with pytest.raises(storax.StoreError, match="step 2"):
            manager.save(2, args=storax.args.StandardSave(TREE))
        full()
        assert manager.save(2, args=storax.args.StandardSave(TREE))
        assert manager.all_steps() == [2]


def test_it_works_inside_a_running_event_loop(tmp_path: Path):
    """As in Jupyter: nothing inside asks for a loop of its own."""

    async def cell() -> Any:
        storax.save(tmp_path / "a", TREE)
        storax.save_async(tmp_path / "b", TREE).result()
        with storax.CheckpointManager(tmp_path / "run") as manager:
            manager.save(1, args=storax.args.StandardSave(TREE))
            manager.wait_until_finished()
            storax.metadata(tmp_path / "a")
            await asyncio.sleep(0)
            return storax.load(tmp_path / "a"), storax.load(tmp_path / "b"), manager.restore(1)

    for found in asyncio.run(cell()):
        assert found["step"] == 3
        assert np.array_equal(found["w"], TREE["w"])


def test_it_works_from_a_thread_that_is_not_the_main_one(tmp_path: Path):
    found: list[Any] = []

    def work() -> None:
        storax.save_async(tmp_path / "a", TREE).result()
        with storax.CheckpointManager(tmp_path / "run") as manager:
            manager.save(1, args=storax.args.StandardSave(TREE))
            manager.wait_until_finished()
            found.extend([storax.load(tmp_path / "a"), manager.restore(1)])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert [value["step"] for value in found] == [3, 3]


def test_many_threads_may_save_at_once(tmp_path: Path):
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            storax.save_async(tmp_path / str(number), TREE | {"step": number}).result()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert [storax.load(tmp_path / str(number))["step"] for number in range(8)] == list(range(8))
