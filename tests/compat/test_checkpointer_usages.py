"""How public code uses checkpointers: one shape of use after another, with storax and with Orbax."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from flax.training import orbax_utils
from tests.compat.side_by_side import both, outcome, shows
from tests.devices import on_mesh, sharding


@flax.struct.dataclass
class Normaliser:
    mean: jax.Array
    count: jax.Array


def policy_params() -> tuple[Any, ...]:
    return (
        Normaliser(jnp.arange(4.0), jnp.int32(7)),
        {"dense": {"kernel": jnp.ones((3, 4)), "bias": jnp.zeros(4)}},
        {"value": np.arange(6, dtype=np.float32).reshape(2, 3)},
    )


@shows("PyTreeCheckpointer", "PyTreeCheckpointer.save", "PyTreeCheckpointer.metadata", "args.PyTreeRestore")
def test_parameters_at_once_with_save_args_and_as_numpy_again(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        params = policy_params()
        path = directory / "made before"
        path.mkdir()
        checkpointer = ocp.PyTreeCheckpointer()
        checkpointer.save(path, params, force=True, save_args=orbax_utils.save_args_from_target(params))
        described = checkpointer.metadata(path).item_metadata
        restore_args = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), described)
        found = checkpointer.restore(path, ocp.args.PyTreeRestore(restore_args=restore_args), item=None)
        found = getattr(found, "tree", found)
        return Normaliser(**found[0]), found[1], found[2]

    ours, _ = both(program, tmp_path)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(ours))


@shows("PyTreeCheckpointer.restore")
def test_a_configuration_beside_the_parameters(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        tree = {"params": {"w": jnp.ones(3)}, "config": {"name": "ppo", "use_rnn": True, "lr": 3e-4, "n": 4}}
        ocp.PyTreeCheckpointer().save(directory / "c", tree)
        return ocp.PyTreeCheckpointer().restore(directory / "c")

    both(program, tmp_path)


@shows("StandardCheckpointer", "StandardCheckpointer.save", "StandardCheckpointer.restore")
def test_a_bare_tuple_of_parameters_and_state(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        params = {"linear": {"w": jnp.arange(6.0).reshape(2, 3)}}
        state = {"counter": jnp.int32(3)}
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(directory / "m", (params, state))
            checkpointer.wait_until_finished()
            shapes = jax.eval_shape(lambda: (params, state))
            first, second = checkpointer.restore(directory / "m", target=shapes, strict=True)
            third, fourth = checkpointer.restore(directory / "m", target=None, strict=False)
        return first, second, third, fourth

    both(program, tmp_path)


def test_a_tuple_of_nothing_is_saved_where_orbax_does_too(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(directory / "m", ({}, {}))
            checkpointer.wait_until_finished()
            return checkpointer.restore(directory / "m")

    both(program, tmp_path)


@shows("StandardCheckpointer.wait_until_finished", "StandardCheckpointer.close", "args.StandardSave")
def test_a_standard_checkpointer_returns_before_it_has_committed(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        checkpointer = ocp.StandardCheckpointer(save_concurrent_gb=1, restore_concurrent_gb=1)
        checkpointer.save(directory / "a", {"w": jnp.ones(2)})
        found = checkpointer.restore(directory / "a", {"w": jnp.zeros(2)})
        checkpointer.save(directory / "b", {"w": jnp.ones(2)}, force=True)
        checkpointer.close()
        return found, (directory / "b").is_dir()

    both(program, tmp_path)


@shows("ArrayRestoreArgs", "RestoreArgs", "SaveArgs")
def test_leaves_change_dtype_and_kind_as_restore_args_say(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        tree = {"a": jnp.arange(8.0), "b": jnp.ones((4, 2)), "c": np.arange(3.0), "n": 5, "s": 1.5}
        save_args = jax.tree.map(lambda _: ocp.SaveArgs(), tree)
        save_args["b"] = ocp.SaveArgs(dtype=np.dtype(jnp.bfloat16), chunk_byte_size=64)
        ocp.PyTreeCheckpointer().save(directory / "x", tree, save_args=save_args)
        restore_args = {
            "a": ocp.ArrayRestoreArgs(sharding=sharding("data"), dtype=jnp.bfloat16, global_shape=(8,)),
            "b": ocp.type_handlers.ArrayRestoreArgs(
                mesh=sharding().mesh, mesh_axes=jax.sharding.PartitionSpec("data", None)
            ),
            "c": ocp.RestoreArgs(restore_type=np.ndarray, dtype=np.float32),
            "n": ocp.RestoreArgs(restore_type=int),
            "s": ocp.RestoreArgs(restore_type=float),
        }
        found = ocp.PyTreeCheckpointer().restore(directory / "x", restore_args=restore_args)
        return found, found["a"].sharding == sharding("data"), found["b"].sharding.spec == ("data", None)

    both(program, tmp_path)


@shows("checkpoint_utils.construct_restore_args", "Checkpointer", "PyTreeCheckpointHandler")
def test_a_subset_of_a_training_state_with_transforms(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        state = {
            "params": {"w": on_mesh(np.arange(16, dtype=np.float32).reshape(8, 2), "data")},
            "opt": {"mu": jnp.ones(3)},
            "step": 4,
        }
        handler = ocp.PyTreeCheckpointHandler(
            restore_concurrent_gb=4, save_concurrent_gb=4, use_ocdbt=True, use_zarr3=True
        )
        checkpointer = ocp.Checkpointer(handler)
        checkpointer.save(directory / "full", state)
        wanted = {
            "params": {"w": jax.ShapeDtypeStruct((8, 2), jnp.float32, sharding=sharding(None, "model"))}
        }
        restore_args = ocp.checkpoint_utils.construct_restore_args(wanted)
        found = checkpointer.restore(
            directory / "full", item=wanted, transforms={}, restore_args=restore_args
        )
        again = ocp.Checkpointer(ocp.PyTreeCheckpointHandler()).restore(
            directory / "full",
            args=ocp.args.PyTreeRestore(item=wanted, restore_args=restore_args, partial_restore=True),
        )
        return found, again, found["params"]["w"].sharding == wanted["params"]["w"].sharding

    both(program, tmp_path)


def test_transforms_of_nothing_keep_the_targets_values_of_what_is_missing(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        ocp.PyTreeCheckpointer().save(directory / "x", {"a": np.arange(3), "extra": np.ones(2)})
        item = {"a": np.zeros(3), "new": np.full(2, 9)}
        restore_args = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), item)
        return ocp.PyTreeCheckpointer().restore(
            directory / "x", item=item, transforms={}, restore_args=restore_args
        )

    both(program, tmp_path)


@shows("Transform")
def test_transforms_rename_fall_back_and_compute(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        saved = {"old": {"w": np.arange(4.0)}, "b": np.ones(2), "kept": np.full(1, 3)}
        ocp.PyTreeCheckpointer().save(directory / "x", saved)
        transforms = {
            r"new/(.*)": ocp.Transform(original_key=r"old/\1"),
            "b": ocp.Transform(value_fn=lambda x: x * 2),
            "mine": ocp.Transform(use_fallback=True),
        }
        item = {"new": {"w": np.zeros(4)}, "b": np.zeros(2), "mine": np.full(2, 7), "kept": np.zeros(1)}
        restore_args = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), item)
        return ocp.PyTreeCheckpointer().restore(
            directory / "x", item=item, transforms=transforms, restore_args=restore_args
        )

    both(program, tmp_path)


@shows("PLACEHOLDER")
def test_a_placeholder_is_not_read(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        ocp.PyTreeCheckpointer().save(directory / "x", {"a": np.arange(3), "b": np.ones(2)})
        item = {"a": np.zeros(3, int), "b": ocp.PLACEHOLDER}
        found = ocp.PyTreeCheckpointer().restore(directory / "x", ocp.args.PyTreeRestore(item))
        return found["a"], found["b"] is ...

    both(program, tmp_path)


@shows("type_handlers.RestoreArgs", "type_handlers.SaveArgs", "foreign SaveArgs and RestoreArgs (flax)")
def test_flax_makes_restore_args_of_orbax_itself(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        numpy_tree = {"w": np.arange(4.0), "b": {"c": np.ones((2, 2))}}
        jax_tree = {
            "w": on_mesh(np.arange(16, dtype=np.float32).reshape(8, 2), "data", "model"),
            "s": jnp.ones(2),
        }
        found = []
        for name, tree in (("n", numpy_tree), ("j", jax_tree)):
            checkpointer = ocp.PyTreeCheckpointer()
            checkpointer.save(directory / name, tree, save_args=orbax_utils.save_args_from_target(tree))
            args = orbax_utils.restore_args_from_target(tree)
            found.append(checkpointer.restore(directory / name, item=tree, restore_args=args))
        return found, found[1]["w"].sharding == jax_tree["w"].sharding

    both(program, tmp_path)


@shows("args.PyTreeSave")
def test_the_first_arguments_object_wins(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        tree = {"a": np.arange(3)}
        checkpointer = ocp.PyTreeCheckpointer()
        save_args = jax.tree.map(lambda _: ocp.SaveArgs(), tree)
        checkpointer.save(directory / "x", tree, ocp.args.PyTreeSave(tree, save_args))
        return checkpointer.restore(directory / "x", ocp.args.PyTreeRestore(), item=None)

    both(program, tmp_path)


@shows("Checkpointer.save", "Checkpointer.restore", "StandardCheckpointHandler")
def test_what_is_there_is_replaced_only_by_force(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        checkpointer = ocp.Checkpointer(ocp.StandardCheckpointHandler())
        checkpointer.save(directory / "x", args=ocp.args.StandardSave({"a": np.zeros(1)}))
        refused = outcome(
            lambda: checkpointer.save(directory / "x", args=ocp.args.StandardSave({"a": np.ones(1)}))
        )
        checkpointer.save(directory / "x", args=ocp.args.StandardSave({"a": np.full(1, 2.0)}), force=True)
        missing = outcome(lambda: checkpointer.restore(directory / "nothing"))
        return refused in ("ValueError", "FileExistsError"), checkpointer.restore(directory / "x"), missing

    both(program, tmp_path)


@shows("AsyncCheckpointer", "AsyncOptions")
def test_asynchronous_checkpointers(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        done: list[int] = []
        checkpointer = ocp.AsyncCheckpointer(ocp.PyTreeCheckpointHandler(), timeout_secs=60)
        checkpointer.save(directory / "x", {"a": jnp.arange(3)})
        checkpointer.wait_until_finished()
        checkpointer.check_for_errors()
        found = checkpointer.restore(directory / "x")
        checkpointer.close()
        options = ocp.AsyncOptions(timeout_secs=60, post_finalization_callback=lambda: done.append(1))
        with ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler(), async_options=options) as other:
            other.save(directory / "y", args=ocp.args.StandardSave({"a": jnp.arange(3)}))
        return found, done, other.restore(directory / "y")

    both(program, tmp_path)


@shows("CompositeCheckpointHandler", "args.Composite")
def test_several_items_at_one_path(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        checkpointer = ocp.Checkpointer(ocp.CompositeCheckpointHandler("state", "config"))
        checkpointer.save(
            directory / "x",
            ocp.args.Composite(
                state=ocp.args.StandardSave({"w": jnp.ones(2)}), config=ocp.args.JsonSave({"a": [1]})
            ),
        )
        found = checkpointer.restore(
            directory / "x",
            ocp.args.Composite(state=ocp.args.StandardRestore(), config=ocp.args.JsonRestore()),
        )
        unknown = outcome(
            lambda: checkpointer.restore(
                directory / "x", ocp.args.Composite(other=ocp.args.StandardRestore())
            )
        )
        return (
            dict(found.items()),
            found.config,
            found.get("nothing", 3),
            "state" in found,
            len(found),
            unknown,
        )

    both(program, tmp_path)


@shows("JsonCheckpointHandler", "args.JsonSave", "args.JsonRestore")
def test_json_by_itself(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        found = []
        for name, handler in (
            ("a", ocp.JsonCheckpointHandler()),
            ("b", ocp.JsonCheckpointHandler(filename="index")),
        ):
            checkpointer = ocp.Checkpointer(handler)
            checkpointer.save(directory / name, {"x": [1, None, "é"], "y": {"z": 0.1}})
            found.append(checkpointer.restore(directory / name))
        return found, (directory / "b" / "index").is_file()

    both(program, tmp_path)


@shows("StandardRestore(fallback_sharding)", "args.StandardRestore")
def test_a_fallback_sharding_counts_where_none_was_saved(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        tree = {"a": on_mesh(np.arange(8, dtype=np.int32), "data"), "b": jnp.arange(8)}
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(directory / "y", tree)
        target = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)
        checkpointer = ocp.Checkpointer(ocp.StandardCheckpointHandler())
        args = ocp.args.StandardRestore(target, fallback_sharding=sharding("model"))
        kept = checkpointer.restore(directory / "y", args=args)
        return kept, kept["a"].sharding.spec

    both(program, tmp_path)
