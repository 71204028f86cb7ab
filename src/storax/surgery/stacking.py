"""Transforms that stack numbered arrays along a new axis, and take them apart again."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storax.arrays.read import Source
from storax.errors import BadOption
from storax.surgery.contract import Run, Transform, array_of, arrays_of, axis_of, compiled, put
from storax.surgery.entries import BROKEN, Entries, Entry, made
from storax.surgery.memory import filled
from storax.surgery.views import Picked, Stacked
from storax.tree.dtypes import dtype_name


@dataclass(frozen=True, repr=False)
class stack(Transform):
    r"""Stacks numbered arrays, such as layers or experts, along a new axis.

    Args:
      pattern: found anywhere in a name; its one group holds the number, and is taken out of the name.
        Of two dots that then meet, one goes too.
      expected_count: how many there must be; the largest number of all groups, and one, if not given.
      axis: the new axis.
      filler_mapping: for names of results that match a pattern, the value for numbers that are missing.
      default_filler: the value for all others; without one, a missing number is an error.

    Example:
      >>> stack(r"layers\.(\d+)\.", expected_count=12)
      stack(pattern='layers\\.(\\d+)\\.', expected_count=12)
    """

    pattern: str
    expected_count: int | None = None
    axis: int = 0
    filler_mapping: Mapping[str, float] | None = None
    default_filler: float | None = None

    def __post_init__(self) -> None:
        if compiled(self, self.pattern).groups != 1:
            raise BadOption(f"stack: {self.pattern!r} must have one group, the number: r'layers\\.(\\d+)\\.'")
        for pattern in self.filler_mapping or ():
            compiled(self, pattern)

    def apply(self, entries: Entries, run: Run) -> Entries:
        groups = self._groups(entries, run)
        if not groups:
            run.note(self, "no name matches")
            return entries
        count = self.expected_count
        if count is None:
            count = 1 + max((max(have) for have in groups.values() if have), default=0)
        gone = {name: group for group, have in groups.items() for name in have.values()}
        result: Entries = {}
        for name, entry in entries.items():
            if name not in gone:
                put(result, name, entry, self, run)
            elif gone[name] in groups:
                group = gone[name]
                have = groups.pop(group)
                put(result, group, self._stacked(group, have, entries, count, run), self, run)
        return result

    def _groups(self, entries: Entries, run: Run) -> dict[str, dict[int, str]]:
        pattern = compiled(self, self.pattern)
        groups: dict[str, dict[int, str]] = defaultdict(dict)
        for name in entries:
            found = pattern.search(name)
            if found is None or found[1] is None:
                continue
            numbers = re.findall(r"\d+", found[1])
            if len(numbers) != 1:
                run.problem(self, name, f"{found[1]!r} is not one number")
                continue
            before, after = name[: found.start(1)], name[found.end(1) :]
            joined = (
                before[:-1] + after if before.endswith(".") and after[:1] in ("", ".") else before + after
            )
            joined = joined.removeprefix(".") if not before else joined
            if (number := int(numbers[0])) in groups[joined]:
                run.problem(
                    self, joined, f"{groups[joined][number]} and {name} both have the number {number}"
                )
            groups[joined][number] = name
        return groups

    def _stacked(self, group: str, have: Mapping[int, str], entries: Entries, count: int, run: Run) -> Entry:
        names = list(have.values())
        parts = [entries[name] for name in names]
        sources = arrays_of(self, names, parts, run)
        if (beyond := [i for i in have if i >= count]) and sources is not None:
            run.problem(self, group, f"{_few(beyond)} of {count} expected, which are 0 to {count - 1}")
            return BROKEN
        filler = self._filler(group)
        missing = [i for i in range(count) if i not in have]
        if missing and filler is None and sources is not None:
            what = f"{_few(missing)} of {count} is missing, there are {_few(sorted(have))}"
            run.problem(self, group, f"{what}. Fill it: stack(..., default_filler=0.0)")
            return BROKEN
        if sources is None:
            return BROKEN
        if len({(s.shape, dtype_name(s.dtype)) for s in sources}) > 1:
            run.problem(self, group, f"shapes or dtypes differ: {_differing(names, parts)}")
            return BROKEN
        shape, dtype = sources[0].shape, sources[0].dtype
        axis = axis_of(self.axis, len(shape) + 1)
        if axis is None:
            run.problem(self, group, f"{names[0]} is {parts[0]}; there is no new axis {self.axis}")
            return BROKEN
        by_number: dict[int, Source] = dict(zip(have, sources, strict=True))
        if missing:
            run.note(self, f"{group}: {_few(missing)} of {count} is filled with {filler}")
        rows = [by_number[i] if i in by_number else filled(shape, dtype, filler or 0) for i in range(count)]
        axes = [*range(axis), None, *range(axis, len(shape))]
        return made(Stacked(tuple(rows), axis), parts, axes)

    def _filler(self, group: str) -> float | None:
        for pattern, value in (self.filler_mapping or {}).items():
            if compiled(self, pattern).search(group):
                return value
        return self.default_filler


def _few(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return f"{'number' if len(numbers) == 1 else 'numbers'} {shown}{', …' if len(numbers) > 8 else ''}"


def _differing(names: Sequence[str], parts: Sequence[Entry]) -> str:
    by_kind: dict[str, list[str]] = defaultdict(list)
    for name, part in zip(names, parts, strict=True):
        by_kind[str(part)].append(name)
    return "; ".join(f"{kind}: {', '.join(found[:3])}" for kind, found in by_kind.items())


@dataclass(frozen=True, repr=False)
class unstack(Transform):
    r"""Takes arrays apart along an axis, one for each index: the inverse of ``stack``.

    Args:
      pattern: found anywhere in a name.
      replacement: what the match becomes; ``{index}`` is the number, ``\1`` a group of the pattern.
      axis: the axis to take apart, which is then gone.

    Example:
      >>> unstack(r"^layers\.", "layers.{index}.")
      unstack(pattern='^layers\\.', replacement='layers.{index}.')
    """

    pattern: str
    replacement: str
    axis: int = 0

    def __post_init__(self) -> None:
        compiled(self, self.pattern)
        if "{index}" not in self.replacement:
            raise BadOption(f"unstack: the replacement {self.replacement!r} must have {{index}} in it")

    def apply(self, entries: Entries, run: Run) -> Entries:
        pattern = compiled(self, self.pattern)
        result: Entries = {}
        matched = False
        for name, entry in entries.items():
            if not pattern.search(name):
                put(result, name, entry, self, run)
                continue
            matched = True
            source = array_of(self, name, entry, run)
            axis = None if source is None else axis_of(self.axis, len(source.shape))
            if source is None or axis is None:
                if source is not None:
                    run.problem(self, name, f"it is {entry} and has no axis {self.axis}")
                put(result, name, BROKEN, self, run)
                continue
            axes = [i for i in range(len(source.shape)) if i != axis]
            for index in range(source.shape[axis]):
                put(
                    result,
                    self._name(name, index),
                    made(Picked(source, axis, index), [entry], axes),
                    self,
                    run,
                )
        if not matched:
            run.note(self, "no name matches")
        return result

    def _name(self, name: str, index: int) -> str:
        def new(found: re.Match[str]) -> str:
            # Not before: a number right behind a group would be read as part of the group's.
            return found.expand(self.replacement).replace("{index}", str(index))

        try:
            return compiled(self, self.pattern).sub(new, name, count=1)
        except (re.error, IndexError) as error:
            raise BadOption(f"unstack: {self.replacement!r} does not fit {self.pattern!r}: {error}") from None
