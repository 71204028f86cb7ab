"""5,000 arrays of 16x16 float32, on one device."""

from __future__ import annotations

import functools
from typing import Any

import common
from common import Contestant, Orbax, Row, Setting, writer

COUNT = 5000


def tree_of_small() -> dict[str, Any]:
    import jax

    values = common.normal((COUNT, 16, 16))
    return {
        f"layer{i}": {f"p{j}": jax.device_put(values[i * 50 + j]) for j in range(50)}
        for i in range(COUNT // 50)
    }


def run(setting: Setting) -> list[Row]:
    import jax

    import storax

    tree = tree_of_small()
    target = common.abstract(tree)
    nbytes = common.size(tree)
    orbax = Orbax(compression=True)
    slow = setting.slow_repeats
    saves = [
        writer(setting, "storax", lambda path: storax.save(path, tree)),
        writer(setting, "Orbax, default", lambda path: orbax.save(path, tree), most=slow),
    ]
    # Ten short rounds in place of a few: what is fast here takes tenths of seconds.
    rows = common.race("5,000 arrays of 1 KB: save", saves, max(10, setting.repeats), nbytes)
    paths = {"storax": setting.fresh("r"), "Orbax, default": setting.fresh("r")}
    storax.save(paths["storax"], tree)
    orbax.save(paths["Orbax, default"], tree)
    loads = {
        "storax": lambda path: jax.block_until_ready(storax.load(path, target)),
        "Orbax, default": lambda path: jax.block_until_ready(orbax.restore(path, target)),
    }
    common.check_equal(tree, loads["storax"](paths["storax"]))
    restores = [
        Contestant(name, functools.partial(load, paths[name]), most=slow if name != "storax" else 1000)
        for name, load in loads.items()
    ]
    rows += common.race("5,000 arrays of 1 KB: restore", restores, max(10, setting.repeats), nbytes)
    for path in paths.values():
        common.remove(path)
    return rows
