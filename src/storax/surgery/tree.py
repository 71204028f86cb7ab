"""A tree after transforms: what ``load`` and ``rewrite`` read from, as from any checkpoint."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from storax.arrays.read import Source
from storax.checkpoint import SavedLeaf
from storax.errors import TransformMismatch
from storax.surgery.contract import Run, Transform, Wanted, listed
from storax.surgery.entries import Entries, finished
from storax.surgery.views import Input
from storax.tree.leaves import EMPTY
from storax.tree.names import Key, KeyPath, check_distinct, display

_MOST_LINES = 30


@dataclass(frozen=True, slots=True)
class TransformedTree:
    """The leaves that come out of a list of transforms, each with the source of its values.

    Attributes:
      directory: where the first of the inputs is, for messages.
      tuples: the key paths of nodes that are tuples.
      found: the leaves.
      kept: names of leaves that keep the target's value.
      filled: names of leaves that were given a value.
      dropped: names of leaves that a transform left out.
      notes: what was skipped or not found, in sentences.
      inputs: the names that were there in the beginning, and whether they have values.
    """

    directory: Path
    tuples: frozenset[str]
    found: tuple[SavedLeaf, ...]
    kept: frozenset[str]
    filled: frozenset[str]
    dropped: tuple[str, ...]
    notes: tuple[str, ...]
    inputs: Mapping[str, bool]

    def leaves(self, names: Collection[str] | None = None) -> list[SavedLeaf]:
        return list(self.found)


def transformed(
    entries: Entries,
    transforms: Sequence[Transform],
    *,
    where: Path,
    tuples: frozenset[str] = frozenset(),
    target: Mapping[str, Wanted] | None = None,
) -> TransformedTree:
    """Runs a list of transforms. Reads no values.

    Args:
      entries: what there is.
      transforms: the list, in order.
      where: the checkpoint, as messages name it.
      tuples: its nodes that are tuples.
      target: the leaves that are wanted, for what depends on them.

    Raises:
      TransformMismatch: all that does not fit, of all transforms.
    """
    run = Run(target=target, inputs=dict(entries))
    for transform in listed(transforms):
        entries = transform.apply(entries, run)
    if run.problems:
        raise _mismatch(where, run)
    before = [entry.leaf.path for entry in run.inputs.values()]
    flat = all(len(path) <= 1 for path in before) if run.flat is None else run.flat
    known = _known(before)
    found = []
    for name, entry in entries.items():
        path = entry.leaf.path if entry.leaf.name == name else _path(name, known, flat)
        found.append(finished(entry, path))
    found = _without_filled_containers(found)
    check_distinct(leaf.leaf.path for leaf in found)
    return TransformedTree(
        where,
        tuples,
        tuple(found),
        frozenset(run.kept & set(entries)),
        frozenset(run.filled & set(entries)),
        tuple(run.dropped),
        tuple(run.notes),
        {name: entry.source is not None for name, entry in run.inputs.items()},
    )


def _without_filled_containers(leaves: Sequence[SavedLeaf]) -> list[SavedLeaf]:
    """All but empty containers that have got a leaf."""
    full = {path[:i] for path in (found.leaf.path for found in leaves) for i in range(len(path))}
    return [found for found in leaves if found.leaf.kind not in EMPTY or found.leaf.path not in full]


def _known(paths: Iterable[KeyPath]) -> dict[tuple[str, ...], Key]:
    """How the nodes that were there spell their last keys: as numbers, as indices, as text."""
    return {tuple(map(str, path[: i + 1])): path[i] for path in paths for i in range(len(path))}


def _path(name: str, known: Mapping[tuple[str, ...], Key], flat: bool) -> KeyPath:
    """The key path of a new name: one key in a flat dict, else one for each part between dots."""
    if flat:
        return (Key("key", name),)
    parts = name.split(".")
    return tuple(known.get(tuple(parts[: i + 1]), Key("key", part)) for i, part in enumerate(parts))


def origins(source: Source | None) -> list[str]:
    """The labels of all inputs that a source is made of."""
    return list(dict.fromkeys(found.label for found in _inputs(source)))


def files_of(source: Source | None) -> set[Path]:
    """The files that a source is read from, as far as each is one file."""
    placed = [getattr(found.source, "placed", None) for found in _inputs(source)]
    return {one.path for one in placed if one is not None}


def _inputs(source: Source | None) -> Iterator[Input]:
    waiting = [] if source is None else [source]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if id(one) not in seen:
            seen.add(id(one))
            if isinstance(one, Input):
                yield one
            else:
                waiting.extend(getattr(one, "inputs", ()))


def _mismatch(where: Path, run: Run) -> TransformMismatch:
    by_transform: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for transform, name, what in run.problems:
        by_transform[transform].append((name, what))
    lines = [f"the transforms do not fit {where}."]
    for transform, found in by_transform.items():
        lines.append(f"  {transform} ({len(found)}):")
        lines += [f"    {display(name)}: {what}" for name, what in found[:_MOST_LINES]]
        lines += [f"    … and {len(found) - _MOST_LINES} more"] if len(found) > _MOST_LINES else []
    lines.append(
        "Nothing was read. See what each step makes of it: storax.explain(path, transforms=[...][:1])."
    )
    return TransformMismatch("\n".join(lines), problems=tuple(run.problems))
