"""The main path up: a checkpoint becomes a tree.

open, match, plan         documents and the index; every difference is known before a byte is read
read, place               chunks into the final memory, checked, and onto the devices
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import jax

from storax import pytree
from storax.arrays.read import DatabaseArray
from storax.arrays.rules import Rule, Ruled, To, can_hold, rule_of, shardings_by
from storax.checkpoint import SavedLeaf, SavedTree, open_checkpoint
from storax.errors import (
    BadOption,
    Corrupt,
    TreeMismatch,
    UnsupportedLeaf,
)
from storax.garbage import uncollected
from storax.landing import Landing, check_shardings, land, landing_of
from storax.opening import Tree, open_safetensors
from storax.progress import Progress, watching
from storax.store.budget import DEFAULT_BUDGET
from storax.store.paths import resolve
from storax.store.reading import Report, total
from storax.store.unchanged import unchanged
from storax.surgery.contract import Transform, listed
from storax.surgery.inputs import opened
from storax.surgery.naming import wanted_leaves
from storax.surgery.report import SurgeryReport, reported
from storax.surgery.tree import TransformedTree, transformed
from storax.tracing import recording
from storax.tree import documents
from storax.tree.leaves import Leaf
from storax.tree.match import match
from storax.tree.names import KeyPath, check_distinct, display, leaf_name
from storax.tree.nesting import unflatten
from storax.verification import sound_tree

_log = logging.getLogger("storax")

PLACEHOLDER = ...
"""In a target: do not read this leaf, or what is below it."""


def load(
    path: str | os.PathLike[str],
    target: Any = None,
    *,
    partial: bool = False,
    missing: Literal["error", "keep"] = "error",
    cast: bool = False,
    sharding: Rule | None = None,
    to: To | None = None,
    broadcast: bool = False,
    transforms: Sequence[Transform] = (),
    report: bool = False,
    verify: bool = True,
    read_budget_bytes: int = DEFAULT_BUDGET,
    salvage: bool = False,
    progress: Progress = False,
    trace: str | os.PathLike[str] | None = None,
) -> Any:
    """Loads a checkpoint of storax or of Orbax, or safetensors files.

    Without a target the tree comes as it was saved: dicts, lists and tuples as such, named tuples
    and dataclasses as dicts of their fields, arrays with the sharding that they had if the devices
    here can hold it (otherwise on the default device; the log says so once). Safetensors files
    come as a flat dict from the names of the tensors to arrays.

    With a target, the target decides the containers, the dtypes (and whether they are weak), the
    shardings, and whether a leaf becomes a ``jax.Array`` or a numpy array. Shardings on an abstract
    mesh, as ``jax.eval_shape`` gives them, are put on the mesh of ``jax.set_mesh``.

    Args:
      path: what ``save`` was given, a step of a ``CheckpointManager``, or one item of it. A step
        with several items loads as a dict of them. Or a safetensors file, a directory with such
        files, or a ``model.safetensors.index.json``.
      target: a tree of arrays, of ``jax.ShapeDtypeStruct`` (with or without shardings), of numbers,
        strings and None; ``...`` stands for a leaf or subtree that is not to be read.
      partial: ignore what the checkpoint has and the target does not ask for.
      missing: ``"keep"`` leaves the target's own value where the checkpoint has none.
      cast: allow casts that can lose values, such as float to int, or float32 to float16 of 1e30.
      sharding: without a target, where each array goes: a function of its name and its shape that
        returns a ``PartitionSpec`` (on the mesh of ``jax.set_mesh``), a ``Sharding``, or None.
      to: without a target, where all arrays go: ``"numpy"``, a device, a ``Sharding``, or a mesh and
        a rule as for ``sharding``: ``(mesh, rule)``. Typed PRNG keys cannot be numpy and stay arrays.
      broadcast: in a job of many processes, arrays that several of them hold are read by one and sent
        to the others by the devices' network. All processes must load the same, at the same time.
      transforms: what is done to names and arrays on the way; see ``storax.surgery``. Leaves are
        then matched with the target by the names that come out.
      report: return ``(tree, report)``; the report has the bytes that were wanted, the bytes that
        were read and the number of reads, of all files (``report.read_bytes``) and of each
        (``report.files``). What TensorStore reads is not in it.
      verify: whether to check every checksum. False reads of chunks that are wanted in part no more
        than that part, which no checksum covers.
      read_budget_bytes: how much memory reading may take besides where the values stay.
      salvage: of a damaged checkpoint return the leaves that are whole: a ``Salvaged``, whose ``tree``
        is the target with the values of lost leaves left as they are (without a target a flat dict by
        name), and whose ``lost`` says what is wrong with each of the others.
      progress: True shows a bar; or a callback with the bytes read and in all.
      trace: a file to add a trace of this load to, which ``storax timeline`` and Perfetto show.

    Returns:
      The tree.

    Raises:
      TreeMismatch: checkpoint and target differ; lists every difference, before anything is read. And
        where only the values tell, once they are read: a Python int beyond the integers of the target,
        a number that the narrower floats of the target make infinite.
      UnsupportedLeaf: the target holds something that no checkpoint can hold; lists every such leaf.
      NameCollision: two leaves of the target have one name.
      TransformMismatch: the transforms do not fit what is saved; lists all that does not. Nothing was read.
      CheckpointNotFound: nothing committed is there.
      Corrupt: bytes are not what was written; names leaf, file and offset.

    Example:
      >>> import storax, tempfile, jax, numpy as np
      >>> where = tempfile.mkdtemp() + "/a"
      >>> storax.save(where, {"w": np.arange(3), "lr": 0.1})
      >>> storax.load(where, {"w": jax.ShapeDtypeStruct((3,), "int64"), "lr": 0.0})
      {'lr': 0.1, 'w': array([0, 1, 2])}
    """
    if (sharding is not None or to is not None) and target is not None:
        raise BadOption(
            "sharding=rule and to=... are for loads without a target; give the target's leaves shardings"
        )
    if sharding is not None and to is not None:
        raise BadOption("sharding=rule and to=... both say where arrays go; give one")
    options = Options(
        partial=partial,
        missing=missing,
        cast=cast,
        sharding=sharding if to is None or to == "numpy" else rule_of(to),
        numpy=to == "numpy",
        broadcast=broadcast,
        transforms=listed(transforms),
        verify=verify,
        budget_bytes=read_budget_bytes,
    )
    directory = resolve(path)
    with recording(trace, "load", checkpoint=str(directory)), watching(progress, f"loading {directory}"):
        if salvage:
            return unchanged(directory, lambda: _salvaged(directory, target, options))
        tree = unchanged(directory, lambda: _load_items(directory, target, options))
    return (tree, options.report) if report else tree


@dataclass(frozen=True, slots=True)
class Options:
    """How a target may differ from a checkpoint; as for ``load``. And what was read so far."""

    partial: bool = False
    missing: Literal["error", "keep"] = "error"
    cast: bool = False
    sharding: Rule | None = None
    numpy: bool = False
    broadcast: bool = False
    transforms: tuple[Transform, ...] = ()
    verify: bool = True
    budget_bytes: int = DEFAULT_BUDGET
    reports: list[Report] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.missing not in ("error", "keep"):
            raise BadOption(f"missing is {self.missing!r}; it must be 'error' or 'keep'")
        if self.budget_bytes < 1:
            raise BadOption(f"read_budget_bytes is {self.budget_bytes}; it must be at least 1")

    @property
    def report(self) -> Report:
        """All that was read; after transforms also what became of every leaf."""
        read = total([one for one in self.reports if not isinstance(one, SurgeryReport)])
        told = next((one for one in self.reports if isinstance(one, SurgeryReport)), None)
        if told is None:
            return read
        return told.with_reading(read)


def _load_items(directory: Path, target: Any, options: Options) -> Any:
    options.reports.clear()
    if options.transforms:
        return load_transformed(directory, target, options)
    if (tensors := open_safetensors(directory)) is not None:
        return load_opened(tensors, target, options)
    try:
        return _load_checkpoint(directory, target, options)
    except Corrupt as error:
        advice = "See all that is wrong: storax.verify(path). Save what is whole: load(path, salvage=True)."
        error.args = (f"{error} {advice}",)
        raise


def _load_checkpoint(directory: Path, target: Any, options: Options) -> Any:
    checkpoint = open_checkpoint(directory)
    if (tree := checkpoint.only_tree) is not None:
        return load_tree(tree, target, options)
    if target is None:
        return {
            name: checkpoint.load_item(name, lambda item: load_tree(item, options=options))
            for name in checkpoint.every_item()
        }
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


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What could be loaded of a damaged checkpoint.

    Attributes:
      tree: the target with what is whole; without a target the whole leaves by name.
      lost: what is wrong with each of the other leaves, by name.
    """

    tree: Any
    lost: Mapping[str, str]


