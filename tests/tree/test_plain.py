"""JSON items and custom metadata come back as they are, or are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import storax
from storax.items import JsonSave
from storax.tree.plain import encode_plain

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_a_plain_value_comes_back_as_it_is(value: Any) -> None:
    assert json.loads(encode_plain(value, "it")) == value


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({1: "a", "1": "b"}, r"\[1\]: the key is a int"),
        ({"a": [{None: 2}]}, r"\['a'\]\[0\]\[None\]: the key is a NoneType"),
        ({"a": (1, float("nan"))}, r"\['a'\]\[1\] is nan"),
        (float("-inf"), "it is -inf"),
        ({"x": object()}, "object"),
        ({"x": {1}}, "set"),
    ],
)
def test_what_would_not_come_back_is_refused(value: Any, said: str) -> None:
    with pytest.raises(storax.BadOption, match=said):
        JsonSave(value).stage()


def test_all_places_are_named_at_once() -> None:
    with pytest.raises(storax.BadOption) as raised:
        encode_plain({"a": {1: 2}, "b": [float("inf")]}, "custom_metadata")
    assert "['a'][1]" in str(raised.value)
    assert "['b'][0]" in str(raised.value)
    with pytest.raises(storax.BadOption, match="and 80 more"):
        encode_plain({i: i for i in range(100)}, "it")


def test_values_that_hold_themselves_or_are_too_deep() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    for value in (deep, cyclic):
        with pytest.raises(storax.BadOption, match="cannot be written as JSON"):
            encode_plain(value, "it")


def test_tuples_come_back_as_lists() -> None:
    assert json.loads(encode_plain({"betas": (0.9, 0.99)}, "it")) == {"betas": [0.9, 0.99]}
