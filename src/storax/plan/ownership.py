"""Which device's copy of each box is written: one replica of each shard, decided from the sharding alone."""

from __future__ import annotations

from collections.abc import Mapping

from storax.plan.boxes import Box


def owners(boxes: Mapping[int, Box]) -> dict[Box, int]:
    """Of all devices that hold the same box the one with the lowest id owns it.

    Args:
      boxes: the box that each device holds, by device id.

    >>> owners({3: ((0, 4),), 1: ((0, 4),), 2: ((4, 8),)})
    {((0, 4),): 1, ((4, 8),): 2}
    """
    found: dict[Box, int] = {}
    for device in sorted(boxes):
        found.setdefault(boxes[device], device)
    return found
