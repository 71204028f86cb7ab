"""The calls of Orbax's version 1 that mean something here, with both libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from orbax.checkpoint import v1 as orbax_v1
from tests.compat.side_by_side import plain, shows

import storax


def both(program: Any, tmp_path: Path) -> None:
    results = []
    for name, library in (("storax", storax.v1), ("orbax", orbax_v1)):
        (tmp_path / name).mkdir()
        results.append(plain(program(library, tmp_path / name)))
    assert results[0] == results[1]


@shows("v1.save", "v1.load", "v1.load_pytree", "v1.metadata", "v1.pytree_metadata")
def test_a_tree_at_a_path(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        tree = {"w": jnp.arange(6.0).reshape(2, 3), "n": 3}
        ocp.save(directory / "x", tree)
        found = ocp.load(directory / "x", {"w": jax.ShapeDtypeStruct((2, 3), jnp.bfloat16), "n": 0})
        described = ocp.metadata(directory / "x").metadata
        older = ocp.load_pytree if ocp is storax.v1 else ocp.load  # Orbax warns of the older name
        return found, older(directory / "x"), described["w"].shape

    both(program, tmp_path)
    assert storax.v1.pytree_metadata is storax.v1.metadata


@shows("v1.save_checkpointables", "v1.load_checkpointables", "v1.Context", "v1.StatefulCheckpointable")
def test_several_items_and_a_part_of_one(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        ocp.save_checkpointables(
            directory / "x", {"params": {"a": np.ones(2), "b": np.zeros(3)}, "opt": {"m": np.ones(1)}}
        )
        every = ocp.load_checkpointables(directory / "x")
        context = ocp.Context()
        context.pytree.loading.partial_load = True
        with context:
            part = ocp.load_checkpointables(directory / "x", {"params": {"a": np.zeros(2)}})
        return every, part

    both(program, tmp_path)


@shows("v1.training.Checkpointer", "v1.training.save_decision_policies", "v1.training.preservation_policies")
def test_a_trainer(tmp_path: Path) -> None:
    def program(ocp: Any, directory: Path) -> Any:
        checkpointer = ocp.training.Checkpointer(
            directory,
            save_decision_policy=ocp.training.save_decision_policies.FixedIntervalPolicy(2),
            preservation_policy=ocp.training.preservation_policies.LatestN(2),
        )
        saved = []
        for step in range(7):
            items = {"model_params": {"w": jnp.full(2, step)}, "optimizer_state": {"m": jnp.ones(1)}}
            saved.append(checkpointer.save_checkpointables(step, items, custom_metadata={"at": step}))
        response = checkpointer.save_checkpointables_async(7, items, force=True)
        assert response is not None
        response.result()
        declined = checkpointer.save_checkpointables_async(7 + 2, items)
        latest = checkpointer.latest.step
        target = {"model_params": {"w": jax.ShapeDtypeStruct((2,), jnp.int32)}}
        found = checkpointer.load_checkpointables(6, target)
        described = checkpointer.checkpointables_metadata(6)
        steps = [one.step for one in checkpointer.checkpoints]
        checkpointer.close()
        return (
            saved,
            declined is None,
            latest,
            found["model_params"],
            described.custom_metadata,
            described.metadata["model_params"]["w"].shape,
            sorted(steps),
        )

    both(program, tmp_path)
