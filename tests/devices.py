"""The mesh of the tests, 4 x 2 of eight devices, and arrays on it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def mesh(rows: int = 4, columns: int = 2) -> Mesh:
    return Mesh(np.array(jax.devices()[: rows * columns]).reshape(rows, columns), ("data", "model"))


def sharding(*spec: Any) -> NamedSharding:
    return NamedSharding(mesh(), PartitionSpec(*spec))


def on_mesh(value: Any, *spec: Any) -> jax.Array:
    """A value on the mesh, in its own dtype also where that has 64 bits."""
    with jax.enable_x64(True):
        return jax.device_put(value, sharding(*spec))


def on_one(value: Any, device: int = 0) -> jax.Array:
    with jax.enable_x64(True):
        return jax.device_put(value, jax.devices()[device])


def plain(value: Any) -> jax.Array:
    """On the default device and not committed to it, in its own dtype also where that has 64 bits."""
    with jax.enable_x64(True):
        return jax.device_put(value)
