"""What a save would be like: who writes how much of what, on any mesh, without a device and without JAX.

For the shapes and partition specs of a tree, or those that a checkpoint has: the same plan that a save
makes, for all processes at once, beside two simpler ones that are common elsewhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from storax.errors import BadOption
from storax.plan.chunks import MOST_BYTES, chunk_shape
from storax.plan.ownership import Outline, Shared, most_chunk_bytes, outline
from storax.plan.spread import Holders, Spec, Spread, spec_of, spread
from storax.tree.dtypes import dtype_named, on_disk
from storax.tree.leaves import Leaf
from storax.tree.names import display

# What the writer of databases does: a value of so many bytes is kept in the index, and a second data
# file is begun for so many bytes. A test compares both with the writer's own.
_LARGEST_INLINE = 1024
_BYTES_PER_FILE = 32 << 20
_CHECKSUM_BYTES = 4


@dataclass(frozen=True, slots=True)
class PlannedArray:
    """One array of the tree.

    Attributes:
      spec: None for what every process has for itself, such as a numpy array or a number.
    """

    name: str
    shape: tuple[int, ...]
    itemsize: int
    spec: Spec | None

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return math.prod(self.shape) * self.itemsize


@dataclass(frozen=True, slots=True)
class Loads:
    """Bytes that each process writes."""

    bytes: tuple[int, ...]

    @property
    def heaviest(self) -> int:
        """Bytes of the process that writes most."""
        return max(self.bytes)

    @property
    def mean(self) -> float:
        """Bytes of an even share."""
        return sum(self.bytes) / len(self.bytes)

    @property
    def balance(self) -> float:
        """The heaviest over the mean; 1.0 is even."""
        return self.heaviest / self.mean if self.mean else 1.0


@dataclass(frozen=True, slots=True)
class Simulation:
    """A save that did not happen. ``print`` shows it as a table.

    Attributes:
      mesh: the size of each axis.
      arrays: how many.
      nbytes: of all arrays, each counted once.
      loads: by storax.
      chunks: that each process writes.
      files: that each process writes, and process 0 for all.
      largest_slice: bytes of the largest piece of one shard that one process writes.
      single_replica: if the first process that has a shard wrote all of it.
      divided_replicas: if the replicas shared each shard along the first axis that their number
        divides, and the first wrote all of it where there is none.
    """

    mesh: Mapping[str, int]
    arrays: int
    nbytes: int
    loads: Loads
    chunks: tuple[int, ...]
    files: int
    largest_slice: int
    single_replica: Loads
    divided_replicas: Loads

    def __str__(self) -> str:
        processes = len(self.loads.bytes)
        mesh = " x ".join(f"{axis} {size}" for axis, size in self.mesh.items()) or "no mesh"
        lines = [
            f"{processes:,} processes, mesh {mesh}; {self.arrays:,} arrays, {_size(self.nbytes)}",
            f"{'plan':<24}{'heaviest':>12}{'mean':>12}{'balance':>10}",
        ]
        for name, loads in (
            ("storax", self.loads),
            ("single replica", self.single_replica),
            ("divided replicas", self.divided_replicas),
        ):
            lines.append(
                f"{name:<24}{_size(loads.heaviest):>12}{_size(loads.mean):>12}{loads.balance:>10.2f}"
            )
        lines.append(
            f"{sum(self.chunks):,} chunks, at most {max(self.chunks):,} by one process; "
            f"{self.files:,} files; largest slice {_size(self.largest_slice)}"
        )
        return "\n".join(lines)


def simulate(
    tree: str | bytes | Mapping[str, Any] | Sequence[PlannedArray],
    mesh: Mapping[str, int] | None = None,
    *,
    hosts: int,
    chips_per_host: int | None = None,
    writers: int = 8,
) -> Simulation:
    """Says what a save of a tree would be like, without devices.

    Args:
      tree: a JSON text or object, ``{"mesh": {"data": 4}, "arrays": {"w": {"shape": [8, 2], "dtype":
        "float32", "spec": ["data", null]}}}``; without ``spec``, each process has the array for itself.
        Or arrays from ``planned``.
      mesh: the size of each axis, the outermost first; instead of the one in ``tree``. Devices are
        numbered in C order, and each host has as many neighbours.
      hosts: how many processes.
      chips_per_host: devices of each; by default, those of the mesh shared out.
      writers: threads that each process writes with, which is how many data files it makes at most.

    Raises:
      BadOption: the mesh, the specs and the hosts do not fit each other; lists all arrays that do not.

    >>> tree = {"mesh": {"x": 4}, "arrays": {"w": {"shape": [1024, 64], "dtype": "float32", "spec": [None]}}}
    >>> simulate(tree, hosts=2).loads.bytes
    (131072, 131072)
    """
    arrays, mesh = _arrays(tree, mesh)
    devices = math.prod(mesh.values())
    chips = chips_per_host if chips_per_host is not None else devices // hosts if hosts else 0
    if hosts < 1 or hosts * chips != devices:
        raise BadOption(
            f"{hosts} hosts of {chips} chips are not the {devices} devices of the mesh {dict(mesh)}. "
            "Give hosts and chips_per_host whose product is the size of the mesh."
        )
    _check(arrays, mesh)
    known = _Meshed(mesh, np.arange(devices) // max(1, chips), hosts)
    most = most_chunk_bytes(
        sum(a.nbytes for a in arrays if any(len(held) > 1 for held in known.holders(a))), hosts
    )
    shared = [known.shared(array, most) for array in arrays]
    found = outline(shared, hosts)
    return Simulation(
        mesh=dict(mesh),
        arrays=len(arrays),
        nbytes=sum(array.nbytes for array in arrays),
        loads=Loads(found.loads),
        chunks=found.chunks,
        files=_files(found, shared, writers),
        largest_slice=max(found.largest, default=0),
        single_replica=known.single_replica(arrays),
        divided_replicas=known.divided_replicas(arrays),
    )


def planned(leaves: Iterable[Leaf]) -> tuple[list[PlannedArray], dict[str, int]]:
    """The arrays of a checkpoint, from its own metadata, and the mesh that most of them were on."""
    arrays = []
    meshes: dict[str, int] = {}
    for leaf in leaves:
        if leaf.is_in_document or leaf.shape is None:
            continue
        size = leaf.nbytes // max(1, leaf.size)
        spec, mesh = _saved_spec(leaf)
        # The data of PRNG keys has one dimension more, and that is not cut.
        array = PlannedArray(leaf.name, leaf.shape, max(1, size), spec)
        arrays.append(array)
        if mesh:
            text = json.dumps(mesh)
            meshes[text] = meshes.get(text, 0) + leaf.nbytes
    best = max(meshes, key=lambda text: meshes[text], default="{}")
    return arrays, json.loads(best)


def _saved_spec(leaf: Leaf) -> tuple[Spec | None, dict[str, int]]:
    document = json.loads(leaf.sharding) if leaf.sharding else {}
    if document.get("sharding_type") != "NamedSharding":
        return None, {}
    mesh = dict(zip(document["axis_names"], document["shape"], strict=True))
    return spec_of(document["partition_spec"]), mesh


def _arrays(
    tree: str | bytes | Mapping[str, Any] | Sequence[PlannedArray], mesh: Mapping[str, int] | None
) -> tuple[list[PlannedArray], Mapping[str, int]]:
    if isinstance(tree, (str, bytes)):
        tree = json.loads(tree)
    if not isinstance(tree, Mapping):
        arrays = [array for array in tree if isinstance(array, PlannedArray)]
        return arrays, mesh if mesh is not None else {}
    found = []
    for name, entry in tree["arrays"].items():
        spec = spec_of(entry["spec"]) if entry.get("spec") is not None else None
        size = on_disk(dtype_named(entry.get("dtype", "float32"))).itemsize
        found.append(PlannedArray(name, tuple(entry["shape"]), size, spec))
    return found, mesh if mesh is not None else tree.get("mesh") or {}


def _check(arrays: Sequence[PlannedArray], mesh: Mapping[str, int]) -> None:
    problems = []
    for array in arrays:
        axes = [axis for part in array.spec or () for axis in part]
        if unknown := sorted(set(axes) - set(mesh)):
            problems.append(f"{display(array.name)}: the mesh has no axis {', '.join(unknown)}")
        elif len(axes) != len(set(axes)) or len(array.spec or ()) > len(array.shape):
            problems.append(f"{display(array.name)}: the spec {array.spec} does not fit {list(array.shape)}")
        elif any(
            n % math.prod(mesh[a] for a in p) for n, p in zip(array.shape, array.spec or (), strict=False)
        ):
            problems.append(f"{display(array.name)}: {list(array.shape)} cannot be cut along {array.spec}")
    if problems:
        shown = "\n  ".join(problems[:20])
        raise BadOption(
            f"{len(problems)} arrays do not fit the mesh {dict(mesh)}:\n  {shown}\nChange the specs."
        )


class _Meshed:
    """Arrays on one mesh, by what processes see of them."""

    def __init__(self, mesh: Mapping[str, int], process_of: np.ndarray, processes: int) -> None:
        self._mesh = mesh
        self._process_of = process_of
        self._processes = processes
        self._spreads: dict[Spec, tuple[Spread, tuple[Holders, ...]]] = {}
        self._everyone = (tuple(range(processes)),)

    def _spread(self, spec: Spec) -> tuple[Spread, tuple[Holders, ...]]:
        if spec not in self._spreads:
            found = spread(self._mesh, spec)
            self._spreads[spec] = (found, found.holders(self._process_of))
        return self._spreads[spec]

    def holders(self, array: PlannedArray) -> tuple[Holders, ...]:
        return self._everyone if array.spec is None else self._spread(array.spec)[1]

    def shard_shape(self, array: PlannedArray) -> tuple[int, ...]:
        return array.shape if array.spec is None else self._spread(array.spec)[0].shard_shape(array.shape)

    def shared(self, array: PlannedArray, most: int) -> Shared:
        holders, shard = self.holders(array), self.shard_shape(array)
        alone = all(len(held) == 1 for held in holders)
        chunk = chunk_shape(array.shape, shard, array.itemsize, MOST_BYTES if alone else most)
        count = math.prod(-(-n // c) for n, c in zip(shard, chunk, strict=True))
        return Shared(holders, count, math.prod(chunk) * array.itemsize)

    def single_replica(self, arrays: Sequence[PlannedArray]) -> Loads:
        loads = np.zeros(self._processes, np.int64)
        for spec, nbytes in self._shard_bytes(arrays):
            loads += nbytes * self._first_holders(spec)
        return Loads(tuple(loads.tolist()))

    def divided_replicas(self, arrays: Sequence[PlannedArray]) -> Loads:
        loads = np.zeros(self._processes)
        divided = [a for a in arrays if self._divides(a)]
        for spec, nbytes in self._shard_bytes(divided):
            known, _ = self._spread(spec or ())
            replicas = len(self._process_of) // known.count
            loads += nbytes / replicas * np.bincount(self._process_of, minlength=self._processes)
        for spec, nbytes in self._shard_bytes([a for a in arrays if not self._divides(a)]):
            loads += nbytes * self._first_holders(spec)
        return Loads(tuple(round(load) for load in loads.tolist()))

    def _divides(self, array: PlannedArray) -> bool:
        if array.spec is None:
            return False  # numpy arrays and numbers: the first process writes them
        replicas = len(self._process_of) // self._spread(array.spec)[0].count
        return any(n % replicas == 0 for n in self.shard_shape(array) if n)

    def _shard_bytes(self, arrays: Sequence[PlannedArray]) -> Iterable[tuple[Spec | None, int]]:
        """Of all arrays with one spec, the bytes of a shard together."""
        found: dict[Spec | None, int] = {}
        for array in arrays:
            nbytes = math.prod(self.shard_shape(array)) * array.itemsize
            found[array.spec] = found.get(array.spec, 0) + nbytes
        return found.items()

    def _first_holders(self, spec: Spec | None) -> np.ndarray:
        """How many shards each process is the first to have."""
        if spec is None:
            return np.bincount([0], minlength=self._processes)
        _, first = np.unique(self._spread(spec)[0].shard_of, return_index=True)
        return np.bincount(self._process_of[first], minlength=self._processes)


def _files(found: Outline, shared: Sequence[Shared], writers: int) -> int:
    """How many files the database of each process and the merged one have, without the documents.

    A process with nothing that is too large for the index has no data file; that is decided by the
    largest chunk, so for a mixture of both it may be one file too many.
    """
    large = max((one.chunk_bytes for one in shared), default=0) + _CHECKSUM_BYTES > _LARGEST_INLINE
    count = 0
    for nbytes, chunks in zip(found.loads, found.chunks, strict=True):
        data = min(writers, -(-nbytes // _BYTES_PER_FILE), chunks) if large else 0
        count += data + 2  # the nodes and the manifest
    return count + 2


def _size(nbytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:,.0f} {unit}" if unit == "B" else f"{nbytes:,.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:,.1f} TiB"
