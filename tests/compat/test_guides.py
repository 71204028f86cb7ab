"""Programs of our own that make the calls of the guides of Flax and of Orbax, with both libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from flax.training.train_state import TrainState
from tests.compat.side_by_side import both
from tests.devices import on_mesh, sharding


class Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(4, 8, rngs=rngs)
        self.second = nnx.Linear(8, 2, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.second(nnx.relu(self.first(x)))


def test_a_flax_model_is_split_saved_and_merged_again(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        model = Network(nnx.Rngs(0))
        x = jnp.ones((3, 4))
        _, state = nnx.split(model)
        checkpointer = ocp.StandardCheckpointer()
        checkpointer.save(directory / "state", state)
        abstract_model = nnx.eval_shape(lambda: Network(nnx.Rngs(0)))
        graph, abstract_state = nnx.split(abstract_model)
        restored = checkpointer.restore(directory / "state", abstract_state)
        pure = nnx.to_pure_dict(state)
        checkpointer.save(directory / "pure", pure)
        checkpointer.wait_until_finished()
        again = checkpointer.restore(directory / "pure")
        nnx.replace_by_pure_dict(abstract_state, again)
        return nnx.merge(graph, restored)(x), nnx.merge(graph, abstract_state)(x), model(x)

    ours, _ = both(program, tmp_path)
    assert np.array_equal(ours[0], ours[2])
    assert np.array_equal(ours[1], ours[2])


def test_a_train_state_is_saved_every_other_step_and_continued(tmp_path: Path) -> None:
    def init() -> TrainState:
        params = {"w": jnp.arange(4.0), "b": jnp.zeros(2)}
        return TrainState.create(apply_fn=None, params=params, tx=optax.adamw(1e-2))

    def program(ocp: Any, directory: Path) -> Any:
        options = ocp.CheckpointManagerOptions(max_to_keep=3, save_interval_steps=2)
        state = init()
        with ocp.CheckpointManager(directory, options=options) as mngr:
            for step in range(9):
                state = state.apply_gradients(grads=jax.tree.map(jnp.ones_like, state.params))
                mngr.save(step, args=ocp.args.StandardSave(state))
        with ocp.CheckpointManager(directory, options=options) as mngr:
            found = mngr.restore(mngr.latest_step(), args=ocp.args.StandardRestore(jax.eval_shape(init)))
            steps = sorted(mngr.all_steps())
        return found.params, found.opt_state, int(found.step), steps

    both(program, tmp_path)


def test_arrays_come_back_with_other_shardings_and_dtypes(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        tree = {
            "a": on_mesh(np.arange(64, dtype=np.float32).reshape(8, 8), "data", "model"),
            "b": on_mesh(np.ones(8, np.float32)),
            "n": 42,
            "host": np.arange(5, dtype=np.int32),
        }
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(directory / "x", tree)
            checkpointer.wait_until_finished()
            as_saved = checkpointer.restore(directory / "x")
            abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, tree)
            as_before = checkpointer.restore(directory / "x", abstract)
            moved = {
                "a": jax.ShapeDtypeStruct((8, 8), jnp.bfloat16, sharding=sharding("model", None)),
                "b": jax.ShapeDtypeStruct((8,), jnp.float32, sharding=sharding("data")),
                "n": 0,
                "host": np.zeros(5, np.int32),
            }
            elsewhere = checkpointer.restore(directory / "x", moved)
        where = [[x.sharding.spec for x in (t["a"], t["b"])] for t in (as_saved, as_before, elsewhere)]
        return as_saved, as_before, elsewhere, where

    both(program, tmp_path)


def test_a_save_goes_on_while_the_arrays_change(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        host = np.arange(1000.0)
        device = jnp.arange(1000.0)
        checkpointer = ocp.AsyncCheckpointer(ocp.PyTreeCheckpointHandler())
        checkpointer.save(directory / "x", {"device": device})
        device = device.at[:].set(-1)
        checkpointer.wait_until_finished()
        options = ocp.CheckpointManagerOptions(enable_async_checkpointing=False)
        with ocp.CheckpointManager(directory / "run", options=options) as mngr:
            mngr.save(0, args=ocp.args.StandardSave({"host": host}))
            there = (directory / "run" / "0").is_dir()
            host[:] = -1
            return checkpointer.restore(directory / "x"), mngr.restore(0), there

    both(program, tmp_path)


def test_trees_change_while_they_are_restored(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        saved = {
            "encoder": {"w": np.ones((2, 2)), "b": np.zeros(2)},
            "head": {"w": np.full(3, 2.0)},
            "step": 5,
        }
        checkpointer = ocp.PyTreeCheckpointer()
        checkpointer.save(directory / "x", saved)

        def restored(item: Any, transforms: Any) -> Any:
            args = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), item)
            return checkpointer.restore(directory / "x", item=item, restore_args=args, transforms=transforms)

        z = np.zeros
        renamed = restored(
            {"backbone": {"w": z((2, 2)), "b": z(2)}, "head": {"w": z(3)}},
            {r"backbone/(.*)": ocp.Transform(original_key=r"encoder/\1")},
        )
        scaled = restored({"head": {"w": z(3)}}, {"head/w": ocp.Transform(value_fn=lambda w: w / 2)})
        fallen_back = restored(
            {"head": {"w": z(3)}, "new": {"w": np.full(1, 7.0)}}, {r"new.*": ocp.Transform(use_fallback=True)}
        )
        subset = restored({"encoder": {"w": z((2, 2))}}, {})
        return renamed, scaled, fallen_back, subset

    both(program, tmp_path)
