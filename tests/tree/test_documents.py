"""Documents: what is written is read again, and whatever else is ``Corrupt``."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tree.strategies import TREES

from storax.errors import Corrupt
from storax.tree import documents
from storax.tree.documents import StepDocument, TreeDocument
from storax.tree.leaves import Leaf
from storax.tree.names import path_text

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=10,
)


def written_down(leaf: Leaf) -> Leaf:
    """What the document itself keeps of a leaf; shapes are in the database, most strings elsewhere."""
    keeps_dtype = leaf.kind in ("jax.Array", "np.ndarray", "np.generic")
    value = None if leaf.value is None else ""
    if isinstance(leaf.value, str) and not _is_unicode(leaf.value):
        value = leaf.value
    return replace(leaf, shape=None, dtype=leaf.dtype if keeps_dtype else None, value=value, nbytes=0)


def _is_unicode(text: str) -> bool:
    return text.encode(errors="replace").decode() == text


@given(TREES, st.booleans())
def test_a_tree_is_read_as_it_was_written(leaves: tuple[Leaf, ...], zarr3: bool) -> None:
    tuples = frozenset(path_text(leaf.path[:1]) for leaf in leaves)
    text = TreeDocument(leaves, tuples, zarr3).encode()
    found = TreeDocument.parse(text, "f")
    assert found == TreeDocument(tuple(map(written_down, leaves)), tuples, zarr3)
    assert [leaf.name for leaf in found.leaves] == [leaf.name for leaf in leaves]
    assert [leaf.is_in_document for leaf in found.leaves] == [leaf.is_in_document for leaf in leaves]


@given(TREES)
def test_strings_are_what_tensorstore_can_read(leaves: tuple[Leaf, ...]) -> None:
    text = documents.encode_strings(leaves)
    expected = {leaf.name for leaf in leaves if leaf.value is not None}
    if text is None:
        assert expected == set()
        return
    strings = json.loads(text)
    assert set(strings) == expected
    for leaf in leaves:
        if isinstance(leaf.value, int):
            assert int(strings[leaf.name], 16) == leaf.value
        elif leaf.value is not None:
            assert strings[leaf.name] == leaf.value.encode(errors="replace").decode()


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=3), st.integers(), st.integers())
def test_a_step_is_read_as_it_was_written(custom: dict[str, Any], begun: int, ended: int) -> None:
    document = StepDocument({"a": "H"}, {"loss": 1.0}, begun, ended, custom)
    found = StepDocument.parse(document.encode(), "f")
    # By text, as a NaN is not equal to itself.
    assert repr(found) == repr(document)


@given(TREES)
def test_shardings_and_keys_are_read_as_they_were_written(leaves: tuple[Leaf, ...]) -> None:
    arrays = [
        replace(leaf, prng="rbg" if i % 2 else None, sharding=json.dumps({"n": i, "sharding_type": "X"}))
        for i, leaf in enumerate(leaves)
        if leaf.kind == "jax.Array"
    ]
    found = documents.parse_shardings(documents.encode_shardings(arrays), "f")
    assert found == {leaf.name: leaf.sharding for leaf in arrays}
    text = documents.encode_array_document((leaf, leaf.shape or (), leaf.shape or ()) for leaf in arrays)
    assert documents.parse_array_document(text, "f") == {leaf.name: "rbg" for leaf in arrays if leaf.prng}


PARSERS = [
    TreeDocument.parse,
    StepDocument.parse,
    documents.parse_shardings,
    documents.parse_array_document,
    documents.parse_object,
    documents.parse_json,
]


def corrupt_or_read(parse: Any, text: bytes) -> str | None:
    """What ``Corrupt`` says, or None if the text could be read. Any other exception fails the test."""
    try:
        parse(text, "the file")
    except Corrupt as error:
        return str(error)
    return None


@given(
    st.sampled_from(PARSERS), st.one_of(st.binary(max_size=20), JSON.map(lambda v: json.dumps(v).encode()))
)
def test_any_other_text_is_corrupt(parse: Any, text: bytes) -> None:
    assert "the file" in (corrupt_or_read(parse, text) or "the file")


@given(
    st.sampled_from(PARSERS[:4]),
    st.sampled_from(["tree_metadata", "array_metadatas", "custom_metadata", "item_handlers", "YQ=="]),
    JSON,
)
def test_any_other_value_of_a_known_field_is_corrupt_or_read(parse: Any, field: str, value: Any) -> None:
    text = json.dumps({"tree_metadata": {}, field: value}).encode()
    assert "the file" in (corrupt_or_read(parse, text) or "the file")


@pytest.mark.parametrize("parse", PARSERS)
def test_deep_nesting_is_corrupt(parse: Any) -> None:
    assert "the file" in (corrupt_or_read(parse, b"[" * 100_000) or "")
