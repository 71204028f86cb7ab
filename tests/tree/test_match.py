"""Saved and wanted leaves: the report against sets of names."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tree.strategies import TREES

from storax.errors import TreeMismatch
from storax.tree.leaves import Leaf
from storax.tree.match import Match, match

Leaves = tuple[Leaf, ...]


def match_or_error(saved: Sequence[Leaf], wanted: Sequence[Leaf], **options: bool) -> Match | TreeMismatch:
    try:
        return match(saved, wanted, where="here", **options)
    except TreeMismatch as error:
        return error


@given(TREES)
def test_a_tree_matches_itself(leaves: Leaves) -> None:
    assert match(leaves, leaves, where="here").pairs == tuple(zip(leaves, leaves, strict=True))


@given(TREES, st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)), st.booleans(), st.booleans())
def test_the_report_has_every_difference_in_names(
    leaves: Leaves, unsaved: set[int], unwanted: set[int], partial: bool, keep: bool
) -> None:
    saved = [leaf for i, leaf in enumerate(leaves) if i not in unsaved]
    wanted = [leaf for i, leaf in enumerate(leaves) if i not in unwanted]
    saved_names, wanted_names = {leaf.name for leaf in saved}, {leaf.name for leaf in wanted}
    extra = set() if partial else saved_names - wanted_names
    missing = wanted_names - saved_names
    found = match_or_error(saved, wanted, partial=partial, keep_missing=keep)
    if isinstance(found, TreeMismatch):
        assert set(found.only_saved) == extra
        assert set(found.only_wanted) == (set() if keep else missing)
        assert found.differ == ()
        assert extra or (missing and not keep)
        assert str(found).startswith("here ")
    else:
        assert not extra
        assert keep or not missing
        assert {leaf.name for leaf in found.kept} == missing
        assert {a.name for a, _ in found.pairs} == saved_names & wanted_names


@given(TREES)
def test_what_the_target_does_not_read_is_not_missed(leaves: Leaves) -> None:
    unread = [leaf.path[:1] for leaf in leaves]
    assert match(leaves, [], where="here", unread=unread).pairs == ()


@settings(max_examples=40)
@given(TREES, TREES)
def test_any_two_trees_match_or_differ(saved: Leaves, wanted: Leaves) -> None:
    found = match_or_error(saved, wanted, cast=True)
    names = {leaf.name for leaf in saved}
    if isinstance(found, TreeMismatch):
        assert found.only_saved or found.only_wanted or found.differ
        assert {name for name, _ in found.differ} <= names & {leaf.name for leaf in wanted}
    else:
        assert {a.name for a, _ in found.pairs} == names
        assert all(a.name == b.name for a, b in found.pairs)
        assert all(a.shape == b.shape or a.is_in_document for a, b in found.pairs)
