"""How Orbax behaves in the corners: one idiom after another, with storax and with Orbax.

Where storax does it otherwise on purpose, the test says how, and docs/from-orbax.md why.
"""

from __future__ import annotations

import gc
import random
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from google.protobuf import struct_pb2
from tests.compat.side_by_side import both, outcome, plain, shows
from tests.devices import on_mesh, sharding

import storax
from storax.errors import BadOption


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


def test_what_a_restore_without_a_target_gives(tmp_path: Path) -> None:
    tree = {
        "none": None, "dict": {}, "list": [], "tuple": (), "int": 3, "float": 0.5, "np": np.arange(3),
        "jax": on_mesh(np.arange(8, dtype=np.float32), "data"), "pair": (np.ones(1), [np.zeros(2)]),
    }  # fmt: skip

    def program(ocp: Any, directory: Path) -> Any:
        ocp.PyTreeCheckpointer().save(directory / "x", tree)
        found = ocp.PyTreeCheckpointer().restore(directory / "x")
        return found, found["jax"].sharding == tree["jax"].sharding, type(found["pair"]).__name__

    ours, theirs = both(program, tmp_path, same=False)
    assert plain(ours[:2]) == plain(theirs[:2])
    assert (ours[2], theirs[2]) == ("tuple", "list")


# Orbax leaves coroutines behind when it fails.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_target_that_does_not_fit(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        checkpointer = ocp.Checkpointer(ocp.StandardCheckpointHandler())
        checkpointer.save(directory / "x", args=ocp.args.StandardSave({"a": jnp.ones(3), "b": jnp.ones(2)}))

        def restored(target: Any, **more: Any) -> Any:
            return outcome(
                lambda: checkpointer.restore(directory / "x", args=ocp.args.StandardRestore(target, **more))
            )

        a, b = jnp.zeros(3), jnp.zeros(2)
        cut = restored({"a": jnp.zeros(2), "b": jnp.zeros(4)}, strict=False)
        return (
            restored({"a": jnp.zeros(4), "b": b}),
            restored({"a": a}),
            restored({"a": a, "b": b, "c": a}),
            cut,
        )

    both(program, tmp_path)
    gc.collect()


def test_what_orbax_cannot_save(tmp_path: Path) -> None:
    trees = {
        "string": {"s": "text", "a": np.ones(1)}, "zero-size": {"a": np.zeros((0, 3)), "b": np.ones(1)},
        "bare": jnp.arange(3), "int keys": {1: np.ones(1), 2: np.zeros(1)}, "empty": {},
    }  # fmt: skip

    def program(ocp: Any, directory: Path) -> Any:
        found = {}
        for name, tree in trees.items():
            checkpointer = ocp.Checkpointer(ocp.StandardCheckpointHandler())

            def act(path: Path = directory / name, tree: Any = tree, checkpointer: Any = checkpointer) -> Any:
                checkpointer.save(path, args=ocp.args.StandardSave(tree))
                return checkpointer.restore(path)

            found[name] = outcome(act)
        return found

    ours, theirs = both(program, tmp_path, same=False)
    assert plain(ours) == plain(trees)
    assert list(ours["int keys"]) == [1, 2]
    refused = {name for name, value in theirs.items() if value in ("ValueError", "TypeError")}
    assert {"string", "zero-size", "bare"} <= refused


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def program(ocp: Any, directory: Path) -> Any:
        relative = directory.relative_to(tmp_path) / "x"
        return outcome(lambda: ocp.PyTreeCheckpointer().save(relative, {"a": np.ones(1)})), (
            directory / "x"
        ).is_dir()

    assert both(program, tmp_path, same=False) == ((None, True), ("ValueError", False))


def test_two_leaves_never_share_their_storage(tmp_path: Path) -> None:
    tree = {"a.b": np.zeros(2), "a": {"b": np.ones(2)}}

    def program(ocp: Any, directory: Path) -> Any:
        def act() -> Any:
            ocp.PyTreeCheckpointer().save(directory / "x", tree)
            return ocp.PyTreeCheckpointer().restore(directory / "x")

        return outcome(act)

    ours, theirs = both(program, tmp_path, same=False)
    assert ours == "ValueError"
    assert plain(theirs) != plain(tree)


