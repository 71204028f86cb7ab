"""What the processes of a job run."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import storax

Say = Callable[[Any], None]


def sharded(value: np.ndarray, mesh: Mesh, *spec: Any) -> jax.Array:
    """An array over the devices of all processes, of which each knows the whole value."""
    sharding = NamedSharding(mesh, PartitionSpec(*spec))
    return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])


def mesh_of(*shape: int, names: str = "xyz") -> Mesh:
    return Mesh(np.array(jax.devices()).reshape(shape), tuple(names[: len(shape)]))


def try_die(say: Say, index: int, directory: str, victim: int) -> None:
    mesh = mesh_of(len(jax.devices()))
    tree = {"w": sharded(np.arange(64.0, dtype=np.float32).reshape(8, 8), mesh, "x"), "n": np.arange(5)}
    t=time.time()
    storax.save(Path(directory) / "a", tree, barrier_timeout=5)
    say("saved")
    if index == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        storax.save(Path(directory) / "b", tree, barrier_timeout=5)
    except storax.StoraxError as e:
        say([type(e).__name__, str(e)[:300], time.time()-t])
