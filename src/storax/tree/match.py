"""The saved tree against the target: which saved leaf goes where, or every difference at once."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storax.errors import TreeMismatch
from storax.tree.dtypes import castable, dtype_named
from storax.tree.leaves import EMPTY, Leaf
from storax.tree.names import KeyPath, display, leaf_name, spelled

# A message with five thousand lines helps nobody; the error's attributes have them all.
_MOST_LINES = 20


@dataclass(frozen=True, slots=True)
class Match:
    """What to read: ``pairs`` of (saved, wanted); ``kept`` leaves stay as the target has them."""

    pairs: tuple[tuple[Leaf, Leaf], ...]
    kept: tuple[Leaf, ...] = ()


def match(
    saved: Sequence[Leaf],
    wanted: Sequence[Leaf],
    *,
    where: str,
    unread: Sequence[KeyPath] = (),
    by_path: bool = False,
    partial: bool = False,
    keep_missing: bool = False,
    cast: bool = False,
) -> Match:
    """Pairs the leaves of a checkpoint and of a target by name.

    Args:
      saved: the checkpoint's leaves.
      wanted: the target's leaves.
      where: the checkpoint, as the message names it.
      unread: key paths that the target marks as not to be read, with all that is below them.
      by_path: leaves of one name must have the same keys too: ``a.b`` may be one key, or two. An index
        and a key of the same text are the same.
      partial: leaves that only the checkpoint has are fine, and empty containers of the target stand for
        whatever the checkpoint has there.
      keep_missing: leaves that only the target has are fine, and keep the target's value.
      cast: casts that lose values are fine.

    Raises:
      TreeMismatch: with every difference.
    """
    by_name = {leaf.name: leaf for leaf in saved}
    keyed = {_keys(leaf): leaf for leaf in saved} if by_path else {}
    wanted_names = {leaf.name for leaf in wanted}
    above = _above(saved) if partial and any(leaf.kind in EMPTY for leaf in wanted) else frozenset()
    pairs, differ = [], []
    missing: list[Leaf] = []
    emptied: list[Leaf] = []
    for leaf in wanted:
        if (found := keyed.get(_keys(leaf)) or by_name.get(leaf.name)) is None:
            (emptied if leaf.kind in EMPTY and _keys(leaf) in above else missing).append(leaf)
        elif by_path and _keys(found) != _keys(leaf):
            differ.append((leaf.name, f"saved as {spelled(found.path)}, wanted as {spelled(leaf.path)}"))
        elif difference := _difference(found, leaf, cast):
            differ.append((leaf.name, difference))
        else:
            pairs.append((found, leaf))
    skipped = {leaf_name(path) for path in unread}
    extra = [
        leaf
        for leaf in saved
        if not partial and leaf.name not in wanted_names and not _is_below(leaf.name, skipped)
    ]
    lost = [] if keep_missing else missing
    if extra or lost or differ:
        raise _mismatch(where, extra, lost, differ, by_name)
    return Match(tuple(pairs), (*missing, *emptied))


def _keys(leaf: Leaf) -> tuple[str, ...]:
    return tuple(map(str, leaf.path))


def _above(leaves: Sequence[Leaf]) -> frozenset[tuple[str, ...]]:
    """The nodes of a tree that are not leaves."""
    paths = [_keys(leaf) for leaf in leaves]
    return frozenset(path[:length] for path in paths for length in range(len(path)))


def _is_below(name: str, names: set[str]) -> bool:
    """Whether a leaf is one of some nodes of the tree, or below one; the root has the empty name."""
    parts = name.split(".")
    return "" in names or any(".".join(parts[:length]) in names for length in range(1, len(parts) + 1))


def _difference(saved: Leaf, wanted: Leaf, cast: bool) -> str | None:
    """Why a saved leaf does not fit the wanted one, or None if it does."""
    both = f"saved {saved}, wanted {wanted}"
    if saved.kind in EMPTY or wanted.kind in EMPTY:
        # The target decides the container: an empty tuple may become an empty dict, but never None.
        same = saved.kind in EMPTY and wanted.kind in EMPTY
        return None if same or _is_nothing(saved, wanted) else both
    if (
        "None" in (saved.kind, wanted.kind)
        or saved.kind in ("str", "bytes")
        or wanted.kind in ("str", "bytes")
    ):
        return None if saved.kind == wanted.kind else both
    if saved.value is not None:  # an integer beyond 64 bits
        return None if wanted.kind == "int" else both
    if saved.prng != wanted.prng:
        return both
    if saved.shape != wanted.shape:
        return both
    if saved.prng or cast or saved.dtype is None or wanted.dtype is None:
        return None
    a, b = dtype_named(saved.dtype), dtype_named(wanted.dtype)
    if saved.kind == "int" and wanted.kind != "int" and b.kind in "iu":
        return None  # a Python int has no width of its own: whether it fits is seen when it is read
    if wanted.kind == "int" and a.kind in "iu":
        return None  # nor does the wanted one
    return None if castable(a, b) else f"{both} (a cast that can lose values)"


def _is_nothing(saved: Leaf, wanted: Leaf) -> bool:
    """Orbax writes None for an empty named tuple, so a saved None fits an empty tuple."""
    return (saved.kind, wanted.kind) == ("None", "tuple")


def _mismatch(
    where: str,
    extra: Sequence[Leaf],
    missing: Sequence[Leaf],
    differ: Sequence[tuple[str, str]],
    saved: Mapping[str, Leaf],
) -> TreeMismatch:
    lines = [f"{where} does not match the target."]
    if extra:
        lines += [f"  only in the checkpoint ({len(extra)}):", *_listed([_described(leaf) for leaf in extra])]
    if missing:
        close = _close_names(missing, [leaf.name for leaf in extra] or list(saved))
        lines += [
            f"  only in the target ({len(missing)}):",
            *_listed([_described(leaf) + close.get(leaf.name, "") for leaf in missing]),
        ]
    if differ:
        lines += [f"  differ ({len(differ)}):", *_listed([f"{display(n)}: {what}" for n, what in differ])]
    advice = []
    if extra:
        advice.append(
            "Load only what the target asks for: partial=True, in load(...) or StandardRestore(...)."
        )
    if missing:
        advice.append(
            "Keep the target's own values where the checkpoint has none: missing='keep', "
            "in load(...) or StandardRestore(...)."
        )
    if any("lose values" in what for _, what in differ):
        advice.append("Cast all the same: load(..., cast=True).")
    if any("lose values" not in what for _, what in differ):
        advice.append("See what was saved: storax.metadata(path).")
    return TreeMismatch(
        "\n".join([*lines, *advice]),
        only_saved=tuple(leaf.name for leaf in extra),
        only_wanted=tuple(leaf.name for leaf in missing),
        differ=tuple(differ),
    )


def _described(leaf: Leaf) -> str:
    return f"{display(leaf.name)}   {leaf}"


def _listed(lines: Sequence[str]) -> list[str]:
    shown = [f"    {line}" for line in lines[:_MOST_LINES]]
    return shown + ([f"    … and {len(lines) - _MOST_LINES} more"] if len(lines) > _MOST_LINES else [])


def _close_names(missing: Sequence[Leaf], candidates: Sequence[str]) -> dict[str, str]:
    """For each missing name that will be shown, the most similar saved ones."""
    found = {}
    for leaf in missing[:_MOST_LINES]:
        names = difflib.get_close_matches(leaf.name, candidates[:2000], n=1, cutoff=0.75)
        if names and names[0] != leaf.name:
            found[leaf.name] = f"   (close: {names[0]})"
    return found
