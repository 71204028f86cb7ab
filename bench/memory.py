"""Peak of host memory over what was there before, in a process of its own, relative to the state."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import common
from common import Orbax, Row, Setting


def run(setting: Setting) -> list[Row]:
    if not Path("/proc/self/clear_refs").exists():
        return []
    rows = []
    for who in ("storax", "orbax"):
        path = setting.fresh("m")
        for what in ("save", "save_async", "save_numpy_async", "load"):
            if who == "orbax" and what == "save_numpy_async":
                continue
            command = [sys.executable, __file__, who, what, str(path)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(done.stderr[-2000:])
            peak = json.loads(done.stdout.splitlines()[-1])
            title = {
                "save": "save",
                "save_async": "save_async, jax.Array on CPU devices",
                "save_numpy_async": "save_async, numpy arrays",
                "load": "load (1.0 is the result itself)",
            }[what]
            name = {"storax": "storax", "orbax": "Orbax, default"}[who]
            rows.append(Row(f"peak memory over before / state (512 MB): {title}", name, text=f"{peak:.2f}"))
            if what != "save":
                common.remove(path) if what == "load" else common.remove(f"{path}-async")
    return rows


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def _child(who: str, what: str, path: Path) -> float:
    common.eight_devices()
    import jax
    import numpy as np

    import storax

    orbax = Orbax(compression=True)
    # Everything that is made once, on a tiny tree.
    tiny = {"w": common.sharded(np.ones((8, 8), np.float32), "x")}
    warm = path.with_name(path.name + "-tiny")
    if who == "storax":
        storax.save_async(warm, tiny).result()
        storax.load(warm, common.abstract(tiny))
    else:
        orbax.save(warm, tiny)
        orbax.restore(warm, common.abstract(tiny))
    common.remove(warm)

    shape, count = (4096, 4096), 8
    nbytes = 4 * count * shape[0] * shape[1]
    tree: Any = None
    target: Any = None
    if what == "load":  # what "save" left; the arrays themselves were never here
        struct = jax.ShapeDtypeStruct(shape, np.float32, sharding=tiny["w"].sharding)
        target = {f"w{i}": struct for i in range(count)}
    else:
        tree = {f"w{i}": common.normal(shape, i) for i in range(count)}
        if what != "save_numpy_async":
            tree = {name: common.sharded(host, "x") for name, host in tree.items()}
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    other = path.with_name(path.name + "-async")
    result: Any = None
    if who == "storax":
        if what == "save":
            storax.save(path, tree)
        elif what == "load":
            result = jax.block_until_ready(storax.load(path, target))
        else:
            storax.save_async(other, tree).result()
    elif what == "load":
        result = jax.block_until_ready(orbax.restore(path, target))
    else:
        orbax.save(path if what == "save" else other, tree)
    peak = _status("VmHWM") - before
    del result
    return max(0, peak) / nbytes


if __name__ == "__main__":
    print(json.dumps(_child(sys.argv[1], sys.argv[2], Path(sys.argv[3]))), flush=True)
    os._exit(0)
