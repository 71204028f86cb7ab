"""How public code uses managers: one shape of use after another, with storax and with Orbax."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import flax.struct
import grain.python as grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint
from flax import nnx
from flax.training import orbax_utils
from flax.training.train_state import TrainState
from tests.compat.side_by_side import both, outcome, shows
from tests.devices import on_mesh, sharding

import storax


def train_state() -> TrainState:
    params = {"dense": {"kernel": jnp.arange(6.0).reshape(2, 3), "bias": jnp.zeros(3)}}
    return TrainState.create(apply_fn=lambda *_: None, params=params, tx=optax.adam(1e-3))


def iterator() -> Any:
    loader = grain.DataLoader(
        data_source=list(range(20)),
        sampler=grain.IndexSampler(20, grain.NoSharding(), shuffle=False, num_epochs=1),
        worker_count=0,
    )
    return iter(loader)


def stepped(count: int) -> Any:
    made = iterator()
    for _ in range(count):
        next(made)
    return made


@shows(
    "CheckpointManager",
    "CheckpointManager(checkpointers)",
    "CheckpointManager.save",
    "CheckpointManager.restore",
)
def test_one_checkpointer_and_positional_arguments(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        state = train_state()
        options = ocp.CheckpointManagerOptions(max_to_keep=1, create=True)
        whole = ocp.CheckpointManager(directory / "run" / "state", ocp.PyTreeCheckpointer(), options)
        params = ocp.CheckpointManager(directory / "run", ocp.PyTreeCheckpointer(), options)
        saved = []
        for step in (0, 1):
            save_args = orbax_utils.save_args_from_target(state)
            saved.append(whole.save(step, state, {"save_args": save_args}))
            saved.append(
                params.save(
                    step, state.params, {"save_args": orbax_utils.save_args_from_target(state.params)}
                )
            )
        shapes = jax.eval_shape(train_state)
        found = whole.restore(whole.latest_step(), shapes)
        restore_args = orbax_utils.restore_args_from_target(state)
        again = whole.restore(None, items=state, restore_kwargs={"restore_args": restore_args})
        names = sorted(path.name for path in (directory / "run" / "state" / "1").iterdir())
        return (
            saved,
            found.params,
            found.step,
            found.opt_state,
            again.params,
            whole.all_steps(),
            params.restore(1),
            params._directory == directory / "run",
            "default" in names,
        )

    both(program, tmp_path)


@shows("CheckpointManager(checkpointers=dict)", "CheckpointManager.latest_step")
def test_a_dict_of_checkpointers_and_a_restore_without_one_target(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        mngr = ocp.CheckpointManager(
            directory,
            checkpointers={"state": ocp.PyTreeCheckpointer(), "params_ema": ocp.PyTreeCheckpointer()},
        )
        state = {"w": on_mesh(np.arange(16, dtype=np.float32).reshape(8, 2), "data"), "step": 4}
        ema = {"w": np.ones((8, 2), np.float32)}
        kwargs = {
            name: {"save_args": orbax_utils.save_args_from_target(tree)}
            for name, tree in (("state", state), ("params_ema", ema))
        }
        mngr.save(3, {"state": state, "params_ema": ema}, save_kwargs=kwargs)
        mngr.wait_until_finished()
        shapes = {"w": jax.ShapeDtypeStruct((8, 2), np.float32), "step": 0}
        found = mngr.restore(mngr.latest_step(), items={"state": shapes, "params_ema": None})
        placed = jax.device_put(found["state"]["w"], sharding(None, "model"))
        return sorted(found.keys()), found["state"], placed, found["params_ema"]

    both(program, tmp_path)


@shows("CheckpointManager(checkpointers=dict with grain)", "utils.checkpoint_steps")
def test_a_grain_iterator_among_the_items(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        mngr = ocp.CheckpointManager(
            directory,
            dict(
                state=ocp.AsyncCheckpointer(ocp.PyTreeCheckpointHandler()),
                data=ocp.Checkpointer(grain.PyGrainCheckpointHandler()),
            ),
        )
        state = train_state()
        data = stepped(3)
        mngr.save(7, {"state": state, "data": data})
        next(data)
        mngr.wait_until_finished()
        fresh = iterator()
        found = mngr.restore(
            7,
            items={"state": jax.eval_shape(lambda: state), "data": fresh},
            restore_kwargs={"state": {"restore_args": ocp.checkpoint_utils.construct_restore_args(state)}},
        )
        bare = ocp.Checkpointer(ocp.PyTreeCheckpointHandler())
        steps = ocp.utils.checkpoint_steps(directory)
        alone = bare.restore(directory / str(steps[-1]) / "state")
        return next(found["data"]), found["state"].params, alone["params"], steps

    ours, _ = both(program, tmp_path)
    assert ours[0] == 3


class Model(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.linear = nnx.Linear(2, 3, rngs=rngs)


@shows(
    "DefaultCheckpointHandlerRegistry",
    "CheckpointManagerOptions(cleanup_tmp_directories)",
    "foreign handlers and arguments (grain)",
    "CheckpointManager(handler_registry)",
    "CheckpointManager.close",
)
def test_a_registry_of_handlers_for_a_model_and_two_loaders(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        registry = ocp.DefaultCheckpointHandlerRegistry()
        registry.add("model_state", ocp.args.PyTreeSave, ocp.PyTreeCheckpointHandler)
        registry.add("model_state", ocp.args.PyTreeRestore, ocp.PyTreeCheckpointHandler)
        for name in ("train", "val"):
            registry.add(name, grain.PyGrainCheckpointSave, grain.PyGrainCheckpointHandler)
            registry.add(name, grain.PyGrainCheckpointRestore, grain.PyGrainCheckpointHandler)
        options = ocp.CheckpointManagerOptions(
            save_interval_steps=1,
            max_to_keep=2,
            keep_period=10,
            step_format_fixed_length=6,
            cleanup_tmp_directories=True,
        )
        mngr = ocp.CheckpointManager(directory, options=options, handler_registry=registry)
        state = nnx.state(Model(nnx.Rngs(0)))
        mngr.save(
            10,
            args=ocp.args.Composite(
                model_state=ocp.args.PyTreeSave(state),
                train=grain.PyGrainCheckpointSave(stepped(2)),
                val=grain.PyGrainCheckpointSave(stepped(5)),
            ),
        )
        mngr.wait_until_finished()
        shapes = nnx.state(nnx.eval_shape(lambda: Model(nnx.Rngs(0))))
        found = mngr.restore(
            10,
            args=ocp.args.Composite(
                model_state=ocp.args.PyTreeRestore(shapes),
                train=grain.PyGrainCheckpointRestore(iterator()),
                val=grain.PyGrainCheckpointRestore(iterator()),
            ),
        )
        mngr.close()
        kernel = found["model_state"]["linear"]["kernel"]
        return kernel[...], next(found["train"]), next(found["val"]), (directory / "000010").is_dir()

    both(program, tmp_path)


@flax.struct.dataclass
class Policy:
    mean: jax.Array
    std: jax.Array


@shows("CheckpointManagerOptions(step_prefix)", "CheckpointManagerOptions(create)", "Composite by attribute")
def test_items_restored_piece_by_piece(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        policy = (Policy(jnp.zeros(2), jnp.ones(2)), {"w": jnp.arange(3.0)})
        state = {"params": policy, "step": 8}
        config = {"env": "walker", "layers": [1, 2], "lr": 0.1}
        options = ocp.CheckpointManagerOptions(step_prefix="PPONetwork", max_to_keep=2)
        with ocp.CheckpointManager(directory, options=options) as mngr:
            mngr.save(
                8,
                args=ocp.args.Composite(
                    policy=ocp.args.StandardSave(policy),
                    train_state=ocp.args.StandardSave(state),
                    config=ocp.args.JsonSave(config),
                ),
            )
        reader = ocp.CheckpointManagerOptions(step_prefix="PPONetwork", create=False)
        with ocp.CheckpointManager(directory, options=reader) as mngr:
            just_config = mngr.restore(8, args=ocp.args.Composite(config=ocp.args.JsonRestore()))
            target = jax.tree.map(jnp.zeros_like, policy)
            just_policy = mngr.restore(
                mngr.latest_step(), args=ocp.args.Composite(policy=ocp.args.StandardRestore(target))
            )
            every = mngr.restore(8)
        empty = directory / "empty"
        with ocp.CheckpointManager(empty) as mngr:
            nothing = outcome(
                lambda: mngr.restore(None, args=ocp.args.Composite(state=ocp.args.StandardRestore()))
            )
            missing = outcome(
                lambda: mngr.restore(3, args=ocp.args.Composite(state=ocp.args.StandardRestore()))
            )
        return (
            just_config.config,
            list(just_config.keys()),
            just_policy["policy"],
            every.config,
            every["train_state"],
            nothing,
            missing,
            (directory / "PPONetwork_8" / "config").is_dir(),
        )

    both(program, tmp_path)


@shows(
    "CheckpointManagerOptions(best_fn)",
    "CheckpointManagerOptions(read_only)",
    "CheckpointManager.metrics",
    "CheckpointManager.best_step",
)
def test_the_best_by_a_metric_and_a_reader_that_never_writes(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        options = ocp.CheckpointManagerOptions(max_to_keep=3, best_fn=lambda m: m["loss"], best_mode="min")
        with ocp.CheckpointManager(directory, options=options) as mngr:
            for step, loss in ((1, 5.0), (2, 1.0), (3, 3.0), (4, 2.0)):
                mngr.save(step, args=ocp.args.StandardSave({"w": jnp.full(2, step)}), metrics={"loss": loss})
        options = ocp.CheckpointManagerOptions(read_only=True, best_fn=lambda m: m["loss"], best_mode="min")
        with ocp.CheckpointManager(directory, options=options) as mngr:
            best = mngr.best_step()
            kept = mngr.all_steps()
            declined = mngr.save(9, args=ocp.args.StandardSave({"w": jnp.zeros(2)}))
            return best, sorted(kept), mngr.metrics(best), mngr.restore(best), declined

    both(program, tmp_path)


class LearnerState(NamedTuple):
    params: Any
    key: Any


@shows("CheckpointManager(metadata)", "CheckpointManager.metadata()", "CheckpointManagerOptions(best_mode)")
def test_metrics_the_older_way_and_metadata_of_the_run(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        mngr = ocp.CheckpointManager(
            directory,
            {"learner_state": ocp.PyTreeCheckpointer()},
            ocp.CheckpointManagerOptions(
                create=True,
                best_fn=lambda x: x["episode_return"],
                best_mode="max",
                max_to_keep=2,
                keep_period=None,
            ),
            metadata={"checkpointer_version": 1.0, "config": {"lr": 0.1}},
        )
        state = LearnerState({"w": np.arange(3.0)}, np.zeros(2, np.uint32))
        for step, value in ((0, 1.0), (1, 5.0), (2, 3.0)):
            mngr.save(step=step, items={"learner_state": state}, metrics={"episode_return": value})
        mngr.wait_until_finished()
        found = mngr.restore(mngr.best_step(), items={"learner_state": None})["learner_state"]
        rebuilt = LearnerState(**found)
        version = outcome(lambda: mngr.metadata()["checkpointer_version"]) if ocp is storax else 1.0
        return rebuilt.params, rebuilt.key, version, mngr.metadata().custom_metadata, sorted(mngr.all_steps())

    ours, _ = both(program, tmp_path)
    assert ours[2] == 1.0


@shows("CheckpointManagerOptions(**dict)")
def test_options_from_a_dict_and_a_restore_of_the_best_step(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        options = dict(max_to_keep=1, best_fn=lambda m: m["loss"], best_mode="min", step_prefix="ckpt")
        mngr = ocp.CheckpointManager(
            directory, {"state": ocp.PyTreeCheckpointer()}, options=ocp.CheckpointManagerOptions(**options)
        )
        for step in (1, 2):
            mngr.save(step, {"state": {"w": np.full(2, step)}}, metrics={"loss": 1.0 / step})
        mngr.wait_until_finished()
        found = mngr.restore(mngr.best_step(), items={"state": None})
        return found["state"], (directory / "ckpt_2").is_dir()

    both(program, tmp_path)


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
