"""The main path up: a checkpoint becomes a tree.

open, match, plan         documents and the index; every difference is known before a byte is read
read, place               chunks into the final memory, checked, and onto the devices
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import jax
import numpy as np
from jax.sharding import Sharding, SingleDeviceSharding

from storax import pytree
from storax.arrays import place
from storax.checkpoint import SavedLeaf, SavedTree, open_checkpoint
from storax.errors import BadOption, CheckpointChanged, CheckpointNotFound, TreeMismatch, UnsupportedLeaf
from storax.plan.boxes import Box, box_shape, size
from storax.progress import Progress, expect, settle, watching
from storax.store import posix
from storax.store.budget import Budget
from storax.store.paths import resolve
from storax.store.reading import Act, Segment, read_all
from storax.tracing import recording, span
from storax.tree.dtypes import converted, dtype_named
from storax.tree.leaves import EMPTY, Leaf
from storax.tree.match import match
from storax.tree.names import KeyPath, display, leaf_name
from storax.tree.nesting import unflatten

PLACEHOLDER = ...
"""In a target: do not read this leaf, or what is below it."""

_log = logging.getLogger("storax")
# Host memory of leaves that are read before they are placed, unless one leaf alone is larger.
_BATCH_BYTES = 2 << 30
_PYTHON: dict[str, Callable[[Any], Any]] = {"int": int, "float": float, "complex": complex, "bool": bool}
T = TypeVar("T")


def load(
    path: str | os.PathLike[str],
    target: Any = None,
    *,
    partial: bool = False,
    missing: Literal["error", "keep"] = "error",
    cast: bool = False,
    progress: Progress = False,
    trace: str | os.PathLike[str] | None = None,
) -> Any:
    """Loads a checkpoint, of storax or of Orbax.

    Without a target the tree comes as it was saved: dicts, lists and tuples as such, named tuples
    and dataclasses as dicts of their fields, arrays with the sharding that they had if the devices
    here can hold it (otherwise on the default device; the log says so once).

    With a target, the target decides the containers, the dtypes, the shardings, and whether a leaf
    becomes a ``jax.Array`` or a numpy array.

    Args:
      path: what ``save`` was given, a step of a ``CheckpointManager``, or one item of it. A step
        with several items loads as a dict of them.
      target: a tree of arrays, of ``jax.ShapeDtypeStruct`` (with or without shardings), of numbers,
        strings and None; ``...`` stands for a leaf or subtree that is not to be read.
      partial: ignore what the checkpoint has and the target does not ask for.
      missing: ``"keep"`` leaves the target's own value where the checkpoint has none.
      cast: allow casts that can lose values, such as float to int.
      progress: True shows a bar; or a callback with the bytes read and in all.
      trace: a file to add a trace of this load to, which ``storax timeline`` and Perfetto show.

    Returns:
      The tree.

    Raises:
      TreeMismatch: checkpoint and target differ; lists every difference. Nothing was read.
      CheckpointNotFound: nothing committed is there.
      Corrupt: bytes are not what was written; names leaf, file and offset.

    Example:
      >>> import storax, tempfile, jax, numpy as np
      >>> where = tempfile.mkdtemp() + "/a"
      >>> storax.save(where, {"w": np.arange(3), "lr": 0.1})
      >>> storax.load(where, {"w": jax.ShapeDtypeStruct((3,), "int64"), "lr": 0.0})
      {'lr': 0.1, 'w': array([0, 1, 2])}
    """
    options = Options(partial=partial, missing=missing, cast=cast)
    directory = resolve(path)
    with recording(trace, "load", checkpoint=str(directory)), watching(progress, f"loading {directory}"):
        return unchanged(directory, lambda: _load_items(directory, target, options))


@dataclass(frozen=True, slots=True)
class Options:
    """How a target may differ from a checkpoint; as for ``load``."""

    partial: bool = False
    missing: Literal["error", "keep"] = "error"
    cast: bool = False

    def __post_init__(self) -> None:
        if self.missing not in ("error", "keep"):
            raise BadOption(f"missing is {self.missing!r}; it must be 'error' or 'keep'")


def unchanged(directory: Path, read: Callable[[], T]) -> T:
    """Reads, and once more if the checkpoint was replaced meanwhile: half of each is never returned."""
    for _ in range(3):
        try:
            before = posix.identity(directory)
        except (FileNotFoundError, NotADirectoryError):
            read()  # says what is missing, and where else to look
            raise CheckpointNotFound(f"{directory} is not a checkpoint.") from None
        error: Exception | None = None
        try:
            value = read()
        except Exception as raised:
            error = raised
        try:
            same = posix.identity(directory) == before
        except FileNotFoundError:
            raise CheckpointChanged(f"{directory} was deleted while it was read.") from error
        if same:
            if error is not None:
                raise error
            return value
    raise CheckpointChanged(f"{directory} was replaced again and again while it was read. Try again.")


def _load_items(directory: Path, target: Any, options: Options) -> Any:
    checkpoint = open_checkpoint(directory)
    if (tree := checkpoint.only_tree) is not None:
        return load_tree(tree, target, options)
    if target is None:
        return {name: checkpoint.load_item(name, load_tree) for name in checkpoint.items}
    if not isinstance(target, dict) or not set(target) <= set(checkpoint.items):
        raise BadOption(
            f"{directory} has the items {', '.join(checkpoint.items)}. Give a target for each by name, "
            f"or load one: load({str(directory / next(iter(checkpoint.items)))!r}, target)."
        )
    return {
        name: load_tree(checkpoint.items[name], wanted, options)
        if checkpoint.is_tree(name)
        else checkpoint.load_item(name, load_tree)
        for name, wanted in target.items()
    }


def load_tree(directory: Path, target: Any = None, options: Options = Options()) -> Any:
    """Loads the tree of one item. As ``load``, for a directory that has the tree's own documents."""
    saved = SavedTree.open(directory)
    if target is None:
        leaves = saved.leaves()
        landings = [_landing(leaf, leaf.leaf, None) for leaf in leaves]
        values = _land(landings, saved.directory)
        paths = [leaf.leaf.path for leaf in leaves]
        return unflatten(list(zip(paths, values, strict=True)), saved.tuples)
    return _load_into(saved, target, options)


