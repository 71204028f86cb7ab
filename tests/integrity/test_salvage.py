"""What is whole of a damaged checkpoint, and the newest step that is."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.same import assert_same

import storax

TREE = {
    "bad": np.arange(100_000),
    "good": np.arange(100_000) + 1,
    "layers": [jnp.ones(3), {"w": jnp.arange(4.0)}],
    "text": "hello",
}


def damage(checkpoint: Path, offset: int = 4096 + 1000) -> None:
    """Two bytes of the first large chunk of the tree."""
    data = max(checkpoint.rglob("d/*"), key=lambda path: path.stat().st_size)
    with data.open("r+b") as file:
        file.seek(offset)
        file.write(b"\xff\xff")


def test_without_a_target_the_whole_leaves_come_by_name(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", TREE)
    damage(tmp_path / "a")
    with pytest.raises(storax.Corrupt, match="bad"):
        storax.load(tmp_path / "a")
    found = storax.load(tmp_path / "a", salvage=True)
    wanted = {
        "good": TREE["good"],
        "layers.0": jnp.ones(3),
        "layers.1.w": jnp.arange(4.0),
        "text": "hello",
    }
    assert_same(found.tree, wanted)
    assert list(found.lost) == ["bad"]
    assert "checksum" in found.lost["bad"]


def test_with_a_target_lost_leaves_keep_its_values(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", TREE)
    damage(tmp_path / "a")
    target = jax.tree.map(lambda x: x if isinstance(x, str) else x * 0, TREE)
    found = storax.load(tmp_path / "a", target, salvage=True)
    assert_same(found.tree, TREE | {"bad": target["bad"]})
    assert list(found.lost) == ["bad"]


def test_a_whole_checkpoint_loses_nothing(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", TREE)
    found = storax.load(tmp_path / "a", TREE, salvage=True)
    assert_same(found.tree, TREE)
    assert found.lost == {}


def test_a_missing_data_file_and_a_damaged_string(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", TREE)
    max((tmp_path / "a" / "ocdbt.process_0" / "d").iterdir(), key=lambda p: p.stat().st_size).unlink()
    (tmp_path / "a" / "_strings.json").write_text('{"text": "hullo"}')
    found = storax.load(tmp_path / "a", salvage=True)
    assert sorted(found.lost) == ["bad", "good", "text"]
    assert sorted(found.tree) == ["layers.0", "layers.1.w"]
