"""Readers while a checkpoint is replaced or deleted: the old one or the new one, or a clear word."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.crash.warm import SOURCE

import storax
from storax.store import posix

_WRITER = """
import sys
import numpy as np
import storax

for number in range(1, int(sys.argv[2]) + 1):
    tree = {f"leaf {i}": np.full(500, number) for i in range(20)}
    storax.save(sys.argv[1], tree | {"number": number, "text": str(number)}, overwrite=True)
"""


def _tree(number: int) -> dict[str, Any]:
    tree: dict[str, Any] = {f"leaf {i}": np.full(500, number) for i in range(20)}
    return tree | {"number": number, "text": str(number)}


def _number(tree: dict[str, Any]) -> int:
    """Which of the trees it is; fails if it is a mixture."""
    number: int = tree["number"]
    assert tree["text"] == str(number)
    assert {int(x) for i in range(20) for x in tree[f"leaf {i}"]} == {number}
    return number


def test_a_tree_that_another_process_replaces_again_and_again_is_always_whole(tmp_path: Path):
    path = tmp_path / "a"
    storax.save(path, _tree(0))
    count = 60
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path), str(count)],
        env=os.environ | {"PYTHONPATH": str(SOURCE), "JAX_PLATFORMS": "cpu"},
    )
    seen: list[int] = []
    missed = 0
    try:
        while writer.poll() is None:
            try:
                seen.append(_number(storax.load(path)))
            except storax.CheckpointChanged:
                missed += 1
            assert storax.metadata(path).item_metadata["number"].kind == "int"
    finally:
        writer.kill()
        assert writer.wait() in (0, -9)
    assert writer.returncode == 0
    seen.append(_number(storax.load(path)))
    assert seen == sorted(seen)
    assert seen[-1] == count
    assert len(set(seen)) > 2
    assert missed < len(seen)
    # Nothing is left of those that were open in this reader when they were replaced.
    storax.save(path, _tree(count), overwrite=True)
    assert os.listdir(tmp_path) == ["a"]


def _in_the_middle_of_a_load(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Does something once, when the first bytes of a value are read."""
    preadv, done = os.preadv, []

    def reads(*arguments: Any) -> int:
        if not done:
            done.append(True)
            act()
        return preadv(*arguments)

    monkeypatch.setattr(os, "preadv", reads)


def test_a_tree_replaced_in_the_middle_of_a_load_is_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "a"
    storax.save(path, {"w": np.full(100_000, 1)})
    _in_the_middle_of_a_load(
        monkeypatch, lambda: storax.save(path, {"w": np.full(100_000, 2)}, overwrite=True)
    )
    assert set(storax.load(path)["w"].tolist()) == {2}


def test_a_tree_replaced_twice_by_a_directory_of_the_same_number_is_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """File systems give the number of a deleted directory to the next one: same number, another tree."""
    path = tmp_path / "a"
    storax.save(path, {"w": np.full(100_000, 1)})

    def replace() -> None:
        for number in (2, 3, 4, 5):
            storax.save(path, {"w": np.full(100_000, number)}, overwrite=True)

    _in_the_middle_of_a_load(monkeypatch, replace)
    assert set(storax.load(path)["w"].tolist()) == {5}


def test_a_tree_deleted_in_the_middle_of_a_load_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import shutil

    path = tmp_path / "a"
    storax.save(path, {"w": np.full(100_000, 1), "v": np.full(100_000, 1)})
    _in_the_middle_of_a_load(monkeypatch, lambda: shutil.rmtree(path))
    with pytest.raises((storax.CheckpointChanged, storax.CheckpointNotFound), match=str(path)):
        storax.load(path)


def test_a_tree_that_appears_while_somebody_asks_for_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "a"
    identity, saved = posix.identity, []

    def late(asked: Path) -> Any:
        try:
            return identity(asked)
        finally:
            if not saved:
                saved.append(True)
                storax.save(path, {"w": 1})

    monkeypatch.setattr(posix, "identity", late)
    assert storax.load(path) == {"w": 1}