def _salvaged(directory: Path, target: Any, options: Options) -> Salvaged:
    # A tree by itself needs no document of the step, which may be damaged, too.
    bare = (directory / documents.TREE_DOCUMENT).is_file()
    tree = directory if bare else open_checkpoint(directory).only_tree
    if tree is None:
        raise BadOption(
            f"{directory} has several items; salvage one: load({str(directory)!r} + '/<item>', ...)"
        )
    sound = sound_tree(tree)
    if target is not None:
        kept = replace(options, partial=True, missing="keep")
        return Salvaged(load_opened(sound, target, kept), sound.lost)
    landings = [landing_of(found, found.leaf, None) for found in sound.found]
    values = land(landings, directory, options.reports, budget_bytes=options.budget_bytes)
    return Salvaged({found.leaf.name: v for found, v in zip(sound.found, values, strict=True)}, sound.lost)


def load_tree(directory: Path, target: Any = None, options: Options = Options()) -> Any:
    """Loads the tree of one item. As ``load``, for a directory that has the tree's own documents."""
    return load_opened(SavedTree.open(directory), target, options)


def load_transformed(source: Any, target: Any, options: Options) -> Any:
    """Loads what transforms make of a checkpoint, of a tree in memory, or of several by prefix."""
    entries, where, tuples = opened(source)
    wanted = None if target is None else wanted_leaves(target)
    tree = transformed(entries, options.transforms, where=where, tuples=tuples, target=wanted)
    used = {found.leaf.name for found in tree.found} if wanted is None else set(wanted)
    report = reported(tree, used)
    for note in report.notes:
        _log.warning("%s: %s", where, note)
    options.reports.append(report)
    return load_opened(tree, target, options)


