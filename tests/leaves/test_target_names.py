"""How the leaves of a target are named: no two alike, and keys with dots are not paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.same import assert_same

import storax

X, Y = np.arange(3), np.arange(4)


def test_two_leaves_of_a_target_with_one_name_are_refused(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", {"a": {"b": X}})
    with pytest.raises(storax.NameCollision, match=r"tree\['a'\]\['b'\] and tree\['a.b'\]"):
        storax.load(tmp_path / "a", {"a.b": X, "a": {"b": X}})
    with pytest.raises(storax.NameCollision):
        storax.load(tmp_path / "a", {"a.b": ..., "a": {"b": X}})


@pytest.mark.parametrize(
    ("saved", "wanted"),
    [({"a": {"b": X}}, {"a.b": X}), ({"a.b": X}, {"a": {"b": X}})],
    ids=["one key", "two"],
)
def test_a_key_with_a_dot_is_not_two_keys(saved: Any, wanted: Any, tmp_path: Path) -> None:
    storax.save(tmp_path / "a", saved)
    with pytest.raises(storax.TreeMismatch) as raised:
        storax.load(tmp_path / "a", wanted)
    assert [name for name, _ in raised.value.differ] == ["a.b"]
    assert "tree['a']['b']" in str(raised.value)
    assert "tree['a.b']" in str(raised.value)
    assert_same(storax.load(tmp_path / "a", saved), saved)


def test_an_index_and_a_key_of_the_same_text_are_the_same(tmp_path: Path) -> None:
    storax.save(tmp_path / "a", [X, {"b": Y}])
    assert_same(storax.load(tmp_path / "a", {"0": X, "1": {"b": Y}}), {"0": X, "1": {"b": Y}})
    assert_same(storax.load(tmp_path / "a", {0: X, 1: {"b": Y}}), {0: X, 1: {"b": Y}})


@pytest.mark.parametrize("empty", [{}, [], ()], ids=repr)
def test_an_empty_container_of_a_partial_target_asks_for_nothing(empty: Any, tmp_path: Path) -> None:
    storax.save(tmp_path / "a", {"a": {"b": 1}, "c": 2})
    assert storax.load(tmp_path / "a", {"a": empty, "c": 0}, partial=True) == {"a": empty, "c": 2}
    assert storax.load(tmp_path / "a", empty, partial=True) == empty
    with pytest.raises(storax.TreeMismatch) as raised:  # there is no such node
        storax.load(tmp_path / "a", {"d": empty}, partial=True)
    assert raised.value.only_wanted == ("d",)


def test_a_class_in_a_target_is_no_leaf(tmp_path: Path) -> None:
    class Foreign:
        shape, dtype = (3,), "a dtype of another library"

    storax.save(tmp_path / "a", {"x": X, "y": X})
    with pytest.raises(storax.UnsupportedLeaf) as raised:
        storax.load(tmp_path / "a", {"x": np.ndarray, "y": Foreign()})
    assert "x: the class numpy.ndarray itself" in str(raised.value)
    assert "Foreign of the dtype a dtype of another library" in str(raised.value)
