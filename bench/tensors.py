"""Safetensors files into memory: storax beside the official library, Orbax v1 and a plain ``preadv``.

Not called after the format: a script of that name would hide the official library from all others.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
from common import Contestant, Row, Setting

_TENSORS = 32
_SHAPE = (2048, 4096)  # float32: 32 MiB


def run(setting: Setting) -> list[Row]:
    common.eight_devices()
    import numpy as np
    from safetensors.numpy import save_file

    directory = setting.fresh("model")
    directory.mkdir(parents=True)
    model = {f"layer.{i:02}.w": common.normal(_SHAPE, i) for i in range(_TENSORS)}
    path = directory / "model.safetensors"
    save_file(model, path)
    assert path.stat().st_size > sum(values.nbytes for values in model.values())
    try:
        return (
            _whole(setting, path, model)
            + _sharded(setting, path, model, ("x",), "by rows")
            + _sharded(setting, path, model, (None, "x"), "by columns")
            + _one_process_of_eight(setting, path, model, np)
        )
    finally:
        common.remove(directory)


def _whole(setting: Setting, path: Path, model: dict[str, Any]) -> list[Row]:
    """All of it onto one device."""
    import jax
    from safetensors.numpy import load_file

    import storax

    target = {name: jax.ShapeDtypeStruct(v.shape, v.dtype) for name, v in model.items()}
    nbytes = sum(values.nbytes for values in model.values())
    acts: dict[str, Callable[[], Any]] = {
        "storax": lambda: jax.block_until_ready(storax.load(path)),
        "official load_file": lambda: load_file(path),
        "Orbax v1": lambda: jax.block_until_ready(_orbax(path, target)),
    }
    for name in acts:
        common.check_equal(acts[name](), model)
    acts["preadv, fresh memory"] = lambda: _preadv(path, nbytes)
    return _race(setting, "safetensors, 1 GiB onto one device", acts, nbytes)


def _sharded(
    setting: Setting, path: Path, model: dict[str, Any], spec: tuple[str | None, ...], how: str
) -> list[Row]:
    """All of it onto eight devices of one process."""
    import jax

    import storax

    sharding = jax.sharding.NamedSharding(common.mesh(), jax.sharding.PartitionSpec(*spec))
    target = {name: jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=sharding) for name, v in model.items()}
    nbytes = sum(values.nbytes for values in model.values())
    acts: dict[str, Callable[[], Any]] = {
        "storax": lambda: jax.block_until_ready(storax.load(path, target)),
        "Orbax v1": lambda: jax.block_until_ready(_orbax(path, target)),
    }
    for name in acts:
        common.check_equal(acts[name](), model)
    acts["preadv, fresh memory"] = lambda: _preadv(path, nbytes)
    return _race(setting, f"safetensors, 1 GiB onto eight devices, {how}", acts, nbytes)


def _one_process_of_eight(setting: Setting, path: Path, model: dict[str, Any], np: Any) -> list[Row]:
    """What one of eight processes does: an eighth of the rows of every tensor, and of the columns."""
    import storax
    from safetensors import safe_open
    from storax.arrays.gather import gather
    from storax.safetensors import files
    from storax.safetensors.reading import TensorSource
    from storax.store.budget import Budget
    from storax.store.reading import read_all, split

    rows, columns = _SHAPE[0] // 8, _SHAPE[1] // 8

    def shards(index: tuple[slice, ...]) -> dict[str, Any]:
        """The reads of ``storax.load`` in a process with one of eight devices."""
        tensors = files.find(path).tensors  # type: ignore[union-attr]
        memory = {name: np.empty(model[name][index].shape, np.float32) for name in tensors}
        box = tuple((s.start or 0, s.stop or n) for s, n in zip(index, _SHAPE, strict=True))
        wants = [(TensorSource(placed), (box, memory[name])) for name, placed in tensors.items()]
        read_all(split(gather(wants))[0], budget=Budget())
        return memory

    def lazily(index: tuple[slice, ...]) -> dict[str, Any]:
        with storax.open(path) as opened:
            return {name: opened[name][index] for name in opened}

    def theirs(index: tuple[slice, ...]) -> dict[str, Any]:
        with safe_open(path, framework="np") as opened:
            return {name: np.array(opened.get_slice(name)[index]) for name in opened.keys()}  # noqa: SIM118

    found = []
    for how, index in (
        ("rows", (slice(rows, 2 * rows), slice(None))),
        ("columns", (slice(None), slice(columns, 2 * columns))),
    ):
        wanted = {name: values[index] for name, values in model.items()}
        nbytes = sum(values.nbytes for values in wanted.values())
        acts: dict[str, Callable[[], Any]] = {
            "storax, the shards of load": lambda index=index: shards(index),  # type: ignore[misc]
            "storax.open": lambda index=index: lazily(index),  # type: ignore[misc]
            "official get_slice": lambda index=index: theirs(index),  # type: ignore[misc]
        }
        for name in acts:
            common.check_equal(acts[name](), wanted)
        acts["preadv, as many bytes"] = lambda nbytes=nbytes: _preadv(path, nbytes)  # type: ignore[misc]
        found += _race(setting, f"safetensors, 1/8 of the {how}, 128 MiB", acts, nbytes)
    return found


def _race(setting: Setting, case: str, acts: dict[str, Callable[[], Any]], nbytes: int) -> list[Row]:
    slow = {"Orbax v1"}
    contestants = [
        Contestant(name, act, most=setting.slow_repeats if name in slow else setting.repeats)
        for name, act in acts.items()
    ]
    return common.race(case, contestants, setting.repeats, nbytes)


def _orbax(path: Path, target: Any) -> Any:
    import orbax.checkpoint.experimental.v1 as ocp

    with ocp.Context(checkpoint_layout=ocp.options.CheckpointLayout.SAFETENSORS):
        return ocp.load(path, target)


def _preadv(path: Path, nbytes: int) -> list[Any]:
    """So many bytes into memory that nobody has touched yet, on all cores, a tensor at a time."""
    import numpy as np

    size = 32 << 20
    memory = [np.empty(min(size, nbytes - start), np.uint8) for start in range(0, nbytes, size)]
    fd = os.open(path, os.O_RDONLY)

    def fill(number: int) -> None:
        done = 0
        while done < memory[number].nbytes:
            done += os.preadv(fd, [memory[number][done:].data], number * size + done)

    try:
        common.on_threads([lambda i=i: fill(i) for i in range(len(memory))], common.CORES)  # type: ignore[misc]
    finally:
        os.close(fd)
    return memory
