"""Arrays on devices other than the CPU: fetched chunk by chunk while they are written."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.devices import on_mesh
from tests.same import assert_same

import storax
from storax.arrays import staging


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The devices pretend not to be CPUs; the bytes of every fetch are written down."""
    fetched: list[int] = []
    fetch = staging.OnDevice.fetch

    def watched(self: staging.OnDevice, part: tuple[tuple[int, int], ...]) -> np.ndarray:
        found = fetch(self, part)
        fetched.append(found.nbytes)
        return found

    monkeypatch.setattr(staging, "_on_cpu", lambda _: False)
    monkeypatch.setattr(staging.OnDevice, "fetch", watched)
    return fetched


def _tree() -> dict[str, object]:
    return {
        "sharded": on_mesh(np.arange(64, dtype=np.float32).reshape(8, 8), "data", "model"),
        "large": jnp.arange(12 << 20, dtype=jnp.float32).reshape(3 << 10, 4 << 10),
        "uneven": jnp.arange(10_000_019, dtype=jnp.int8),
        "narrow": jnp.arange(16).astype(jnp.uint4),
        "key": jax.random.key(7),
        "scalar": jnp.float32(3),
        "nothing": jnp.zeros((0, 3)),
    }


def test_a_save_that_waits_fetches_a_chunk_at_a_time(tmp_path: Path, elsewhere: list[int]) -> None:
    tree = _tree()
    storax.save(tmp_path / "a", tree)
    assert_same(storax.load(tmp_path / "a"), tree, shardings=True)
    assert max(elsewhere) <= 16 << 20
    assert sum(elsewhere) == sum(x.nbytes for x in jax.tree.leaves(tree) if x.dtype != tree["key"].dtype) + 8
    assert storax.verify(tmp_path / "a").ok


def test_a_save_in_the_background_has_its_values_before_it_returns(
    tmp_path: Path, elsewhere: list[int]
) -> None:
    tree = _tree()
    copies = jax.tree.map(lambda x: x.copy(), tree)
    handle = storax.save_async(tmp_path / "a", tree)
    for array in jax.tree.leaves(tree):
        array.delete()
    handle.result(60)
    assert elsewhere == []
    assert_same(storax.load(tmp_path / "a"), copies)


def test_compressed_chunks_are_fetched_too(tmp_path: Path, elsewhere: list[int]) -> None:
    tree = _tree()
    storax.save(tmp_path / "a", tree, compression="zstd")
    assert_same(storax.load(tmp_path / "a"), tree)
    assert max(elsewhere) <= 16 << 20
