"""Arrays that several processes hold, read by one of them and sent to the others by their devices.

Of the replicas one has the values, the others have zeros, and their sum is the array: whole numbers
of as many bits are added, so every bit is kept.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from storax.arrays.shares import holders_of
from storax.plan import boxes
from storax.plan.boxes import Box

# Whole numbers that are as wide as a value, or make it up.
_WORDS: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint32, 16: np.uint32}


@dataclass(frozen=True, slots=True)
class Broadcast:
    """How one array gets to all processes that hold it.

    Attributes:
      shape: of the array.
      dtype: of the values that are read, after all casts.
      sharding: that the array gets.
      axes: of the mesh, along which the array is not cut: its replicas.
      reader: the number of the replica whose devices' processes read the values.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    sharding: NamedSharding
    axes: tuple[str, ...]
    reader: int

    @property
    def boxes(self) -> list[Box]:
        """The boxes that this process reads, for all."""
        return list(dict.fromkeys(box for _, replica, box in self._devices() if replica == self.reader))

    def spread(self, parts: Mapping[Box, np.ndarray]) -> jax.Array:
        """The array with one replica more in front: the values in one of them, zeros in the others."""
        words = _WORDS[self.dtype.itemsize]
        more = (self.dtype.itemsize // np.dtype(words).itemsize,) if self.dtype.itemsize > 4 else ()
        shards = []
        for device, replica, box in self._devices():
            shape = (1, *boxes.box_shape(box), *more)
            if replica == self.reader:
                values = np.ascontiguousarray(parts[box]).reshape(-1).view(words).reshape(shape)
                shards.append(jax.device_put(values, device))
            else:
                shards.append(jnp.zeros(shape, words, device=device))
        sharding = NamedSharding(self.sharding.mesh, PartitionSpec(self.axes, *self.sharding.spec))  # type: ignore[no-untyped-call]
        whole = (self._replicas, *self.shape, *more)
        return jax.make_array_from_single_device_arrays(whole, sharding, shards)

    @property
    def _replicas(self) -> int:
        return math.prod(self.sharding.mesh.shape[axis] for axis in self.axes)

    def _devices(self) -> list[tuple[Any, int, Box]]:
        """The devices of this process, which replica each has, and which box of it."""
        sharding = self.sharding
        along = [sharding.mesh.axis_names.index(axis) for axis in self.axes]
        sizes = [sharding.mesh.devices.shape[axis] for axis in along]
        found = []
        mine = sharding.addressable_devices_indices_map(self.shape)
        devices: Any = sharding.mesh.devices
        for place in np.ndindex(*devices.shape):
            device = devices[place]
            if device in mine:
                replica = int(np.ravel_multi_index([place[axis] for axis in along], sizes))
                found.append((device, replica, boxes.from_index(mine[device] or (), self.shape)))
        return found


def broadcast_of(
    shape: tuple[int, ...], dtype: np.dtype, sharding: Sharding | None, turn: int
) -> Broadcast | None:
    """How to send an array to all that hold it; None if each process must read what it holds.

    Args:
      shape: of the array, as it is on disk.
      dtype: of the values to be sent.
      sharding: that the array gets.
      turn: the replicas take turns in reading: equal for one array on all processes.
    """
    if not isinstance(sharding, NamedSharding) or not isinstance(sharding.mesh, Mesh):
        return None
    device: Any = next(iter(sharding.device_set))
    if sharding.is_fully_addressable or sharding.memory_kind not in (None, device.default_memory().kind):
        return None
    if dtype.itemsize not in _WORDS or _bits(dtype) != 8 * dtype.itemsize or not math.prod(shape):
        return None
    if all(len(held) == 1 for held in holders_of(sharding, shape)):
        return None
    cut = {axis for part in sharding.spec if part for axis in ((part,) if isinstance(part, str) else part)}
    axes = tuple(a for a in sharding.mesh.axis_names if a not in cut and sharding.mesh.shape[a] > 1)
    count = math.prod(sharding.mesh.shape[axis] for axis in axes)
    return Broadcast(shape, dtype, sharding, axes, turn % count)


def _bits(dtype: np.dtype) -> int:
    if dtype.kind in "bc":
        return 8 * dtype.itemsize
    return int((jnp.iinfo if jnp.issubdtype(dtype, jnp.integer) else jnp.finfo)(dtype).bits)


def sent(found: Sequence[Broadcast], parts: Sequence[Mapping[Box, np.ndarray]]) -> list[jax.Array]:
    """The arrays, from what each process read of them. All processes of the job call it alike."""
    if not found:
        return []
    with jax.enable_x64(True):
        summed = _sum(tuple(one.dtype for one in found), tuple(one.sharding for one in found))
        arrays: list[jax.Array] = summed([one.spread(p) for one, p in zip(found, parts, strict=True)])
    return arrays


@functools.lru_cache(maxsize=64)
def _sum(dtypes: tuple[np.dtype, ...], shardings: tuple[NamedSharding, ...]) -> Any:
    def act(spread: list[jax.Array]) -> list[jax.Array]:
        words = [jnp.sum(one, axis=0, dtype=one.dtype) for one in spread]
        return [_values(one, dtype) for one, dtype in zip(words, dtypes, strict=True)]

    return jax.jit(act, out_shardings=list(shardings))


def _values(words: jax.Array, dtype: np.dtype) -> jax.Array:
    if dtype == np.bool_:
        return words != 0
    if dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        pairs = words if part.itemsize == 4 else words.reshape(*words.shape[:-1], 2, 2)
        halves = jax.lax.bitcast_convert_type(pairs, part)
        return jax.lax.complex(halves[..., 0], halves[..., 1])
    return jax.lax.bitcast_convert_type(words, dtype)
