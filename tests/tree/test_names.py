"""Names of leaves: equal only where that is an error."""

from __future__ import annotations

import ast
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tree.strategies import PATHS

from storax.errors import NameCollision
from storax.tree.names import Key, KeyPath, check_distinct, leaf_name, path_text


@given(st.lists(PATHS, max_size=6))
def test_names_collide_exactly_where_an_error_says_so(paths: list[KeyPath]) -> None:
    repeated = {name for name, count in Counter(map(leaf_name, paths)).items() if count > 1}
    if not repeated:
        check_distinct(paths)
        return
    with pytest.raises(NameCollision) as raised:
        check_distinct(paths)
    for name in repeated:
        assert (name or "(the whole tree)") in str(raised.value)


@given(PATHS)
def test_the_text_of_a_path_is_a_tuple_of_strings(path: KeyPath) -> None:
    assert ast.literal_eval(path_text(path)) == tuple(str(key) for key in path)


@given(st.lists(st.text(st.characters(exclude_characters=".", exclude_categories=["Cs"])), min_size=1))
def test_a_name_without_dots_in_its_keys_tells_the_path(texts: list[str]) -> None:
    assert leaf_name(tuple(Key("key", text) for text in texts)).split(".") == texts
