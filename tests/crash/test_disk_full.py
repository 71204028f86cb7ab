"""A real file system that is full: a small one in memory."""

from __future__ import annotations

import errno
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.same import assert_same

import storax

SIZE = 2 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(disk)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small disk cannot be mounted here: {getattr(error, 'stderr', '') or error}".strip())
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def _tree(size: int, value: int = 0) -> dict[str, np.ndarray]:
    return {"w": np.full(size, value, np.uint8)}


def test_a_full_disk_is_a_clear_error_and_leaves_nothing(small_disk: Path):
    with pytest.raises(storax.StoreError) as caught:
        storax.save(small_disk / "a", _tree(3 * SIZE))
    text = str(caught.value)
    assert caught.value.errno == errno.ENOSPC
    assert str(small_disk) in text
    needs = re.search(r"It needs ([\d,]+) bytes and ([\d,]+) bytes are free", text)
    assert needs is not None, text
    assert int(needs[1].replace(",", "")) > int(needs[2].replace(",", ""))
    assert list(small_disk.iterdir()) == []
    storax.save(small_disk / "a", _tree(SIZE // 2, 7))
    assert_same(storax.load(small_disk / "a"), _tree(SIZE // 2, 7))


def test_a_run_on_a_disk_that_fills_up_keeps_its_steps_and_goes_on_when_there_is_room(small_disk: Path):
    size = SIZE // 2 - 65536
    manager = storax.CheckpointManager(small_disk)
    for step in (1, 2):
        if step == 2:
            size //= 2
        manager.save(step, args=storax.args.StandardSave(_tree(size, step)))
        manager.wait_until_finished()
    manager.save(3, args=storax.args.StandardSave(_tree(SIZE, 3)))
    with pytest.raises(storax.StoreError, match=r"step 3.*No space left"):
        manager.wait_until_finished()
    assert manager.all_steps() == [1, 2]
    assert sorted(path.name for path in small_disk.iterdir()) == ["1", "2"]
    assert_same(manager.restore(1), _tree(SIZE // 2 - 65536, 1))
    assert_same(manager.restore(2), _tree(size, 2))
    manager.delete(1)
    assert manager.save(3, args=storax.args.StandardSave(_tree(size, 3)))
    manager.close()
    assert manager.all_steps() == [2, 3]


def test_a_tree_is_not_replaced_when_there_is_no_room_for_both(small_disk: Path):
    storax.save(small_disk / "a", _tree(SIZE * 2 // 3, 1))
    with pytest.raises(storax.StoreError, match="No space left"):
        storax.save(small_disk / "a", _tree(SIZE * 2 // 3, 2), overwrite=True)
    assert [path.name for path in small_disk.iterdir()] == ["a"]
    assert_same(storax.load(small_disk / "a"), _tree(SIZE * 2 // 3, 1))