def _load_into(saved: SavedTree, target: Any, options: Options) -> Any:
    pairs, structure = pytree.flatten(target)
    unread = [path for path, value in pairs if value is PLACEHOLDER]
    wanted = _describe_target([(path, value) for path, value in pairs if value is not PLACEHOLDER])
    names = {leaf.name for leaf in wanted} if options.partial or unread else None
    leaves = {found.leaf.name: found for found in saved.leaves(names)}
    matched = match(
        [found.leaf for found in leaves.values()],
        wanted,
        where=str(saved.directory),
        unread=unread,
        partial=options.partial,
        keep_missing=options.missing == "keep",
        cast=options.cast,
    )
    values: dict[str, Any] = dict(_by_name(pairs))
    _check_kept(matched.kept, values)
    landings = [_landing(leaves[s.name], w, values[w.name], options.cast) for s, w in matched.pairs]
    _check_shardings(landings)
    for landing, value in zip(landings, _land(landings, saved.directory), strict=True):
        values[landing.wanted.name] = value
    return structure.unflatten([values[name] for name, _ in _by_name(pairs)])


def _by_name(pairs: Sequence[tuple[KeyPath, Any]]) -> Iterator[tuple[str, Any]]:
    return ((leaf_name(path), value) for path, value in pairs)


def _describe_target(pairs: Sequence[tuple[KeyPath, Any]]) -> list[Leaf]:
    described = [(path, pytree.describe_target(path, value)) for path, value in pairs]
    problems = [f"  {display(leaf_name(p))}: {d}" for p, d in described if not isinstance(d, Leaf)]
    if problems:
        raise UnsupportedLeaf(
            "the target has leaves that no checkpoint can hold:\n"
            + "\n".join(problems)
            + "\nA leaf is an array, a jax.ShapeDtypeStruct, a number, a str, bytes, None, or ... (not read)."
        )
    return [d for _, d in described if isinstance(d, Leaf)]


def _check_kept(kept: Iterable[Leaf], values: dict[str, Any]) -> None:
    abstract = [leaf.name for leaf in kept if isinstance(values[leaf.name], jax.ShapeDtypeStruct)]
    if abstract:
        raise TreeMismatch(
            f"missing='keep' keeps the target's values, but these have none: {', '.join(abstract)}. "
            "Give arrays for them.",
            only_wanted=tuple(abstract),
        )


