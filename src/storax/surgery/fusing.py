"""Transforms that concatenate arrays, and those that cut them apart again."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from storax.errors import BadOption
from storax.surgery.contract import Run, Transform, array_of, arrays_of, axis_of, close_to, compiled, put
from storax.surgery.entries import BROKEN, Entries, Entry, made
from storax.surgery.views import Joined, Sliced
from storax.tree.dtypes import dtype_name

Incomplete = Literal["error", "skip"]


def _check_incomplete(transform: object, incomplete: str) -> None:
    if incomplete not in ("error", "skip"):
        raise BadOption(f"{type(transform).__name__}: incomplete is {incomplete!r}, not 'error' or 'skip'")


def _texts(transform: object, what: str, texts: Sequence[str]) -> tuple[str, ...]:
    if isinstance(texts, str) or not texts:
        raise BadOption(f"{type(transform).__name__}: {what} is a list of names, not {texts!r}")
    found = tuple(map(str, texts))
    if len(set(found)) < len(found):
        raise BadOption(f"{type(transform).__name__}: {what} names one twice: {', '.join(found)}")
    return found


# --- fuse ----------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class fuse_by_pattern(Transform):
    r"""Concatenates arrays whose names differ in one part, such as ``gate_proj`` and ``up_proj``.

    Args:
      pattern: of the names to look at, from their beginning.
      unique_parts: the parts, in the order in which the arrays are concatenated.
      fused_unique_part: what stands in their place in the name of the result.
      axis: along which.
      incomplete: ``"skip"`` leaves a group alone of which a part is missing, and says so.

    Example:
      >>> fuse_by_pattern(r".*\.(q|k)\.kernel$", ["q", "k"], "qk")
      fuse_by_pattern(pattern='.*\\.(q|k)\\.kernel$', unique_parts=('q', 'k'), fused_unique_part='qk')
    """

    pattern: str
    unique_parts: Sequence[str]
    fused_unique_part: str
    axis: int = 0
    incomplete: Incomplete = "error"

    def __post_init__(self) -> None:
        compiled(self, self.pattern)
        object.__setattr__(self, "unique_parts", _texts(self, "unique_parts", self.unique_parts))
        _check_incomplete(self, self.incomplete)

    def apply(self, entries: Entries, run: Run) -> Entries:
        pattern = compiled(self, self.pattern)
        parts = re.compile("|".join(map(re.escape, self.unique_parts)))
        groups: dict[str, dict[str, str]] = defaultdict(dict)
        for name in entries:
            if pattern.match(name) and (found := parts.search(name)):
                fused = parts.sub(lambda _: self.fused_unique_part, name)
                if found[0] in groups[fused]:
                    run.problem(self, fused, f"{groups[fused][found[0]]} and {name} are both its {found[0]}")
                groups[fused][found[0]] = name
        if not groups:
            run.note(self, "no name matches")
        complete = {}
        for fused, have in groups.items():
            if missing := [part for part in self.unique_parts if part not in have]:
                what = (
                    f"of its parts {', '.join(missing)} is missing, there is only {', '.join(have.values())}"
                )
                _incomplete(self, fused, what, self.incomplete, run)
            else:
                complete[fused] = [have[part] for part in self.unique_parts]
        return _fused(self, entries, complete, self.axis, run)


@dataclass(frozen=True, repr=False)
class fuse_by_keys(Transform):
    """Concatenates named arrays into one.

    Args:
      source_keys: the names, in the order in which the arrays are concatenated.
      target_key: the name of the result.
      axis: along which.
      incomplete: ``"skip"`` leaves the arrays alone if one is missing, and says so.

    Example:
      >>> fuse_by_keys(["gate", "up"], "gate_up")
      fuse_by_keys(source_keys=('gate', 'up'), target_key='gate_up')
    """

    source_keys: Sequence[str]
    target_key: str
    axis: int = 0
    incomplete: Incomplete = "error"

    def __post_init__(self) -> None:
        object.__setattr__(self, "source_keys", _texts(self, "source_keys", self.source_keys))
        _check_incomplete(self, self.incomplete)

    def apply(self, entries: Entries, run: Run) -> Entries:
        missing = [key for key in self.source_keys if key not in entries]
        if missing:
            hints = ", ".join(key + close_to(key, entries) for key in missing)
            _incomplete(self, self.target_key, f"there is no {hints}", self.incomplete, run)
            return entries
        return _fused(self, entries, {self.target_key: list(self.source_keys)}, self.axis, run)


def _incomplete(transform: object, name: str, what: str, incomplete: str, run: Run) -> None:
    if incomplete == "error":
        run.problem(transform, name, what)
    else:
        run.note(transform, f"{name} is skipped: {what}")


def _fused(
    transform: object, entries: Entries, groups: Mapping[str, Sequence[str]], axis: int, run: Run
) -> Entries:
    first = {names[0]: fused for fused, names in groups.items()}
    gone = {name for names in groups.values() for name in names}
    result: Entries = {}
    for name, entry in entries.items():
        if name in first:
            parts = [entries[part] for part in groups[first[name]]]
            put(
                result,
                first[name],
                _concatenated(transform, first[name], groups, parts, axis, run),
                transform,
                run,
            )
        elif name not in gone:
            put(result, name, entry, transform, run)
    return result


def _concatenated(
    transform: object,
    fused: str,
    groups: Mapping[str, Sequence[str]],
    parts: Sequence[Entry],
    axis: int,
    run: Run,
) -> Entry:
    names = groups[fused]
    sources = arrays_of(transform, names, parts, run)
    if sources is None:
        return BROKEN
    along = axis_of(axis, len(sources[0].shape))
    if along is None:
        run.problem(transform, fused, f"{names[0]} is {parts[0]} and has no axis {axis}")
        return BROKEN
    other = {(*s.shape[:along], *s.shape[along + 1 :], len(s.shape), dtype_name(s.dtype)) for s in sources}
    if len(other) > 1:
        what = ", ".join(f"{name} {part}" for name, part in zip(names, parts, strict=True))
        run.problem(transform, fused, f"shapes or dtypes do not fit along axis {axis}: {what}")
        return BROKEN
    return made(Joined(tuple(sources), along), parts, range(len(sources[0].shape)))


# --- split ---------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class split_by_pattern(Transform):
    r"""Cuts arrays into parts along an axis: the inverse of ``fuse_by_pattern``.

    Args:
      pattern: of the names to look at, from their beginning.
      fused_unique_part: the part of the name that stands for all.
      unique_parts: what stands in its place in the names of the parts, in order.
      axis: along which.
      sizes: the length of each part, or their proportions; all equal if not given.

    Example:
      >>> split_by_pattern(r".*\.qk\.", "qk", ["q", "k"], sizes=[4, 1])
      split_by_pattern(pattern='.*\\.qk\\.', fused_unique_part='qk', unique_parts=('q', 'k'), sizes=(4, 1))
    """

    pattern: str
    fused_unique_part: str
    unique_parts: Sequence[str]
    axis: int = 0
    sizes: Sequence[int] | None = None

    def __post_init__(self) -> None:
        compiled(self, self.pattern)
        object.__setattr__(self, "unique_parts", _texts(self, "unique_parts", self.unique_parts))
        object.__setattr__(self, "sizes", _sizes(self, self.sizes, len(self.unique_parts)))

    def apply(self, entries: Entries, run: Run) -> Entries:
        pattern = compiled(self, self.pattern)
        groups = {}
        for name in entries:
            if pattern.match(name) and self.fused_unique_part in name:
                groups[name] = [name.replace(self.fused_unique_part, part) for part in self.unique_parts]
        if not groups:
            run.note(self, "no name matches")
        return _split(self, entries, groups, self.axis, self.sizes, run)


@dataclass(frozen=True, repr=False)
class split_by_keys(Transform):
    """Cuts one named array into parts along an axis: the inverse of ``fuse_by_keys``.

    Args:
      source_key: the name of the array.
      target_keys: the names of the parts, in order.
      axis: along which.
      sizes: the length of each part, or their proportions; all equal if not given.

    Example:
      >>> split_by_keys("gate_up", ["gate", "up"])
      split_by_keys(source_key='gate_up', target_keys=('gate', 'up'))
    """

    source_key: str
    target_keys: Sequence[str]
    axis: int = 0
    sizes: Sequence[int] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "target_keys", _texts(self, "target_keys", self.target_keys))
        object.__setattr__(self, "sizes", _sizes(self, self.sizes, len(self.target_keys)))

    def apply(self, entries: Entries, run: Run) -> Entries:
        if self.source_key not in entries:
            run.problem(self, self.source_key, "there is no such leaf" + close_to(self.source_key, entries))
            return entries
        return _split(self, entries, {self.source_key: self.target_keys}, self.axis, self.sizes, run)


def _sizes(transform: object, sizes: Any, count: int) -> tuple[int, ...] | None:
    if sizes is None:
        return None
    if len(sizes) != count or not all(isinstance(n, int) and n > 0 for n in sizes):
        raise BadOption(f"{type(transform).__name__}: sizes are {count} positive numbers, not {sizes!r}")
    return tuple(sizes)


def _split(
    transform: object,
    entries: Entries,
    groups: Mapping[str, Sequence[str]],
    axis: int,
    sizes: Sequence[int] | None,
    run: Run,
) -> Entries:
    result: Entries = {}
    for name, entry in entries.items():
        if name not in groups:
            put(result, name, entry, transform, run)
            continue
        parts = _cut(transform, name, entry, len(groups[name]), axis, sizes, run)
        for new, part in zip(groups[name], parts, strict=True):
            put(result, new, part, transform, run)
    return result


def _cut(
    transform: object, name: str, entry: Entry, count: int, axis: int, sizes: Sequence[int] | None, run: Run
) -> list[Entry]:
    source = array_of(transform, name, entry, run)
    if source is None:
        return [BROKEN] * count
    along = axis_of(axis, len(source.shape))
    if along is None:
        run.problem(transform, name, f"it is {entry} and has no axis {axis}")
        return [BROKEN] * count
    shares = tuple(sizes or (1,) * count)
    length = source.shape[along]
    if length % sum(shares):
        what = f"{count} equal parts" if sizes is None else f"parts of {', '.join(map(str, shares))}"
        run.problem(transform, name, f"it is {entry}; its axis {axis} of {length} does not fall into {what}")
        return [BROKEN] * count
    parts, start = [], 0
    for share in shares:
        stop = start + share * (length // sum(shares))
        box = tuple((start, stop) if i == along else (0, n) for i, n in enumerate(source.shape))
        parts.append(made(Sliced(source, box), [entry], range(len(source.shape))))
        start = stop
    return parts
