"""How a mesh spreads an array over its devices: which device holds which shard. Pure arithmetic.

What ``NamedSharding.devices_indices_map`` says box by box, without a device and for all devices at
once. It depends on the mesh and the partition spec only, so arrays of all shapes share one answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from storax.plan.boxes import Box

# The axes of the mesh that a dimension is cut along: none, or several from the outermost in.
Spec = tuple[tuple[str, ...], ...]
Holders = tuple[int, ...]


def spec_of(parts: Sequence[str | Sequence[str] | None]) -> Spec:
    """A partition spec in one form: what is cut along nothing, at the end, is left out.

    >>> spec_of(["data", None, ("x", "y"), None])
    (('data',), (), ('x', 'y'))
    """
    axes = [() if part is None else (part,) if isinstance(part, str) else tuple(part) for part in parts]
    while axes and not axes[-1]:
        axes.pop()
    return tuple(axes)


@dataclass(frozen=True)
class Spread:
    """The shards of an array, numbered in C order of their grid.

    Attributes:
      grid: how many shards along each dimension that is cut; one along all others.
      shard_of: of each device, in C order of the mesh, the number of its shard.
    """

    grid: tuple[int, ...]
    shard_of: np.ndarray

    @property
    def count(self) -> int:
        """How many shards there are."""
        return math.prod(self.grid)

    def shard_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of each shard. The grid divides an array's dimensions."""
        return tuple(n // g for n, g in zip(shape, self._grid(shape), strict=True))

    def box(self, shard: int, shape: Sequence[int]) -> Box:
        """Where a shard lies in the array.

        >>> spread({"x": 2, "y": 2}, (("y",),)).box(1, (4, 3))
        ((2, 4), (0, 3))
        """
        at = np.unravel_index(shard, self._grid(shape)) if shape else ()
        return tuple((int(i) * n, (int(i) + 1) * n) for i, n in zip(at, self.shard_shape(shape), strict=True))

    def _grid(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (*self.grid, *(1,) * (len(shape) - len(self.grid)))

    def holders(self, process_of: np.ndarray) -> tuple[Holders, ...]:
        """Of each shard, the processes that have it, ascending.

        Args:
          process_of: of each device, in C order of the mesh.

        >>> spread({"x": 2, "y": 2}, (("y",),)).holders(np.array([0, 0, 1, 1]))
        ((0, 1), (0, 1))
        """
        processes = int(process_of.max(initial=-1)) + 1
        pairs = np.unique(self.shard_of.astype(np.int64) * processes + process_of)
        shards, holding = pairs // processes, (pairs % processes).tolist()
        cuts = np.searchsorted(shards, np.arange(self.count + 1)).tolist()
        # Shards with the same holders share one tuple: of a thousand processes it is a long one.
        known: dict[Holders, Holders] = {}
        found = (tuple(holding[a:b]) for a, b in pairwise(cuts))
        return tuple(known.setdefault(one, one) for one in found)


def spread(mesh: Mapping[str, int], spec: Spec) -> Spread:
    """How a mesh spreads arrays that are cut as a spec says.

    Args:
      mesh: the size of each axis, the outermost first.
      spec: for each dimension, the axes that it is cut along.

    >>> spread({"x": 2, "y": 2}, (("y",),)).shard_of
    array([0, 1, 0, 1])
    """
    sizes = tuple(mesh.values())
    places = dict(zip(mesh, np.indices(sizes).reshape(len(sizes), -1), strict=True))
    grid, shard_of = [], np.zeros(math.prod(sizes), np.int64)
    for axes in spec:
        along = 1
        for axis in axes:
            along *= mesh[axis]
            shard_of = shard_of * mesh[axis] + places[axis]
        grid.append(along)
    return Spread(tuple(grid), shard_of)
