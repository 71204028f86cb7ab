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
from flax import nnx
from flax.training import orbax_utils
from flax.training.train_state import TrainState
from tests.compat.loaders import iterator, stepped
from tests.compat.side_by_side import both, outcome, shows
from tests.devices import on_mesh, sharding

import storax


def train_state() -> TrainState:
    params = {"dense": {"kernel": jnp.arange(6.0).reshape(2, 3), "bias": jnp.zeros(3)}}
    return TrainState.create(apply_fn=lambda *_: None, params=params, tx=optax.adam(1e-3))


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
