"""What a transform is: a value that maps entries to entries, and says all that does not fit."""

from __future__ import annotations

import difflib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar

from storax.arrays.read import Source
from storax.errors import BadOption
from storax.surgery.entries import BROKEN, Entries, Entry
from storax.tree.leaves import Leaf


@dataclass(frozen=True, slots=True)
class Wanted:
    """A leaf of the target: what it must be, and the value that the target has there."""

    leaf: Leaf
    value: Any


@dataclass(slots=True)
class Run:
    """One run of a list of transforms: what it knows, and what it found out.

    Attributes:
      target: the leaves that are wanted in the end, by name; None if there is no target.
      inputs: all entries that were read, by the names that they had then.
      problems: (transform, name, what) of all that does not fit.
      notes: what was skipped, dropped or not found, in sentences.
      kept: names whose values are those of the target.
      settled: names of the target that a policy for missing leaves has decided on.
      filled: names that no checkpoint has.
      flat: whether names without a key path become one key each; None if no transform said so.
    """

    target: Mapping[str, Wanted] | None = None
    inputs: dict[str, Entry] = field(default_factory=dict)
    problems: list[tuple[str, str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)
    settled: set[str] = field(default_factory=set)
    filled: set[str] = field(default_factory=set)
    flat: bool | None = None

    def problem(self, transform: object, name: str, what: str) -> None:
        self.problems.append((repr(transform), name, what))

    def note(self, transform: object, what: str) -> None:
        self.notes.append(f"{transform!r}: {what}")


class Transform(ABC):
    """A value: it can be printed, compared, put in a list, and written as JSON or YAML."""

    # Whether the moments of an optimizer go through it when their parameters do.
    follows: ClassVar[bool] = True

    @abstractmethod
    def apply(self, entries: Entries, run: Run) -> Entries:
        """The entries that come out. Reads nothing; what does not fit is a problem of the run."""

    def __repr__(self) -> str:
        given = []
        for part in fields(self):  # type: ignore[arg-type]
            value = getattr(self, part.name)
            default = part.default_factory() if callable(part.default_factory) else part.default
            if default is MISSING or not _equal(value, default):
                given.append(f"{part.name}={value!r}")
        return f"{type(self).__name__}({', '.join(given)})"


def listed(transforms: Any) -> tuple[Transform, ...]:
    """A list of transforms. Raises ``BadOption`` for anything else."""
    if isinstance(transforms, Transform):
        raise BadOption(f"transforms is a list; give [{transforms!r}]")
    found = tuple(transforms)
    if wrong := [part for part in found if not isinstance(part, Transform)]:
        shown = ", ".join(map(repr, wrong))
        raise BadOption(
            f"transforms are values such as rename_by_regex(...), not {shown}. See storax.surgery."
        )
    return found


def _equal(value: Any, default: Any) -> bool:
    return type(value) is type(default) and bool(value == default)


class EachMatching(Transform):
    """A transform of each array whose name matches a pattern, found anywhere in the name."""

    pattern: str

    def apply(self, entries: Entries, run: Run) -> Entries:
        found = compiled(self, self.pattern)
        result: Entries = {}
        matched = False
        for name, entry in entries.items():
            result[name] = entry
            if found.search(name):
                matched = True
                result[name] = self.changed(name, entry, run)
        if not matched:
            run.note(self, "no name matches")
        return result

    def changed(self, name: str, entry: Entry, run: Run) -> Entry:
        source = array_of(self, name, entry, run)
        if source is None:
            return BROKEN
        made = self.one(name, source, entry)
        if isinstance(made, str):
            run.problem(self, name, made)
            return BROKEN
        return made

    @abstractmethod
    def one(self, name: str, source: Source, entry: Entry) -> Entry | str:
        """The new entry of one array, or why there is none."""


def array_of(transform: object, name: str, entry: Entry, run: Run) -> Source | None:
    """The array of an entry; if it has none, that is a problem, unless it was one before."""
    if entry.broken:
        return None
    if entry.source is None or entry.leaf.prng:
        run.problem(transform, name, f"it is {entry.leaf}, not an array of numbers")
        return None
    return entry.source


def arrays_of(
    transform: object, names: Sequence[str], parts: Sequence[Entry], run: Run
) -> list[Source] | None:
    """The arrays of some entries, or None if not all are arrays."""
    found = [array_of(transform, name, part, run) for name, part in zip(names, parts, strict=True)]
    sources = [source for source in found if source is not None]
    return sources if len(sources) == len(found) else None


def compiled(transform: object, pattern: str) -> re.Pattern[str]:
    """A pattern. Raises ``BadOption`` if it is not a regular expression."""
    try:
        return re.compile(pattern)
    except (re.error, TypeError) as error:
        raise BadOption(f"{type(transform).__name__}: {pattern!r} is not a pattern: {error}") from None


def axis_of(axis: int, ndim: int) -> int | None:
    """An axis counted from the front, or None if there is no such axis."""
    return axis % ndim if -ndim <= axis < ndim else None


def close_to(name: str, names: Iterable[str]) -> str:
    """A hint at the most similar name, for messages."""
    found = difflib.get_close_matches(name, list(names)[:5000], n=1, cutoff=0.7)
    return f" (close: {found[0]})" if found else ""


def put(result: Entries, name: str, entry: Entry, transform: object, run: Run) -> None:
    """Adds an entry; a name that is taken is a problem."""
    if name in result:
        run.problem(transform, name, "two leaves would have this name")
        return
    result[name] = entry
