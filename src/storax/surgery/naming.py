"""Transforms of names: nothing is done to values."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import jax

from storax import pytree
from storax.errors import BadOption
from storax.surgery.contract import Run, Transform, Wanted, compiled
from storax.surgery.entries import BROKEN, Entries, Entry
from storax.surgery.memory import MemoryArray
from storax.tree.leaves import Leaf
from storax.tree.names import Key, leaf_name


@dataclass(frozen=True, repr=False)
class rename_by_regex(Transform):
    r"""Renames by a series of rules, each applied in order to every name.

    Args:
      rules: pairs of a pattern and what every match of it becomes; ``\1`` is the first group.
      unmatched: ``"error"`` if a name that no rule changes is a mistake.

    Example:
      >>> rename_by_regex([(r"^model\.", ""), (r"\.weight$", ".kernel")])
      rename_by_regex(rules=(('^model\\.', ''), ('\\.weight$', '.kernel')))
    """

    rules: Sequence[tuple[str, str]]
    unmatched: Literal["pass", "error"] = "pass"

    def __post_init__(self) -> None:
        try:
            if isinstance(self.rules, (Mapping, str)):
                raise TypeError
            rules = tuple((str(pattern), str(new)) for pattern, new in self.rules)
        except (TypeError, ValueError):
            raise BadOption(
                f"rename_by_regex: rules are a list of pairs (pattern, new), not {self.rules!r}. "
                f"Type: {_as_list(self.rules)}"
            ) from None
        object.__setattr__(self, "rules", rules)
        for pattern, _ in rules:
            compiled(self, pattern)
        if self.unmatched not in ("pass", "error"):
            raise BadOption(f"rename_by_regex: unmatched is {self.unmatched!r}, not 'pass' or 'error'")

    def apply(self, entries: Entries, run: Run) -> Entries:
        rules = [(compiled(self, pattern), new) for pattern, new in self.rules]
        used = [False] * len(rules)
        became: dict[str, list[str]] = defaultdict(list)
        for name in entries:
            new_name, matched = name, False
            for i, (pattern, new) in enumerate(rules):
                try:
                    new_name, count = pattern.subn(new, new_name)
                except (re.error, IndexError) as error:
                    raise BadOption(
                        f"rename_by_regex: {new!r} does not fit {pattern.pattern!r}: {error}"
                    ) from None
                used[i] = used[i] or bool(count)
                matched = matched or bool(count)
            became[new_name].append(name)
            if not matched and self.unmatched == "error":
                run.problem(self, name, "no rule matches this name")
        for new_name, old in became.items():
            if len(old) > 1:
                run.problem(self, new_name, f"{' and '.join(old)} would all have this name")
        for (pattern, _), did in zip(rules, used, strict=True):
            if not did and self.unmatched == "pass":
                run.note(self, f"no name matches {pattern.pattern!r}")
        return {new: entries[old[0]] if len(old) == 1 else BROKEN for new, old in became.items()}


def _as_list(rules: object) -> str:
    """What to type instead of rules that are no list of pairs."""
    pairs = list(rules.items()) if isinstance(rules, Mapping) else [(r"^old\.", "new.")]
    return f"rename_by_regex({pairs!r})"


@dataclass(frozen=True, repr=False)
class drop(Transform):
    r"""Leaves out every leaf whose name matches a pattern.

    Args:
      pattern: found anywhere in the name.

    Example:
      >>> drop(r"rotary_emb\.inv_freq$")
      drop(pattern='rotary_emb\\.inv_freq$')
    """

    pattern: str

    def __post_init__(self) -> None:
        compiled(self, self.pattern)

    def apply(self, entries: Entries, run: Run) -> Entries:
        return _select(self, entries, run, self.pattern, kept=False)


@dataclass(frozen=True, repr=False)
class keep(Transform):
    r"""Leaves out every leaf whose name does not match a pattern.

    Args:
      pattern: found anywhere in the name.

    Example:
      >>> keep(r"^params\.")
      keep(pattern='^params\\.')
    """

    pattern: str

    def __post_init__(self) -> None:
        compiled(self, self.pattern)

    def apply(self, entries: Entries, run: Run) -> Entries:
        return _select(self, entries, run, self.pattern, kept=True)


def _select(transform: Transform, entries: Entries, run: Run, pattern: str, *, kept: bool) -> Entries:
    found = compiled(transform, pattern)
    result = {name: entry for name, entry in entries.items() if bool(found.search(name)) == kept}
    if len(result) == (0 if kept else len(entries)):
        run.note(transform, "no name matches")
    run.dropped += [name for name in entries if name not in result]
    return result


@dataclass(frozen=True, repr=False)
class flatten(Transform):
    """Makes the tree one flat dict: the keys of each path, joined.

    Args:
      separator: what joins them.

    Example:
      >>> flatten("/")
      flatten(separator='/')
    """

    separator: str = "."

    def apply(self, entries: Entries, run: Run) -> Entries:
        run.flat = True
        result: Entries = {}
        for name, entry in entries.items():
            keys = [str(key) for key in entry.leaf.path] if entry.leaf.name == name else name.split(".")
            path = (Key("key", self.separator.join(keys)),)
            if leaf_name(path) in result:
                run.problem(self, leaf_name(path), "two leaves would have this name")
            result[leaf_name(path)] = replace(entry, leaf=replace(entry.leaf, path=path))
        return result


@dataclass(frozen=True, repr=False)
class unflatten(Transform):
    """Makes nested dicts of a flat one: each name, cut at a separator, is a key path.

    Args:
      separator: where to cut.
      target: a tree; what it does not have is left out, and what is missing keeps its value.

    Example:
      >>> unflatten(".")
      unflatten()
    """

    separator: str = "."
    target: Any = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.separator:
            raise BadOption("unflatten: the separator is empty; give what joins the keys, such as '.'")

    def apply(self, entries: Entries, run: Run) -> Entries:
        run.flat = False
        result: Entries = {}
        for name, entry in entries.items():
            if len(entry.leaf.path) > 1 and entry.leaf.name == name:
                result[name] = entry
                continue
            path = tuple(Key("key", part) for part in name.split(self.separator))
            if any(key.value == "" for key in path) and name:
                run.problem(self, name, "a key between two separators is empty")
            if leaf_name(path) in result:
                run.problem(self, leaf_name(path), "two leaves would have this name")
            result[leaf_name(path)] = replace(entry, leaf=replace(entry.leaf, path=path))
        self._check_nested(result, run)
        return result if self.target is None else self._conformed(result, run)

    def _check_nested(self, entries: Entries, run: Run) -> None:
        """A leaf cannot be a dict as well."""
        paths = {tuple(map(str, entry.leaf.path)): name for name, entry in entries.items()}
        for path, name in paths.items():
            for length in range(1, len(path)):
                if path[:length] in paths:
                    run.problem(self, name, f"{paths[path[:length]]} is a leaf and cannot hold it")

    def _conformed(self, entries: Entries, run: Run) -> Entries:
        wanted = wanted_leaves(self.target)
        run.dropped += [name for name in entries if name not in wanted]
        result: Entries = {}
        for name, want in wanted.items():
            if name in entries:
                result[name] = entries[name]
            else:
                result[name] = kept_entry(self, name, want, run)
        return result


def wanted_leaves(target: Any) -> dict[str, Wanted]:
    """The leaves of a target by name, but those that are not to be read (``...``)."""
    pairs, _ = pytree.flatten(target)
    found: dict[str, Wanted] = {}
    problems = []
    for path, value in pairs:
        if value is ...:
            continue
        leaf = pytree.describe_target(path, value)
        if isinstance(leaf, Leaf):
            found[leaf.name] = Wanted(leaf, value)
        else:
            problems.append(f"  {leaf_name(path)}: {leaf}")
    if problems:
        raise BadOption("the target has leaves that no checkpoint can hold:\n" + "\n".join(problems))
    return found


def kept_entry(transform: object, name: str, want: Wanted, run: Run) -> Entry:
    """The target's own value as an entry; a problem if it has none."""
    run.kept.add(name)
    leaf, value = want.leaf, want.value
    if leaf.is_in_document:
        return Entry(leaf, None)
    if isinstance(value, jax.ShapeDtypeStruct):
        run.problem(transform, name, f"it is missing, and the target has no value to keep, only {leaf}")
        return BROKEN
    array = pytree.array_of(leaf, value)
    return Entry(leaf, MemoryArray(array))
