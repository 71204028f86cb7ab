"""How long an asynchronous save keeps the caller: 512 MB, until ``save_async`` returns."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import common
from common import Contestant, Orbax, Row, Setting


def run(setting: Setting) -> list[Row]:
    common.eight_devices()
    import numpy as np

    hosts = [common.normal((4096, 4096), i) for i in range(8)]
    nbytes = sum(host.nbytes for host in hosts)
    arrays = {f"w{i}": common.sharded(host, "x") for i, host in enumerate(hosts)}
    mutable = {f"w{i}": host for i, host in enumerate(hosts)}
    warm = [np.ones_like(host) for host in hosts]

    def copy_warm() -> None:
        common.on_threads(
            [functools.partial(np.copyto, to, host) for to, host in zip(warm, hosts, strict=True)],
            common.CORES,
        )

    copies = [
        Contestant("plain copy of the bytes, fresh memory", lambda: [host.copy() for host in hosts]),
        Contestant(f"plain copy of the bytes, warm memory, {common.CORES} threads", copy_warm),
    ]
    orbax = Orbax(compression=True)
    rows = []
    for title, tree in (("jax.Array on CPU devices", arrays), ("numpy arrays", mutable)):
        contestants = [_storax(setting, tree), _orbax(setting, orbax, tree), *copies]
        rows += common.race(f"save_async returns: {title}", contestants, setting.repeats, nbytes)
    rows += common.race(
        "save_async until durable", [_storax(setting, arrays, wait=True)], setting.repeats, nbytes
    )
    return rows


def _storax(setting: Setting, tree: Any, *, wait: bool = False) -> Contestant:
    import storax

    def act(path: Path) -> Any:
        handle = storax.save_async(path, tree)
        if wait:
            handle.result()
        return handle, path

    def after(made: Any) -> None:
        made[0].result()
        common.remove(made[1])

    return Contestant("storax", act, lambda: setting.fresh("a"), after)


def _orbax(setting: Setting, orbax: Orbax, tree: Any) -> Contestant:
    def act(path: Path) -> Path:
        orbax.begin(path, tree)
        return path

    def after(path: Path) -> None:
        orbax.wait()
        common.remove(path)

    return Contestant("Orbax, default", act, lambda: setting.fresh("a"), after, setting.slow_repeats)
