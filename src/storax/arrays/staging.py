"""Values of leaves to host memory: the only part of a save during which the caller waits.

What must be copied is copied: device memory, and numpy arrays, which anybody may change. What
can be held is held: a ``jax.Array`` on the CPU is immutable, and numpy views of its memory keep
that alive through ``delete`` and through donation (JAX then copies instead of reusing it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np

from storax.plan import boxes
from storax.plan.boxes import Box
from storax.plan.chunks import chunk_shape
from storax.plan.ownership import owners
from storax.tree.dtypes import dtype_name, little_endian, on_disk
from storax.tree.leaves import Leaf


@dataclass(frozen=True, slots=True)
class OnDevice:
    """One shard that is still on its device, to be fetched a chunk at a time while it is written."""

    shard: jax.Array

    def fetch(self, part: Box) -> np.ndarray:
        """A part of the shard, given by the shard's own coordinates, in host memory.

        Cut out on the device first: JAX keeps the host copy of an array as long as the array lives.
        """
        starts = [start for start, _ in part]
        return host_copy(jax.lax.dynamic_slice(self.shard, starts, boxes.box_shape(part)), hold=True)


@dataclass(frozen=True, slots=True)
class StagedArray:
    """One array in host memory, as the pieces that this process writes.

    Attributes:
      shape: on disk; of PRNG keys that of their data.
      dtype: on disk.
      parts: the boxes and, for each, an array of the dtype on disk, or where it still is.
      described: whether this process writes the array's metadata too.
      also: the names of further leaves that are this very array.
    """

    leaf: Leaf
    shape: tuple[int, ...]
    dtype: np.dtype
    chunk_shape: tuple[int, ...]
    parts: tuple[tuple[Box, np.ndarray | OnDevice], ...]
    described: bool = True
    also: tuple[str, ...] = ()


def start_copies(values: Sequence[Any]) -> None:
    """Starts the copies from all devices to the host, so that they overlap. For who cannot wait with them."""
    for value in values:
        if isinstance(value, jax.Array) and not _on_cpu(value):
            for shard in _owned_shards(value):
                shard.copy_to_host_async()


def stage(leaf: Leaf, value: Any, *, hold: bool) -> StagedArray:
    """Brings the values of one leaf to host memory.

    Args:
      leaf: the leaf.
      value: an array, or what ``np.asarray`` takes. Typed PRNG keys come as their data.
      hold: whether values may be used where they are, since the caller waits until they are written:
        numpy memory as it is, and arrays on devices a chunk at a time.
    """
    if isinstance(value, jax.Array):
        return _stage_sharded(leaf, value, hold)
    host = host_copy(value, hold=hold)
    return StagedArray(
        leaf,
        host.shape,
        host.dtype,
        chunk_shape(host.shape, host.shape, host.dtype.itemsize),
        ((boxes.whole(host.shape), host),) if host.size else (),
    )


def host_copy(value: Any, *, hold: bool) -> np.ndarray:
    """The values of an array in host memory, as the dtype on disk. Copied only where that is needed."""
    host = np.asarray(value)
    stored = on_disk(host.dtype)
    immutable = isinstance(value, jax.Array)
    if dtype_name(stored) == dtype_name(host.dtype):
        # What is held keeps its order: chunk by chunk it is put in rows when it is written.
        order: Literal["C", "K"] = "K" if hold or immutable else "C"
        return host.astype(little_endian(host.dtype), order=order, copy=not (hold or immutable))
    return np.array(host, order="C", copy=None if hold or immutable else True).view(stored)


def _stage_sharded(leaf: Leaf, value: jax.Array, hold: bool) -> StagedArray:
    dtype = on_disk(np.dtype(value.dtype))
    shard_shape = value.sharding.shard_shape(value.shape)
    later = hold and not _on_cpu(value)
    parts = tuple(
        (box, OnDevice(data) if later else host_copy(data, hold=True))
        for box, data in (_owned(value).items() if value.size else ())
    )
    return StagedArray(leaf, value.shape, dtype, chunk_shape(value.shape, shard_shape, dtype.itemsize), parts)


def _owned_shards(value: jax.Array) -> list[jax.Array]:
    return list(_owned(value).values())


def _owned(value: jax.Array) -> dict[Box, jax.Array]:
    """The boxes that this process writes, each with the one copy of it that is written."""
    if len(value.sharding.device_set) == 1:
        return {boxes.whole(value.shape): value}
    shards = {shard.device.id: shard for shard in value.addressable_shards}
    held = {i: boxes.from_index(shard.index, value.shape) for i, shard in shards.items()}
    return {box: shards[device].data for box, device in owners(held).items()}


def _on_cpu(value: jax.Array) -> bool:
    device: Any = next(iter(value.sharding.device_set))
    return bool(device.platform == "cpu")