# --- where values land ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Landing:
    """One leaf on its way: what is saved, what is wanted, and the memory that its boxes are read into."""

    saved: SavedLeaf
    wanted: Leaf
    kind: str
    dtype: np.dtype | None
    sharding: Sharding | None
    cast: bool
    original: Any

    @property
    def nbytes(self) -> int:
        return self.saved.leaf.nbytes

    @property
    def boxes(self) -> list[Box]:
        """The boxes of the array that are wanted here."""
        source = self.saved.source
        if source is None:
            return []
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

    def value(self, parts: dict[Box, np.ndarray]) -> Any:
        """The leaf's value, from the memory after it was read."""
        if self.saved.source is None:
            return self._value_of_document()
        leaf = self.saved.leaf
        stored = np.dtype(np.uint32) if leaf.prng else dtype_named(leaf.dtype or "uint8")
        arrays = {box: self._in_dtype(part.view(stored)) for box, part in parts.items()}
        if self.kind == "jax.Array":
            placed = place.place(arrays, self.saved.source.shape, self.sharding)
            return place.wrap_key_data(placed, leaf.prng) if leaf.prng else placed
        (array,) = arrays.values()
        if self.kind == "bytes":
            return array.tobytes()
        if self.kind == "np.generic":
            return array[()]
        return _PYTHON[self.kind](array[()]) if self.kind in _PYTHON else array

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
        return converted(part, dtype)

    def _check_fits(self, value: int, dtype: np.dtype) -> None:
        if not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
            what = f"saved int {value}, wanted {self.wanted}"
            raise TreeMismatch(
                f"{display(self.wanted.name)}: {what}, which cannot hold it. "
                "Cast all the same: load(..., cast=True).",
                differ=((self.wanted.name, what),),
            )


def _landing(saved: SavedLeaf, wanted: Leaf, original: Any, cast: bool = False) -> _Landing:
    kind = wanted.kind
    if kind == "any":
        kind = saved.leaf.kind if saved.leaf.kind in ("jax.Array", "np.ndarray") else "jax.Array"
    dtype = None
    if saved.source is not None and saved.leaf.prng is None:
        dtype = dtype_named(wanted.dtype or saved.leaf.dtype or "uint8")
        if wanted.byteorder == ">":
            dtype = dtype.newbyteorder(">")
    if kind == "int" and dtype_named(saved.leaf.dtype or "uint8").kind in "iu":
        dtype = None  # a Python int holds any of them as it is
    sharding = _wanted_sharding(saved.leaf, original) if kind == "jax.Array" else None
    return _Landing(saved, wanted, kind, dtype, sharding, cast, original)


def _wanted_sharding(saved: Leaf, original: Any) -> Sharding | None:
    """Where a leaf goes: as the target says, else as it was saved, else the default device (None)."""
    if isinstance(original, jax.Array):
        return original.sharding if original.committed else None
    sharding = getattr(original, "sharding", None)
    if sharding is not None:
        if not isinstance(sharding, Sharding):
            raise BadOption(
                f"{display(saved.name)}: the target's sharding is a {type(sharding).__name__}, not a Sharding"
            )
        return sharding
    if saved.sharding is None:
        return None
    found = place.sharding_of(saved.sharding)
    # An array of the default device was most likely never put anywhere; committing it there would
    # keep it from being used together with arrays on a mesh.
    if isinstance(found, SingleDeviceSharding) and found.device_set == {place.default_device()}:
        return None
    return found


def _check_shardings(landings: Iterable[_Landing]) -> None:
    problems = []
    for landing in landings:
        if landing.sharding is not None and landing.saved.source is not None:
            try:
                landing.sharding.shard_shape(landing.saved.source.shape)
            except ValueError as error:
                problems.append((landing.wanted.name, str(error)))
    if problems:
        raise TreeMismatch(
            "the target's shardings do not fit its shapes:\n"
            + "\n".join(f"  {display(name)}: {what}" for name, what in problems),
            differ=tuple(problems),
        )


def _land(landings: Sequence[_Landing], where: Path) -> list[Any]:
    """Reads and places all leaves, a batch of bounded host memory at a time."""
    _log_moved(landings, where)
    expect(sum(landing.local_bytes for landing in landings))
    values: list[Any] = []
    budget = Budget()
    for batch in _batches(landings):
        memory = [landing.memory() for landing in batch]
        segments, acts = _reads(batch, memory)
        read_all(segments, acts, budget=budget)
        with span("place"):
            values += [landing.value(parts) for landing, parts in zip(batch, memory, strict=True)]
    settle()
    return values


def _reads(
    batch: Sequence[_Landing], memory: Sequence[dict[Box, np.ndarray]]
) -> tuple[list[Segment], list[Act]]:
    segments: list[Segment] = []
    acts: list[Act] = []
    for landing, parts in zip(batch, memory, strict=True):
        if landing.saved.source is not None:
            for read in landing.saved.source.reads(list(parts.items())):
                if isinstance(read, Segment):
                    segments.append(read)
                else:
                    acts.append(read)
    return segments, acts


def _batches(landings: Sequence[_Landing]) -> Iterator[list[_Landing]]:
    batch: list[_Landing] = []
    size = 0
    for landing in landings:
        if batch and size + landing.nbytes > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(landing)
        size += landing.nbytes
    if batch:
        yield batch


def _log_moved(landings: Sequence[_Landing], directory: Path) -> None:
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
