"""The part of each array that one process of many writes, in host memory.

What many processes hold is cut into smaller chunks than usual, so that it can be shared out evenly.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, Sharding

from storax.arrays.staging import StagedArray, host_copy
from storax.plan import boxes
from storax.plan.boxes import Box
from storax.plan.chunks import MOST_BYTES, chunk_shape
from storax.plan.ownership import Plan, Shared, most_chunk_bytes, plan, writer
from storax.plan.spread import Holders, Spread, spec_of, spread
from storax.processes import Processes
from storax.tree.dtypes import on_disk
from storax.tree.leaves import Leaf


@dataclass(frozen=True, slots=True)
class _Layout:
    """How one array lies in the processes, and in chunks: all that the plan must know of it.

    Attributes:
      sharding: None if every process has the whole array for itself.
      holders: of each shard, the processes that have it.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    sharding: Sharding | None
    holders: tuple[Holders, ...]
    chunk: tuple[int, ...]

    @property
    def shared(self) -> Shared:
        shard = self.shape if self.sharding is None else self.sharding.shard_shape(self.shape)
        count = math.prod(-(-n // c) for n, c in zip(shard, self.chunk, strict=True))
        return Shared(self.holders, count, math.prod(self.chunk) * self.dtype.itemsize)

    def box(self, shard: int) -> Box:
        """Where a shard lies."""
        if self.sharding is None:
            return boxes.whole(self.shape)
        if (known := _spread(self.sharding)) is not None:
            return known.box(shard, self.shape)
        return _boxes(self.sharding, self.shape)[shard]


@dataclass(frozen=True, slots=True)
class Shares:
    """Who writes what of some arrays. Holds none of their values."""

    layouts: tuple[_Layout, ...]
    count: int

    def plan(self, process: int) -> Plan:
        """What one process writes."""
        return plan([layout.shared for layout in self.layouts], self.count, process)

    def describer(self, array: int) -> int:
        """The process that writes the description of an array: they take turns."""
        return array % self.count

    def writer(self, array: int, cell: tuple[int, ...]) -> int:
        """The process that writes one chunk of an array."""
        layout = self.layouts[array]
        corner = tuple(i * c for i, c in zip(cell, layout.chunk, strict=True))
        for shard in range(len(layout.holders)):
            box = layout.box(shard)
            if all(start <= at < stop for at, (start, stop) in zip(corner, box, strict=True)):
                chunk = list(boxes.cells(box, layout.chunk)).index(cell)
                return writer([each.shared for each in self.layouts], self.count, array, shard, chunk)
        raise ValueError(f"array {array} has no chunk {cell}")


def stage_shares(
    leaves: Sequence[Leaf], values: Sequence[Any], processes: Processes, *, hold: bool
) -> tuple[list[StagedArray], Shares]:
    """Plans who writes what, and brings the share of this process to host memory.

    Args:
      leaves: of the arrays.
      values: arrays, or what ``np.asarray`` takes.
      processes: of the job.
      hold: as for ``staging.stage``.

    Returns:
      Every array, with the parts of this process alone; and who writes the others.
    """
    everyone = (tuple(range(processes.count)),)
    shardings = [_sharding(value) for value in values]
    holders = [
        everyone if sharding is None else holders_of(sharding, tuple(value.shape))
        for sharding, value in zip(shardings, values, strict=True)
    ]
    most = _most_bytes(values, holders, processes.count)
    shares = Shares(
        tuple(
            _layout(value, sharding, held, most)
            for value, sharding, held in zip(values, shardings, holders, strict=True)
        ),
        processes.count,
    )
    return _parts(leaves, values, shares, processes.index, hold), shares


def _sharding(value: Any) -> Sharding | None:
    """The sharding of an array that several processes hold together; None for what each has for itself."""
    return value.sharding if isinstance(value, jax.Array) and not value.is_fully_addressable else None


def _layout(value: Any, sharding: Sharding | None, holders: tuple[Holders, ...], most: int) -> _Layout:
    dtype = on_disk(np.dtype(value.dtype) if hasattr(value, "dtype") else np.asarray(value).dtype)
    shape = tuple(np.shape(value))
    shard = shape if sharding is None else sharding.shard_shape(shape)
    alone = all(len(processes) == 1 for processes in holders)
    chunk = chunk_shape(shape, shard, dtype.itemsize, MOST_BYTES if alone else most)
    return _Layout(shape, dtype, sharding, holders, chunk)


def _most_bytes(values: Sequence[Any], holders: Sequence[tuple[Holders, ...]], count: int) -> int:
    total = sum(
        int(np.size(v)) * np.dtype(getattr(v, "dtype", np.int64)).itemsize
        for v, held in zip(values, holders, strict=True)
        if any(len(processes) > 1 for processes in held)
    )
    return most_chunk_bytes(total, count)


def holders_of(sharding: Sharding, shape: tuple[int, ...]) -> tuple[Holders, ...]:
    """Of each shard the processes that hold it. One tuple for all arrays with the same sharding."""
    if _spread(sharding) is not None:
        return _holders_on_mesh(sharding)
    return _holders_of_boxes(sharding, shape)


@functools.lru_cache(maxsize=1024)
def _spread(sharding: Sharding) -> Spread | None:
    """How a mesh spreads an array; None for shardings that are not of a mesh and a partition spec alone."""
    if not isinstance(sharding, NamedSharding) or not isinstance(sharding.mesh, Mesh):
        return None
    parts = list(sharding.spec)
    if not all(part is None or isinstance(part, (str, tuple)) for part in parts):
        return None
    return spread(dict(sharding.mesh.shape), spec_of(parts))


@functools.lru_cache(maxsize=1024)
def _holders_on_mesh(sharding: NamedSharding) -> tuple[Holders, ...]:
    found = _spread(sharding)
    assert found is not None
    return _holders_of(sharding.mesh, spec_of(list(sharding.spec)))


@functools.lru_cache(maxsize=256)
def _holders_of(mesh: Mesh, spec: Any) -> tuple[Holders, ...]:
    devices: Any = mesh.devices
    processes = np.array([device.process_index for device in devices.flat], np.int64)
    return spread(dict(mesh.shape), spec).holders(processes)


@functools.lru_cache(maxsize=256)
def _holders_of_boxes(sharding: Sharding, shape: tuple[int, ...]) -> tuple[Holders, ...]:
    held: dict[Box, set[int]] = {}
    every: Mapping[Any, Any] = sharding.devices_indices_map(shape)
    for device, index in every.items():
        held.setdefault(boxes.from_index(index or (), shape), set()).add(device.process_index)
    return tuple(tuple(sorted(held[box])) for box in _boxes(sharding, shape))


@functools.lru_cache(maxsize=256)
def _boxes(sharding: Sharding, shape: tuple[int, ...]) -> tuple[Box, ...]:
    """The box of each shard, in the order of its first device."""
    every = sharding.devices_indices_map(shape).values()
    return tuple(dict.fromkeys(boxes.from_index(index or (), shape) for index in every))


def _parts(
    leaves: Sequence[Leaf], values: Sequence[Any], shares: Shares, process: int, hold: bool
) -> list[StagedArray]:
    chosen: dict[int, list[tuple[int, int, int]]] = {}
    for stretch in shares.plan(process).stretches:
        chosen.setdefault(stretch.array, []).append((stretch.shard, stretch.start, stretch.stop))
    held = {number: _local(values[number], shares.layouts[number]) for number in chosen}
    for number, stretches in chosen.items():
        # All copies from devices begin before the first one is waited for.
        for box in {shares.layouts[number].box(shard) for shard, _, _ in stretches}:
            if isinstance(data := held[number][box], jax.Array) and not _on_cpu(data):
                data.copy_to_host_async()
    staged = []
    for number, (leaf, value, layout) in enumerate(zip(leaves, values, shares.layouts, strict=True)):
        parts: list[tuple[Box, np.ndarray]] = []
        local = held.get(number, {})
        for shard, start, stop in chosen.get(number, ()):
            box = layout.box(shard)
            data = host_copy(local[box], hold=True)
            for cell in list(boxes.cells(box, layout.chunk))[start:stop]:
                part = boxes.intersect(boxes.cell_box(cell, layout.chunk), box)
                assert part is not None
                index: Any = (*boxes.slices(part, box), ...)
                # What anybody may change is copied, but no more of it than is written here.
                cut = data[index] if isinstance(value, jax.Array) else host_copy(data[index], hold=hold)
                parts.append((part, cut))
        described = shares.describer(number) == process
        staged.append(StagedArray(leaf, layout.shape, layout.dtype, layout.chunk, tuple(parts), described))
    return staged


def _on_cpu(data: jax.Array) -> bool:
    device: Any = next(iter(data.devices()))
    return bool(device.platform == "cpu")


def _local(value: Any, layout: _Layout) -> Mapping[Box, Any]:
    """What this process has of an array, by boxes."""
    if layout.sharding is None:
        return {boxes.whole(layout.shape): value}
    return {boxes.from_index(s.index, layout.shape): s.data for s in value.addressable_shards}