def test_missing_leaves_are_filled_aloud(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    storax.save(tmp_path / "x", {"a": np.arange(3)})
    found = storax.PyTreeCheckpointer().restore(
        tmp_path / "x", item={"a": np.zeros(3), "new": np.full(2, 9.0)}, transforms={}
    )
    assert plain(found) == plain({"a": np.arange(3), "new": np.full(2, 9.0)})
    assert "has no new: the target's own values stay" in caplog.text
    with pytest.raises(storax.TreeMismatch):
        storax.PyTreeCheckpointer().restore(
            tmp_path / "x", item={"a": np.zeros(3), "new": jax.ShapeDtypeStruct((2,), float)}, transforms={}
        )


def test_a_float_does_not_become_an_int_by_itself(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        checkpointer = ocp.Checkpointer(ocp.StandardCheckpointHandler())
        checkpointer.save(directory / "x", args=ocp.args.StandardSave({"a": jnp.full(2, 1.75)}))
        args = ocp.args.StandardRestore({"a": jnp.zeros(2, jnp.int32)})
        return outcome(lambda: checkpointer.restore(directory / "x", args=args))

    ours, theirs = both(program, tmp_path, same=False)
    assert ours == "ValueError"
    assert plain(theirs) == plain({"a": jnp.ones(2, jnp.int32)})


def test_plain_files_are_not_deleted_by_force(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        (directory / "x").mkdir()
        (directory / "x" / "notes.txt").write_text("mine")
        saved = outcome(lambda: ocp.PyTreeCheckpointer().save(directory / "x", {"a": np.ones(1)}, force=True))
        return saved, (directory / "x" / "notes.txt").exists()

    ours, theirs = both(program, tmp_path, same=False)
    assert ours == ("ValueError", True)
    assert theirs == (None, False)


@shows(
    "args.JaxRandomKeySave",
    "args.JaxRandomKeyRestore",
    "args.NumpyRandomKeySave",
    "args.NumpyRandomKeyRestore",
    "args.ArraySave",
    "args.ArrayRestore",
    "args.ProtoSave",
    "args.ProtoRestore",
    "ProtoCheckpointHandler",
    "ArrayCheckpointHandler",
    "nested Composite",
)
def test_keys_arrays_messages_and_items_inside_an_item(tmp_path: Path) -> None:
    message = struct_pb2.Struct()
    message["a"] = 1.5
    random.seed(3)
    state = random.getstate()
    numpy_state = np.random.RandomState(4).get_state()

    def save(ocp: Any, directory: Path) -> None:
        with ocp.CheckpointManager(directory) as mngr:
            args = ocp.args
            items = args.Composite(
                key=args.JaxRandomKeySave(jax.random.key(1)),
                raw=args.JaxRandomKeySave(jax.random.PRNGKey(2)),
                numpy=args.NumpyRandomKeySave(numpy_state),
                array=args.ArraySave(jnp.arange(3)),
                number=args.ArraySave(4),
                proto=args.ProtoSave(message),
                rngs=args.Composite(python=args.StandardSave(state), env=args.JsonSave({"seed": 1})),
            )
            mngr.save(0, args=items)

    def load(ocp: Any, directory: Path) -> Any:
        args = ocp.args
        wanted = args.Composite(
            key=args.JaxRandomKeyRestore(),
            raw=args.JaxRandomKeyRestore(),
            numpy=args.NumpyRandomKeyRestore(),
            array=args.ArrayRestore(),
            number=args.ArrayRestore(),
            proto=args.ProtoRestore(struct_pb2.Struct),
            rngs=args.Composite(python=args.StandardRestore(), env=args.JsonRestore()),
        )
        found = ocp.CheckpointManager(directory).restore(0, args=wanted)
        values = {name: found[name] for name in ("key", "raw", "numpy", "array", "number")}
        return values, dict(found["proto"]), found.rngs.env, found["rngs"]["python"]

    def program(ocp: Any, directory: Path) -> Any:
        save(ocp, directory)
        return load(ocp, directory)

    both(program, tmp_path)
    # Each reads what the other wrote.
    import orbax.checkpoint

    assert plain(load(storax, tmp_path / "orbax")) == plain(load(orbax.checkpoint, tmp_path / "storax"))


@shows(
    "type_handlers.register_type_handler",
    "type_handlers.SingleReplicaArrayHandler",
    "type_handlers.is_ocdbt_checkpoint",
)
def test_handlers_of_leaf_types_are_taken(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        if ocp is storax:  # Orbax would keep it, for all tests after this one
            handler = ocp.type_handlers.SingleReplicaArrayHandler(
                replica_axis_index=0, broadcast_memory_limit_bytes=1 << 30
            )
            ocp.type_handlers.register_type_handler(jax.Array, handler, override=True)
        ocp.PyTreeCheckpointer().save(directory / "x", {"a": jnp.arange(3)})
        return ocp.PyTreeCheckpointer().restore(directory / "x"), ocp.type_handlers.is_ocdbt_checkpoint(
            directory / "x"
        )

    both(program, tmp_path)
    with pytest.raises(BadOption, match="items of their own"):
        storax.type_handlers.register_type_handler(Path, storax.type_handlers.NumpyHandler())


@shows(
    "tree.to_flat_dict",
    "tree.from_flat_dict",
    "tree.get_param_names",
    "utils.serialize_tree",
    "utils.deserialize_tree",
    "transform_utils.intersect_trees",
    "test_utils.erase_and_create_empty",
    "metadata.ArrayMetadata",
    "utils.fully_replicated_host_local_array_to_global_array",
)
def test_helpers_for_trees(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        tree = {"a": {"b": np.ones(1), "c": (np.zeros(1), {})}, "d": None}
        flat = ocp.tree.to_flat_dict(tree, sep="/")
        kept = ocp.tree.to_flat_dict(tree, keep_empty_nodes=True)
        back = ocp.tree.from_flat_dict(flat, sep="/")
        placed = ocp.tree.from_flat_dict(ocp.tree.to_flat_dict({"x": {"y": 1}}), target={"x": {"y": 0}})
        serialized = ocp.utils.serialize_tree({"a": {"b": 1}, "c": [2, 3]})
        again = ocp.utils.deserialize_tree(serialized, {"a": {"b": 0}, "c": [0, 0]})
        names = ocp.tree.get_param_names({"a": {"b": 1}, "c": [2, 3]})
        (directory / "e").mkdir()
        (directory / "e" / "old").write_text("x")
        emptied = ocp.test_utils.erase_and_create_empty(directory / "e")
        common = ocp.transform_utils.intersect_trees({"a": 1, "b": {"c": 2}}, {"a": 5, "b": {"d": 1}})
        return (
            sorted(flat),
            sorted(map(str, kept)),
            back,
            placed,
            serialized,
            again,
            names,
            list(emptied.iterdir()),
            common,
        )

    both(program, tmp_path)
    array = storax.utils.fully_replicated_host_local_array_to_global_array(jnp.arange(3))
    assert array.is_fully_replicated
    assert len(array.devices()) == jax.device_count()
    assert storax.metadata.ArrayMetadata(name="a", shape=(2,), dtype=np.dtype("f4")).shape == (2,)


def test_a_sharding_from_metadata_is_a_sharding_again(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        ocp.PyTreeCheckpointer().save(directory / "x", {"a": on_mesh(np.arange(8, dtype=np.float32), "data")})
        leaf = ocp.PyTreeCheckpointer().metadata(directory / "x").item_metadata["a"]
        return leaf.sharding.to_jax_sharding() == sharding("data"), leaf.shape, str(leaf.dtype)

    both(program, tmp_path)
