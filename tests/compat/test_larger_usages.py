"""How larger public programs use managers, with storax and with Orbax."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grain.python as grain
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint
from tests.compat.loaders import stepped
from tests.compat.side_by_side import both, shows
from tests.devices import on_mesh, sharding

import storax


@shows("CheckpointManager(item_handlers)", "custom_metadata", "PyTreeRestore(restore_args)")
def test_handlers_by_item_metrics_and_custom_metadata(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        handlers = {
            "training_state": ocp.PyTreeCheckpointHandler(),
            "params_ema": ocp.PyTreeCheckpointHandler(),
            "accumulated_metrics": ocp.JsonCheckpointHandler(),
        }
        options = ocp.CheckpointManagerOptions(
            best_fn=lambda m: m["eval_loss"], best_mode="min", max_to_keep=1
        )
        mngr = ocp.CheckpointManager(directory, options=options, item_handlers=handlers)
        state = {"w": jnp.arange(4.0), "n": 3}
        items = {
            "training_state": ocp.args.PyTreeSave(state),
            "params_ema": ocp.args.PyTreeSave({"w": jnp.ones(4)}),
            "accumulated_metrics": ocp.args.JsonSave({"loss": [1.0, 0.5]}),
        }
        mngr.save(
            2,
            args=ocp.args.Composite(**items),
            custom_metadata={"version": "1.2"},
            metrics={"eval_loss": 0.5},
        )
        mngr.wait_until_finished()
        mesh = sharding().mesh
        restore_args = {
            "w": ocp.ArrayRestoreArgs(mesh=mesh, mesh_axes=jax.sharding.PartitionSpec()),
            "n": ocp.RestoreArgs(restore_type=int),
        }
        found = mngr.restore(
            2,
            args=ocp.args.Composite(
                training_state=ocp.args.PyTreeRestore(state, restore_args=restore_args),
                accumulated_metrics=ocp.args.JsonRestore(),
            ),
        )
        every = mngr.restore(2)
        return (
            found["training_state"],
            found.accumulated_metrics,
            mngr.metadata(2).custom_metadata,
            sorted(set(every.keys()) - {"metrics"}),  # Orbax gives the metrics as an item
            every["params_ema"],
        )

    both(program, tmp_path)


@shows(
    "AsyncCheckpointHandler",
    "future.CommitFutureAwaitingContractedSignals",
    "args.CheckpointArgs",
    "args.register_with_handler",
)
def test_a_handler_of_ones_own_that_calls_a_function(tmp_path: Path) -> None:
    import asyncio
    import dataclasses

    def program(ocp: Any, directory: Path) -> Any:
        class CallbackHandler(ocp.AsyncCheckpointHandler):
            def save(self, directory: Any, args: Any) -> None:
                args.callback(directory)

            async def async_save(self, directory: Any, args: Any) -> Any:
                return [
                    ocp.future.CommitFutureAwaitingContractedSignals(
                        asyncio.to_thread(self.save, directory, args), name="callback"
                    )
                ]

            def restore(self, directory: Any, args: Any) -> Any:
                raise NotImplementedError("only for saving")

            def finalize(self, directory: Any) -> None:
                pass

        @ocp.args.register_with_handler(CallbackHandler, for_save=True)
        @dataclasses.dataclass
        class CallbackSave(ocp.args.CheckpointArgs):
            callback: Any

        @ocp.args.register_with_handler(CallbackHandler, for_restore=True)
        class CallbackRestore(ocp.args.CheckpointArgs): ...

        mngr = ocp.CheckpointManager(
            directory,
            item_handlers={
                "assets": CallbackHandler(),
                "train_state": ocp.PyTreeCheckpointHandler(),
                "params": ocp.PyTreeCheckpointHandler(),
            },
            options=ocp.CheckpointManagerOptions(
                max_to_keep=1, create=True, async_options=ocp.AsyncOptions(timeout_secs=7200)
            ),
        )
        before = tuple(mngr.all_steps()) in [(), (0,)]

        def write(target: Any) -> None:
            (target / "norm_stats.json").write_text('{"mean": 1}')

        items = {
            "assets": write,
            "train_state": {"step": jnp.int32(5)},
            "params": {"params": {"w": jnp.arange(4.0)}},
        }
        mngr.save(5, items)
        mngr.wait_until_finished()
        found = mngr.restore(
            5, items={"train_state": {"step": jnp.int32(0)}, "params": {"params": {"w": jnp.zeros(4)}}}
        )
        text = (directory / "5" / "assets" / "norm_stats.json").read_text()
        return before, found["train_state"], found["params"], found.get("assets"), text

    both(program, tmp_path)


@shows("old-shape metadata()")
def test_a_loader_that_takes_its_keys_from_metadata(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        with ocp.PyTreeCheckpointer() as checkpointer:
            checkpointer.save(
                directory / "p", {"params": {"w": jnp.arange(4.0), "b": jnp.ones(2)}, "rest": jnp.ones(1)}
            )
            described = checkpointer.metadata(directory / "p")
            # Code of that time indexes the metadata itself; Orbax no longer lets it.
            params = described["params"] if ocp is storax else described.item_metadata["params"]
            item = {"params": params}
            restore_args = jax.tree.map(
                lambda _: ocp.ArrayRestoreArgs(
                    sharding=sharding(), restore_type=jax.Array, dtype=jnp.bfloat16
                ),
                item,
            )
            return checkpointer.restore(
                directory / "p", ocp.args.PyTreeRestore(item=item, restore_args=restore_args, transforms={})
            )

    both(program, tmp_path)


@shows("old-shape metadata()", "tree_map over metadata")
def test_metadata_of_older_code_is_a_tree_and_a_dict(tmp_path: Path) -> None:
    storax.PyTreeCheckpointer().save(tmp_path / "p", {"a": jnp.arange(4.0), "b": {"c": np.ones((2, 3))}})
    described = storax.PyTreeCheckpointer().metadata(tmp_path / "p")
    shapes = jax.tree.map(lambda leaf: leaf.shape, described, is_leaf=lambda x: hasattr(x, "dtype"))
    assert shapes == {"a": (4,), "b": {"c": (2, 3)}}
    assert described["b"]["c"].dtype == np.float64
    assert sorted(described) == ["a", "b"]
    assert described.item_metadata.tree["a"].shape == (4,)
    args = jax.tree.map(lambda _: orbax.checkpoint.RestoreArgs(restore_type=np.ndarray), described)
    found = storax.PyTreeCheckpointer().restore(tmp_path / "p", restore_args=args)
    assert isinstance(found["a"], np.ndarray)


@shows(
    "CheckpointManager(item_names)",
    "checkpoint_managers.LatestN",
    "CheckpointManagerOptions(preservation_policy)",
    "CheckpointManagerOptions(save_decision_policy)",
    "CheckpointManagerOptions(enable_async_checkpointing)",
    "CheckpointManagerOptions(async_options)",
    "CheckpointManager.directory",
    "CheckpointManager.metadata",
    "CheckpointManager.wait_until_finished",
    "checkpoint_managers.FixedIntervalPolicy",
    "checkpoint_managers.AnySavePolicy",
    "checkpoint_managers.PreemptionCheckpointingPolicy",
    "type_handlers.SingleReplicaArrayRestoreArgs",
    "CheckpointManager.reached_preemption",
    "CheckpointManagerOptions(todelete_subdir)",
)
def test_a_large_trainer(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        policies = ocp.checkpoint_managers
        preempted = [policies.PreemptionCheckpointingPolicy()] if ocp is orbax.checkpoint else []
        mngr = ocp.CheckpointManager(
            directory,
            item_names=("items", "iter"),
            item_handlers={
                "items": ocp.PyTreeCheckpointHandler(use_ocdbt=True, use_zarr3=True),
                "iter": grain.PyGrainCheckpointHandler(),
            },
            options=ocp.CheckpointManagerOptions(
                create=True,
                enable_async_checkpointing=True,
                save_decision_policy=policies.AnySavePolicy(
                    [*preempted, policies.FixedIntervalPolicy(interval=2)]
                ),
                preservation_policy=policies.LatestN(2),
                async_options=ocp.AsyncOptions(timeout_secs=600),
                todelete_subdir="trash",
            ),
            logger=None,
        )
        saved = []
        for step in range(5):
            state = {"params": {"w": on_mesh(np.full((8, 2), step, np.float32), "data")}, "step": step}
            save_args = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=1 << 20), state)
            saved.append(
                mngr.save(
                    step,
                    args=ocp.args.Composite(
                        items=ocp.args.PyTreeSave(
                            state, save_args=save_args, ocdbt_target_data_file_size=1 << 20
                        ),
                        iter=grain.PyGrainCheckpointSave(stepped(step)),
                    ),
                    force=step == 3,
                    custom_metadata={"run": "r"},
                )
            )
            mngr.wait_until_finished()
        wanted = {
            "params": {"w": jax.ShapeDtypeStruct((8, 2), np.float32, sharding=sharding("data", "model"))}
        }
        args = jax.tree.map(
            lambda x: ocp.ArrayRestoreArgs(sharding=x.sharding, global_shape=x.shape, dtype=x.dtype), wanted
        )
        single = jax.tree.map(
            lambda x: ocp.type_handlers.SingleReplicaArrayRestoreArgs(
                sharding=x.sharding, single_replica_sharding=x.sharding, global_shape=x.shape, dtype=x.dtype
            ),
            wanted,
        )
        restored = [
            mngr.restore(
                4,
                args=ocp.args.Composite(
                    items=ocp.args.PyTreeRestore(item=wanted, restore_args=one, partial_restore=True)
                ),
            )["items"]
            for one in (args, *([single] if ocp is storax else [args]))
        ]
        return (
            saved,
            restored,
            restored[0]["params"]["w"].sharding.spec,
            sorted(mngr.all_steps()),
            (mngr.directory / "4" / "iter").exists(),
            sorted(path.name for path in (directory / "trash").iterdir()),
            mngr.metadata(4).custom_metadata,
            mngr.should_save(6),
        )

    both(program, tmp_path)


@shows(
    "CheckpointManager.item_metadata",
    "utils.to_shape_dtype_struct",
    "metadata.get_step_metadata",
    "StandardCheckpointer.metadata",
)
def test_a_target_built_from_metadata(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        state = {"w": on_mesh(np.arange(16, dtype=np.float32).reshape(8, 2), "data"), "n": jnp.arange(3)}
        with ocp.CheckpointManager(directory) as mngr:
            args = ocp.args.Composite(
                wan_state=ocp.args.StandardSave(state), wan_config=ocp.args.JsonSave({"a": 1})
            )
            mngr.save(1, args=args)
        with ocp.CheckpointManager(directory, item_names=("wan_state", "wan_config")) as mngr:
            described = mngr.item_metadata(1)
            cpu = sharding()
            target = jax.tree.map(
                lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=cpu), described.wan_state
            )
            found = mngr.restore(
                1,
                args=ocp.args.Composite(
                    wan_state=ocp.args.StandardRestore(target), wan_config=ocp.args.JsonRestore()
                ),
            )
            tree = getattr(found.wan_state, "tree", found.wan_state)
        with ocp.StandardCheckpointer(restore_concurrent_gb=8) as checkpointer:
            leaves = checkpointer.metadata(directory / "1" / "wan_state").item_metadata.tree
        shapes = {name: (leaf.shape, str(leaf.dtype)) for name, leaf in leaves.items()}
        handlers = ocp.metadata.get_step_metadata(directory / "1").item_handlers
        abstract = ocp.utils.to_shape_dtype_struct(leaves["w"])
        return (
            tree,
            found.wan_config,
            shapes,
            handlers,
            "wan_state" in described,
            abstract.shape,
            str(abstract.dtype),
        )

    both(program, tmp_path)


@shows(
    "checkpoint_utils.checkpoints_iterator",
    "checkpoint_utils.wait_for_new_checkpoint",
    "options.FileOptions",
    "checkpoint_manager.FileOptions",
    "checkpoint_manager.CheckpointInfo",
    "CheckpointManagerOptions(file_options)",
    "CheckpointManagerOptions(should_save_fn)",
    "CheckpointManager.should_save",
    "CheckpointManager.delete",
    "CheckpointManager.reload",
    "subclassed CheckpointManager",
)
def test_an_evaluator(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        class Fast(ocp.CheckpointManager):
            def all_steps(self, read: bool = False) -> Any:
                return [found.step for found in self._checkpoints] if not read else super().all_steps(read)

        options = ocp.CheckpointManagerOptions(
            step_prefix="ckpt",
            should_save_fn=lambda step, _: step % 2 == 0,
            file_options=ocp.options.FileOptions(path_permission_mode=0o770),
        )
        mngr = Fast(directory, options=options)
        saved = [mngr.save(step, args=ocp.args.StandardSave({"w": np.full(1, step)})) for step in range(4)]
        mngr.wait_until_finished()
        mngr.reload()
        seen = []
        for step in ocp.checkpoint_utils.checkpoints_iterator(
            directory, step_prefix="ckpt", timeout=0, timeout_fn=lambda: True, seconds_to_sleep=0
        ):
            seen.append((step, mngr.restore(step)))
        found = []
        for until in (2, 9):
            with ocp.checkpoint_utils.wait_for_new_checkpoint(
                directory, until_step=until, step_prefix="ckpt", timeout=0, seconds_to_sleep=0
            ) as newest:
                found.append(newest)
        mngr.delete(0)
        wanted = [mngr.should_save(step) for step in (2, 3, 4)]
        return saved, seen, found, mngr.all_steps(), wanted

    both(program, tmp_path)
    assert (tmp_path / "storax" / "ckpt_2").stat().st_mode & 0o777 == 0o770
