"""The directory of a manager: made, read only, reloaded, deleted from, and shared with other things."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import storax
from storax.store import posix

Options = storax.CheckpointManagerOptions
TREE = {"w": np.arange(4)}


def _saved(directory: Path, *steps: int, **options: Any) -> Path:
    with storax.CheckpointManager(directory, options=Options(**options)) as manager:
        for step in steps:
            assert manager.save(step, args=storax.args.StandardSave(TREE), force=True)
    return directory


def test_it_is_made_with_its_parents_unless_told_otherwise(tmp_path: Path):
    storax.CheckpointManager(tmp_path / "a" / "b").close()
    assert (tmp_path / "a" / "b").is_dir()
    with storax.CheckpointManager(tmp_path / "c", options=Options(create=False)) as manager:
        assert not (tmp_path / "c").exists()
        assert manager.all_steps() == []
        assert manager.latest_step() is None
        with pytest.raises(storax.CheckpointNotFound, match=r"c is not there.*create=False"):
            manager.save(1, args=storax.args.StandardSave(TREE))
        assert not (tmp_path / "c").exists()


def test_a_read_only_manager_writes_nothing(tmp_path: Path):
    _saved(tmp_path / "run", 1)
    dead = tmp_path / "run" / ("2.orbax-checkpoint-tmp-storax-" + "0" * 16)
    dead.mkdir()
    with storax.CheckpointManager(tmp_path / "run", options=Options(read_only=True)) as manager:
        assert manager.all_steps() == [1]
        assert not manager.should_save(2)
        assert manager.save(2, args=storax.args.StandardSave(TREE)) is False
        assert manager.save(2, args=storax.args.StandardSave(TREE), force=True) is False
        assert np.array_equal(manager.restore(1)["w"], TREE["w"])
        with pytest.raises(storax.BadOption, match="read-only"):
            manager.delete(1)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["1", dead.name]
    storax.CheckpointManager(tmp_path / "new", options=Options(read_only=True)).close()
    assert not (tmp_path / "new").exists()


def test_delete_takes_one_step_and_names_those_that_there_are(tmp_path: Path):
    _saved(tmp_path, 1, 2, 3)
    with storax.CheckpointManager(tmp_path) as manager:
        manager.delete(2)
        assert manager.all_steps() == [1, 3]
        with pytest.raises(storax.CheckpointNotFound, match=r"no committed step 2.*1, 3"):
            manager.delete(2)
        with pytest.raises(storax.CheckpointNotFound, match=r"no committed step 2.*1, 3"):
            manager.restore(2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "3"]


def test_delete_waits_for_the_save_of_the_same_step(tmp_path: Path):
    with storax.CheckpointManager(tmp_path) as manager:
        manager.save(1, args=storax.args.StandardSave(TREE))
        manager.delete(1)
        assert manager.all_steps() == []
    assert list(tmp_path.iterdir()) == []


def test_other_names_in_the_directory_are_no_steps(tmp_path: Path):
    _saved(tmp_path, 1)
    for name in ("7x", "x7", "ckpt_7", "best", "metadata", "-7", "7.5", "٣", "8.orbax-checkpoint-tmp"):
        (tmp_path / name / "default").mkdir(parents=True)
    (tmp_path / "9").write_text("a file")
    (tmp_path / "10").mkdir()  # empty, as a dead process of another program leaves it
    with storax.CheckpointManager(tmp_path) as manager:
        assert manager.all_steps() == [1]


def test_steps_are_found_whatever_their_padding(tmp_path: Path):
    _saved(tmp_path, 5)
    _saved(tmp_path, 12, step_format_fixed_length=6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000012", "5"]
    for digits in (None, 6):
        with storax.CheckpointManager(tmp_path, options=Options(step_format_fixed_length=digits)) as manager:
            assert manager.all_steps() == [5, 12]
            assert np.array_equal(manager.restore(5)["w"], TREE["w"])
            assert np.array_equal(manager.restore(12)["w"], TREE["w"])
            for step in (5, 12):
                with pytest.raises(storax.CheckpointExists, match="there already"):
                    manager.save(step, args=storax.args.StandardSave(TREE), force=True)


def test_prefixes_keep_two_runs_in_one_directory_apart(tmp_path: Path):
    _saved(tmp_path, 1, 2, step_prefix="a")
    _saved(tmp_path, 7, step_prefix="b", max_to_keep=1)
    _saved(tmp_path, 9)
    for prefix, steps in (("a", [1, 2]), ("b", [7]), (None, [9])):
        with storax.CheckpointManager(tmp_path, options=Options(step_prefix=prefix)) as manager:
            assert manager.all_steps() == steps


def test_reload_is_never_needed(tmp_path: Path):
    with storax.CheckpointManager(tmp_path) as manager:
        _saved(tmp_path, 3)
        assert manager.latest_step() == 3
        manager.reload()
        assert manager.all_steps(read=True) == [3]


def test_options_that_cannot_work_are_refused(tmp_path: Path):
    for options, name in (
        ({"save_interval_steps": 0}, "save_interval_steps|interval|every"),
        ({"max_to_keep": -1}, "max_to_keep|-1"),
        ({"best_fn": len, "best_mode": "most"}, "most"),
        ({"max_to_keep": 1, "keep_period": 0}, "keep_period|period|every|0"),
    ):
        with pytest.raises((storax.BadOption, ValueError), match=name):
            storax.CheckpointManager(tmp_path / "run", options=Options(**options))


def test_a_step_with_damaged_metrics_is_not_deleted_for_it(tmp_path: Path):
    """Metrics that cannot be read cost nobody a step: what stays is decided only by what is known."""
    options = {"best_fn": lambda m: m["loss"], "max_to_keep": 1, "enable_async_checkpointing": False}
    with storax.CheckpointManager(tmp_path, options=Options(**options)) as manager:
        manager.save(1, args=storax.args.StandardSave(TREE), metrics={"loss": 5.0})
    next((tmp_path / "1" / "metrics").glob("metrics")).write_bytes(b"{")
    with storax.CheckpointManager(tmp_path, options=Options(**options)) as manager:
        with pytest.raises(storax.Corrupt, match="metrics"):
            manager.save(2, args=storax.args.StandardSave(TREE), metrics={"loss": 1.0})
        assert manager.all_steps() == [1, 2]
        assert np.array_equal(manager.restore(1)["w"], TREE["w"])


def test_a_checkpointer_saves_waits_restores_and_replaces(tmp_path: Path):
    with storax.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", TREE)
        assert np.array_equal(checkpointer.restore(tmp_path / "a")["w"], TREE["w"])
        assert np.array_equal(checkpointer.restore(tmp_path / "a", TREE)["w"], TREE["w"])
        with pytest.raises(storax.CheckpointExists):
            checkpointer.save(tmp_path / "a", TREE)
        checkpointer.save(tmp_path / "a", {"w": np.zeros(2)}, force=True)
        checkpointer.wait_until_finished()
        assert np.array_equal(storax.load(tmp_path / "a")["w"], np.zeros(2))
        checkpointer.save(tmp_path / "b", TREE)
    assert np.array_equal(storax.load(tmp_path / "b")["w"], TREE["w"])


def test_closing_twice_is_fine_and_a_closed_manager_still_answers(tmp_path: Path):
    manager = storax.CheckpointManager(tmp_path)
    manager.save(1, args=storax.args.StandardSave(TREE))
    manager.close()
    manager.close()
    assert manager.all_steps() == [1]
    assert np.array_equal(manager.restore()["w"], TREE["w"])


def test_a_step_that_was_moved_and_linked_is_read_and_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "storax")
    run, disk = _saved(tmp_path / "run", 0, 1), tmp_path / "disk"
    disk.mkdir()
    os.rename(run / "0", disk / "0")
    (run / "0").symlink_to(disk / "0")
    _saved(run, 2, 3, max_to_keep=1)
    assert caplog.text.count("step 0 stays: it is a link") == 1
    with storax.CheckpointManager(run, options=Options(max_to_keep=1)) as manager:
        assert manager.all_steps() == [0, 3]
        assert np.array_equal(manager.restore(0)["w"], TREE["w"])
        assert "it is a link" in str(manager.explain_retention())
        manager.delete(0)
        assert manager.all_steps() == [3]
    assert os.listdir(run) == ["3"]
    assert np.array_equal(storax.load(disk / "0")["w"], TREE["w"])


def test_a_name_that_is_in_the_trash_already_fails_no_save(tmp_path: Path):
    for _ in range(2):
        _saved(tmp_path, 1, 2, max_to_keep=1, todelete_subdir="trash")
        with storax.CheckpointManager(tmp_path) as manager:
            manager.delete(2)
    assert sorted(os.listdir(tmp_path / "trash")) == ["1", "1.2"]


@pytest.mark.parametrize("prefix", ["run1/ckpt", "a.orbax-checkpoint-tmp"])
def test_names_that_would_not_be_found_again_are_refused(tmp_path: Path, prefix: str):
    with pytest.raises(storax.BadOption, match="step 0 would be called"):
        storax.CheckpointManager(tmp_path / "run", options=Options(step_prefix=prefix))


def test_a_format_whose_names_do_not_tell_the_step_is_refused(tmp_path: Path):
    class Format:
        def build_name(self, step: int) -> str:
            return f"s{step}-x"

    with pytest.raises(storax.BadOption, match=r"'s0-x'.*read as no step"):
        storax.CheckpointManager(tmp_path / "run", options=Options(step_name_format=Format()))


def test_a_best_fn_that_raises_deletes_nothing_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    options = Options(best_fn=lambda m: m["accuracy"], max_to_keep=2)
    with storax.CheckpointManager(tmp_path, options=options) as manager:
        for step, acc in enumerate([0.9, 0.95, 0.1, 0.1, 0.1]):
            manager.save(step, args=storax.args.StandardSave(TREE), metrics={"acc": acc})
        manager.wait_until_finished()
        assert manager.all_steps() == [0, 1, 2, 3, 4]
    assert caplog.text.count("best_fn raised KeyError") == 1


def test_a_pin_that_cannot_be_written_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    _saved(tmp_path, 0)
    write = posix.write_file

    def refuse(path: Path, data: Any) -> None:
        if "_PINNED" in path.name:
            raise storax.StoreError("disk full")
        write(path, data)

    with storax.CheckpointManager(tmp_path, options=Options(max_to_keep=1)) as manager:
        manager.pin(0, "paper")
        monkeypatch.setattr(posix, "write_file", refuse)
        with pytest.raises(storax.StoreError, match="disk full"):
            manager.pin(0, "paper, table 2")
        monkeypatch.undo()
        assert "it is pinned: paper\n" in f"{manager.explain_retention()}\n"
        manager.pin(0, "table 3")
        assert "it is pinned: table 3\n" in f"{manager.explain_retention()}\n"
    assert sorted(name for name in os.listdir(tmp_path / "0") if "PIN" in name) == ["_PINNED"]


def test_a_directory_of_notes_with_the_name_of_a_number_is_no_step(tmp_path: Path):
    _saved(tmp_path, 1)
    (tmp_path / "77").mkdir()
    (tmp_path / "77" / "notes.txt").write_text("mine")
    with storax.CheckpointManager(tmp_path, options=Options(max_to_keep=1)) as manager:
        assert manager.all_steps() == [1]
        manager.save(2, args=storax.args.StandardSave(TREE), force=True)
    assert (tmp_path / "77" / "notes.txt").exists()


@pytest.mark.parametrize(
    "name",
    ["_CHECKPOINT_METADATA", "commit_success.txt", "storax.checksums", "_PINNED", "metrics", "", ".x", "a/b"],
)
def test_an_item_with_the_name_of_a_document_is_refused_beforehand(tmp_path: Path, name: str):
    with storax.CheckpointManager(tmp_path) as manager:
        with pytest.raises(storax.BadOption, match="items cannot be called"):
            manager.save(1, args=storax.args.Composite(**{name: storax.args.StandardSave(TREE)}))
        assert os.listdir(tmp_path) == []
