"""Restores that want something else than what was saved: another sharding, one leaf, a part."""

from __future__ import annotations

import functools
from typing import Any

import common
import small
from common import Contestant, Orbax, Row, Setting


def run(setting: Setting) -> list[Row]:
    common.eight_devices()
    return _transposed(setting) + _one_leaf(setting) + _one_array(setting)


def _transposed(setting: Setting) -> list[Row]:
    """Saved by rows, wanted by columns."""
    tree = {f"w{i}": common.sharded(common.normal((4096, 4096), i), "x") for i in range(8)}
    wanted = {name: common.sharded(array, None, "x") for name, array in tree.items()}
    target = common.abstract(wanted)
    del wanted
    return _restores(setting, "512 MB, transposed sharding: restore", tree, target)


def _one_leaf(setting: Setting) -> list[Row]:
    tree = small.tree_of_small()
    target = common.abstract({"layer42": {"p7": tree["layer42"]["p7"]}})
    return _restores(setting, "one leaf out of 5,000: restore", tree, target, partial=True)


def _one_array(setting: Setting) -> list[Row]:
    """One array of 1 GB: saved on one device, restored on one and on eight."""
    import jax

    array = jax.block_until_ready(jax.device_put(common.normal((16384, 16384))))
    target = common.abstract({"w": common.sharded(array, "x")})
    return _restores(setting, "one array of 1 GB, from one device to eight: restore", {"w": array}, target)


def _restores(setting: Setting, case: str, tree: Any, target: Any, *, partial: bool = False) -> list[Row]:
    import jax

    import storax

    orbax = Orbax(compression=True)
    paths = {"storax": setting.fresh("r"), "Orbax, default": setting.fresh("r")}
    storax.save(paths["storax"], tree)
    orbax.save(paths["Orbax, default"], tree)

    def of_orbax(path: Any) -> Any:
        return orbax.restore_part(path, target) if partial else orbax.restore(path, target)

    acts = {
        "storax": lambda path: jax.block_until_ready(storax.load(path, target, partial=partial)),
        "Orbax, default": lambda path: jax.block_until_ready(of_orbax(path)),
    }
    common.check_equal(acts["storax"](paths["storax"]), acts["Orbax, default"](paths["Orbax, default"]))
    nbytes = common.size(target)
    contestants = [
        Contestant(name, functools.partial(act, paths[name]), most=1000 if name == "storax" else 2)
        for name, act in acts.items()
    ]
    rows = common.race(case, contestants, setting.repeats, nbytes)
    for path in paths.values():
        common.remove(path)
    return rows
