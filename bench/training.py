"""What a save in the background takes from the training step, on the CPU that it shares."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import common
from common import Orbax, Row, Setting

STEPS = 60


def run(setting: Setting) -> list[Row]:
    import jax
    import jax.numpy as jnp

    import storax

    widths = [2048] * 9
    params = [
        jax.device_put(common.normal((a, b), i) * (1.0 / a**0.5))
        for i, (a, b) in enumerate(itertools.pairwise(widths))
    ]
    moments = [jnp.zeros_like(p) + 0.01 for p in params]
    x = jax.device_put(common.normal((64, widths[0])))

    def loss(params: Any, x: Any) -> Any:
        for p in params:
            x = jax.nn.relu(x @ p)
        return (x**2).mean()

    @jax.jit
    def step(params: Any, moments: Any, x: Any) -> Any:
        grads = jax.grad(loss)(params, x)
        moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, grads)
        return jax.tree.map(lambda p, m: p - 1e-4 * m, params, moments), moments

    state = (params, moments)
    nbytes = common.size(state)
    jax.block_until_ready(step(*state, x))
    orbax = Orbax(compression=True)

    def save_storax(path: Any, state: Any) -> Callable[[], Any]:
        return storax.save_async(path, {"state": state}).result

    def save_orbax(path: Any, state: Any) -> Callable[[], Any]:
        orbax.begin(path, {"state": state})
        return orbax.wait

    def loop(save: Callable[[Any, Any], Callable[[], Any]] | None) -> tuple[float, list[float]]:
        """Seconds of the whole loop with the save, and of each step."""
        current = state
        path = setting.fresh("t")
        common.os.sync()
        each = []
        wait = None
        start = time.perf_counter()
        for i in range(STEPS):
            if i == 5 and save:
                wait = save(path, current)
            before = time.perf_counter()
            current = jax.block_until_ready(step(*current, x))
            each.append(time.perf_counter() - before)
        if wait:
            wait()
        total = time.perf_counter() - start
        common.remove(path)
        return total, each

    ways = {"no save": None, "storax": save_storax, "Orbax, default": save_orbax}
    totals: dict[str, list[float]] = {name: [] for name in ways}
    medians: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(max(3, setting.repeats) + 1):
        for name, save in ways.items():
            total, each = loop(save)
            if turn:
                totals[name].append(total)
                medians[name].append(statistics.median(each))
    mb = nbytes >> 20
    rows = [Row(f"{STEPS} steps with one save of {mb} MB in them", name, totals[name]) for name in ways]
    return rows + [Row("  median step of that loop", name, medians[name]) for name in ways]