def load_opened(saved: Tree, target: Any, options: Options) -> Any:
    if target is None:
        with uncollected():
            leaves = _checked(saved.leaves(), options)
        if options.numpy:
            leaves = [SavedLeaf(_in_numpy(found.leaf), found.source) for found in leaves]
        landings = [landing_of(*what) for what in _by_rule(leaves, options.sharding)]
        check_shardings(landings)
        values = _landed(landings, saved, options)
        paths = [leaf.leaf.path for leaf in leaves]
        return unflatten(list(zip(paths, values, strict=True)), saved.tuples)
    return _load_into(saved, target, options)


def _checked(leaves: list[SavedLeaf], options: Options) -> list[SavedLeaf]:
    """Leaves whose sources read what the options ask for: whole chunks, or exactly the bytes."""
    if options.verify:
        return leaves
    return [
        SavedLeaf(found.leaf, replace(found.source, exact=True))
        if isinstance(found.source, DatabaseArray)
        else found
        for found in leaves
    ]


def _in_numpy(leaf: Leaf) -> Leaf:
    return leaf if leaf.kind != "jax.Array" or leaf.prng else replace(leaf, kind="np.ndarray")


def _by_rule(leaves: Sequence[SavedLeaf], rule: Rule | None) -> Iterator[tuple[SavedLeaf, Leaf, Any]]:
    """Each leaf, what it becomes, and where the rule puts it."""
    arrays = [found.leaf for found in leaves if can_hold(found.leaf)] if rule else []
    ruled = shardings_by(rule, [(leaf.name, leaf.shape or ()) for leaf in arrays]) if rule else {}
    for found in leaves:
        if (sharding := ruled.get(found.leaf.name)) is None:
            yield found, found.leaf, Ruled(None) if found.leaf.name in ruled else None
        else:
            yield found, replace(found.leaf, kind="jax.Array"), Ruled(sharding)


def _load_into(saved: Tree, target: Any, options: Options) -> Any:
    pairs, structure = pytree.flatten(target)
    unread = [path for path, value in pairs if value is PLACEHOLDER]
    wanted = _describe_target([(path, value) for path, value in pairs if value is not PLACEHOLDER])
    check_distinct(path for path, _ in pairs)
    names = {leaf.name for leaf in wanted} if options.partial or unread else None
    # What transforms took from the target stays what it is there.
    kept = saved.kept if isinstance(saved, TransformedTree) else frozenset()
    wanted = [leaf for leaf in wanted if leaf.name not in kept]
    with uncollected():
        every = _checked(saved.leaves(names), options)
    leaves = {found.leaf.name: found for found in every if found.leaf.name not in kept}
    matched = match(
        [found.leaf for found in leaves.values()],
        wanted,
        where=str(saved.directory),
        unread=unread,
        by_path=isinstance(saved, SavedTree),
        partial=options.partial,
        keep_missing=options.missing == "keep",
        cast=options.cast,
    )
    values: dict[str, Any] = dict(_by_name(pairs))
    _check_kept(matched.kept, values)
    landings = [landing_of(leaves[s.name], w, values[w.name], options.cast) for s, w in matched.pairs]
    check_shardings(landings)
    for landing, value in zip(landings, _landed(landings, saved, options), strict=True):
        values[landing.wanted.name] = value
    return structure.unflatten([values[name] for name, _ in _by_name(pairs)])


def _landed(landings: Sequence[Landing], saved: Tree, options: Options) -> list[Any]:
    return land(
        landings,
        saved.directory,
        options.reports,
        budget_bytes=options.budget_bytes,
        broadcast=options.broadcast,
    )


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
