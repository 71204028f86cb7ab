"""A real tree: a GPT of 124 million parameters and its AdamW state, float32 and bfloat16, on eight devices.

Leaves are sharded along the first dimension that eight divides; the few others are replicated.
"""

from __future__ import annotations

import functools
from typing import Any

import common
from common import Contestant, Orbax, Row, Setting, writer

WIDTH, LAYERS, VOCABULARY, CONTEXT = 768, 12, 50304, 1024


def _shapes() -> dict[str, Any]:
    w = WIDTH
    norm = {"scale": (w,), "bias": (w,)}
    block = {
        "ln_1": norm,
        "attn": {
            "qkv": {"kernel": (w, 3 * w), "bias": (3 * w,)},
            "proj": {"kernel": (w, w), "bias": (w,)},
        },
        "ln_2": norm,
        "mlp": {
            "up": {"kernel": (w, 4 * w), "bias": (4 * w,)},
            "down": {"kernel": (4 * w, w), "bias": (w,)},
        },
    }
    return {
        "wte": (VOCABULARY, w),
        "wpe": (CONTEXT, w),
        "blocks": {str(i): block for i in range(LAYERS)},
        "ln_f": norm,
    }


def state(dtype: str) -> Any:
    import jax
    import jax.numpy as jnp
    import numpy as np

    def leaf(shape: tuple[int, ...], seed: int, scale: float) -> Any:
        value = (common.normal(shape, seed) * np.float32(scale)).astype(jnp.dtype(dtype))
        return common.sharded(value, "x" if shape[0] % common.DEVICES == 0 else None)

    shapes, structure = jax.tree.flatten(_shapes(), is_leaf=lambda s: isinstance(s, tuple))

    def tree(first_seed: int, scale: float) -> Any:
        return structure.unflatten([leaf(s, first_seed + i, scale) for i, s in enumerate(shapes)])

    # As after some steps: no moment is zero any more.
    return {
        "params": tree(0, 0.02),
        "opt_state": {"count": jnp.int32(1000), "mu": tree(1000, 1e-3), "nu": tree(2000, 1e-6)},
    }


def run(setting: Setting) -> list[Row]:
    common.eight_devices()
    rows = []
    for dtype in ("float32", "bfloat16"):
        rows += _group(setting, f"GPT 124M with AdamW, {dtype}", state(dtype))
    return rows


def _group(setting: Setting, title: str, tree: Any) -> list[Row]:
    import jax
    import numpy as np

    import storax

    nbytes = common.size(tree)
    views = [common.bytes_of(np.asarray(leaf)) for leaf in jax.tree.leaves(tree)]
    target = common.abstract(tree)
    orbax = Orbax(compression=True)
    saves = [
        writer(setting, "storax", lambda path: storax.save(path, tree)),
        writer(setting, "Orbax, default", lambda path: orbax.save(path, tree), most=1, warm_up=False),
        writer(setting, "raw pwrite + fsync", lambda path: common.pwrite_all(path, views, sync=True)),
    ]
    repeats = max(3, setting.repeats - 2)
    rows = common.race(f"{title}: save", saves, repeats, nbytes)
    paths = [setting.fresh("r") for _ in range(3)]
    storax.save(paths[0], tree)
    orbax.save(paths[1], tree)
    common.pwrite_all(paths[2], views, sync=True)
    common.check_equal(tree, storax.load(paths[0], target))

    def raw() -> Any:
        buffers = [np.empty(view.nbytes, np.uint8) for view in views]
        common.preadv_all(paths[2], [memoryview(b) for b in buffers])
        return buffers

    restore = functools.partial(orbax.restore, paths[1], target)
    restores = [
        Contestant("storax", lambda: jax.block_until_ready(storax.load(paths[0], target))),
        Contestant("Orbax, default", lambda: jax.block_until_ready(restore()), most=2, warm_up=False),
        Contestant("raw preadv, fresh memory", raw),
    ]
    rows += common.race(f"{title}: restore", restores, repeats, nbytes)
    for path in paths:
        common.remove(path)
    return rows
