"""What belongs to a checkpoint: nothing else is replaced with it, and nothing is saved inside it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import storax
from storax.store import layout

FIXTURES = Path(__file__).parents[1] / "interop" / "fixtures"
TREE = {"w": np.arange(3)}


def test_overwriting_a_checkpoint_with_something_of_the_users_in_it_is_refused(tmp_path: Path):
    storax.save(tmp_path / "a", TREE)
    (tmp_path / "a" / "notes.txt").write_text("mine")
    (tmp_path / "a" / "plots").mkdir()
    with pytest.raises(storax.BadOption, match=r"would be lost: notes\.txt, plots\. Move that out first"):
        storax.save(tmp_path / "a", {"w": 1}, overwrite=True)
    assert (tmp_path / "a" / "notes.txt").read_text() == "mine"
    assert os.listdir(tmp_path) == ["a"]


def test_a_checkpoint_inside_one_is_a_stranger(tmp_path: Path):
    storax.save(tmp_path / "a", TREE)
    storax.save(tmp_path / "best", TREE)
    os.rename(tmp_path / "best", tmp_path / "a" / "best")
    assert layout.strangers(tmp_path / "a") == ["best"]


def test_nothing_is_saved_inside_a_checkpoint(tmp_path: Path):
    storax.save(tmp_path / "a", TREE)
    before = sorted(os.listdir(tmp_path / "a"))
    with pytest.raises(storax.BadOption, match="a is a checkpoint, so nothing is saved inside it"):
        storax.save(tmp_path / "a" / "best", TREE)
    assert sorted(os.listdir(tmp_path / "a")) == before


def test_beside_the_steps_of_a_run_anything_is_saved(tmp_path: Path):
    with storax.CheckpointManager(tmp_path) as manager:
        manager.save(1, args=storax.args.StandardSave(TREE))
    storax.save(tmp_path / "best", TREE)
    assert np.array_equal(storax.load(tmp_path / "best")["w"], TREE["w"])


def test_overwriting_through_a_link_keeps_the_link(tmp_path: Path):
    storax.save(tmp_path / "disk" / "a", TREE)
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "a")
    storax.save(tmp_path / "link", {"w": np.ones(2)}, overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert np.array_equal(storax.load(tmp_path / "disk" / "a")["w"], np.ones(2))
    assert sorted(os.listdir(tmp_path)) == ["disk", "link"]


@pytest.mark.parametrize(
    "directory",
    sorted({path.parent for path in FIXTURES.rglob("_CHECKPOINT_METADATA") if "-tmp" not in str(path)}),
    ids=lambda path: str(path.relative_to(FIXTURES)),
)
def test_what_orbax_writes_belongs(directory: Path):
    assert layout.is_checkpoint(directory)
    assert layout.strangers(directory) == []


def test_everything_that_a_manager_writes_belongs(tmp_path: Path):
    with storax.CheckpointManager(tmp_path) as manager:
        items = {"params": storax.args.StandardSave(TREE), "config": storax.args.JsonSave({"a": 1})}
        manager.save(1, args=storax.args.Composite(**items), metrics={"loss": 1.0})
        manager.pin(1, "paper")
    assert layout.strangers(tmp_path / "1") == []
    (tmp_path / "1" / "_CHECKPOINT_METADATA").unlink()
    assert layout.strangers(tmp_path / "1") == []
    assert layout.is_checkpoint(tmp_path / "1")
