"""How Orbax behaves in the corners: one idiom after another, with storax and with Orbax.

Where storax does it otherwise on purpose, the test says how, and docs/from-orbax.md why.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from tests.compat.side_by_side import both, outcome, plain, shows

import storax


def saved_steps(ocp: Any, directory: Path, steps: Any, metrics: Any = None, **options: Any) -> Any:
    mngr = ocp.CheckpointManager(directory, options=ocp.CheckpointManagerOptions(**options))
    for step in steps:
        measured = None if metrics is None else metrics.get(step)
        mngr.save(step, args=ocp.args.StandardSave({"w": np.full(2, step)}), metrics=measured)
    mngr.wait_until_finished()
    return mngr


def test_a_dict_of_checkpointers_takes_new_arguments_too(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        handlers = {
            "state": ocp.PyTreeCheckpointer(),
            "config": ocp.Checkpointer(ocp.JsonCheckpointHandler()),
        }
        mngr = ocp.CheckpointManager(directory, handlers)
        mngr.save(0, {"state": {"a": np.arange(2)}, "config": {"b": 1}})
        save = ocp.args.Composite(
            state=ocp.args.PyTreeSave({"a": np.ones(2)}), config=ocp.args.JsonSave({"b": 2})
        )
        mngr.save(1, args=save)
        args = ocp.args.Composite(state=ocp.args.PyTreeRestore(), config=ocp.args.JsonRestore())
        return [dict(mngr.restore(step, args=args).items()) for step in (0, 1)]

    both(program, tmp_path)


def test_handlers_by_item_take_the_older_calls_and_leave_out_what_is_left_out(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        handlers = {"a": ocp.StandardCheckpointHandler(), "b": ocp.PyTreeCheckpointHandler()}
        mngr = ocp.CheckpointManager(directory, item_handlers=handlers)
        mngr.save(0, {"a": {"x": np.arange(2)}, "b": {"y": np.ones(1)}})
        found = mngr.restore(0, items={"b": {"y": np.zeros(1)}})
        return found["b"], found.get("a", "absent")

    both(program, tmp_path)


def test_a_manager_without_handlers_saves_a_tree_the_older_way(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        mngr = ocp.CheckpointManager(directory)
        return outcome(lambda: mngr.save(0, {"a": np.arange(2)})), outcome(lambda: mngr.restore(0))

    ours, theirs = both(program, tmp_path, same=False)
    assert theirs[0] in ("ValueError", "KeyError")
    assert ours[0] is True
    assert plain(ours[1]) == plain({"a": np.arange(2)})


@shows("CheckpointManager.check_for_errors", "CheckpointManager.is_saving_in_progress")
def test_after_a_save_there_is_no_error_and_none_runs(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        mngr = ocp.CheckpointManager(directory)
        mngr.save(0, args=ocp.args.StandardSave({"a": np.zeros(1)}))
        mngr.wait_until_finished()
        mngr.check_for_errors()
        return mngr.is_saving_in_progress(), mngr.directory == directory

    both(program, tmp_path)


def test_args_win_over_items(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        mngr = ocp.CheckpointManager(directory)
        mngr.save(0, {"a": np.zeros(1)}, args=ocp.args.StandardSave({"a": np.ones(1)}))
        return mngr.restore(0)

    both(program, tmp_path)


def test_standard_and_pytree_are_one_format(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        saved_steps(ocp, directory, [0])
        older = ocp.CheckpointManager(directory, ocp.PyTreeCheckpointer()).restore(0)
        newer = ocp.CheckpointManager(directory).restore(0, args=ocp.args.PyTreeRestore())
        item = ocp.Checkpointer(ocp.PyTreeCheckpointHandler()).restore(directory / "0" / "default")
        return older, newer, item

    both(program, tmp_path)


@shows("CheckpointManager.all_steps", "CheckpointManager.save returns")
def test_what_save_returns(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        mngr = ocp.CheckpointManager(directory)
        save = lambda step, **more: mngr.save(step, args=ocp.args.StandardSave({"w": np.ones(1)}), **more)  # noqa: E731
        return [save(3), save(3), save(1), save(1, force=True)], sorted(
            mngr.wait_until_finished() or mngr.all_steps()
        )

    both(program, tmp_path)


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"max_to_keep": 1, "keep_period": 2}, range(4)),
        ({"max_to_keep": 2}, range(4)),
        ({"save_interval_steps": 3}, range(8)),
        ({"save_interval_steps": 4, "save_on_steps": [5, 6]}, range(1, 10)),
        ({}, [0, 5]),
    ],
    ids=str,
)
@shows(
    "CheckpointManagerOptions(max_to_keep)",
    "CheckpointManagerOptions(keep_period)",
    "CheckpointManagerOptions(save_interval_steps)",
    "CheckpointManagerOptions(save_on_steps)",
)
def test_which_steps_there_are(tmp_path: Path, options: dict[str, Any], steps: Any) -> None:
    both(lambda ocp, directory: sorted(saved_steps(ocp, directory, steps, **options).all_steps()), tmp_path)


def test_without_metrics_all_steps_stay_and_none_is_best(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        mngr = saved_steps(ocp, directory, range(4), best_fn=lambda m: m["x"], max_to_keep=2)
        return sorted(mngr.all_steps()), mngr.best_step()

    both(program, tmp_path)


def test_the_newest_step_outlives_better_ones(tmp_path: Path) -> None:
    metrics = {1: {"x": 9.0}, 2: {"x": 8.0}, 3: {"x": 1.0}}

    def program(ocp: Any, directory: Path) -> Any:
        mngr = saved_steps(ocp, directory, metrics, metrics, best_fn=lambda m: m["x"], max_to_keep=2)
        return sorted(mngr.all_steps()), mngr.latest_step(), mngr.best_step()

    ours, theirs = both(program, tmp_path, same=False)
    assert theirs == ([1, 2], 2, 1)
    assert ours == ([1, 2, 3], 3, 1)


def test_the_newest_step_goes_if_that_is_asked(tmp_path: Path) -> None:
    metrics = {1: {"x": 9.0}, 2: {"x": 8.0}, 3: {"x": 1.0}}
    mngr = saved_steps(
        storax, tmp_path, metrics, metrics, best_fn=lambda m: m["x"], max_to_keep=2, keep_newest=False
    )
    assert mngr.all_steps() == [1, 2]


@shows("NaN metrics", "metrics that are jax scalars")
def test_a_metric_that_is_not_a_number_ranks_last(tmp_path: Path) -> None:
    metrics = {1: {"x": jnp.float32(2.0)}, 2: {"x": jnp.float32("nan")}, 3: {"x": np.float64(1.0)}}
    mngr = saved_steps(storax, tmp_path, metrics, metrics, best_fn=lambda m: m["x"], max_to_keep=2)
    assert mngr.all_steps() == [1, 3]
    assert mngr.best_step() == 1
    mngr.save(4, args=storax.args.StandardSave({"w": np.ones(1)}), metrics={"x": float("nan")})
    mngr.wait_until_finished()
    assert "NaN" in str(mngr.explain_retention()[-1])


def test_the_log_says_once_why_a_step_is_not_saved(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="storax"):
        mngr = saved_steps(storax, tmp_path, range(12), save_interval_steps=5)
    said = [record.message for record in caplog.records if "not saved" in record.message]
    assert len(said) == 1
    assert "step 1 is not saved: it is not the first; it is not a multiple of 5" in said[0]
    assert mngr.all_steps() == [0, 5, 10]


@shows("CheckpointManagerOptions(step_format_fixed_length)")
def test_how_steps_are_called(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        for index, options in enumerate(({"step_prefix": "ckpt"}, {"step_format_fixed_length": 6}, {})):
            saved_steps(ocp, directory / str(index), [3], **options)
        return [sorted(p.name for p in (directory / str(index)).iterdir()) for index in range(3)]

    both(program, tmp_path)


@shows(
    "step.standard_name_format",
    "step.build_step_path",
    "step.latest_step_metadata",
    "step.NameFormat",
    "step.Metadata",
    "step.is_path_finalized",
    "step.checkpoint_steps",
    "step.build_step_metadatas",
    "CheckpointManagerOptions(step_name_format)",
    "utils.checkpoint_steps_paths",
    "utils.TMP_DIR_SUFFIX",
    "checkpoint_manager.METADATA_ITEM_NAME",
    "checkpoint_manager.DEFAULT_ITEM_NAME",
)
def test_the_names_of_steps(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        format = ocp.step.standard_name_format(step_prefix="s", step_format_fixed_length=4)
        saved_steps(ocp, directory, [2, 11], step_name_format=format)
        newest = ocp.path.step.latest_step_metadata(directory, format)
        found = sorted(one.step for one in format.find_all(directory))
        path = ocp.step.build_step_path(directory, format, 11)
        built = list(
            ocp.step.build_step_metadatas([Path("a"), Path("b")], lambda p: p.name if p.name == "a" else None)
        )
        return (
            (newest.step, newest.path.name),
            found,
            path.name,
            ocp.step.is_path_finalized(path),
            format.find_step(directory, 2).path.name,
            sorted(ocp.step.checkpoint_steps(directory)),
            sorted(p.name for p in ocp.utils.checkpoint_steps_paths(directory)),
            built,
            ocp.utils.TMP_DIR_SUFFIX,
            ocp.checkpoint_manager.METADATA_ITEM_NAME,
            ocp.checkpoint_manager.DEFAULT_ITEM_NAME,
        )

    both(program, tmp_path)
