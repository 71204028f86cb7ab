"""Narrower floats: a number that would become infinite is an error, unless the caller casts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from tests.devices import plain
from tests.leaves import dtypes
from tests.same import bits

import storax

LARGE = [
    (np.array([1.0, 1e30], np.float32), "float16"),
    (np.array([1e300]), "float32"),
    (np.array([3.4e38], np.float32), "bfloat16"),
    (np.array([1e30], np.float32), "float8_e5m2"),
    (np.array([1e30], np.float32), "float8_e4m3fn"),
    (np.array([1e300j]), "complex64"),
    (np.float64(1e300), "float32"),
    (1e300, "float32"),
]


@pytest.mark.parametrize(("saved", "wanted"), LARGE, ids=lambda v: v if type(v) is str else str(v))
def test_a_number_that_becomes_infinite(saved: Any, wanted: str, tmp_path: Path) -> None:
    storax.save(tmp_path / "a", {"layer": saved})
    zeros = np.zeros(np.shape(saved), np.float32).astype(dtypes.dtype(wanted))
    for target in (zeros, plain(zeros)):
        with pytest.raises(storax.TreeMismatch, match=r"layer: saved .*cast=True") as raised:
            storax.load(tmp_path / "a", {"layer": target})
        assert [name for name, _ in raised.value.differ] == ["layer"]
        found = storax.load(tmp_path / "a", {"layer": target}, cast=True)["layer"]  # and no warning
        assert not np.isfinite(np.asarray(found)).all()


def test_what_is_infinite_already_stays_so(tmp_path: Path) -> None:
    values = np.array([np.inf, -np.inf, np.nan, 6e4, -1e-30], np.float32)
    storax.save(tmp_path / "a", {"x": values})
    found = storax.load(tmp_path / "a", {"x": jnp.zeros(5, jnp.float16)})["x"]
    assert bits(found) == bits(jnp.asarray(values.astype(np.float16)))
