"""Where the leaves of a checkpoint land: memory to read into, then values of the wanted kind and sharding."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, Sharding, SingleDeviceSharding

from storax.arrays import place
from storax.arrays.broadcast import Broadcast, broadcast_of, sent
from storax.arrays.gather import gather
from storax.arrays.read import DatabaseArray
from storax.arrays.rules import Ruled
from storax.checkpoint import SavedLeaf
from storax.errors import BadOption, Corrupt, TreeMismatch
from storax.garbage import uncollected
from storax.plan.boxes import Box, box_shape, size
from storax.processes import Processes, present
from storax.progress import expect, settle
from storax.store.budget import DEFAULT_BUDGET, Budget
from storax.store.reading import Act, Report, Segment, Work, read_all, split
from storax.tracing import span
from storax.tree.dtypes import converted, dtype_named, narrows
from storax.tree.leaves import EMPTY, Leaf
from storax.tree.names import display

_log = logging.getLogger("storax")
_MOST_LINES = 20
_PYTHON: dict[str, Callable[[Any], Any]] = {"int": int, "float": float, "complex": complex, "bool": bool}


@dataclass(frozen=True, slots=True)
class Landing:
    """One leaf on its way: what is saved, what is wanted, and the memory that its boxes are read into."""

    saved: SavedLeaf
    wanted: Leaf
    kind: str
    dtype: np.dtype | None
    sharding: Sharding | None
    cast: bool
    original: Any
    broadcast: Broadcast | None = None

    @property
    def weak(self) -> bool:
        """Whether the array's dtype gives way to others: as the target has it, else as it was saved."""
        return self.kind == "jax.Array" and self.wanted.weak

    @property
    def nbytes(self) -> int:
        return self.saved.leaf.nbytes

    @property
    def boxes(self) -> list[Box]:
        """The boxes of the array that are wanted here."""
        source = self.saved.source
        if source is None:
            return []
        if self.broadcast is not None:
            return self.broadcast.boxes
        return place.local_boxes(source.shape, self.sharding if self.kind == "jax.Array" else None)

    @property
    def local_bytes(self) -> int:
        """Bytes of the boxes that are wanted here."""
        source = self.saved.source
        return 0 if source is None else sum(map(size, self.boxes)) * source.dtype.itemsize

    def memory(self) -> dict[Box, np.ndarray]:
        source = self.saved.source
        if source is None:
            return {}
        wanted = self.boxes
        make = place.aligned if self.kind == "jax.Array" else np.empty
        return {box: make(box_shape(box), source.dtype) for box in wanted}

    def converted(self, parts: dict[Box, np.ndarray]) -> dict[Box, np.ndarray]:
        """What was read, as the dtype that is wanted."""
        stored = (
            np.dtype(np.uint32) if self.saved.leaf.prng else dtype_named(self.saved.leaf.dtype or "uint8")
        )
        return {box: self._in_dtype(part.view(stored)) for box, part in parts.items()}

    def value(self, parts: dict[Box, np.ndarray]) -> Any:
        """The leaf's value, from the memory after it was read."""
        if self.saved.source is None:
            return self._value_of_document()
        arrays = self.converted(parts)
        if self.kind == "jax.Array":
            return self.wrapped(place.place(arrays, self.saved.source.shape, self.sharding))
        (array,) = arrays.values()
        if self.kind == "bytes":
            return array.tobytes()
        if self.kind == "np.generic":
            return array[()]
        return _PYTHON[self.kind](array[()]) if self.kind in _PYTHON else array

    def wrapped(self, array: jax.Array) -> jax.Array:
        """The array, with its dtype weak if that is wanted, or the PRNG keys that it is the data of."""
        leaf = self.saved.leaf
        if leaf.prng:
            return place.wrap_key_data(array, leaf.prng, leaf.name)
        return place.weakened(array) if self.weak else array

    def with_broadcast(self, turn: int) -> Landing:
        """The same, read by one of the processes that hold it, if it can be."""
        source = self.saved.source
        if source is None or self.kind != "jax.Array":
            return self
        dtype = self.dtype or np.dtype(np.uint32)
        return replace(self, broadcast=broadcast_of(source.shape, dtype, self.sharding, turn))

    def _value_of_document(self) -> Any:
        if self.kind in EMPTY and self.original is not None:
            return self.original
        return (
            {"dict": dict, "list": list, "tuple": tuple}[self.kind]()
            if self.kind in EMPTY
            else self.saved.leaf.value
        )

    def _in_dtype(self, part: np.ndarray) -> np.ndarray:
        dtype = self.dtype
        if dtype is None or dtype == part.dtype:
            return part
        if self.saved.leaf.kind == "int" and not self.cast and dtype.kind in "iu":
            self._check_fits(int(part[()]), dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            result = converted(part, dtype)
        if not self.cast and narrows(part.dtype, dtype):
            self._check_finite(part, result)
        return result

    def _check_finite(self, part: np.ndarray, result: np.ndarray) -> None:
        finite = np.isfinite(result)
        if finite.all():
            return
        lost = part[~finite & np.isfinite(part)]
        if lost.size:
            what = f"saved {self.saved.leaf} with the value {lost[0]}, wanted {self.wanted}"
            raise TreeMismatch(
                f"{display(self.wanted.name)}: {what}, where it is infinite. "
                "Cast all the same: load(..., cast=True).",
                differ=((self.wanted.name, what),),
            )

    def _check_fits(self, value: int, dtype: np.dtype) -> None:
        if not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
            what = f"saved int {value}, wanted {self.wanted}"
            raise TreeMismatch(
                f"{display(self.wanted.name)}: {what}, which cannot hold it. "
                "Cast all the same: load(..., cast=True).",
                differ=((self.wanted.name, what),),
            )


def landing_of(saved: SavedLeaf, wanted: Leaf, original: Any, cast: bool = False) -> Landing:
    kind = wanted.kind
    if kind == "any":
        kind = saved.leaf.kind if saved.leaf.kind in ("jax.Array", "np.ndarray") else "jax.Array"
    dtype = None
    if saved.source is not None and saved.leaf.prng is None:
        dtype = dtype_named(wanted.dtype or saved.leaf.dtype or "uint8")
        if wanted.byteorder == ">" and kind != "jax.Array":
            dtype = dtype.newbyteorder(">")
    if kind == "int" and dtype_named(saved.leaf.dtype or "uint8").kind in "iu":
        dtype = None  # a Python int holds any of them as it is
    sharding = _wanted_sharding(saved.leaf, original) if kind == "jax.Array" else None
    return Landing(saved, wanted, kind, dtype, sharding, cast, original)


def _wanted_sharding(saved: Leaf, original: Any) -> Sharding | None:
    """Where a leaf goes: as the target says, else as it was saved, else the default device (None)."""
    if isinstance(original, jax.Array):
        return original.sharding if original.committed else None
    if isinstance(original, Ruled):
        return original.sharding
    sharding = getattr(original, "sharding", None)
    if sharding is not None:
        if not isinstance(sharding, Sharding):
            raise BadOption(
                f"{display(saved.name)}: the target's sharding is a {type(sharding).__name__}, not a Sharding"
            )
        return place.on_devices(sharding)
    if saved.sharding is None:
        return None
    found = place.sharding_of(saved.sharding)
    # An array of the default device was most likely never put anywhere; committing it there would
    # keep it from being used together with arrays on a mesh.
    if isinstance(found, SingleDeviceSharding) and found.device_set == {place.default_device()}:
        return None
    return found


def check_shardings(landings: Iterable[Landing]) -> None:
    landings = list(landings)
    _check_meshes(landings)
    problems = []
    for landing in landings:
        if landing.sharding is not None and landing.saved.source is not None:
            try:
                landing.sharding.shard_shape(landing.saved.leaf.shape or ())  # of keys, not of their data
            except (IndexError, ValueError) as error:
                if getattr(landing.original, "sharding", None) is None:
                    raise Corrupt(
                        f"{display(landing.wanted.name)}: the saved sharding does not fit: {error}"
                    ) from None
                problems.append((landing.wanted.name, str(error)))
    if problems:
        raise TreeMismatch(
            "the target's shardings do not fit its shapes:\n"
            + "\n".join(f"  {display(name)}: {what}" for name, what in problems),
            differ=tuple(problems),
        )


def _check_meshes(landings: Sequence[Landing]) -> None:
    """All shardings are on devices: those that are still on an abstract mesh found no mesh that fits."""
    nowhere = [
        (landing.wanted.name, str(landing.sharding.mesh.shape_tuple))
        for landing in landings
        if isinstance(landing.sharding, NamedSharding) and place.is_abstract(landing.sharding)
    ]
    if nowhere:
        mesh = jax.sharding.get_mesh()
        now = "no mesh is set" if mesh.empty else f"the mesh that is set has {mesh.shape_tuple}"
        raise TreeMismatch(
            f"the target's shardings are on an abstract mesh, which has no devices, and {now}:\n"
            + "\n".join(f"  {display(name)}: on a mesh of {axes}" for name, axes in nowhere[:_MOST_LINES])
            + (f"\n  … and {len(nowhere) - _MOST_LINES} more" if nowhere[_MOST_LINES:] else "")
            + "\nSet the mesh that they are for: with jax.set_mesh(mesh): load(...).",
            differ=tuple((name, f"a sharding on an abstract mesh of {axes}") for name, axes in nowhere),
        )


def land(
    landings: Sequence[Landing],
    where: Path,
    reports: list[Report],
    *,
    budget_bytes: int = DEFAULT_BUDGET,
    broadcast: bool = False,
) -> list[Any]:
    """Reads and places all leaves, a batch of bounded host memory at a time.

    Args:
      landings: of all leaves, in the same order on all processes.
      where: the checkpoint, for messages.
      reports: gets what was read.
      budget_bytes: of memory besides where values stay, unless one leaf alone is larger.
      broadcast: whether arrays that several processes hold are read by one and sent to the others.
    """
    _log_moved(landings, where)
    processes = present(room="loads")
    if broadcast and processes.count > 1:
        with processes.gathering(f"load {where}") as place_:
            landings = [landing.with_broadcast(turn) for turn, landing in enumerate(landings)]
            return _land(
                landings, reports, budget_bytes, lambda n: _together(processes, f"{place_}/batch {n}")
            )
    return _land(landings, reports, budget_bytes, lambda _: contextlib.nullcontext())


def _land(
    landings: Sequence[Landing],
    reports: list[Report],
    budget_bytes: int,
    together: Callable[[int], contextlib.AbstractContextManager[None]],
) -> list[Any]:
    landings, places = _distinct(landings)
    expect(sum(landing.local_bytes for landing in landings))
    values: list[Any] = []
    budget = Budget(budget_bytes)
    for number, batch in enumerate(_batches(landings, budget_bytes)):
        with together(number):
            with uncollected():
                memory = [landing.memory() for landing in batch]
                segments, acts = _reads(batch, memory)
            reports.append(read_all(segments, acts, budget=budget))
        with span("place"), uncollected():
            values += _values(batch, memory)
    settle()
    return [values[place] for place in places]


def _distinct(landings: Sequence[Landing]) -> tuple[list[Landing], list[int]]:
    """Those to be read, and for each of all the number of the one whose value it has (tied leaves: one)."""
    numbers: dict[Any, int] = {}
    distinct: list[Landing] = []
    places = []
    for i, landing in enumerate(landings):
        source = landing.saved.source
        same: Any = i
        if landing.kind == "jax.Array" and isinstance(source, DatabaseArray):
            same = (source.stored, landing.dtype, landing.sharding, landing.weak)
        if same not in numbers:
            numbers[same] = len(distinct)
            distinct.append(landing)
        places.append(numbers[same])
    return distinct, places


@contextlib.contextmanager
def _together(processes: Processes, place: str) -> Iterator[None]:
    """What each process does before its devices send: a device that waits for a failed process hangs."""
    try:
        yield
    except BaseException as error:
        processes.fail(place, error)
        raise
    processes.meet(place, {}, lambda _: {})


def _values(batch: Sequence[Landing], memory: Sequence[dict[Box, np.ndarray]]) -> Iterator[Any]:
    both = [(landing, landing.broadcast) for landing in batch]
    found = [(broadcast, parts) for (_, broadcast), parts in zip(both, memory, strict=True)]
    parts_sent = [
        landing.converted(parts) for landing, parts in zip(batch, memory, strict=True) if landing.broadcast
    ]
    arrays = iter(sent([broadcast for broadcast, _ in found if broadcast], parts_sent))
    for (landing, broadcast), parts in zip(both, memory, strict=True):
        yield landing.value(parts) if broadcast is None else landing.wrapped(next(arrays))


def _reads(
    batch: Sequence[Landing], memory: Sequence[dict[Box, np.ndarray]]
) -> tuple[list[Segment], list[Act | Work]]:
    return split(
        gather(
            (landing.saved.source, wanted)
            for landing, parts in zip(batch, memory, strict=True)
            if landing.saved.source is not None
            for wanted in parts.items()
        )
    )


def _batches(landings: Sequence[Landing], most: int) -> Iterator[list[Landing]]:
    """Leaves that are read together: values that are converted or moved are in memory twice for a while."""
    batch: list[Landing] = []
    size = 0
    for landing in landings:
        if batch and size + landing.nbytes > most:
            yield batch
            batch, size = [], 0
        batch.append(landing)
        size += landing.nbytes
    if batch:
        yield batch


def _log_moved(landings: Sequence[Landing], directory: Path) -> None:
    moved = [
        landing.saved.leaf.name
        for landing in landings
        if landing.kind == "jax.Array"
        and landing.sharding is None
        and landing.original is None
        and (text := landing.saved.leaf.sharding) is not None
        and place.sharding_of(text) is None
    ]
    if moved:
        _log.warning(
            "%s: %d arrays were saved on devices that are not here (%s%s); they are on the default device. "
            "Give a target with shardings to place them.",
            directory,
            len(moved),
            ", ".join(moved[:3]),
            ", …" if len(moved) > 3 else "",
        )
