"""The outline of a large tree is what folding all of its leaves gives."""

from __future__ import annotations

from pathlib import Path

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from hypothesis import given, settings
from tests.cli.command import FIXTURES
from tests.devices import on_mesh

import storax
from storax.survey.branches import Branch, grow, walk
from storax.survey.leaves import see_leaves
from storax.survey.outline import outline


def spelled(tree: Branch) -> list[tuple]:
    def leaf(branch: Branch) -> tuple | None:
        seen = branch.leaf
        return seen and (
            seen.name,
            seen.kind,
            seen.shape,
            seen.dtype,
            seen.chunk_shape,
            seen.nbytes,
            seen.sharding,
        )

    return [(depth, b.path, b.leaves, b.nbytes, b.stored_bytes, b.folded, leaf(b)) for depth, b in walk(tree)]


def same(directory: Path, depth: int) -> bool:
    """Whether there is an outline; if so, that it is right."""
    found = outline(directory, depth, least_bytes=0)
    if found is not None:
        assert spelled(found) == spelled(grow(see_leaves(directory), depth))
    return found is not None


@pytest.mark.parametrize("depth", [1, 2, 3, 9])
def test_it_is_what_folding_gives(tmp_path: Path, depth: int):
    layer = {"w": on_mesh(np.zeros((8, 4), np.float32), "data"), "b": jax.numpy.zeros(4)}
    tree = {
        "layers": [{"a": layer, "z": {"deep": [layer]}} for _ in range(12)],
        "w": layer["w"],
        "empty": {},
        "none": None,
    }
    storax.save(tmp_path / "a", tree)
    assert same(tmp_path / "a", depth)


KEYS = st.one_of(
    st.text(max_size=6),
    st.sampled_from(["c", "a.b", "', '", "'", '"', "(", ")", "a/c", "zarr.json", "\\", "('x',)", "0", ","]),
)


@settings(max_examples=60)
@given(
    st.dictionaries(
        KEYS, st.dictionaries(KEYS, st.sampled_from([0, 1, "s"]), min_size=1, max_size=3), max_size=4
    )
)
def test_odd_keys_give_the_right_outline_or_none(tmp_path_factory: pytest.TempPathFactory, tree: dict):
    path = tmp_path_factory.mktemp("odd") / "a"
    arrays = {k: {i: np.zeros(v) if isinstance(v, int) else v for i, v in d.items()} for k, d in tree.items()}
    try:
        storax.save(path, arrays)
    except storax.StoraxError:
        return  # keys that no checkpoint can have
    same(path, 1)
    same(path, 2)


def test_keys_of_random_numbers_have_no_outline(tmp_path: Path):
    storax.save(tmp_path / "a", {"k": jax.random.key(0), "w": np.zeros(2)})
    assert not same(tmp_path / "a", 1)


def test_what_orbax_wrote_gives_the_right_outline_or_none():
    for path in FIXTURES.glob("*/*"):
        if (path / "_METADATA").is_file():
            same(path, 1)


def test_a_small_document_has_none(tmp_path: Path):
    storax.save(tmp_path / "a", {"w": np.zeros(2)})
    assert outline(tmp_path / "a", 1) is None
