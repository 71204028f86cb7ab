"""A saved sharding, read from its document: in short for a table, and which device has which box."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storax.plan.boxes import Box


@dataclass(frozen=True, slots=True)
class Mesh:
    """The devices of a sharding: their ids in the order of the mesh, and its named axes."""

    axes: Mapping[str, int]
    devices: tuple[int, ...]


def in_short(document: Mapping[str, Any] | None) -> str:
    """One sharding in a few letters.

    >>> in_short({"sharding_type": "NamedSharding", "axis_names": ["data", "model"], "shape": [4, 2],
    ...           "partition_spec": [["data", "model"], None]})
    'P((data, model), None) over data=4 model=2'
    >>> in_short({"sharding_type": "SingleDeviceSharding", "device_str": "TFRT_CPU_0"})
    'TFRT_CPU_0'
    """
    if document is None:
        return ""
    if document.get("sharding_type") == "SingleDeviceSharding":
        return str(document.get("device_str", "one device"))
    if document.get("sharding_type") != "NamedSharding":
        return str(document.get("sharding_type", ""))
    spec = ", ".join(_part(part) for part in document.get("partition_spec") or ())
    axes = zip(document.get("axis_names") or (), document.get("shape") or (), strict=False)
    return f"P({spec}) over {' '.join(f'{name}={size}' for name, size in axes)}"


def _part(part: Any) -> str:
    return f"({', '.join(map(str, part))})" if isinstance(part, list) else str(part)


def mesh_of(document: Mapping[str, Any] | None) -> Mesh | None:
    """The mesh of a named sharding; None for others."""
    if document is None or document.get("sharding_type") != "NamedSharding":
        return None
    names, sizes = document.get("axis_names") or (), document.get("shape") or ()
    if len(names) != len(sizes) or not all(isinstance(size, int) and size > 0 for size in sizes):
        return None
    return Mesh(dict(zip(map(str, names), sizes, strict=True)), tuple(_ids(document, sizes)))


def _ids(document: Mapping[str, Any], sizes: Sequence[int]) -> Iterator[int]:
    """The ids of the devices; where older documents have none, their places in the mesh."""
    count = 1
    for size in sizes:
        count *= size
    found = list(_flat((document.get("device_mesh") or {}).get("mesh") or []))
    yield from found if len(found) == count else range(count)


def _flat(value: Any) -> Iterator[int]:
    if isinstance(value, list):
        for inner in value:
            yield from _flat(inner)
    elif isinstance(value, Mapping) and isinstance(value.get("id"), int):
        yield value["id"]


def device_boxes(document: Mapping[str, Any] | None, shape: Sequence[int]) -> list[tuple[int, Box]]:
    """Which box each device of the mesh holds, in the order of the mesh; nothing if it cannot be told."""
    mesh = mesh_of(document)
    spec = list((document or {}).get("partition_spec") or ())
    if mesh is None or len(spec) > len(shape):
        return []
    spec += [None] * (len(shape) - len(spec))
    names = list(mesh.axes)
    found = []
    places = itertools.product(*(range(size) for size in mesh.axes.values()))
    for device, place in zip(mesh.devices, places, strict=True):
        at = dict(zip(names, place, strict=True))
        box = tuple(_range(part, size, at, mesh.axes) for part, size in zip(spec, shape, strict=True))
        found.append((device, box))
    return found


def _range(part: Any, size: int, at: Mapping[str, int], axes: Mapping[str, int]) -> tuple[int, int]:
    index, pieces = 0, 1
    for axis in part if isinstance(part, list) else [part] if isinstance(part, str) else []:
        if axis in axes:
            index, pieces = index * axes[axis] + at[axis], pieces * axes[axis]
    step = -(-size // pieces)
    return min(size, index * step), min(size, (index + 1) * step)
