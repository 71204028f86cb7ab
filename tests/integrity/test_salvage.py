"""What is whole of a damaged checkpoint, and the newest step that is."""

from __future__ import annotations

import shutil
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


def _run(tmp_path: Path) -> storax.CheckpointManager:
    manager = storax.CheckpointManager(tmp_path / "run")
    for step in (10, 20, 30):
        manager.save(step, args=storax.args.StandardSave({**TREE, "step": step}))
    manager.wait_until_finished()
    return manager


def test_a_damaged_newest_step_is_an_error_that_names_a_whole_one(tmp_path: Path) -> None:
    with _run(tmp_path) as manager:
        damage(tmp_path / "run" / "30")
        damage(tmp_path / "run" / "20")
        with pytest.raises(storax.Corrupt, match=r"step 30: bad\[.*Step 10 is whole: restore\(10\)"):
            manager.restore()
        damage(tmp_path / "run" / "10")
        with pytest.raises(storax.Corrupt, match="No other step is whole"):
            manager.restore(30, args=storax.args.StandardRestore({**TREE, "step": 0}))


def test_fallback_goes_to_the_newest_whole_step(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with _run(tmp_path) as manager:
        damage(tmp_path / "run" / "30")
        assert manager.newest_whole_step() == 20
        found = manager.restore(fallback=True, args=storax.args.StandardRestore({**TREE, "step": 0}))
        assert found["step"] == 20
        assert [r.message for r in caplog.records if "passed over step 30" in r.message]
        for step in (10, 20):
            damage(tmp_path / "run" / str(step))
        with pytest.raises(storax.Corrupt, match="no step that is whole"):
            manager.restore(fallback=True)
    with pytest.raises(storax.CheckpointNotFound):
        storax.CheckpointManager(tmp_path / "empty").restore(fallback=True)


def test_the_data_files_of_a_process_are_gone(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", TREE)
    shutil.rmtree(tmp_path / "a" / "ocdbt.process_0")
    with pytest.raises(storax.Corrupt, match=r"is missing.*salvage=True"):
        storax.load(tmp_path / "a")
    assert not storax.verify(tmp_path / "a").ok
    assert "bad" in storax.load(tmp_path / "a", salvage=True).lost


def test_what_is_whole_is_saved_without_the_list_of_checksums(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", TREE)
    for what in (b"{}", b"", None):
        path = tmp_path / "a" / "storax.checksums"
        path.unlink() if what is None else path.write_bytes(what)
        with pytest.raises(storax.Corrupt, match=r"storax\.checksums"):
            storax.load(tmp_path / "a")
        found = storax.load(tmp_path / "a", TREE, salvage=True)
        assert_same(found.tree, TREE)
        assert found.lost == {}


def test_fallback_from_a_named_step_goes_to_older_ones(tmp_path: Path) -> None:
    with _run(tmp_path) as manager:
        damage(tmp_path / "run" / "20")
        assert manager.restore(20, fallback=True)["step"] == 10
        assert manager.restore(30, fallback=True)["step"] == 30


def test_a_manager_of_one_checkpoint_or_of_a_file_is_refused(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", TREE)
    (tmp_path / "file").write_text("")
    for place in ("a", "file"):
        with pytest.raises(storax.BadOption, match="run"):
            storax.CheckpointManager(tmp_path / place)


def test_big_endian_arrays_may_be_placed(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", {"w": np.array([300, -1], ">i4")})
    found = storax.load(tmp_path / "a", to=jax.devices()[1])["w"]
    assert_same(found, jax.device_put(np.array([300, -1], np.int32), jax.devices()[1]), shardings=True)
