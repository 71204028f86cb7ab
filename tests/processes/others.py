"""What the processes of a job run with Orbax."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from tests.processes.programs import ARRAYS, Say, host, mesh_of, shardings, spread, wrong

# Orbax saves no arrays without elements.
NAMES = [name for name in ARRAYS if name != "empty"]


def save(say: Say, index: int, directory: str, mesh: list[int]) -> None:
    there = shardings(mesh_of(mesh))
    with ocp.StandardCheckpointer() as writer:
        writer.save(directory, {"arrays": {name: spread(host(name), there[name]) for name in NAMES}})
        writer.wait_until_finished()
    say("saved")


def restore(say: Say, index: int, directory: str, mesh: list[int]) -> None:
    """Says which arrays Orbax restores wrongly."""
    there = shardings(mesh_of(mesh))
    target: dict[str, Any] = {
        "arrays": {n: jax.ShapeDtypeStruct(ARRAYS[n][0], ARRAYS[n][1], sharding=there[n]) for n in ARRAYS},
        "table": np.zeros(40_000, np.int32),
        "step": 0,
        "rate": 0.0,
        "none": None,
        "nothing": {},
    }
    keys = {"keys": jax.ShapeDtypeStruct((8,), jax.random.key(0).dtype)}
    wanted = ocp.args.PyTreeRestore(
        target | keys,
        restore_args=ocp.checkpoint_utils.construct_restore_args(target | keys),
        partial_restore=True,
    )
    with jax.enable_x64(True), ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        found = reader.restore(directory, wanted)
    problems = [name for name in NAMES if wrong(found["arrays"][name], host(name))]
    problems += [] if (found["table"] == np.arange(40_000)).all() else ["table"]
    problems += [] if (found["step"], found["rate"]) == (0, 0.1) else ["scalars"]
    say(problems)
