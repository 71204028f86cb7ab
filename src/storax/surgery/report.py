"""What became of every leaf: for whoever reads a dry run, or wants to know afterwards."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from storax.arrays.read import Source
from storax.checkpoint import SavedLeaf
from storax.store.reading import Report
from storax.surgery.computing import Computing
from storax.surgery.tree import TransformedTree, origins

Made = Literal["loaded", "computed", "filled", "kept"]


@dataclass(frozen=True, slots=True)
class SurgeryReport(Report):
    """What was read, and what became of every leaf.

    Attributes:
      loaded: names of leaves whose values are as they were saved, perhaps rearranged.
      computed: names of leaves whose values were computed.
      filled: names of leaves that got new values.
      kept: names of leaves that keep the target's value.
      dropped: names of leaves that a transform left out, as they were called then.
      unused: names of saved leaves that nothing was made of.
      notes: what was skipped or not found, in sentences.
    """

    loaded: tuple[str, ...] = ()
    computed: tuple[str, ...] = ()
    filled: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def with_reading(self, read: Report) -> SurgeryReport:
        """The same, with what was read."""
        return replace(
            self,
            wanted_bytes=read.wanted_bytes,
            read_bytes=read.read_bytes,
            reads=read.reads,
            files=read.files,
        )

    def __str__(self) -> str:
        counts = [
            f"{len(names)} {what}"
            for what in ("loaded", "computed", "filled", "kept", "dropped", "unused")
            if (names := getattr(self, what))
        ]
        lines = [", ".join(counts) or "no leaves", *self.notes]
        return "\n".join([*lines, f"{self.read_bytes:,} bytes read in {self.reads:,} reads"])


def reported(tree: TransformedTree, used: Collection[str]) -> SurgeryReport:
    """The report of a tree of which some leaves are used; nothing has been read yet."""
    leaves = [found for found in tree.found if found.leaf.name in used]
    made: dict[str, list[str]] = {"loaded": [], "computed": [], "filled": [], "kept": []}
    for found in leaves:
        made[how_made(tree, found)].append(found.leaf.name)
    return SurgeryReport(
        0,
        0,
        0,
        loaded=tuple(made["loaded"]),
        computed=tuple(made["computed"]),
        filled=tuple(made["filled"]),
        kept=tuple(made["kept"]),
        dropped=tree.dropped,
        unused=unused(tree.inputs, leaves),
        notes=tree.notes,
    )


def how_made(tree: TransformedTree, found: SavedLeaf) -> Made:
    """What became of a leaf."""
    if found.leaf.name in tree.kept:
        return "kept"
    if found.leaf.name in tree.filled:
        return "filled"
    return "computed" if _is_computed(found.source) else "loaded"


def _is_computed(source: Source | None) -> bool:
    waiting: list[Source] = [] if source is None else [source]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Computing):
            return True
        waiting.extend(getattr(one, "inputs", ()))
    return False


def unused(inputs: Mapping[str, bool], leaves: Iterable[SavedLeaf]) -> tuple[str, ...]:
    """The names of saved arrays that no leaf is made of."""
    used = {label for found in leaves for label in origins(found.source)}
    return tuple(name for name, has_values in inputs.items() if has_values and name not in used)


def several(names: Sequence[str], most: int = 6) -> str:
    """Names for a message: the first few, and how many more there are."""
    return ", ".join(names[:most]) + (f", … ({len(names)} in all)" if len(names) > most else "")
