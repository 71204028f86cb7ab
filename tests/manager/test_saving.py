"""``save``: when it does, what it takes, what it says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import storax

Options = storax.CheckpointManagerOptions
TREE = {"w": np.arange(4)}


def _save(manager: Any, step: Any, **more: Any) -> bool:
    return bool(manager.save(step, args=storax.args.StandardSave(TREE), **more))


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(7, id="int"),
        pytest.param(np.int64(7), id="np.int64"),
        pytest.param(np.uint8(7), id="np.uint8"),
        pytest.param(np.array(7), id="0-d numpy array"),
        pytest.param(jnp.int32(7), id="0-d jax.Array"),
        pytest.param(jnp.uint32(7), id="0-d unsigned jax.Array"),
    ],
)
def test_a_step_is_any_whole_number(tmp_path: Path, step: Any):
    with storax.CheckpointManager(tmp_path) as manager:
        assert manager.should_save(step)
        assert _save(manager, step, metrics={"loss": 1.5})
        manager.wait_until_finished()
        assert manager.all_steps() == [7]
        assert type(manager.latest_step()) is int
        assert np.array_equal(manager.restore(step)["w"], TREE["w"])
        assert manager.metrics(step) == {"loss": 1.5}
        assert manager.metadata(step).nbytes == 32
        assert manager.item_metadata(step)["w"].shape == (4,)
        assert not manager.should_save(step)
        manager.delete(step)
        assert manager.all_steps() == []


@pytest.mark.parametrize("step", [1.0, "1", None, np.array([1]), np.float32(1), True, -1])
def test_anything_else_is_refused(tmp_path: Path, step: Any):
    with storax.CheckpointManager(tmp_path) as manager, pytest.raises(storax.BadOption, match="step"):
        _save(manager, step)
    assert list(tmp_path.iterdir()) == []


def test_save_says_whether_it_saved(tmp_path: Path):
    with storax.CheckpointManager(tmp_path, options=Options(save_interval_steps=2)) as manager:
        assert [_save(manager, step) for step in range(1, 6)] == [True, True, False, True, False]
        assert _save(manager, 5, force=True)
        manager.wait_until_finished()
        assert manager.all_steps() == [1, 2, 4, 5]
        assert not _save(manager, 3)
        assert _save(manager, 3, force=True)
        manager.wait_until_finished()
        assert manager.all_steps() == [1, 2, 3, 4, 5]


def test_an_existing_step_is_not_saved_again(tmp_path: Path):
    with storax.CheckpointManager(tmp_path) as manager:
        assert _save(manager, 3)
        assert not _save(manager, 3)  # also while it is being saved
        manager.wait_until_finished()
        assert not _save(manager, 3)
        for kind in (storax.CheckpointExists, FileExistsError, ValueError):
            with pytest.raises(kind, match=r"3 is there already.*delete\(3\)"):
                _save(manager, 3, force=True)
        assert manager.all_steps() == [3]


def test_a_deleted_step_can_be_saved_again(tmp_path: Path):
    with storax.CheckpointManager(tmp_path) as manager:
        assert _save(manager, 3)
        manager.delete(3)
        assert manager.latest_step() is None
        assert manager.should_save(3)
        assert _save(manager, 3)
        manager.wait_until_finished()
        assert manager.all_steps() == [3]


def test_a_step_that_somebody_else_deleted_can_be_saved_again(tmp_path: Path):
    with storax.CheckpointManager(tmp_path) as manager, storax.CheckpointManager(tmp_path) as other:
        assert _save(manager, 3)
        manager.wait_until_finished()
        other.delete(3)
        assert _save(manager, 3)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (None, "StandardSave"),
        (TREE, "StandardSave"),
        (storax.args.StandardRestore(TREE), "StandardSave"),
    ],
)
def test_what_cannot_be_saved_is_refused_before_anything_is_written(tmp_path: Path, args: Any, message: str):
    with storax.CheckpointManager(tmp_path) as manager:
        with pytest.raises((storax.Misuse, TypeError, ValueError), match=message):
            manager.save(1, args=args)
        with pytest.raises(storax.UnsupportedLeaf):
            manager.save(1, args=storax.args.StandardSave({"f": print}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("metrics", "read"),
    [
        ({"loss": 1.5, "n": 3}, {"loss": 1.5, "n": 3}),
        ({"loss": np.float32(0.5), "n": np.int64(2), "ok": np.bool_(True)}, {"loss": 0.5, "n": 2, "ok": 1}),
        ({"loss": np.array(0.25)}, {"loss": 0.25}),
        ({"loss": jnp.float32(2.5), "n": jnp.int32(4)}, {"loss": 2.5, "n": 4}),
        ({"loss": jnp.bfloat16(1.5)}, {"loss": 1.5}),
        ({"loss": float("inf"), "low": float("-inf")}, {"loss": float("inf"), "low": float("-inf")}),
        ({}, {}),
    ],
)
def test_metrics_are_numbers_of_any_kind(tmp_path: Path, metrics: dict[str, Any], read: dict[str, Any]):
    with storax.CheckpointManager(tmp_path) as manager:
        assert _save(manager, 1, metrics=metrics)
        manager.wait_until_finished()
        assert manager.metrics(1) == read
        assert manager.metadata(1).metrics == read


def test_a_nan_is_a_metric(tmp_path: Path):
    with storax.CheckpointManager(tmp_path) as manager:
        assert _save(manager, 1, metrics={"loss": jnp.float32("nan")})
        manager.wait_until_finished()
        assert np.isnan(manager.metrics(1)["loss"])


@pytest.mark.parametrize("value", ["1", None, np.ones(3), [1], 1j])
def test_other_metrics_are_refused_with_their_name(tmp_path: Path, value: Any):
    with storax.CheckpointManager(tmp_path) as manager:
        with pytest.raises(storax.BadOption, match="accuracy"):
            _save(manager, 1, metrics={"accuracy": value})
        assert manager.all_steps() == []


def test_a_step_without_metrics_has_none(tmp_path: Path):
    with storax.CheckpointManager(tmp_path) as manager:
        assert _save(manager, 1)
        manager.wait_until_finished()
        assert manager.metrics(1) is None


def test_without_async_the_step_is_there_when_save_returns(tmp_path: Path):
    with storax.CheckpointManager(tmp_path, options=Options(enable_async_checkpointing=False)) as manager:
        for step in range(3):
            assert _save(manager, step)
            assert manager.all_steps() == list(range(step + 1))
            assert not manager.is_saving_in_progress()


def test_a_relative_path_means_what_it_meant_at_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    manager = storax.CheckpointManager("runs/a")
    assert manager.directory == tmp_path / "runs" / "a"
    handle = storax.save_async(Path("trees") / "b", TREE)
    os.chdir(tmp_path / "elsewhere")
    handle.result()
    assert _save(manager, 1)
    manager.wait_until_finished()
    assert np.array_equal(manager.restore(1)["w"], TREE["w"])
    manager.close()
    assert (tmp_path / "runs" / "a" / "1").is_dir()
    assert (tmp_path / "trees" / "b").is_dir()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_custom_metadata_of_a_step_and_of_the_run(tmp_path: Path):
    with storax.CheckpointManager(tmp_path, metadata={"project": "x"}) as manager:
        assert _save(manager, 1, custom_metadata={"data": "v2"})
        manager.wait_until_finished()
        assert manager.metadata(1).custom_metadata == {"data": "v2"}
        assert manager.all_steps() == [1]  # the run's own metadata is no step
    with storax.CheckpointManager(tmp_path, metadata={"project": "other"}) as manager:
        assert dict(manager.metadata()) == {"project": "x"} or manager.metadata().custom_metadata == {
            "project": "x"
        }
