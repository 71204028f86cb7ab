"""Transforms of whole groups of leaves: another checkpoint beside this one, and a list for one subtree."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from storax.surgery.contract import Run, Transform, listed, put
from storax.surgery.entries import Entries, Entry
from storax.surgery.inputs import entries_of
from storax.tree.names import Key


@dataclass(frozen=True, repr=False)
class merge(Transform):
    """Adds the leaves of another checkpoint, or of a tree in memory.

    Args:
      source: the path of a checkpoint or of safetensors files; or a tree.
      prefix: what their names begin with, before a dot; nothing if empty.

    Example:
      >>> merge("runs/adapter", prefix="adapter")
      merge(source='runs/adapter', prefix='adapter')
    """

    source: Any
    prefix: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.source, os.PathLike):
            object.__setattr__(self, "source", os.fspath(self.source))

    def apply(self, entries: Entries, run: Run) -> Entries:
        found = entries_of(self.source, self.prefix)
        result = dict(entries)
        for name, entry in found.items():
            put(result, name, entry, self, run)
        run.inputs.update(found)
        return result


@dataclass(frozen=True, repr=False)
class below(Transform):
    """Runs a list of transforms on one subtree, and on all that mirrors it, such as optimizer states.

    The transforms see the names below the prefix, without it; all other leaves stay as they are.

    Args:
      prefix: of the subtree, such as ``"params"``.
      transforms: the list.
      follow: True runs the list on every other subtree whose leaves have the names and shapes of
        this one's, too: ``mu`` and ``nu`` of optax. Or the prefixes of such subtrees. What computes
        values (``cast``, ``scale``, ``overlay``, ``apply``) and what adds leaves is left out there.

    Example:
      >>> from storax.surgery import stack
      >>> below("params", [stack(r"layers\\.(\\d+)\\.")], follow=True)
      below(prefix='params', transforms=(stack(pattern='layers\\\\.(\\\\d+)\\\\.'),), follow=True)
    """

    prefix: str
    transforms: Sequence[Transform]
    follow: bool | Sequence[str] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "transforms", listed(self.transforms))
        if not isinstance(self.follow, bool):
            object.__setattr__(self, "follow", tuple(self.follow))

    def apply(self, entries: Entries, run: Run) -> Entries:
        main = _below(self.prefix, entries)
        if not main:
            run.problem(self, self.prefix, "no leaf is below it")
            return entries
        mirrors = self.follow if not isinstance(self.follow, bool) else ()
        if self.follow is True:
            mirrors = tuple(_mirrors(self.prefix, main, entries))
            run.note(self, f"followed by {', '.join(mirrors) or 'nothing: no subtree has its names'}")
        changed = {self.prefix: self._run(main, self.transforms, self.prefix, run)}
        following = [part for part in self.transforms if part.follows]
        for prefix in mirrors:
            if not (mirrored := _below(prefix, entries)):
                run.problem(self, prefix, "no leaf is below it")
                continue
            changed[prefix] = self._run(mirrored, following, prefix, run)
        return self._put_back(entries, changed, run)

    def _run(self, part: Entries, transforms: Sequence[Transform], prefix: str, run: Run) -> Entries:
        inner = Run(target=_wanted_below(prefix, run), inputs=run.inputs)
        for transform in transforms:
            part = transform.apply(part, inner)
        run.problems += [(what, f"{prefix}.{name}", why) for what, name, why in inner.problems]
        run.notes += [f"{prefix}: {note}" for note in inner.notes]
        run.dropped += [f"{prefix}.{name}" for name in inner.dropped]
        for mine, its in ((run.kept, inner.kept), (run.filled, inner.filled), (run.settled, inner.settled)):
            mine.update(f"{prefix}.{name}" for name in its)
        return part

    def _put_back(self, entries: Entries, changed: Mapping[str, Entries], run: Run) -> Entries:
        result: Entries = {}
        waiting = dict(changed)
        for name, entry in entries.items():
            prefix = next((p for p in changed if name.startswith(f"{p}.")), None)
            if prefix is None:
                put(result, name, entry, self, run)
            for new, made in waiting.pop(prefix, {}).items() if prefix is not None else ():
                put(result, f"{prefix}.{new}", _under(prefix or "", new, made), self, run)
        return result


def _under(prefix: str, name: str, entry: Entry) -> Entry:
    """An entry of a subtree in the whole tree: what got its key path there has it below the prefix here."""
    if entry.leaf.name != name:
        return entry
    path = (*(Key("key", key) for key in prefix.split(".")), *entry.leaf.path)
    return replace(entry, leaf=replace(entry.leaf, path=path))


def _below(prefix: str, entries: Entries) -> Entries:
    start = f"{prefix}."
    return {name[len(start) :]: entry for name, entry in entries.items() if name.startswith(start)}


def _wanted_below(prefix: str, run: Run) -> Any:
    if run.target is None:
        return None
    start = f"{prefix}."
    return {name[len(start) :]: want for name, want in run.target.items() if name.startswith(start)}


def _mirrors(prefix: str, main: Entries, entries: Entries) -> list[str]:
    """The prefixes below which all leaves have names and shapes of the subtree's."""
    counted: Counter[str] = Counter()
    for name in entries:
        keys = name.split(".")
        for length in range(1, len(keys)):
            if ".".join(keys[length:]) in main:
                counted[".".join(keys[:length])] += 1
    found: list[str] = []
    for candidate, _ in counted.most_common():
        part = _below(candidate, entries)
        inside = any(_nested(candidate, other) for other in (prefix, *found))
        arrays = {name: entry for name, entry in part.items() if entry.source is not None}
        if not inside and arrays and all(_same(entry, main.get(name)) for name, entry in arrays.items()):
            found.append(candidate)
    return found


def _nested(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def _same(entry: Entry, other: Entry | None) -> bool:
    if entry.source is None or other is None or other.source is None:
        return False
    return entry.source.shape == other.source.shape
