"""Values in blocks: slices as numpy has them, statistics however they are cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays, basic_indices
from tests.devices import on_mesh

import storax
from storax.survey.leaves import SeenLeaf, see_leaves
from storax.survey.values import Statistics, blocks, portable, read_slice, statistics

VALUES = np.arange(12 * 10 * 3, dtype=np.int32).reshape(12, 10, 3)


@pytest.fixture(scope="module")
def leaf(tmp_path_factory: pytest.TempPathFactory) -> SeenLeaf:
    path = tmp_path_factory.mktemp("values") / "a"
    storax.save(path, {"w": on_mesh(VALUES, "data", "model")})
    return see_leaves(path)[0]


@given(index=basic_indices(VALUES.shape, allow_newaxis=False))
def test_a_slice_is_what_numpy_gives(leaf: SeenLeaf, index: Any):
    index = index if isinstance(index, tuple) else (index,)
    got, wanted = read_slice(leaf, index), VALUES[index]
    assert got.shape == wanted.shape
    assert np.array_equal(got, wanted)


@given(block_bytes=st.integers(1, 3000))
def test_blocks_cover_every_value_once(leaf: SeenLeaf, block_bytes: int):
    got = np.full(VALUES.shape, -1, np.int32)
    for block in blocks([leaf, leaf], block_bytes):
        got[tuple(slice(p, q) for p, q in block.box)] = block.values
    assert np.array_equal(got, VALUES)
    total = sum(block.values.size for block in blocks([leaf], block_bytes))
    assert total == VALUES.size


FLOATS = arrays(
    np.float64, st.integers(0, 30), elements=st.floats(-1e6, 1e6) | st.just(np.nan) | st.just(np.inf)
)


@given(st.lists(FLOATS, min_size=1, max_size=4))
def test_statistics_do_not_depend_on_the_blocks(parts: list[np.ndarray]):
    joined, whole = Statistics("w", ""), np.concatenate(parts)
    for part in parts:
        joined.add(part)
    finite = whole[np.isfinite(whole)]
    assert (joined.count, joined.nans, joined.infs) == (
        whole.size,
        np.isnan(whole).sum(),
        np.isinf(whole).sum(),
    )
    if finite.size:
        assert (joined.low, joined.high) == (finite.min(), finite.max())
        assert joined.zeros == (finite == 0).sum()
        assert joined.mean == pytest.approx(finite.mean(), rel=1e-9, abs=1e-9)
        assert joined.std == pytest.approx(finite.std(), rel=1e-9, abs=1e-6)
        assert joined.norm == pytest.approx(np.linalg.norm(finite), rel=1e-12)
    else:
        assert joined.mean is joined.std is joined.norm is joined.low is None


def test_complex_numbers_count_by_size_and_histograms_count_all(tmp_path: Path):
    tree = {"c": np.array([3 + 4j, 0]), "w": np.linspace(-1, 1, 1000), "same": np.full(7, 2.0)}
    storax.save(tmp_path / "a", tree)
    found = {s.name: s for s in statistics(see_leaves(tmp_path / "a"), bins=10)}
    assert (found["c"].low, found["c"].high) == (0, 5)
    assert found["w"].histogram == (100,) * 10
    assert sum(found["same"].histogram) == 7


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "int4", "uint4", "float4_e2m1fn"])
def test_npy_gets_every_value(name: str):
    import ml_dtypes

    values = np.arange(4).astype(getattr(ml_dtypes, name))
    assert np.array_equal(portable(values).astype(np.float64), values.astype(np.float64))
    assert portable(values).dtype.kind in "fi"
