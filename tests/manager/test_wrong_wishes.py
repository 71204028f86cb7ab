"""Items asked for in another form than they have, and the advice at a damaged step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import storax
from storax.items import Composite
from storax.manager import reading


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Any]:
    with storax.CheckpointManager(tmp_path / "run") as manager:
        for step in range(5):
            items = storax.args.Composite(
                params=storax.args.StandardSave({"w": np.full(3000, step)}),
                config=storax.args.JsonSave({"a": 1}),
            )
            manager.save(step, args=items)
        manager.wait_until_finished()
        yield manager


def _damage(step: Path) -> None:
    (step / "params" / "_METADATA").write_bytes(b"{}")


def _watched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    looked: list[str] = []
    verify = reading.verify

    def watch(path: Path) -> Any:
        looked.append(path.name)
        return verify(path)

    monkeypatch.setattr(reading, "verify", watch)
    return looked


def test_a_json_item_asked_for_as_a_tree(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = _watched(monkeypatch)
    for wish in (
        storax.args.StandardRestore(),
        storax.args.PyTreeRestore(),
        storax.args.StandardRestore({"a": 0}),
    ):
        with pytest.raises(storax.BadOption, match=r"'config' is JSON.*JsonRestore\(\)"):
            run.restore(4, args=storax.args.Composite(config=wish))
    assert looked == []


def test_a_tree_asked_for_as_json(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = _watched(monkeypatch)
    with pytest.raises(storax.BadOption, match=r"'params' is a tree.*StandardRestore\(\)"):
        run.restore(4, args=storax.args.Composite(params=storax.args.JsonRestore()))
    assert looked == []


def test_advice_looks_at_the_newest_two_other_steps_only(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (4, 3, 2):
        _damage(run.directory / str(step))
    looked = _watched(monkeypatch)
    with pytest.raises(
        storax.Corrupt, match=r"step 4: .*newest others are damaged too; restore\(fallback=True\)"
    ):
        run.restore(4)
    assert looked == ["3", "2"]


def test_advice_reads_nothing_when_the_step_is_large(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _damage(run.directory / "4")
    looked = _watched(monkeypatch)
    monkeypatch.setattr(reading, "_MOST_ADVISED_BYTES", 1000)
    with pytest.raises(storax.Corrupt, match=r"step 4: .*restore\(fallback=True\) restores the newest step"):
        run.restore(4)
    assert looked == []


def test_an_item_may_be_called_self() -> None:
    assert Composite(**{"self": 1})["self"] == 1
