"""What the checkpoints in ``fixtures/`` hold, computed as ``write_fixtures.py.txt`` did."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from tests.devices import on_mesh

FIXTURES = Path(__file__).parent / "fixtures"
VERSIONS = ["0.6.4", "0.11.20", "0.12.8"]


class Adam(NamedTuple):
    count: Any
    mu: Any
    nu: Any


def tree(*, step: int = 1234, note: bool = False) -> dict[str, Any]:
    """The tree that was saved."""
    w = np.arange(32 * 16, dtype=np.float32).reshape(32, 16) / 7
    return {
        "params": {
            "dense": {
                "kernel": on_mesh(w, "data", "model"),
                "bias": on_mesh(np.linspace(-1, 1, 16, dtype=np.float32)),
            },
            "emb": on_mesh((w * 3).astype(jnp.bfloat16), None, "model"),
        },
        "opt": Adam(
            jnp.asarray(7, jnp.int32),
            {"kernel": on_mesh(w * 2, "data")},
            {"kernel": on_mesh(w * w)},
        ),
        "step": step,
        "lr": 0.125,
        "hist": [np.arange(5, dtype=np.int64), np.array([True, False])],
        "empty": {},
        "none": None,
        "tup": (jnp.float16(1.5), jnp.arange(6, dtype=jnp.uint8).reshape(2, 3)),
        **({"note": "hello"} if note else {}),
    }


def without_target(tree: dict[str, Any]) -> dict[str, Any]:
    """As it comes back without a target: Orbax does not keep which nodes were tuples or named tuples."""
    return {**tree, "opt": tree["opt"]._asdict(), "tup": list(tree["tup"])}


def keys() -> dict[str, Any]:
    key = jax.random.key(42)
    return {"k": key, "ks": jax.random.split(key, 4), "rbg": jax.random.key(1, impl="rbg")}


def config(version: str) -> dict[str, Any]:
    return {"lr": 0.1, "name": version, "layers": [1, 2, 3]}


def found(*kinds: str) -> list[str]:
    """The checkpoints of these kinds that exist, as ``version/kind``."""
    pairs = [f"{version}/{kind}" for version in VERSIONS for kind in kinds]
    return [pair for pair in pairs if (FIXTURES / pair).is_dir()]
