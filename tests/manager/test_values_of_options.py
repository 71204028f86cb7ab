"""Goes with saving.patch and content.patch; e.g. into tests/manager/test_values_of_options.py."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import storax


@pytest.mark.parametrize("custom", [{1: "a", "1": "b"}, {"a": [float("nan")]}, {"a": float("inf")}])
def test_custom_metadata_that_would_not_come_back_is_refused(custom: Any, tmp_path: Path) -> None:
    with pytest.raises(storax.BadOption, match="custom_metadata would not come back"):
        storax.save(tmp_path / "a", {"w": 1}, custom_metadata=custom)
    assert not (tmp_path / "a").exists()


def test_a_relative_trace_of_a_background_save_is_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    moved = threading.Event()

    def wait(done: int, total: int) -> None:
        assert moved.wait(60)

    handle = storax.save_async("a", {"w": np.zeros(5000)}, trace="t.json", progress=wait)
    os.chdir(tmp_path / "other")
    moved.set()
    handle.result()
    assert not (tmp_path / "other" / "t.json").exists()
    assert '"save"' in (tmp_path / "t.json").read_text()


def test_metrics_and_steps_that_are_none(tmp_path: Path) -> None:
    args = storax.args.StandardSave({"w": 1})
    with storax.CheckpointManager(tmp_path / "run") as manager:
        with pytest.raises(storax.BadOption, match="metrics is a list; give a dict"):
            manager.save(0, args=args, metrics=[1])
        with pytest.raises(storax.BadOption, match=r"beyond 64 bits.*2\*\*63") as raised:
            manager.save(10**300, args=args)
        assert len(str(raised.value)) < 200
        manager.save(1, args=args, metrics={"n": 10**30})
        manager.wait_until_finished()
        assert manager.metrics(1) == {"n": 10**30}
